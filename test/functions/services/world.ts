import type { Bus, BusEntry } from '../../../functions/bus/bus.ts';
import { ServiceRepository } from '../../../functions/services/repository.ts';
import type { ChunkName, Head, Receipt, ServiceKey, Store } from '../../../functions/store/store.ts';
import { type Sweeper, sweepAlone } from '../../../functions/sweep/sweep.ts';
import type { Logger } from '../../../wire/log.ts';
import { FakeClock } from '../store/fake-clock.ts';
import { type MemorySnapshot, MemoryStore } from '../store/memory-store.ts';
import type { RelayFlaws } from './relay-model.ts';
import { contentOf, ScheduledBus, ScheduledStore } from './scheduled-ports.ts';
import { type Schedule, Violation } from './scheduler.ts';

/** Everything that outlives a request. */
export interface WorldSnapshot {
  /** Of the monotonic clock. */
  readonly at: number;
  readonly store: MemorySnapshot;
  readonly published: ReadonlyMap<string, BusEntry>;
}

/** What differs from the default settings of the functions. */
export interface WorldOptions {
  readonly inlineBytes?: number;
  readonly maxEntryBytes?: number;
  /** One instance answers all requests, also those that run at the same time, as on a laptop. */
  readonly isInstanceShared?: boolean;
  readonly flaws?: RelayFlaws;
  /** Puts something between the use cases and the scheduler. */
  readonly outer?: (store: Store, world: World) => Store;
  /** Puts something between the scheduler and the store. */
  readonly inner?: (store: Store, world: World) => Store;
  /** Puts something between the use cases and the bus. */
  readonly outerBus?: (bus: Bus) => Bus;
}

/**
 * A table, a bus and a clock, whose calls wait for a schedule, or happen at once without one. Properties that hold at
 * every moment are checked where they could break.
 */
export class World {
  readonly clock = new FakeClock();
  readonly memory: MemoryStore;
  /** What the bus took, by id. */
  readonly published: Map<string, BusEntry>;
  readonly store: Store;
  readonly bus: Bus;
  readonly options: WorldOptions;
  private readonly instance: ServiceRepository | null = null;
  /** Set, the bus takes nothing. */
  isBusAway = false;
  /** What sweeps logged. */
  private errors: unknown[] = [];

  constructor(
    options: WorldOptions = {},
    from: WorldSnapshot | null = null,
    schedule: Schedule | null = null,
  ) {
    this.options = options;
    if (from !== null) this.clock.advance(from.at);
    this.memory = new MemoryStore(this.clock);
    const former = new MemoryStore(this.clock);
    if (from !== null) for (const store of [this.memory, former]) store.restore(from.store);
    this.published = new Map(from?.published);
    const { inner = unchanged, outer = unchanged } = schedule === null ? {} : options;
    this.store = outer(
      new ScheduledStore({ schedule, world: this, base: inner(this.memory, this), former }),
      this,
    );
    const bus = new ScheduledBus(schedule, this);
    this.bus = schedule === null ? bus : (options.outerBus?.(bus) ?? bus);
    if (schedule !== null) schedule.contentOf = (name) => contentOf(this, name);
    this.instance = options.isInstanceShared ? this.newRepository() : null;
  }

  snapshot(): WorldSnapshot {
    return { at: this.clock.monotonic(), store: this.memory.snapshot(), published: new Map(this.published) };
  }

  /** A cold function instance, or the one that there is. */
  newRepository(): ServiceRepository {
    if (this.instance !== null) return this.instance;
    const { inlineBytes } = this.options;
    return new ServiceRepository(this.store, inlineBytes === undefined ? {} : { inlineBytes });
  }

  /** What a function needs that runs on this instance. */
  deps(repository: ServiceRepository = this.newRepository()): Sweeper {
    return {
      store: this.store,
      bus: this.bus,
      repository,
      clock: this.clock,
      historyMs: 7 * 24 * 3_600_000,
      maxEntryBytes: this.options.maxEntryBytes ?? 240_000,
      pause: async () => undefined,
      log: { ...SILENCE, error: (_message, { error } = {}) => void this.errors.push(error) },
      collected: new Set(),
    };
  }

  /** P3: what has one id has one content. */
  accept(entry: BusEntry): void {
    const id = idOf(entry);
    const former = this.published.get(id);
    if (former !== undefined && former.detail !== entry.detail) {
      throw new Violation(`P3: two contents of ${id}:\n${former.detail}\n${entry.detail}`);
    }
    this.published.set(id, entry);
  }

  /** No dangling pointer: a head names only chunks that are there. */
  async checkChunks(key: ServiceKey): Promise<void> {
    const head = await this.memory.getHead(key);
    const names = namedChunks(head);
    if (names.length === 0) return;
    const found = await this.memory.getChunks(key, names);
    const missing = names.filter((name) => !found.has(name));
    if (missing.length > 0) throw new Violation(`HEAD of ${key.name} names chunks that are gone: ${missing}`);
  }

  /** A receipt is the proof of a publication, and follows the former one of its port. */
  async checkReceipt(key: ServiceKey, { entry, isDead }: Receipt): Promise<void> {
    const { cluster, namespace, name: service } = key;
    const id = `${cluster}/${namespace}/${service}:${entry.port}#${entry.sequence}`;
    const isPublished = this.published.has(id) || this.published.has(`${id}/0`);
    if (!isPublished && !isDead) throw new Violation(`receipt of ${id}, which was not published`);
    const former = { ...entry, sequence: entry.sequence - 1 };
    const isInOrder = former.sequence === 0 || (await this.memory.findReceipts(key, [former])).size === 1;
    if (!isInOrder) throw new Violation(`receipt of ${id} before its former one's`);
  }

  /** Time passes, then a sweep runs without faults. */
  async settle(ms: number): Promise<void> {
    this.clock.advance(ms);
    this.errors = [];
    await sweepAlone(this.deps(), { isForced: true });
    if (this.errors.length > 0) throw this.errors[0];
  }

  /** Number of deltas that subscribers know. */
  get deltas(): number {
    return [...this.published.values()].filter(({ detailType }) => !detailType.startsWith('Relay')).length;
  }
}

/** Chunks that a head points to. */
export function namedChunks(head: Head | null): ChunkName[] {
  return (head?.objects ?? []).flatMap(({ body }) => (body.kind === 'chunks' ? body.names : []));
}

/** The id of a delta or one of its parts, or of a relay's silence. */
export function idOf({ detail }: BusEntry): string {
  return (JSON.parse(detail) as { readonly id: string }).id;
}

function unchanged(store: Store): Store {
  return store;
}

const SILENCE: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  with: () => SILENCE,
};
