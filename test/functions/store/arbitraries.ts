import fc from 'fast-check';
import { compareText } from '../../../core/address.ts';
import type { PortDelta } from '../../../core/delta.ts';
import type { EndpointContent, EndpointEntry, EndpointGroup } from '../../../core/endpoint-object.ts';
import { type PortId, portId } from '../../../core/service-port.ts';
import type { EpochMs } from '../../../core/time.ts';
import type { ChunkName, Garbage, Head, StoredObject } from '../../../functions/store/store.ts';
import { address, endpoint, portDelta, portState, serviceRecord } from './builders.ts';

/** Plain objects, as parsed JSON has them. */
function record<T>(model: { [K in keyof T]: fc.Arbitrary<T[K]> }): fc.Arbitrary<T> {
  return fc.record(model, { noNullPrototype: true });
}

/** Any text at all: control characters, escapes, halves of surrogate pairs. */
const anyText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 8 }),
  fc.constantFrom('', '\\', '\\0', '\t', '\n', '\\n', '\ud800', '\udc00x', '=', '#', ':', '__proto__'),
  fc
    .array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 4 })
    .map((codes) => String.fromCharCode(...codes)),
);
/** Few values that repeat, or many. */
const text = fc.oneof(fc.constantFrom('eu-central-1a', 'eu-central-1b'), anyText);
const optional = fc.option(text, { nil: null });
const protocol = fc.constantFrom('TCP', 'UDP', 'SCTP');
const portNumber = fc.integer({ min: 1, max: 65_535 });
const epochMs = fc.integer({ min: 0, max: 4_000_000_000_000 }).map((ms) => ms as EpochMs);
const names = fc.array(text, { maxLength: 3 });
const target = fc.option(record({ kind: text, namespace: text, name: text }), { nil: null });
const owner = fc.option(record({ kind: text, name: text }), { nil: null });
const hints = fc.option(record({ forZones: names, forNodes: names }), { nil: null });

const ip = fc.oneof(
  fc.tuple(fc.nat(3), fc.nat(255), fc.nat(255)).map(([a, b, c]) => `10.${a}.${b}.${c}`),
  fc.integer({ min: 1, max: 0xffff }).map((group) => `2001:db8::${group.toString(16)}`),
);

const entry: fc.Arbitrary<EndpointEntry> = fc
  .record({
    ip,
    condition: fc.constantFrom('ready', 'draining', 'terminating', 'notReady'),
    hostname: optional,
    node: optional,
    zone: optional,
    hints,
    target,
    owner,
    opaqueProtocol: fc.boolean(),
  })
  .map((part) => endpoint(part));

const portEntry = record({
  name: fc.constantFrom('', 'http', 'a\tb'),
  protocol,
  port: portNumber,
  appProtocol: optional,
});

const group: fc.Arbitrary<EndpointGroup> = record({
  ports: fc.array(portEntry, { maxLength: 2 }),
  endpoints: fc
    .uniqueArray(entry, { selector: (it) => it.ip, maxLength: 40 })
    .map((entries) => entries.sort((a, b) => compareText(a.ip, b.ip))),
});

/** What core may make of an object, and stranger things; some with several groups of the same ports. */
export const content: fc.Arbitrary<EndpointContent> = fc
  .record({
    ownerUids: fc.array(text, { maxLength: 2 }),
    mirror: fc.option(record({ identity: optional, remoteName: optional, cluster: optional }), {
      nil: null,
    }),
    isTruncated: fc.boolean(),
    groups: fc.array(group, { maxLength: 4 }),
  })
  .chain((made) =>
    fc.boolean().map((isAlike) => {
      const ports = made.groups[0]?.ports ?? [];
      return isAlike ? { ...made, groups: made.groups.map((it) => ({ ...it, ports })) } : made;
    }),
  );

const anyAddress = fc
  .record({
    ip,
    port: portNumber,
    hostname: optional,
    node: optional,
    zone: optional,
    target,
    owner,
    hints,
    appProtocol: optional,
    identity: optional,
    authority: optional,
    labels: fc.dictionary(fc.constantFrom('target_cluster', 'target_service'), text, {
      noNullPrototype: true,
    }),
    opaqueProtocol: fc.boolean(),
  })
  .map((part) => address({ ...part, family: part.ip.includes(':') ? 'IPv6' : 'IPv4' }));

const cause = record({
  kind: fc.constantFrom('Service', 'EndpointSlice', 'Endpoints'),
  name: text,
  type: fc.constantFrom('ADDED', 'MODIFIED', 'DELETED', 'RESYNC'),
  resourceVersion: text,
});
const digest = fc.bigInt({ min: 0n, max: 2n ** 256n - 1n });

export const delta: fc.Arbitrary<PortDelta> = fc
  .record({
    port: fc.integer({ min: 0, max: 65_535 }),
    protocol,
    portName: text,
    sequence: fc.maxSafeNat(),
    exists: fc.boolean(),
    size: fc.nat(),
    digest,
    isTruncated: fc.boolean(),
    added: fc.array(anyAddress, { maxLength: 4 }),
    updated: fc.array(record({ address: anyAddress, former: anyAddress }), { maxLength: 4 }),
    removed: fc.array(record({ address: anyAddress, reason: fc.constantFrom('gone', 'terminating') }), {
      maxLength: 4,
    }),
    cause,
    triggeredAt: optional,
    observedAt: epochMs,
  })
  .map(portDelta);

const uid = fc.oneof(
  fc.uuid(),
  fc.uuid().map((it) => it.toUpperCase()),
  fc.uuid().map((it) => it.replaceAll('-', '')),
  fc.string({ unit: 'binary', minLength: 1, maxLength: 12 }),
);
const version = fc.oneof(fc.stringMatching(/^[0-9]{1,12}$/), fc.stringMatching(/^[0-9]{60,64}$/));
const random = fc.nat(0xffffffff).map((it) => it.toString(16).padStart(8, '0'));
const bytes = fc.uint8Array({ maxLength: 20 });

const object: fc.Arbitrary<StoredObject> = fc
  .record({
    kind: fc.constantFrom('EndpointSlice', 'Endpoints'),
    name: fc.oneof(fc.constantFrom('web', 'web-', 'web-abc12', 'web-x', '=web', 'other'), text),
    uid,
    version,
    enrichment: fc.option(record({ epoch: fc.maxSafeNat(), number: fc.maxSafeNat() }), { nil: null }),
    count: fc.nat(),
    isTruncated: fc.boolean(),
    randoms: fc.array(random, { maxLength: 3 }),
    parts: fc.option(fc.array(bytes, { maxLength: 3 }), { nil: null }),
  })
  .map(({ randoms, parts, ...known }) => ({
    ...known,
    body:
      parts === null
        ? { kind: 'chunks', names: randoms.map((it) => `${known.uid}#${it}` as ChunkName) }
        : { kind: 'inline', parts },
  }));

const servicePort = record({ port: fc.integer({ min: 0, max: 65_535 }), protocol, name: text });
const anyPort = servicePort.map(portId);

const service = fc
  .record({
    uid: text,
    version,
    type: text,
    isHeadless: fc.boolean(),
    hasSelector: fc.boolean(),
    isLocal: fc.boolean(),
    externalName: optional,
    ports: fc.array(servicePort, { maxLength: 3 }),
  })
  .map(serviceRecord);

const state = fc
  .record({
    port: fc.integer({ min: 0, max: 65_535 }),
    protocol,
    name: text,
    sequence: fc.maxSafeNat(),
    exists: fc.boolean(),
    size: fc.nat(),
    digest,
  })
  .map(portState);

const rename = record({ formerNames: names, until: epochMs, isRepeated: fc.boolean(), cause });

/** Grouped by uid and in whole seconds, as heads keep it. */
const garbage = fc
  .array(record({ uid, random, seconds: fc.nat(4_000_000_000) }), { maxLength: 6 })
  .map((made) =>
    [...Map.groupBy(made, (it) => it.uid).values()].flat().map(
      (it): Garbage => ({
        chunk: `${it.uid}#${it.random}` as ChunkName,
        at: (it.seconds * 1000) as EpochMs,
      }),
    ),
  );

/** Any head of the service `web`. */
export const anyHead: fc.Arbitrary<Head> = record({
  version: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
  records: record({
    preferredKind: fc.constantFrom('EndpointSlice', 'Endpoints'),
    service: fc.option(service, { nil: null }),
    deletions: fc.array(fc.tuple(uid, record({ version, at: epochMs })), { maxLength: 4 }).map(toMap),
    ports: fc.array(state, { maxLength: 3 }).map((states) => new Map(states.map((it) => [portId(it), it]))),
    windows: fc.array(fc.tuple(anyPort, rename), { maxLength: 2 }).map(toMap),
  }),
  objects: fc.uniqueArray(object, { selector: (it) => it.uid, maxLength: 12 }),
  pending: fc.array(
    record({
      port: anyPort,
      sequence: fc.maxSafeNat(),
      body: fc.oneof(
        record({
          kind: fc.constant('inline' as const),
          bytes: fc.uint8Array({ minLength: 1, maxLength: 9 }),
        }),
        record({
          kind: fc.constant('stored' as const),
          name: fc.stringMatching(/^[0-9a-f]{16}$/),
          parts: fc.nat(),
        }),
      ),
    }),
    { maxLength: 3 },
  ),
  garbage,
  changedAt: epochMs,
  windowUntil: fc.option(epochMs, { nil: null }),
  isListed: fc.boolean(),
});

function toMap<K extends string | PortId, V>(entries: (readonly [K, V])[]): Map<K, V> {
  return new Map(entries);
}
