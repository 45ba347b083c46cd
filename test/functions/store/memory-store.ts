import { compareText } from '../../../core/address.ts';
import type { PortId } from '../../../core/service-port.ts';
import type { Clock, EpochMs } from '../../../core/time.ts';
import {
  type ChunkName,
  type ClusterRecord,
  type CommitOutcome,
  type DeadLetter,
  type DeltaEntry,
  type Fence,
  FencedError,
  type Garbage,
  type Head,
  type Receipt,
  type ServiceKey,
  type ServiceRange,
  type ServiceSummary,
  type Store,
  type StoredBody,
  type Subscription,
  type SweepMemory,
} from '../../../functions/store/store.ts';

/** Everything that a memory store holds. Its values are never changed, so a copy of the maps is a copy of all. */
interface Contents {
  /** By service. */
  readonly heads: Map<string, { readonly key: ServiceKey; readonly head: Head }>;
  /** By service and name, as the others by service and what identifies them in it. */
  readonly chunks: Map<string, Piece>;
  readonly bodies: Map<string, Piece>;
  readonly receipts: Map<string, { readonly service: string; readonly receipt: Receipt }>;
  readonly deadLetters: Map<string, { readonly letter: DeadLetter; readonly expiresAt: EpochMs }>;
  readonly clusters: Map<string, ClusterRecord>;
  /** By service and id. */
  readonly subscriptions: Map<string, Subscription>;
  readonly lease: { holder: string | null; until: EpochMs | null; memory: SweepMemory };
}

interface Piece {
  readonly service: string;
  /** Chunk's or body's name. */
  readonly name: string;
  readonly part: number;
  readonly bytes: Uint8Array;
  readonly at: EpochMs;
  readonly expiresAt: EpochMs | null;
}

/** What a memory store held at some moment. */
export type MemorySnapshot = Readonly<Contents>;

/** A store in memory, always consistent. Each method is done when it returns its promise. */
export class MemoryStore implements Store {
  private readonly clock: Clock;
  private contents: Contents = {
    heads: new Map(),
    chunks: new Map(),
    bodies: new Map(),
    receipts: new Map(),
    deadLetters: new Map(),
    clusters: new Map(),
    subscriptions: new Map(),
    lease: { holder: null, until: null, memory: { lastPass: null, lastVisit: null } },
  };

  constructor(clock: Clock) {
    this.clock = clock;
  }

  /** A copy that later writes do not touch. */
  snapshot(): MemorySnapshot {
    return copyOf(this.contents);
  }

  /** Goes back; the snapshot can be used again. */
  restore(snapshot: MemorySnapshot): void {
    this.contents = copyOf(snapshot);
  }

  async getHead(key: ServiceKey): Promise<Head | null> {
    return this.contents.heads.get(idOf(key))?.head ?? null;
  }

  async getChunks(key: ServiceKey, names: readonly ChunkName[]): Promise<Map<ChunkName, Uint8Array>> {
    return new Map(
      names.flatMap((name) => {
        const chunk = this.contents.chunks.get(`${idOf(key)}#${name}`);
        return chunk === undefined ? [] : [[name, chunk.bytes] as const];
      }),
    );
  }

  async queryChunks(key: ServiceKey): Promise<Map<ChunkName, Uint8Array>> {
    const chunks = piecesOf(this.contents.chunks, key);
    return new Map(chunks.map(({ name, bytes }) => [name as ChunkName, bytes]));
  }

  async putChunk(key: ServiceKey, name: ChunkName, bytes: Uint8Array): Promise<void> {
    const id = `${idOf(key)}#${name}`;
    const former = this.contents.chunks.get(id);
    if (former === undefined) this.contents.chunks.set(id, this.piece(key, name, 0, bytes));
    else if (Buffer.compare(former.bytes, bytes) !== 0) throw new Error(`chunk ${name} is there already`);
  }

  async putBody(key: ServiceKey, name: string, part: number, bytes: Uint8Array): Promise<void> {
    this.contents.bodies.set(pieceId(key, name, part), this.piece(key, name, part, bytes));
  }

  async getBody(key: ServiceKey, name: string, parts: number): Promise<Uint8Array | null> {
    const pieces = this.bodyPieces(key, name, parts).filter(({ expiresAt }) => !this.isOver(expiresAt));
    return pieces.length < parts ? null : Buffer.concat(pieces.map(({ bytes }) => bytes));
  }

  async commit(key: ServiceKey, head: Head, fence: Fence): Promise<CommitOutcome> {
    if (this.clock.monotonic() >= fence.deadline) throw new FencedError('too late');
    const id = idOf(key);
    const version = this.contents.heads.get(id)?.head.version ?? 0;
    if (version !== head.version - 1) return { kind: 'conflict' };
    this.contents.heads.set(id, { key, head });
    return { kind: 'committed' };
  }

  async findReceipts(key: ServiceKey, entries: readonly DeltaEntry[]): Promise<Set<DeltaEntry>> {
    return new Set(entries.filter((entry) => this.contents.receipts.has(receiptId(key, entry))));
  }

  async putReceipt(key: ServiceKey, receipt: Receipt): Promise<void> {
    const { entry, expiresAt, isDead } = receipt;
    const { port, sequence } = entry;
    if (isDead)
      this.contents.deadLetters.set(receiptId(key, entry), { letter: { key, port, sequence }, expiresAt });
    if (entry.body.kind === 'stored') {
      const { name, parts } = entry.body;
      for (const piece of this.bodyPieces(key, name, parts)) {
        this.contents.bodies.set(pieceId(key, name, piece.part), { ...piece, expiresAt });
      }
    }
    this.contents.receipts.set(receiptId(key, entry), { service: idOf(key), receipt });
  }

  async getReceipt(key: ServiceKey, delta: Pick<DeltaEntry, 'port' | 'sequence'>): Promise<Receipt | null> {
    const receipt = this.contents.receipts.get(receiptId(key, delta))?.receipt;
    return receipt === undefined || this.isOver(receipt.expiresAt) ? null : receipt;
  }

  async listDeadLetters(limit: number): Promise<DeadLetter[]> {
    const group = ({ key, port }: DeadLetter) => `${idOf(key)}:${port}`;
    return [...this.contents.deadLetters.values()]
      .filter(({ expiresAt }) => !this.isOver(expiresAt))
      .map(({ letter }) => letter)
      .sort((a, b) => compareText(group(a), group(b)) || a.sequence - b.sequence)
      .slice(0, limit);
  }

  async deleteDeadLetter({ key, ...delta }: DeadLetter): Promise<void> {
    this.contents.deadLetters.delete(receiptId(key, delta));
  }

  async listReceipts(key: ServiceKey, port: PortId, after: number, limit: number): Promise<Receipt[]> {
    const service = idOf(key);
    return [...this.contents.receipts.values()]
      .filter((stored) => stored.service === service)
      .map(({ receipt }) => receipt)
      .filter(({ entry, expiresAt }) => {
        return entry.port === port && entry.sequence > after && !this.isOver(expiresAt);
      })
      .sort((a, b) => a.entry.sequence - b.entry.sequence)
      .slice(0, limit);
  }

  async *listServices(cluster: string, range: ServiceRange): AsyncIterable<readonly ServiceSummary[]> {
    const { namespace, after, upTo } = range;
    const listed = [...this.contents.heads.values()].filter(({ key, head }) => {
      return (
        head.isListed &&
        key.cluster === cluster &&
        (namespace === undefined || key.namespace === namespace) &&
        (after === undefined || compareKeys(key, after) > 0) &&
        (upTo === undefined || compareKeys(key, upTo) <= 0)
      );
    });
    if (listed.length > 0) yield listed.sort((a, b) => compareKeys(a.key, b.key)).map(toSummary);
  }

  async getCluster(name: string): Promise<ClusterRecord | null> {
    return this.contents.clusters.get(name) ?? null;
  }

  async listClusters(): Promise<ClusterRecord[]> {
    return [...this.contents.clusters.values()].sort((a, b) => compareText(a.name, b.name));
  }

  async putCluster(record: ClusterRecord, expected: ClusterRecord | null): Promise<boolean> {
    const present = this.contents.clusters.get(record.name) ?? null;
    if (JSON.stringify(present) !== JSON.stringify(expected)) return false;
    this.contents.clusters.set(record.name, record);
    return true;
  }

  async putSubscription(subscription: Subscription): Promise<void> {
    this.contents.subscriptions.set(`${idOf(subscription.key)}#${subscription.id}`, subscription);
  }

  async getSubscription(key: ServiceKey, id: string): Promise<Subscription | null> {
    const subscription = this.contents.subscriptions.get(`${idOf(key)}#${id}`);
    return subscription === undefined || this.isOver(subscription.until) ? null : subscription;
  }

  async *listSubscriptions(key: ServiceKey | null): AsyncIterable<readonly Subscription[]> {
    const all = [...this.contents.subscriptions.values()];
    const found = key === null ? all : all.filter((one) => idOf(one.key) === idOf(key));
    if (found.length > 0) yield found;
  }

  async deleteSubscription(key: ServiceKey, id: string, endedBy: EpochMs | null): Promise<boolean> {
    const subscriptionId = `${idOf(key)}#${id}`;
    const known = this.contents.subscriptions.get(subscriptionId);
    if (known === undefined || (endedBy !== null && known.until > endedBy)) return false;
    return this.contents.subscriptions.delete(subscriptionId);
  }

  async deleteChunks(key: ServiceKey, names: readonly ChunkName[]): Promise<number> {
    return names.filter((name) => this.contents.chunks.delete(`${idOf(key)}#${name}`)).length;
  }

  async listLeftovers(key: ServiceKey): Promise<{ chunks: Garbage[]; bodies: StoredBody[] }> {
    const chunks = piecesOf(this.contents.chunks, key);
    const lasting = piecesOf(this.contents.bodies, key).filter(({ expiresAt }) => expiresAt === null);
    return {
      chunks: chunks.map(({ name, at }) => ({ chunk: name as ChunkName, at })),
      bodies: [...Map.groupBy(lasting, ({ name }) => name)].map(([name, pieces]) => ({
        name,
        parts: Math.max(...pieces.map(({ part }) => part)) + 1,
        at: Math.max(...pieces.map(({ at }) => at)) as EpochMs,
      })),
    };
  }

  async deleteBody(key: ServiceKey, { name, parts }: StoredBody): Promise<number> {
    const lasting = this.bodyPieces(key, name, parts).filter(({ expiresAt }) => expiresAt === null);
    for (const { part } of lasting) this.contents.bodies.delete(pieceId(key, name, part));
    return lasting.length;
  }

  async takeLease(holder: string, until: EpochMs, now: EpochMs): Promise<SweepMemory | null> {
    const { lease } = this.contents;
    const isFree = lease.holder === null || lease.holder === holder || (lease.until ?? 0) <= now;
    if (!isFree) return null;
    Object.assign(lease, { holder, until });
    return lease.memory;
  }

  async releaseLease(holder: string, memory: SweepMemory): Promise<void> {
    const { lease } = this.contents;
    if (lease.holder === holder) Object.assign(lease, { holder: null, until: null, memory });
  }

  private piece(key: ServiceKey, name: string, part: number, bytes: Uint8Array): Piece {
    return { service: idOf(key), name, part, bytes, at: this.clock.now(), expiresAt: null };
  }

  private bodyPieces(key: ServiceKey, name: string, parts: number): Piece[] {
    return Array.from({ length: parts }, (_, part) =>
      this.contents.bodies.get(pieceId(key, name, part)),
    ).filter((piece) => piece !== undefined);
  }

  private isOver(expiresAt: EpochMs | null): boolean {
    return expiresAt !== null && expiresAt <= this.clock.now();
  }
}

function copyOf({ lease, ...maps }: MemorySnapshot): Contents {
  const { heads, chunks, bodies, receipts, deadLetters, clusters, subscriptions } = maps;
  return {
    heads: new Map(heads),
    chunks: new Map(chunks),
    bodies: new Map(bodies),
    receipts: new Map(receipts),
    deadLetters: new Map(deadLetters),
    clusters: new Map(clusters),
    subscriptions: new Map(subscriptions),
    lease: { ...lease },
  };
}

function idOf({ cluster, namespace, name }: ServiceKey): string {
  return `${cluster}/${namespace}/${name}`;
}

function pieceId(key: ServiceKey, name: string, part: number): string {
  return `${idOf(key)}#${name}#${part}`;
}

function receiptId(key: ServiceKey, { port, sequence }: Pick<DeltaEntry, 'port' | 'sequence'>): string {
  return `${idOf(key)}#${port}#${sequence}`;
}

function piecesOf(pieces: ReadonlyMap<string, Piece>, key: ServiceKey): Piece[] {
  const service = idOf(key);
  return [...pieces.values()].filter((piece) => piece.service === service);
}

type ListedName = Pick<ServiceKey, 'namespace' | 'name'>;

function compareKeys(a: ListedName, b: ListedName): number {
  return compareText(a.namespace, b.namespace) || compareText(a.name, b.name);
}

function toSummary({ key, head }: { readonly key: ServiceKey; readonly head: Head }): ServiceSummary {
  const { service, ports } = head.records;
  return {
    key,
    type: service?.type ?? null,
    exists: service !== null,
    changedAt: head.changedAt,
    windowUntil: head.windowUntil,
    ports: [...ports].map(([id, { name, size, sequence, digest }]) => ({ id, name, size, sequence, digest })),
  };
}
