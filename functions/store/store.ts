import type { EndpointKind, EnrichmentVersion } from '../../core/endpoint-object.ts';
import type { PortId } from '../../core/service-port.ts';
import type { ServiceState } from '../../core/service-state.ts';
import type { EpochMs } from '../../core/time.ts';
import type { Mode } from '../../wire/envelope.ts';
import type { Histograms } from '../../wire/heartbeat.ts';

/** A service of a cluster: what one HEAD stands for. */
export interface ServiceKey {
  readonly cluster: string;
  readonly namespace: string;
  readonly name: string;
}

/** Name of one immutable packed part of an object: never used twice, so its content never changes. */
export type ChunkName = string & { readonly __brand: 'ChunkName' };

/** Where the packed content of an object is: in HEAD itself, or in chunks, one a part. */
export type ObjectBody =
  | { readonly kind: 'inline'; readonly parts: readonly Uint8Array[] }
  | { readonly kind: 'chunks'; readonly names: readonly ChunkName[] };

/** An object as HEAD records it; `count` is its number of endpoints. */
export interface StoredObject {
  readonly kind: EndpointKind;
  readonly name: string;
  readonly uid: string;
  readonly version: string;
  readonly enrichment: EnrichmentVersion | null;
  readonly count: number;
  readonly isTruncated: boolean;
  readonly body: ObjectBody;
}

/** A delta that is committed, and not yet known to be published; its receipt is the same thing (P1). */
export interface DeltaEntry {
  readonly port: PortId;
  readonly sequence: number;
  /** The packed delta, or the name under which `putBody` stored it in `parts` pieces. */
  readonly body:
    | { readonly kind: 'inline'; readonly bytes: Uint8Array }
    | { readonly kind: 'stored'; readonly name: string; readonly parts: number };
}

/** A chunk that no head names any more, since `at`. */
export interface Garbage {
  readonly chunk: ChunkName;
  readonly at: EpochMs;
}

/** The one item of a service that every change rewrites, under a condition on its version. */
export interface Head {
  /** Rises by 1 with every write. */
  readonly version: number;
  readonly records: Omit<ServiceState, 'objects'>;
  readonly objects: readonly StoredObject[];
  /** In order of commit, so by rising sequence within a port. */
  readonly pending: readonly DeltaEntry[];
  readonly garbage: readonly Garbage[];
  /** When this head was written. */
  readonly changedAt: EpochMs;
  /** Until when a rename window stands open; null when none does. */
  readonly windowUntil: EpochMs | null;
  /** False once a deleted Service has aged out of the lists; its sequences stay. */
  readonly isListed: boolean;
}

/** A receipt: proof that a delta was published, and its place in the history. */
export interface Receipt {
  readonly entry: DeltaEntry;
  readonly expiresAt: EpochMs;
  /** The bus refused it for good; an operator may replay it. */
  readonly isDead: boolean;
}

/** A delta that the bus refused for good, as the list of them names it; its receipt holds it. */
export interface DeadLetter {
  readonly key: ServiceKey;
  readonly port: PortId;
  readonly sequence: number;
}

/** What the list of services knows of one, without reading its HEAD; may be seconds behind. */
export interface ServiceSummary {
  readonly key: ServiceKey;
  readonly type: string | null;
  readonly exists: boolean;
  readonly changedAt: EpochMs;
  readonly windowUntil: EpochMs | null;
  readonly ports: readonly {
    readonly id: PortId;
    readonly name: string;
    readonly size: number;
    readonly sequence: number;
    readonly digest: bigint;
  }[];
}

/** A range of a cluster's services in the order of (namespace, name), both ends optional. */
export interface ServiceRange {
  readonly namespace?: string;
  /** Only services behind this one. */
  readonly after?: Pick<ServiceKey, 'namespace' | 'name'>;
  /** Only services up to and with this one. */
  readonly upTo?: Pick<ServiceKey, 'namespace' | 'name'>;
}

/** What is known of a cluster and its relay. */
export interface ClusterRecord {
  readonly name: string;
  /** uid of namespace kube-system, once a relay has told it. */
  readonly uid: string | null;
  /** Highest ever accepted. */
  readonly epoch: number;
  readonly epochRaisedAt: EpochMs;
  /** Did an earlier epoch write to this cluster? Then its requests may still run for a while (W18). */
  readonly hadFormerEpoch: boolean;
  readonly mode: Mode;
  /** The namespaces that the relay watches; null: all. */
  readonly namespaces: readonly string[] | null;
  /** Highest version of each kind that a relay has told. */
  readonly versions: Readonly<Record<string, string>>;
  readonly lastHeartbeat: EpochMs | null;
  /** Last heartbeat that said `synced`: until then the data is known to be complete. */
  readonly lastSynced: EpochMs | null;
  /** The heartbeat whose silence was told on the bus; null when the relay is not lost. */
  readonly lostSince: EpochMs | null;
  readonly histograms: Histograms;
  readonly lastEventAges: Readonly<Record<string, number | null>>;
  readonly resyncs: number;
  /** How far its deletion is; null: it lives. */
  readonly deletion: ClusterDeletion | null;
}

/**
 * Steps of a cluster's deletion, in order. Its item stays, for the epoch's sake.
 * - `removing`: somebody asked for it; the sweep takes away what is stored.
 * - `settling`: all was taken away and forgotten; requests of the time before may still add something.
 * - `over`: nothing can come any more, and the name is free.
 */
export type ClusterDeletion = 'removing' | 'settling' | 'over';

/** A reader's lease on a service port, by which it counts as a subscriber. */
export interface Subscription {
  readonly key: ServiceKey;
  /** Chosen by the reader; one of a service. */
  readonly id: string;
  readonly port: PortId;
  /** When it ends unless it is renewed. */
  readonly until: EpochMs;
}

/** Monotonic instant after which a write may not start any more (P8). */
export interface Fence {
  readonly deadline: number;
}

/** What a head write came to. */
export type CommitOutcome = { readonly kind: 'committed' } | { readonly kind: 'conflict' };

/**
 * The durable state. Every method may throw `StoreUnavailableError` (throttled, away, timed out), which the caller passes
 * on as 503; nothing else is thrown but programming errors.
 */
export interface Store {
  /**
   * Reads a HEAD, strongly consistent; null when there is none.
   * @throws UnknownFormatError when a later release wrote it: it may not be rewritten.
   */
  getHead(key: ServiceKey): Promise<Head | null>;

  /** Reads chunks, strongly consistent. One that is missing was collected: the caller's head is outdated. */
  getChunks(key: ServiceKey, names: readonly ChunkName[]): Promise<Map<ChunkName, Uint8Array>>;

  /** Reads all chunks of a service, eventually consistent: cheaper than one by one, but some may be missing yet. */
  queryChunks(key: ServiceKey): Promise<Map<ChunkName, Uint8Array>>;

  /** Stores a chunk under a name that was never used; done before a head names it. */
  putChunk(key: ServiceKey, name: ChunkName, bytes: Uint8Array): Promise<void>;

  /** Stores one piece of a delta too big for HEAD, without expiry; done before a head names it. */
  putBody(key: ServiceKey, name: string, part: number, bytes: Uint8Array): Promise<void>;

  /** Reads a delta's pieces in order; null when one is gone. */
  getBody(key: ServiceKey, name: string, parts: number): Promise<Uint8Array | null>;

  /**
   * Writes HEAD if its version is still `head.version - 1` (or there is none, for version 1): the one write that makes
   * state and deltas durable together (P1). A lost answer of a write that succeeded counts as committed.
   * @throws FencedError when a try would start after the fence's deadline.
   */
  commit(key: ServiceKey, head: Head, fence: Fence): Promise<CommitOutcome>;

  /** Which of these deltas have a receipt. */
  findReceipts(key: ServiceKey, entries: readonly DeltaEntry[]): Promise<Set<DeltaEntry>>;

  /**
   * Stores a receipt in place of a former one, and first the same expiry on the pieces of its body. A dead one is put on
   * the list of dead letters before, so that none is forgotten.
   */
  putReceipt(key: ServiceKey, receipt: Receipt): Promise<void>;

  /** Reads a receipt, strongly consistent; null when there is none, or when it has expired. */
  getReceipt(key: ServiceKey, delta: Pick<DeltaEntry, 'port' | 'sequence'>): Promise<Receipt | null>;

  /**
   * Dead letters of all clusters, by service and port, in order of sequence; at most `limit`. Eventually consistent. One
   * may name a receipt that is not dead any more, or not there yet.
   */
  listDeadLetters(limit: number): Promise<DeadLetter[]>;

  /** Takes a delta off the list of dead letters; one that is not on it does not matter. */
  deleteDeadLetter(letter: DeadLetter): Promise<void>;

  /** Receipts of one port behind a sequence, rising, at most `limit`; expired ones are left out. */
  listReceipts(key: ServiceKey, port: PortId, after: number, limit: number): Promise<Receipt[]>;

  /** Services of a cluster in order, a page at a time; deleted ones until they age out. */
  listServices(cluster: string, range: ServiceRange): AsyncIterable<readonly ServiceSummary[]>;

  /** Reads a cluster, strongly consistent. */
  getCluster(name: string): Promise<ClusterRecord | null>;

  /** All clusters, by name. */
  listClusters(): Promise<ClusterRecord[]>;

  /**
   * Stores a cluster if it is still as `expected` (null: not there).
   * @returns false when somebody else wrote it in between.
   */
  putCluster(record: ClusterRecord, expected: ClusterRecord | null): Promise<boolean>;

  /** Stores a subscription in place of a former one of its service and id. */
  putSubscription(subscription: Subscription): Promise<void>;

  /** Reads a subscription, strongly consistent; null when there is none, or when it has ended. */
  getSubscription(key: ServiceKey, id: string): Promise<Subscription | null>;

  /** Subscriptions of one service, or with null of all; some may have ended. Eventually consistent. */
  listSubscriptions(key: ServiceKey | null): AsyncIterable<readonly Subscription[]>;

  /** Deletes a subscription, unless it is renewed beyond `endedBy` (null: whatever). False when it was not there, or is. */
  deleteSubscription(key: ServiceKey, id: string, endedBy: EpochMs | null): Promise<boolean>;

  /** Deletes chunks that no head names; gone ones do not matter. Answers how many were there. */
  deleteChunks(key: ServiceKey, names: readonly ChunkName[]): Promise<number>;

  /** Chunks and bodies of a service with the time of their making, for the search of orphans. */
  listLeftovers(
    key: ServiceKey,
  ): Promise<{ readonly chunks: readonly Garbage[]; readonly bodies: readonly StoredBody[] }>;

  /** Deletes pieces of a body unless they have got an expiry meanwhile. Answers how many were deleted. */
  deleteBody(key: ServiceKey, body: StoredBody): Promise<number>;

  /**
   * Takes the sweep's lease unless another holder's has not run out.
   * @returns what the last holder left behind, or null when the lease is taken.
   */
  takeLease(holder: string, until: EpochMs, now: EpochMs): Promise<SweepMemory | null>;

  /** Gives the lease back, leaving a memory; a lease that another took meanwhile is let alone. */
  releaseLease(holder: string, memory: SweepMemory): Promise<void>;
}

/** A body's pieces as they lie in the table. */
export interface StoredBody {
  readonly name: string;
  readonly parts: number;
  readonly at: EpochMs;
}

/** What one sweep tells the next. */
export interface SweepMemory {
  /** Start of the last pass that had no failure; null before the first. */
  readonly lastPass: EpochMs | null;
  /** Start of the last daily visit of every service; null before the first. */
  readonly lastVisit: EpochMs | null;
}

/** The store cannot answer now: throttled, away or too slow. Trying again later may help. */
export class StoreUnavailableError extends Error {
  override readonly name = 'StoreUnavailableError';
}

/** A write may not start any more: its request has outlived its fence (P8). */
export class FencedError extends Error {
  override readonly name = 'FencedError';
}

/** An item was written by a later release in a format that this one does not know. */
export class UnknownFormatError extends Error {
  override readonly name = 'UnknownFormatError';
}
