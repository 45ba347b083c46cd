import assert from 'node:assert/strict';
import type { EpochMs } from '../../core/time.ts';
import { Cache, objectId } from '../../relay/cache.ts';
import { compact } from '../../relay/compact.ts';
import { Enrichment } from '../../relay/enrichment.ts';
import { type FactKind, type Facts, readParent, readPod, readServer } from '../../relay/enrichment-facts.ts';
import type { WatchedKind } from '../../wire/envelope.ts';
import { testLog } from './builders.ts';

type Fields = Readonly<Record<string, unknown>>;

/** An object as an API server sends it. */
export interface RawObject {
  readonly kind: string;
  readonly metadata: Fields & { readonly name: string; readonly namespace: string };
  readonly [field: string]: unknown;
}

/** What was last told of an object's pods. */
export interface Told {
  readonly enrichVersion: number;
  readonly enrich: Fields;
}

/** An enrichment over a cache, and what was told of each object, without network. */
export class EnrichmentRig {
  readonly logged: string[] = [];
  readonly cache = new Cache((before, after) => this.enrichment.noteObject(before, after));
  readonly enrichment: Enrichment = new Enrichment({
    ofService: (id) => this.cache.ofService(id),
    log: testLog(this.logged),
  });
  readonly told = new Map<string, Told | null>();
  #version = 100;

  /** A watch event, of any kind. */
  see(type: 'ADDED' | 'MODIFIED' | 'DELETED', object: RawObject): void {
    const raw = this.#versioned(object);
    if (isFact(object.kind)) {
      this.enrichment.observe(type, factsOf(raw));
      return;
    }
    const seen = compact(object.kind as WatchedKind, raw, 0 as EpochMs);
    assert.ok(seen);
    if (type === 'DELETED') this.cache.remove(seen.held);
    else this.cache.put(seen.held);
  }

  add(...objects: readonly RawObject[]): this {
    for (const object of objects) this.see('ADDED', object);
    return this;
  }

  delete(...objects: readonly RawObject[]): this {
    for (const object of objects) this.see('DELETED', object);
    return this;
  }

  /** A whole list. */
  list(kind: FactKind, namespace: string | null, objects: readonly RawObject[]): void {
    this.enrichment.replace(
      kind,
      namespace,
      objects.map((object) => factsOf(this.#versioned(object))),
    );
  }

  /** Sends an object. */
  tell(object: RawObject): Told | null {
    const held = this.cache.get(objectId({ ...object.metadata, kind: object.kind as WatchedKind }));
    assert.ok(held);
    const fields = this.enrichment.tell(held);
    const told = fields === null ? null : (JSON.parse(`{${fields}}`) as Told);
    this.told.set(object.metadata.name, told);
    return told;
  }

  /** What is known of the pod `web-1` of an object. */
  web1(object: RawObject): Fields | undefined {
    return this.tell(object)?.enrich['default/web-1'] as Fields | undefined;
  }

  /** Names of the objects that are to be sent again, which is done. */
  resend(): string[] {
    const changed = this.enrichment.takeChanged();
    for (const { kind, namespace, name } of changed) this.tell({ kind, metadata: { namespace, name } });
    return changed.map(({ name }) => name).sort();
  }

  #versioned(object: RawObject): RawObject {
    const metadata = {
      uid: object.metadata.name,
      resourceVersion: String(++this.#version),
      ...object.metadata,
    };
    return { ...object, metadata };
  }
}

export function isFact(kind: string): kind is FactKind {
  return ['Pod', 'ReplicaSet', 'Job', 'Server'].includes(kind);
}

function factsOf(raw: RawObject): Facts {
  const { kind } = raw;
  const parent = kind === 'ReplicaSet' || kind === 'Job' ? readParent(kind, raw) : null;
  const facts = kind === 'Pod' ? readPod(raw, true) : kind === 'Server' ? readServer(raw) : parent;
  assert.ok(facts);
  return facts;
}

interface Port {
  readonly name?: string;
  readonly port: number;
}

export interface PodInput {
  readonly name?: string;
  readonly namespace?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly owners?: readonly (readonly [kind: string, name: string])[];
  readonly node?: string;
  readonly ports?: readonly {
    readonly name: string;
    readonly containerPort: number;
    readonly hostPort?: number;
  }[];
  readonly initPorts?: PodInput['ports'];
  readonly opaquePorts?: string;
}

function metadataOf({
  name,
  namespace = 'default',
  labels,
  owners,
  opaquePorts,
}: PodInput & { name: string }) {
  return {
    name,
    namespace,
    ...(labels && { labels }),
    ...(owners && { ownerReferences: owners.map(([kind, owner]) => ({ kind, name: owner, uid: owner })) }),
    ...(opaquePorts !== undefined && { annotations: { 'config.linkerd.io/opaque-ports': opaquePorts } }),
  };
}

export function pod(input: PodInput = {}): RawObject {
  const { name = 'web-1', labels = { app: 'web' }, node = 'n1', ports, initPorts } = input;
  return {
    kind: 'Pod',
    metadata: metadataOf({ ...input, name, labels }),
    spec: {
      nodeName: node,
      containers: [{ name: 'main', ...(ports && { ports }) }],
      ...(initPorts && { initContainers: [{ name: 'proxy', ports: initPorts }] }),
    },
  };
}

export function parent(
  kind: 'ReplicaSet' | 'Job',
  name: string,
  owners: NonNullable<PodInput['owners']> = [],
): RawObject {
  return { kind, metadata: metadataOf({ name, owners }) };
}

export function server(name: string, spec: Fields, namespace = 'default'): RawObject {
  const defaults = { podSelector: { matchLabels: { app: 'web' } }, proxyProtocol: 'opaque' };
  return { kind: 'Server', metadata: { name, namespace }, spec: { ...defaults, ...spec } };
}

interface SliceInput {
  readonly name?: string;
  readonly service?: string;
  /** Names of pods, `NAMESPACE/NAME` when it is another one. */
  readonly pods?: readonly string[];
  readonly ports?: readonly Port[];
}

export function slice({
  name = 'web-abc',
  service = 'web',
  pods = ['web-1'],
  ports = [{ port: 8080 }],
}: SliceInput = {}) {
  const labels = { 'kubernetes.io/service-name': service };
  return {
    kind: 'EndpointSlice',
    metadata: { name, namespace: 'default', labels },
    addressType: 'IPv4',
    ports: ports.map((port) => ({ protocol: 'TCP', ...port })),
    endpoints: pods.map((text, index) => ({
      addresses: [`10.0.0.${index + 1}`],
      targetRef: targetRef(text),
    })),
  };
}

export function targetRef(text: string) {
  const [name, namespace] = text.split('/').toReversed();
  return { kind: 'Pod', name, ...(namespace !== undefined && { namespace }) };
}

export function service(ports: readonly Port[] = [{ port: 80 }], opaquePorts?: string): RawObject {
  return {
    kind: 'Service',
    metadata: metadataOf({ name: 'web', ...(opaquePorts !== undefined && { opaquePorts }) }),
    spec: { ports },
  };
}
