import { ipsOfParts } from '../store/packing.ts';
import type { ChunkName, Head, ServiceKey } from '../store/store.ts';
import { Membership } from './membership.ts';

/** Rough bytes that a service takes in memory which has nothing left: without them thousands would stay for good. */
const BYTES_PER_SERVICE = 1000;
/** Rough bytes that an indexed IP takes in memory. */
const BYTES_PER_IP = 120;
/** Bytes of packed content and index that a function instance keeps by default: a quarter of its 512 MB, with room to work. */
const DEFAULT_CACHE_BYTES = 96_000_000;

/** The packed content of one object, part by part. */
export type Parts = readonly Uint8Array[];

/** What a warm instance knows of one service; right for `version` of its head, and moved forward with it. */
export class CachedService {
  version = 0;
  /** Content of chunks by name; their content never changes, so it can only be superfluous, never wrong. */
  readonly chunks = new Map<ChunkName, Uint8Array>();
  /** Ids of pending deltas whose receipt was put or seen. */
  readonly published = new Set<string>();
  private readonly parts = new Map<string, Parts>();
  private readonly membership = new Membership();

  /** Indexes what a head names and forgets the rest. `parts` gives the packed content of each of its objects. */
  advance(head: Head, partsOf: (uid: string) => Parts): void {
    const live = new Set<string>();
    const named = new Set<ChunkName>();
    for (const { uid, body } of head.objects) {
      live.add(uid);
      if (body.kind === 'chunks') for (const name of body.names) named.add(name);
      const parts = partsOf(uid);
      const former = this.parts.get(uid);
      if (former !== undefined && isSame(former, parts)) continue;
      if (former !== undefined) this.membership.remove(uid, ipsOfParts(former));
      this.membership.add(uid, ipsOfParts(parts));
      this.parts.set(uid, parts);
    }
    for (const [uid, parts] of this.parts) {
      if (live.has(uid)) continue;
      this.membership.remove(uid, ipsOfParts(parts));
      this.parts.delete(uid);
    }
    for (const name of this.chunks.keys()) if (!named.has(name)) this.chunks.delete(name);
    this.version = head.version;
  }

  /** uids of the objects of head `version` that hold any of these IPs; null once the cache has moved on. */
  holders(version: number, ips: ReadonlySet<string>): Set<string> | null {
    return this.version === version ? this.membership.holders(ips) : null;
  }

  get bytes(): number {
    let bytes = BYTES_PER_SERVICE + this.membership.size * BYTES_PER_IP;
    for (const parts of this.parts.values()) for (const part of parts) bytes += part.byteLength;
    return bytes;
  }
}

function isSame(a: Parts, b: Parts): boolean {
  return (
    a.length === b.length &&
    a.every((part, index) => part === b[index] || Buffer.compare(part, b[index] ?? part) === 0)
  );
}

interface CacheEntry {
  readonly service: CachedService;
  /** As they were accounted for last. */
  bytes: number;
}

/** Least recently used services go first once the bound is passed. */
export class ServiceCache {
  private readonly services = new Map<string, CacheEntry>();
  private readonly maxBytes: number;
  private bytes = 0;

  constructor(maxBytes: number = DEFAULT_CACHE_BYTES) {
    this.maxBytes = maxBytes;
  }

  /** The cached service, made empty when it is not there. */
  get(key: ServiceKey): CachedService {
    const id = serviceId(key);
    const known = this.services.get(id);
    const entry = known ?? { service: new CachedService(), bytes: 0 };
    this.services.delete(id);
    this.services.set(id, entry);
    if (known === undefined) this.account(entry);
    return entry.service;
  }

  /** Accounts for what a service takes now, and makes room. */
  settle(key: ServiceKey): void {
    const entry = this.services.get(serviceId(key));
    if (entry !== undefined) this.account(entry);
  }

  private account(entry: CacheEntry): void {
    const bytes = entry.service.bytes;
    this.bytes += bytes - entry.bytes;
    entry.bytes = bytes;
    for (const [id, oldest] of this.services) {
      if (this.bytes <= this.maxBytes || oldest === entry) break;
      this.services.delete(id);
      this.bytes -= oldest.bytes;
    }
  }
}

/** `CLUSTER/NAMESPACE/SERVICE`: how a service is named in one word. */
export function serviceId({ cluster, namespace, name }: ServiceKey): string {
  return `${cluster}/${namespace}/${name}`;
}
