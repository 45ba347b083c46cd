import {
  type Bus,
  type BusEntry,
  BusUnavailableError,
  type PublishResult,
} from '../../../functions/bus/bus.ts';
import {
  type ChunkName,
  type ClusterRecord,
  type CommitOutcome,
  type DeltaEntry,
  type Fence,
  FencedError,
  type Head,
  type Receipt,
  type ServiceKey,
  type ServiceRange,
  type ServiceSummary,
  type Store,
  type StoredBody,
  StoreUnavailableError,
  type SweepMemory,
} from '../../../functions/store/store.ts';
import { CLUSTER, NAMESPACE } from './relay-model.ts';
import { type Call, type Schedule, Violation, type Way } from './scheduler.ts';
import { idOf, type World } from './world.ts';

/** A request's writes have landed, or are lost, so long after its reading of the epoch, in milliseconds (P8). */
const GHOST_MS = 10_000;
/** A write on its way lands so long after the deadline for its start, in milliseconds, or never: the length of a try, and a margin. */
const LANDING_MS = 2000;

interface ScheduledStoreParts {
  readonly schedule: Schedule | null;
  readonly world: World;
  readonly base: Store;
  /** The store as it was at the start: what a lagging index tells. */
  readonly former: Store;
}

type CallOptions<T> = Partial<Pick<Call<T>, 'reads' | 'faults' | 'isLocal'>>;

/** A store each of whose calls waits for the schedule, and may go wrong. */
export class ScheduledStore implements Store {
  private readonly schedule: Schedule | null;
  private readonly world: World;
  private readonly base: Store;
  private readonly former: Store;
  /** When each request last read the epoch. */
  private readonly epochReadAt = new WeakMap<object, number>();

  constructor({ schedule, world, base, former }: ScheduledStoreParts) {
    this.schedule = schedule;
    this.world = world;
    this.base = base;
    this.former = former;
  }

  getHead(key: ServiceKey): Promise<Head | null> {
    return this.read(`getHead ${key.name}`, [headOf(key)], () => this.base.getHead(key));
  }

  getChunks(key: ServiceKey, names: readonly ChunkName[]): Promise<Map<ChunkName, Uint8Array>> {
    return this.read(`getChunks ${key.name}`, [collectedOf(key)], () => this.base.getChunks(key, names));
  }

  queryChunks(key: ServiceKey): Promise<Map<ChunkName, Uint8Array>> {
    return this.read(`queryChunks ${key.name}`, [collectedOf(key)], () => this.base.queryChunks(key));
  }

  putChunk(key: ServiceKey, name: ChunkName, bytes: Uint8Array): Promise<void> {
    return this.write(`putChunk ${key.name}`, [], () => this.base.putChunk(key, name, bytes), {
      isLocal: true,
    });
  }

  putBody(key: ServiceKey, name: string, part: number, bytes: Uint8Array): Promise<void> {
    return this.write(`putBody ${key.name}`, [], () => this.base.putBody(key, name, part, bytes), {
      isLocal: true,
    });
  }

  getBody(key: ServiceKey, name: string, parts: number): Promise<Uint8Array | null> {
    return this.read(`getBody ${key.name}`, [], () => this.base.getBody(key, name, parts));
  }

  commit(key: ServiceKey, head: Head, fence: Fence): Promise<CommitOutcome> {
    const request = this.schedule?.request;
    const write = async (until: Fence) => {
      const outcome = await this.base.commit(key, head, until);
      await this.world.checkChunks(key);
      const readAt = request === undefined ? undefined : this.epochReadAt.get(request);
      if (readAt !== undefined && this.world.clock.monotonic() >= readAt + GHOST_MS) {
        throw new Violation(`P8: a head is written ${GHOST_MS} ms after its request read the epoch`);
      }
      return outcome;
    };
    const writes = [headOf(key)];
    const land = async () => {
      const isLost = this.world.clock.monotonic() >= fence.deadline + LANDING_MS;
      return isLost ? null : write({ deadline: Number.POSITIVE_INFINITY });
    };
    const faults: Way<CommitOutcome>[] = [
      {
        name: 'succeeds, but somebody overwrites it before a lost answer is asked for again',
        writes,
        run: async () => ({ ...(await write(fence)), kind: 'conflict' }),
      },
      {
        name: 'is given up, and lands later',
        writes: [],
        run: async () => {
          if (this.world.clock.monotonic() >= fence.deadline) throw new FencedError('too late');
          this.schedule?.float({ ...toCall('lands', writes, land), writes });
          throw new StoreUnavailableError('no answer');
        },
      },
    ];
    return this.write(`commit ${key.name}`, writes, () => write(fence), { reads: writes, faults });
  }

  findReceipts(key: ServiceKey, entries: readonly DeltaEntry[]): Promise<Set<DeltaEntry>> {
    const reads = entries.map((entry) => receiptOf(key, entry));
    const lagging: Way<Set<DeltaEntry>> = { name: 'finds none yet', writes: [], run: async () => new Set() };
    return this.read(`findReceipts ${key.name}`, reads, () => this.base.findReceipts(key, entries), [
      lagging,
    ]);
  }

  putReceipt(key: ServiceKey, receipt: Receipt): Promise<void> {
    const put = async () => {
      await this.world.checkReceipt(key, receipt);
      await this.base.putReceipt(key, receipt);
    };
    return this.write(`putReceipt ${key.name}`, [receiptOf(key, receipt.entry)], put);
  }

  async *listServices(cluster: string, range: ServiceRange): AsyncIterable<readonly ServiceSummary[]> {
    const list = async (store: Store) => {
      const pages: (readonly ServiceSummary[])[] = [];
      for await (const page of store.listServices(cluster, range)) pages.push(page);
      return pages;
    };
    const lagging: Way<(readonly ServiceSummary[])[]> = {
      name: 'lags',
      writes: [],
      run: () => list(this.former),
    };
    yield* await this.read('listServices', ['head/*'], () => list(this.base), [lagging]);
  }

  getCluster(name: string): Promise<ClusterRecord | null> {
    const request = this.schedule?.request;
    return this.read('getCluster', ['cluster'], () => {
      if (request !== undefined) this.epochReadAt.set(request, this.world.clock.monotonic());
      return this.base.getCluster(name);
    });
  }

  listClusters(): Promise<ClusterRecord[]> {
    return this.read('listClusters', ['cluster'], () => this.base.listClusters());
  }

  putCluster(record: ClusterRecord, expected: ClusterRecord | null): Promise<boolean> {
    return this.write('putCluster', ['cluster'], () => this.base.putCluster(record, expected), {
      reads: ['cluster'],
    });
  }

  deleteChunks(key: ServiceKey, names: readonly ChunkName[]): Promise<number> {
    return this.write(`deleteChunks ${key.name}`, [collectedOf(key)], async () => {
      const deleted = await this.base.deleteChunks(key, names);
      await this.world.checkChunks(key);
      return deleted;
    });
  }

  /** Chunks and bodies made in the schedule are too young for an orphan, so that who made them does not matter. */
  listLeftovers(key: ServiceKey): ReturnType<Store['listLeftovers']> {
    return this.read(`listLeftovers ${key.name}`, [collectedOf(key)], () => this.base.listLeftovers(key));
  }

  deleteBody(key: ServiceKey, body: StoredBody): Promise<number> {
    return this.write(`deleteBody ${key.name}`, [], () => this.base.deleteBody(key, body));
  }

  listReceipts(...request: Parameters<Store['listReceipts']>): Promise<Receipt[]> {
    return this.base.listReceipts(...request);
  }

  getReceipt(...request: Parameters<Store['getReceipt']>): ReturnType<Store['getReceipt']> {
    return this.base.getReceipt(...request);
  }

  /** Nothing in a schedule is refused for good. */
  listDeadLetters(limit: number): ReturnType<Store['listDeadLetters']> {
    return this.base.listDeadLetters(limit);
  }

  deleteDeadLetter(...request: Parameters<Store['deleteDeadLetter']>): Promise<void> {
    return this.base.deleteDeadLetter(...request);
  }

  putSubscription(...request: Parameters<Store['putSubscription']>): Promise<void> {
    return this.base.putSubscription(...request);
  }

  getSubscription(...request: Parameters<Store['getSubscription']>): ReturnType<Store['getSubscription']> {
    return this.base.getSubscription(...request);
  }

  /** Nothing that a schedule is about knows of subscriptions. */
  listSubscriptions(key: ServiceKey | null): ReturnType<Store['listSubscriptions']> {
    return this.base.listSubscriptions(key);
  }

  deleteSubscription(...request: Parameters<Store['deleteSubscription']>): Promise<boolean> {
    return this.base.deleteSubscription(...request);
  }

  takeLease(...request: Parameters<Store['takeLease']>): Promise<SweepMemory | null> {
    return this.write('takeLease', ['lease'], () => this.base.takeLease(...request), { reads: ['lease'] });
  }

  releaseLease(...request: Parameters<Store['releaseLease']>): Promise<void> {
    return this.write('releaseLease', ['lease'], () => this.base.releaseLease(...request), {
      reads: ['lease'],
    });
  }

  private read<T>(
    name: string,
    reads: readonly string[],
    run: () => Promise<T>,
    faults: readonly Way<T>[] = [],
  ): Promise<T> {
    return this.call({ ...toCall(name, reads, run), faults: [REFUSED, ...faults] });
  }

  private write<T>(
    name: string,
    writes: readonly string[],
    run: () => Promise<T>,
    { reads = [], faults = [], isLocal = false }: CallOptions<T> = {},
  ): Promise<T> {
    const unanswered: Way<T> = {
      name: 'no answer',
      writes,
      run: async () => {
        await run();
        throw new StoreUnavailableError('no answer');
      },
    };
    return this.call({
      ...toCall(name, reads, run),
      writes,
      faults: [REFUSED, unanswered, ...faults],
      isLocal,
    });
  }

  private call<T>(call: Call<T>): Promise<T> {
    if (this.schedule === null) return call.run();
    if (!this.world.options.isInstanceShared) return this.schedule.call(call);
    // What the instance remembers is one more thing that every step reads and writes.
    return this.schedule.call({
      ...call,
      reads: [...call.reads, 'instance'],
      writes: [...call.writes, 'instance'],
    });
  }
}

/** A bus each of whose calls waits for the schedule, and may go wrong. */
export class ScheduledBus implements Bus {
  private readonly schedule: Schedule | null;
  private readonly world: World;

  constructor(schedule: Schedule | null, world: World) {
    this.schedule = schedule;
    this.world = world;
  }

  publish(entries: readonly BusEntry[]): Promise<readonly PublishResult[]> {
    const accepting =
      (isAccepted: (index: number) => boolean) => async (): Promise<readonly PublishResult[]> =>
        entries.map((entry, index): PublishResult => {
          if (!isAccepted(index)) return { kind: 'refused', code: 'ThrottlingException', isFinal: false };
          this.world.accept(entry);
          return { kind: 'accepted' };
        });
    const writesOf = (some: readonly BusEntry[]) => some.map((entry) => `+bus/${idOf(entry)}`);
    const all = accepting(() => true);
    const last = entries.length - 1;
    const unavailable = async (): Promise<never> => {
      throw new BusUnavailableError('no answer');
    };
    const faults: Way<readonly PublishResult[]>[] = [
      { name: 'away', writes: [], run: unavailable },
      { name: 'no answer', writes: writesOf(entries), run: () => all().then(unavailable) },
      { name: 'refuses all', writes: [], run: accepting(() => false) },
    ];
    if (last > 0) {
      faults.push(
        {
          name: 'takes the first',
          writes: writesOf(entries.slice(0, 1)),
          run: accepting((index) => index === 0),
        },
        {
          name: 'takes the last',
          writes: writesOf(entries.slice(-1)),
          run: accepting((index) => index === last),
        },
      );
    }
    const call = { ...toCall('publish', [], all), writes: writesOf(entries), faults };
    if (this.world.isBusAway) return unavailable();
    return this.schedule === null ? call.run() : this.schedule.call(call);
  }

  async describe(): Promise<boolean> {
    return true;
  }
}

function toCall<T>(name: string, reads: readonly string[], run: () => Promise<T>): Call<T> {
  return { name, reads, run, writes: [], faults: [], alternatives: [], isLocal: false };
}

const REFUSED: Way<never> = {
  name: 'refused',
  writes: [],
  run: async () => {
    throw new StoreUnavailableError('refused');
  },
};

const HEAD = 'head/';

function headOf({ name }: ServiceKey): string {
  return `${HEAD}${name}`;
}

/** What the store and the clock hold under a name of a schedule; null where random names are in it. */
export async function contentOf({ memory, clock }: World, name: string): Promise<string | null> {
  if (name === 'clock') return `${clock.monotonic()}`;
  if (name === 'cluster') return JSON.stringify(await memory.getCluster(CLUSTER));
  if (!name.startsWith(HEAD)) return null;
  const head = await memory.getHead({
    cluster: CLUSTER,
    namespace: NAMESPACE,
    name: name.slice(HEAD.length),
  });
  return head === null || hasRandomNames(head) ? null : JSON.stringify(head, plain);
}

function hasRandomNames({ objects, pending, garbage }: Head): boolean {
  const bodies = [...objects, ...pending].map(({ body }) => body.kind);
  return garbage.length > 0 || bodies.some((kind) => kind !== 'inline');
}

function plain(_key: string, value: unknown): unknown {
  if (value instanceof Map) return [...value];
  if (value instanceof Uint8Array) return Buffer.from(value).toString('base64');
  return typeof value === 'bigint' ? `${value}` : value;
}

function collectedOf({ name }: ServiceKey): string {
  return `collected/${name}`;
}

function receiptOf({ name }: ServiceKey, { port, sequence }: DeltaEntry): string {
  return `+receipt/${name}:${port}#${sequence}`;
}
