import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Change } from '../../../core/changes.ts';
import type { EpochMs } from '../../../core/time.ts';
import { type Intake, sortEvents } from '../../../functions/ingest/intake.ts';
import { endpoint, endpoints, service, slice } from '../../core/builders.ts';

const RECEIVED = Date.parse('2026-11-30T10:00:00Z') as EpochMs;
const SEEN = '2026-11-30T09:59:59.500Z';

function sorted(events: readonly unknown[], mode: 'slices' | 'endpoints' = 'slices'): Intake {
  return sortEvents(events, { mode, epoch: 7, receivedAt: RECEIVED });
}

const put = (object: unknown, more: object = {}) => ({ type: 'MODIFIED', object, ...more });
const gone = (object: unknown, more: object = {}) => ({ type: 'DELETED', object, ...more });

/** `namespace/service: index kind ...` for each service. */
function plan({ services }: Intake): string[] {
  return services.map(({ place, changes }) => {
    const each = changes.map(({ index, kind }) => `${index} ${kind}`);
    return `${place.namespace}/${place.name}: ${each.join(', ')}`;
  });
}

function onlyChange(event: unknown, mode: 'slices' | 'endpoints' = 'slices'): Change {
  const changes = sorted([event], mode).services.flatMap((one) => one.changes);
  assert.equal(changes.length, 1);
  return changes[0] as Change;
}

describe('a batch is sorted by service', () => {
  const cases: Readonly<Record<string, readonly [intake: Intake, want: readonly string[]]>> = {
    'in the order of the batch, all of a service together (S4)': [
      sorted([put(slice('a', [])), put(service({}, { name: 'api' })), put(service()), gone(slice('a', []))]),
      ['default/web: 0 putObject, 2 putService, 3 delete', 'default/api: 1 putService'],
    ],
    'by namespace and name': [
      sorted([put(service()), put(service({}, { namespace: 'other' }))]),
      ['default/web: 0 putService', 'other/web: 1 putService'],
    ],
    'a slice by its owner, when it has no label (S8)': [
      sorted([
        put(slice('a', [], { service: null, ownerReferences: [{ kind: 'Service', name: 'api', uid: 'u' }] })),
      ]),
      ['default/api: 0 putObject'],
    ],
    'Endpoints by their name': [sorted([put(endpoints([]))], 'endpoints'), ['default/web: 0 putObject']],
    'a moved slice leaves every former service (S10)': [
      sorted([put(slice('a', []), { former: ['api', 'old', 'api'] })]),
      ['default/api: 0 leave', 'default/old: 0 leave', 'default/web: 0 putObject'],
    ],
    'but not the one that it is in': [
      sorted([put(slice('a', []), { former: ['web'] })]),
      ['default/web: 0 putObject'],
    ],
    'a deleted slice leaves them too': [
      sorted([gone(slice('a', []), { former: ['api'] })]),
      ['default/api: 0 leave', 'default/web: 0 delete'],
    ],
    "a slice that is nobody's now leaves them": [
      sorted([put(slice('a', [], { service: null }), { former: ['api'] })]),
      ['default/api: 0 leave'],
    ],
  };
  for (const [sentence, [intake, want]] of Object.entries(cases))
    test(sentence, () => assert.deepEqual(plan(intake), want));
});

describe('what is no business of a service has its result at once', () => {
  const pod = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { namespace: 'default', name: 'p', uid: 'p', resourceVersion: '1' },
  };
  const knative = { ...service(), apiVersion: 'serving.knative.dev/v1' };
  const anonymous = slice('a', []);
  const cases: Readonly<Record<string, readonly [event: unknown, status: string, mode?: 'endpoints']>> = {
    'Endpoints where slices are watched (S12)': [put(endpoints([])), 'ignored'],
    'slices where Endpoints are watched (S12)': [put(slice('a', [])), 'ignored', 'endpoints'],
    'a deletion of the other kind': [gone(endpoints([])), 'ignored'],
    'an FQDN slice (S13)': [put(slice('a', [], { addressType: 'FQDN' })), 'ignored'],
    "a slice that is nobody's (S8)": [put(slice('a', [], { service: null })), 'ignored'],
    "the deletion of a slice that is nobody's": [gone(slice('a', [], { service: null })), 'ignored'],
    'a Pod': [put(pod), 'ignored'],
    'a Service of another API group': [put(knative), 'ignored'],
    'a BOOKMARK (S46)': [
      { type: 'BOOKMARK', object: { kind: 'Service', metadata: { resourceVersion: '9' } } },
      'ignored',
    ],
    'an object without uid (P6)': [
      put({ ...anonymous, metadata: { ...anonymous.metadata, uid: undefined } }),
      'rejected',
    ],
    'a deletion without uid (S45)': [
      gone({ ...anonymous, metadata: { ...anonymous.metadata, uid: undefined } }),
      'rejected',
    ],
    'no object': [{ type: 'ADDED' }, 'rejected'],
    'no event': [null, 'rejected'],
  };
  for (const [sentence, [event, status, mode]] of Object.entries(cases))
    test(`${sentence}: ${status}`, () => {
      const { results, services, unplaced } = sorted([event], mode);
      assert.equal(results.length, 1);
      assert.equal(results[0]?.index, 0);
      assert.equal(results[0]?.status, status);
      assert.notEqual(results[0]?.reason ?? '', '');
      assert.deepEqual([services, unplaced], [[], []]);
    });

  test('the others of the batch keep their places (P6)', () => {
    const { results, services } = sorted([null, put(service()), put(pod)]);
    assert.deepEqual(
      results.map((result) => result?.status ?? null),
      ['rejected', null, 'ignored'],
    );
    assert.deepEqual(
      services[0]?.changes.map(({ index }) => index),
      [1],
    );
  });
});

describe('a deletion that does not say whose it was (S45)', () => {
  const bare = {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { namespace: 'default', name: 'a' },
  };
  test('is looked for, when it was found at a re-list', () => {
    const { results, services, unplaced } = sorted([gone(bare, { stateUnknown: true })]);
    assert.deepEqual([results, services], [[null], []]);
    const [found] = unplaced;
    assert.equal(found?.namespace, 'default');
    const { uid, version, name, objectKind, isStateUnknown } = found?.change ?? {};
    assert.deepEqual(
      { uid, version, name, objectKind, isStateUnknown },
      { uid: null, version: null, name: 'a', objectKind: 'EndpointSlice', isStateUnknown: true },
    );
  });
  test('but a Service, Endpoints or a labelled slice names its own', () => {
    const { services, unplaced } = sorted([
      gone(slice('a', []), { stateUnknown: true }),
      gone(
        { apiVersion: 'v1', kind: 'Service', metadata: { namespace: 'default', name: 'web' } },
        { stateUnknown: true },
      ),
    ]);
    assert.deepEqual([services.length, unplaced.length], [1, 0]);
  });
});

describe('what an event hands on', () => {
  const triggered = {
    annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': '2026-11-30T09:59:58Z' },
  };
  const cases: Readonly<Record<string, readonly [event: unknown, want: Partial<Change>]>> = {
    'its own cause': [
      { type: 'ADDED', object: slice('a', [], { version: 5 }) },
      { cause: { kind: 'EndpointSlice', name: 'a', type: 'ADDED', resourceVersion: '5' } },
    ],
    'RESYNC, when an inventory missed it': [
      put(slice('a', [], { version: 5 }), { resync: true }),
      {
        cause: { kind: 'EndpointSlice', name: 'a', type: 'RESYNC', resourceVersion: '5' },
        isStateUnknown: false,
      },
    ],
    'RESYNC, when its state is made up': [
      put(slice('a', []), { stateUnknown: true }),
      {
        cause: { kind: 'EndpointSlice', name: 'a', type: 'RESYNC', resourceVersion: '1' },
        isStateUnknown: true,
      },
    ],
    'that its version is to be recorded (P5)': [put(service(), { confirm: true }), { isConfirmed: true }],
    'when the relay saw it': [
      put(service(), { observedAt: SEEN }),
      { observedAt: Date.parse(SEEN) as EpochMs },
    ],
    'else when it came': [put(service()), { observedAt: RECEIVED }],
    'what triggered it (S47)': [put(slice('a', [], triggered)), { triggeredAt: '2026-11-30T09:59:58Z' }],
    'nothing for deletions': [gone(slice('a', [], triggered)), { triggeredAt: null }],
  };
  for (const [sentence, [event, want]] of Object.entries(cases))
    test(sentence, () => {
      const change = onlyChange(event);
      assert.deepEqual({ ...change, ...want }, change);
    });

  test('leaves carry the uid and version of the event', () => {
    const { services } = sorted([put(slice('a', [], { version: 5, uid: 'A' }), { former: ['api'] })]);
    const [leave] = services[0]?.changes ?? [];
    assert.deepEqual(leave?.kind === 'leave' && [leave.uid, leave.version], ['A', '5']);
  });

  test('news of pods, in the order of epoch and number (S7)', () => {
    const raw = slice('a', [endpoint('10.0.0.1', 'ready', { pod: 'p' })]);
    const enrich = {
      'default/p': { owner: { kind: 'Deployment', name: 'web' }, node: 'n1', opaqueProtocol: true },
    };
    const change = onlyChange(put(raw, { enrichVersion: 12, enrich }));
    assert(change.kind === 'putObject');
    assert.deepEqual(change.object.enrichment, { epoch: 7, number: 12 });
    assert.equal(change.object.content().groups[0]?.endpoints[0]?.owner?.name, 'web');
  });
  test('none told is none', () => {
    const change = onlyChange(put(slice('a', [])));
    assert.equal(change.kind === 'putObject' && change.object.enrichment, null);
  });
});

test('senseless values inside good objects are counted over the batch (P6)', () => {
  const { skipped, results } = sorted([
    put(slice('a', ['10.0.0.01', '10.0.0.1'], { ports: [{ name: 'http', port: null }] })),
    put(service({ ports: [{ name: 'x' }] })),
  ]);
  assert.equal(skipped, 3);
  assert.deepEqual(results, [null, null]);
});
