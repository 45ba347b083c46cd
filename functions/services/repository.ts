import { randomBytes } from 'node:crypto';
import {
  type EndpointContent,
  type EndpointKind,
  type EndpointObject,
  equalContents,
} from '../../core/endpoint-object.ts';
import { windowsUntil } from '../../core/rename-window.ts';
import { emptyState, type ServiceState } from '../../core/service-state.ts';
import type { EpochMs } from '../../core/time.ts';
import { packParts, partCountFor, splitContent, unpackParts } from '../store/packing.ts';
import {
  type ChunkName,
  type CommitOutcome,
  type DeltaEntry,
  type Fence,
  type Garbage,
  type Head,
  type ObjectBody,
  type ServiceKey,
  type Store,
  type StoredObject,
  StoreUnavailableError,
} from '../store/store.ts';
import { inParallel } from './in-parallel.ts';
import { type CachedService, type Parts, ServiceCache } from './service-cache.ts';

/** Packed contents of a service stay in its head while they are this small together, in bytes. */
const DEFAULT_INLINE_BYTES = 2048;
/** A chunked service comes back into its head only well below the limit, so that it does not swing. */
const BYTES_PER_ENDPOINT_TO_INLINE = 40;
/** Up to so many chunks are read one by one; more are queried together. */
const MAX_SINGLE_READS = 8;
/** Chunks put at the same time: fewer than the client has sockets, since waiting for one counts as time of the call. */
const MAX_PARALLEL_PUTS = 16;
/** How long a head remembers replaced chunks, in milliseconds: the sweep collects them from 5 minutes on. */
const GARBAGE_MEMORY_MS = 15 * 60_000;
/** A head whose chunks are gone was replaced meanwhile; more often than this in a row it never is. */
const MAX_LOADS = 5;

/** A service as it stands in the store. */
export interface LoadedService {
  readonly key: ServiceKey;
  /** Null when nothing was ever stored. */
  readonly head: Head | null;
  readonly state: ServiceState;
  /** uids of the objects that hold any of these IPs. */
  readonly holders: (ips: ReadonlySet<string>) => Iterable<string>;
}

/** What is to be written over a loaded service. */
export interface Revision {
  readonly state: ServiceState;
  /** uids of the objects whose content is new or gone. */
  readonly touched: ReadonlySet<string>;
  /** Deltas that are not known to be published, the new ones last. */
  readonly pending: readonly DeltaEntry[];
  readonly now: EpochMs;
}

/** Loads services from the store and writes them back, unchanged objects untouched. One for a function instance. */
export class ServiceRepository {
  private readonly store: Store;
  private readonly cache: ServiceCache;
  private readonly inlineBytes: number;

  constructor(store: Store, options: { readonly inlineBytes?: number; readonly cacheBytes?: number } = {}) {
    this.store = store;
    this.cache = new ServiceCache(options.cacheBytes);
    this.inlineBytes = options.inlineBytes ?? DEFAULT_INLINE_BYTES;
  }

  /**
   * Reads a service, strongly consistent.
   * @param kind the kind of objects that counts in a service of which nothing is known.
   */
  async load(key: ServiceKey, kind: EndpointKind): Promise<LoadedService> {
    for (let attempt = 1; attempt <= MAX_LOADS; attempt++) {
      const head = await this.store.getHead(key);
      if (head === null) return { key, head, state: emptyState(kind), holders: () => [] };
      const cached = this.cache.get(key);
      const parts = await this.readParts(key, head, cached);
      if (parts === null) continue;
      return this.assemble(key, head, parts, cached);
    }
    throw new StoreUnavailableError(`chunks of ${key.namespace}/${key.name} are missing`);
  }

  /** Deltas of a head that have no receipt yet: those that must be carried on, and published. */
  async unpublished(key: ServiceKey, head: Head | null): Promise<DeltaEntry[]> {
    if (head === null || head.pending.length === 0) return [];
    const { published } = this.cache.get(key);
    const unknown = head.pending.filter((entry) => !published.has(entryId(entry)));
    const found = unknown.length === 0 ? new Set<DeltaEntry>() : await this.store.findReceipts(key, unknown);
    const open = unknown.filter((entry) => !found.has(entry));
    published.clear();
    for (const entry of head.pending) if (!open.includes(entry)) published.add(entryId(entry));
    return open;
  }

  /** Remembers that deltas have their receipts, which saves asking for them. */
  markPublished(key: ServiceKey, entries: Iterable<DeltaEntry>): void {
    const { published } = this.cache.get(key);
    for (const entry of entries) published.add(entryId(entry));
  }

  /** Writes new chunks, then the head that names them, if nobody wrote in between (P1). */
  async save(loaded: LoadedService, revision: Revision, fence: Fence): Promise<CommitOutcome> {
    const { key, head: former } = loaded;
    const cached = this.cache.get(key);
    const { objects, chunks } = this.layOut(loaded, revision);
    await inParallel(MAX_PARALLEL_PUTS, chunks, ([name, bytes]) => this.store.putChunk(key, name, bytes));
    const { objects: _contents, ...records } = revision.state;
    const head: Head = {
      version: (former?.version ?? 0) + 1,
      records,
      objects,
      pending: revision.pending,
      garbage: garbageAfter(former, objects, revision.now),
      changedAt: revision.now,
      windowUntil: windowsUntil(revision.state),
      isListed: true,
    };
    const outcome = await this.store.commit(key, head, fence);
    if (outcome.kind === 'committed') for (const [name, bytes] of chunks) cached.chunks.set(name, bytes);
    return outcome;
  }

  /** The packed parts of each object; null when a chunk is gone, so that the head must be read again. */
  private async readParts(
    key: ServiceKey,
    head: Head,
    cached: CachedService,
  ): Promise<Map<string, Parts> | null> {
    const named = head.objects.flatMap(({ body }) => (body.kind === 'chunks' ? body.names : []));
    const chunks = await this.readChunks(key, named, cached);
    const parts = new Map<string, Parts>();
    for (const { uid, body } of head.objects) {
      const bytes =
        body.kind === 'inline' ? body.parts : body.names.flatMap((name) => chunks.get(name) ?? []);
      if (body.kind === 'chunks' && bytes.length < body.names.length) return null;
      parts.set(uid, bytes);
    }
    return parts;
  }

  private async readChunks(
    key: ServiceKey,
    names: readonly ChunkName[],
    { chunks }: CachedService,
  ): Promise<ReadonlyMap<ChunkName, Uint8Array>> {
    const found = new Map(
      names.flatMap((name) => {
        const bytes = chunks.get(name);
        return bytes === undefined ? [] : [[name, bytes] as const];
      }),
    );
    const missing = () => names.filter((name) => !found.has(name));
    if (missing().length > MAX_SINGLE_READS) {
      const all = await this.store.queryChunks(key);
      for (const name of missing()) {
        const bytes = all.get(name);
        if (bytes !== undefined) found.set(name, bytes);
      }
    }
    const rest = missing();
    if (rest.length > 0)
      for (const [name, bytes] of await this.store.getChunks(key, rest)) found.set(name, bytes);
    return found;
  }

  private assemble(
    key: ServiceKey,
    head: Head,
    parts: ReadonlyMap<string, Parts>,
    cached: CachedService,
  ): LoadedService {
    const partsOf = (uid: string) => parts.get(uid) ?? [];
    if (head.version >= cached.version) {
      for (const { body, uid } of head.objects) {
        if (body.kind === 'chunks')
          body.names.forEach((name, index) => void setIfPresent(cached.chunks, name, partsOf(uid)[index]));
      }
      cached.advance(head, partsOf);
      this.cache.settle(key);
    }
    const objects = new Map(
      head.objects.map((object) => [object.uid, toEndpointObject(object, partsOf(object.uid))]),
    );
    const all = () => objects.keys();
    return {
      key,
      head,
      state: { ...head.records, objects },
      // Another request may have moved the cache on; then every object is looked at.
      holders: (ips) => cached.holders(head.version, ips) ?? all(),
    };
  }

  /** Where each object's content goes: what did not change stays where it is. */
  private layOut(
    { state: formerState, head: former }: LoadedService,
    { state, touched }: Revision,
  ): { readonly objects: StoredObject[]; readonly chunks: Map<ChunkName, Uint8Array> } {
    const bodies = new Map((former?.objects ?? []).map(({ uid, body }) => [uid, body]));
    const wasInline = [...bodies.values()].every(({ kind }) => kind === 'inline');
    const inline = this.inlineBodies(state, touched, bodies, wasInline);
    const chunks = new Map<ChunkName, Uint8Array>();
    const objects = [...state.objects.values()].map((object): StoredObject => {
      const { content: _content, ...identity } = object;
      const body =
        inline?.get(object.uid) ??
        chunkBody(object, formerState.objects.get(object.uid), bodies.get(object.uid), touched, chunks);
      return { ...identity, body };
    });
    return { objects, chunks };
  }

  /** Bodies of all objects when they fit into the head together, else null. */
  private inlineBodies(
    state: ServiceState,
    touched: ReadonlySet<string>,
    former: ReadonlyMap<string, ObjectBody>,
    wasInline: boolean,
  ): Map<string, ObjectBody> | null {
    if (this.inlineBytes === 0) return null;
    if (!wasInline) {
      let endpoints = 0;
      for (const { count } of state.objects.values()) endpoints += count;
      if (endpoints * BYTES_PER_ENDPOINT_TO_INLINE > this.inlineBytes) return null;
    }
    const bodies = new Map<string, ObjectBody>();
    let bytes = 0;
    for (const object of state.objects.values()) {
      const known = former.get(object.uid);
      const parts =
        known?.kind === 'inline' && !touched.has(object.uid) ? known.parts : packParts(object.content(), 1);
      for (const part of parts) bytes += part.byteLength;
      if (bytes > this.inlineBytes) return null;
      bodies.set(object.uid, { kind: 'inline', parts });
    }
    return bodies;
  }
}

/** A body in chunks; a part that did not change keeps its chunk. New ones are added to `chunks`. */
function chunkBody(
  object: EndpointObject,
  former: EndpointObject | undefined,
  formerBody: ObjectBody | undefined,
  touched: ReadonlySet<string>,
  chunks: Map<ChunkName, Uint8Array>,
): ObjectBody {
  const formerNames = formerBody?.kind === 'chunks' ? formerBody.names : null;
  if (formerNames !== null && !touched.has(object.uid)) return { kind: 'chunks', names: formerNames };
  const partCount = partCountFor(object.count, formerNames?.length ?? null);
  const content = object.content();
  const kept =
    formerNames?.length === partCount && former !== undefined
      ? keptParts(content, former.content(), partCount)
      : new Set<number>();
  const packed = packParts(content, partCount);
  const names = packed.map((bytes, index) => {
    const formerName = formerNames?.[index];
    if (kept.has(index) && formerName !== undefined) return formerName;
    const name = newChunkName(object.uid);
    chunks.set(name, bytes);
    return name;
  });
  return { kind: 'chunks', names };
}

function keptParts(content: EndpointContent, former: EndpointContent, partCount: number): Set<number> {
  const formerParts = splitContent(former, partCount);
  const kept = new Set<number>();
  for (const [index, part] of splitContent(content, partCount).entries()) {
    const formerPart = formerParts[index];
    if (formerPart !== undefined && equalContents(part, formerPart)) kept.add(index);
  }
  return kept;
}

function newChunkName(uid: string): ChunkName {
  return `${uid}#${randomBytes(4).toString('hex')}` as ChunkName;
}

function toEndpointObject({ body: _body, ...identity }: StoredObject, parts: Parts): EndpointObject {
  let content: EndpointContent | undefined;
  return {
    ...identity,
    content: () => {
      content ??= unpackParts(parts);
      return content;
    },
  };
}

function garbageAfter(former: Head | null, objects: readonly StoredObject[], now: EpochMs): Garbage[] {
  if (former === null) return [];
  const named = new Set(objects.flatMap(({ body }) => (body.kind === 'chunks' ? body.names : [])));
  const replaced = former.objects
    .flatMap(({ body }) => (body.kind === 'chunks' ? body.names : []))
    .filter((name) => !named.has(name))
    .map((chunk) => ({ chunk, at: now }));
  return [...former.garbage.filter(({ at }) => now - at < GARBAGE_MEMORY_MS), ...replaced];
}

function setIfPresent<K, V>(map: Map<K, V>, key: K, value: V | undefined): void {
  if (value !== undefined) map.set(key, value);
}

/** Names a pending delta within its service. */
function entryId({ port, sequence }: DeltaEntry): string {
  return `${port}#${sequence}`;
}
