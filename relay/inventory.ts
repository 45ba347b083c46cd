import { randomUUID } from 'node:crypto';
import { compareVersions } from '../core/version.ts';
import type { Mode, WatchedKind } from '../wire/envelope.ts';
import {
  compareServiceKeys,
  type InventoryAnswer,
  inventoryAnswer,
  type ServiceKey,
} from '../wire/inventory.ts';
import type { Logger } from '../wire/log.ts';
import type { Conflict } from '../wire/problem.ts';
import { Backoff } from './backoff.ts';
import { type Cache, objectId, type ServiceId } from './cache.ts';
import type { Held } from './compact.ts';
import type { Heartbeat } from './heartbeat.ts';
import type { Answer, IngestClient } from './ingest-client.ts';
import type { Metrics } from './metrics.ts';
import { FENCE_MS, type InRange, type Queue } from './queue.ts';
import type { ListCause } from './reflector.ts';
import type { Pulse, Timers } from './timers.ts';

/** Objects of a page: small enough that ingest compares them well within its time. */
const PAGE_OBJECTS = 2000;
/** How often one page may follow again because something was held back. */
const MAX_ROUNDS = 10;
/** Until a refused inventory is tried again, in milliseconds. */
const REFUSED_RETRY_MS = 60_000;
/** How often a condition is looked at that time alone may fulfil, in milliseconds. */
const LOOK_MS = 1000;

/** One watch, whose lists an inventory follows. */
export interface Watched {
  readonly kind: WatchedKind;
  /** Null is the whole cluster. */
  readonly namespace: string | null;
}

interface ListState extends Watched {
  readonly resourceVersion: string;
  /** Lists of this watch so far. */
  readonly count: number;
}

/** Services behind `after`, up to `to`; null is the beginning, or the end. */
interface Range {
  readonly after: ServiceKey | null;
  readonly to: ServiceKey | null;
}

/** `again`: a newer list is there, or is waited for. */
type Outcome = 'done' | 'again' | 'refused';

export interface InventoryDeps {
  readonly watched: readonly Watched[];
  readonly mode: Mode;
  readonly namespaces: readonly string[] | null;
  /** Share of a service's addresses that a page may remove at once; null = any (W11). */
  readonly maxRemoved: number | null;
  readonly envelope: Readonly<Record<string, unknown>>;
  readonly cache: Cache;
  readonly queue: Queue;
  readonly ingest: IngestClient;
  readonly heartbeat: Heartbeat;
  /** Makes every watch list anew. */
  readonly relist: (cause: ListCause) => void;
  readonly onConflict: (conflict: Conflict) => void;
  readonly pulse: Pulse;
  readonly timers: Timers;
  readonly random: () => number;
  readonly metrics: Metrics;
  readonly log: Logger;
}

/** Compares the cloud's state with the lists: finds what it misses, and lets it remove what is gone (W11). */
export class Inventory {
  readonly #deps: InventoryDeps;
  readonly #lists = new Map<string, ListState>();
  /** Services whose removal was refused as too large: what the lists said of them then. */
  readonly #guarded = new Map<string, { readonly print: string; readonly lists: readonly ListState[] }>();
  /** The lists that showed that the cluster's storage went back. */
  #rewound: readonly ListState[] | null = null;
  /** Is a restored cluster being told anew? Then that decides what may leave. */
  #isRestoring = false;
  readonly #backoff: Backoff;
  #isWanted = false;
  #pendingSince: number | null = null;
  #isDone = false;

  constructor(deps: InventoryDeps) {
    this.#deps = deps;
    deps.queue.pause(true);
    this.#backoff = new Backoff(deps.timers, deps.random);
  }

  /** Has an inventory been completed? Until then requests of a former leader may count (W18). */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** Is every kind listed, and so the cache whole? */
  get isListed(): boolean {
    return this.#lists.size === this.#deps.watched.length;
  }

  /** Monotonic time of the oldest list that was not yet compared; null when there is none. */
  get pendingSince(): number | null {
    return this.#pendingSince;
  }

  /** A list is in the cache: an inventory follows. */
  noteList(watched: Watched, resourceVersion: string, isRewound: boolean): void {
    const { queue, heartbeat, relist, pulse, timers, log } = this.#deps;
    const key = `${watched.kind}/${watched.namespace ?? ''}`;
    const count = (this.#lists.get(key)?.count ?? 0) + 1;
    this.#lists.set(key, { ...watched, resourceVersion, count });
    this.#isWanted = true;
    this.#pendingSince ??= timers.monotonic();
    // Later lists are compared with what their own watch has seen.
    const highest = count === 1 ? heartbeat.versions[watched.kind] : undefined;
    const isLower = highest !== undefined && compareVersions(resourceVersion, highest) < 0;
    if ((isRewound || isLower) && (this.#rewound === null || this.#isRestoring)) {
      log.warn('the cluster went back in time', { ...watched, resource_version: resourceVersion, highest });
      // The other kinds' lists may still be of the time before.
      this.#rewound = [...this.#lists.values()];
      relist('restored');
    }
    // Nothing leaves before everything is listed (W3), nor while a restore has to be told first.
    if (!this.#isRestoring) queue.pause(!this.isListed || this.#rewound !== null);
    pulse.notify();
  }

  async run(signal: AbortSignal): Promise<void> {
    const { timers, metrics, log, heartbeat } = this.#deps;
    const isFenceOver = () => heartbeat.fencedUntil !== null && timers.monotonic() >= heartbeat.fencedUntil;
    const isDue = () => this.#isWanted && this.isListed && isFenceOver();
    while (await this.#until(isDue, signal, false)) {
      this.#isWanted = false;
      const outcome = await this.#reconcile(signal);
      if (signal.aborted) return;
      metrics.count('endpoints_watcher_relay_inventories_total', { outcome });
      if (outcome === 'done') {
        log.info('inventory done');
        this.#isDone = true;
        // What went through is no first look at a later removal.
        this.#guarded.clear();
        this.#pendingSince = this.#isWanted ? timers.monotonic() : null;
      } else if (outcome === 'refused') {
        await timers.sleep(REFUSED_RETRY_MS, signal);
        this.#isWanted = true;
      }
    }
  }

  async #reconcile(signal: AbortSignal): Promise<Outcome> {
    const { queue } = this.#deps;
    if (this.#rewound !== null) {
      const lists = this.#rewound;
      if (!this.#isNewerThan(lists)) return 'again';
      this.#isRestoring = true;
      const isTold = await this.#restore(signal);
      this.#isRestoring = false;
      // It may have gone back once more meanwhile.
      if (isTold && this.#rewound === lists) this.#rewound = null;
      queue.pause(this.#rewound !== null);
      if (!isTold) return 'refused';
      if (this.#rewound !== null) return 'again';
    }
    const id = randomUUID();
    for (let after: ServiceKey | null = null; ; ) {
      const range = this.#cut(after);
      const outcome = await this.#settlePage(id, range, signal);
      if (outcome !== 'done' || range.to === null) return outcome;
      after = range.to;
    }
  }

  /** One page, until it is answered and nothing of it is held back. */
  async #settlePage(id: string, range: Range, signal: AbortSignal): Promise<Outcome> {
    const { queue, maxRemoved } = this.#deps;
    const inRange = rangeTest(range);
    let isGuarded = maxRemoved !== null;
    for (let round = 0; ; ) {
      queue.holdBack(inRange);
      const isQuiet = await this.#until(() => queue.isQuiet(inRange), signal, true);
      queue.holdBack(null);
      if (!isQuiet) return 'again';
      const named = this.#name(inRange);
      const answer = await this.#post(id, range, named, isGuarded, false, signal);
      switch (answer.kind) {
        case 'ok': {
          this.#take(named, answer.value, { isResync: true, isConfirmed: answer.value.again });
          if (!answer.value.again || ++round > MAX_ROUNDS) return 'done';
          if (!(await this.#until(() => queue.isResynced(inRange), signal, true))) return 'again';
          break;
        }
        case 'guard':
          if (!this.#agrees(answer.services)) return 'again';
          isGuarded = false;
          break;
        case 'retry':
          if (this.#isWanted || signal.aborted) return 'again';
          break;
        case 'refused':
          return 'refused';
        default:
          return answer satisfies never;
      }
    }
  }

  /** After a restore versions mean nothing: everything is sent anew, over whatever is stored. */
  async #restore(signal: AbortSignal): Promise<boolean> {
    const { queue, ingest, timers, pulse } = this.#deps;
    const isOver = () =>
      queue.depth.inFlight === 0 && timers.monotonic() >= ingest.lastUncertainAt + FENCE_MS;
    const isResynced = () => queue.isResynced(() => true);
    for (let [round, isHeldBack] = [0, true]; isHeldBack && round < MAX_ROUNDS; round++) {
      queue.pause(true);
      await this.#until(isOver, signal, false);
      isHeldBack = false;
      const id = randomUUID();
      for (let range = this.#cut(null); !signal.aborted; ) {
        const named = this.#name(rangeTest(range));
        const answer = await this.#post(id, range, named, false, true, signal);
        if (answer.kind === 'refused') return false;
        if (answer.kind !== 'ok') continue;
        this.#take(named, answer.value, { isResync: true, isStateUnknown: true });
        isHeldBack ||= answer.value.again;
        if (range.to === null) break;
        range = this.#cut(range.to);
      }
      queue.pause(false);
      pulse.notify();
      await this.#until(isResynced, signal, false);
    }
    return !signal.aborted;
  }

  /** What is missing is sent as it is now; what is neither missing nor changed is known. */
  #take(named: Named, answer: InventoryAnswer, marks: Parameters<Queue['resend']>[1]): void {
    const { cache, queue, pulse, log } = this.#deps;
    const missing = new Set(answer.missing.map(objectId));
    for (const held of named.objects) if (!missing.has(objectId(held))) queue.noteStored(held);
    for (const id of missing) {
      const held = cache.get(id);
      if (held !== undefined) queue.resend(held, marks);
    }
    log.info('inventory page answered', {
      named: named.objects.length,
      missing: missing.size,
      deleted: answer.deleted,
      again: answer.again,
    });
    pulse.notify();
  }

  async #post(
    id: string,
    { after, to }: Range,
    named: Named,
    isGuarded: boolean,
    isRestored: boolean,
    signal: AbortSignal,
  ): Promise<PageAnswer> {
    const { envelope, namespaces, maxRemoved, ingest } = this.#deps;
    const json = JSON.stringify({
      ...envelope,
      id,
      resourceVersions: this.#resourceVersions(),
      namespaces,
      after,
      last: to === null,
      maxRemoved: isGuarded ? maxRemoved : null,
      restored: isRestored,
      services: named.services,
    });
    const answer = await ingest.post('/v1/inventory', [json], inventoryAnswer, signal);
    return this.#judge(answer, signal);
  }

  /** Waits where a page is to follow again. */
  async #judge(answer: Answer<InventoryAnswer>, signal: AbortSignal): Promise<PageAnswer> {
    const { timers, log, metrics, onConflict } = this.#deps;
    switch (answer.kind) {
      case 'ok':
        return { kind: 'ok', value: answer.value };
      case 'conflict':
        if (answer.conflict.error === 'guard') return { kind: 'guard', services: answer.conflict.services };
        onConflict(answer.conflict);
        return { kind: 'refused' };
      case 'tooLarge':
      case 'refused':
        log.error('inventory refused', { answer });
        return { kind: 'refused' };
      case 'unavailable': {
        const { mayHaveRun, retryAfterMs } = answer;
        const waitMs = Math.max(mayHaveRun ? FENCE_MS : this.#backoff.next(), retryAfterMs);
        log.warn('inventory failed', { status: answer.status, reason: answer.reason, retry_in_ms: waitMs });
        metrics.count('endpoints_watcher_relay_retries_total', { path: 'inventory' });
        await timers.sleep(waitMs, signal);
        return { kind: 'retry' };
      }
      default:
        return answer satisfies never;
    }
  }

  /**
   * Has every watch listed again since these services' removal was first refused, and does the cache still say the same of
   * them? Else new lists are asked for.
   */
  #agrees(services: readonly string[]): boolean {
    const { relist, log } = this.#deps;
    const lists = [...this.#lists.values()];
    let [isNew, isNewer] = [false, true];
    for (const id of services) {
      const known = this.#guarded.get(id);
      const print = this.#print(id as ServiceId);
      if (known?.print !== print) {
        this.#guarded.set(id, { print, lists });
        isNew = true;
      } else if (!this.#isNewerThan(known.lists)) isNewer = false;
    }
    if (isNew) {
      log.warn('mass removal held back, the cluster is listed again', { services: services.slice(0, 10) });
      relist('guard');
    }
    if (isNew || !isNewer) return false;
    this.#guarded.clear();
    return true;
  }

  /** Which objects a service has, whatever their versions. */
  #print(id: ServiceId): string {
    const uids = [...this.#deps.cache.ofService(id)].map(({ uid }) => uid);
    return uids.sort().join(' ');
  }

  #isNewerThan(lists: readonly ListState[]): boolean {
    return lists.every(({ kind, namespace, count }) => {
      const now = this.#lists.get(`${kind}/${namespace ?? ''}`);
      return now !== undefined && now.count > count;
    });
  }

  /** The next page's range: whole services, so many that their objects fill it. */
  #cut(after: ServiceKey | null): Range {
    const inRange = rangeTest({ after, to: null });
    let objects = 0;
    let to: ServiceKey | null = null;
    for (const service of this.#deps.cache.services()) {
      if (!inRange(service)) continue;
      if (to !== null && objects + service.objects.size > PAGE_OBJECTS) return { after, to };
      objects += service.objects.size;
      to = { namespace: service.namespace, name: service.name };
    }
    return { after, to: null };
  }

  /** What is there now, of the services meant; but not what ingest will not have. */
  #name(inRange: InRange): Named {
    const { cache, queue } = this.#deps;
    const objects: Held[] = [];
    const services: unknown[] = [];
    for (const { namespace, name, objects: members } of cache.services()) {
      if (!inRange({ namespace, name })) continue;
      const held = [...members.values()];
      const service = held.find(({ kind }) => kind === 'Service');
      const others = held.filter((object) => object !== service && !queue.isRefused(object));
      objects.push(...(service === undefined ? [] : [service]), ...others);
      services.push({
        namespace,
        name,
        ...(service && { uid: service.uid, resourceVersion: service.resourceVersion }),
        objects: others.map(({ name, uid, resourceVersion }) => ({ name, uid, resourceVersion })),
      });
    }
    return { objects, services };
  }

  #resourceVersions(): Record<string, string | Record<string, string>> {
    const versions: Record<string, string | Record<string, string>> = {};
    for (const { kind, namespace, resourceVersion } of this.#lists.values()) {
      if (namespace === null) versions[kind] = resourceVersion;
      else versions[kind] = { ...(versions[kind] as object), [namespace]: resourceVersion };
    }
    return versions;
  }

  /** Waits for a condition. @returns false when `signal` is aborted, or, if it may be, a newer list came first. */
  async #until(condition: () => boolean, signal: AbortSignal, isSuperseded: boolean): Promise<boolean> {
    const { pulse, timers } = this.#deps;
    while (!condition()) {
      if (signal.aborted || (isSuperseded && this.#isWanted)) return false;
      await pulse.wait(timers, LOOK_MS);
    }
    return !signal.aborted;
  }
}

/** A page's content. */
interface Named {
  readonly objects: readonly Held[];
  readonly services: readonly unknown[];
}

type PageAnswer =
  | { readonly kind: 'ok'; readonly value: InventoryAnswer }
  | { readonly kind: 'guard'; readonly services: readonly string[] }
  | { readonly kind: 'retry' }
  | { readonly kind: 'refused' };

function rangeTest({ after, to }: Range): InRange {
  return (service) =>
    (after === null || compareServiceKeys(service, after) > 0) &&
    (to === null || compareServiceKeys(service, to) <= 0);
}
