import type { EventStatus } from '../wire/events.ts';
import type { ServiceKey } from '../wire/inventory.ts';
import { type Cache, type ObjectId, objectId, type ServiceId, serviceId } from './cache.ts';
import type { Held } from './compact.ts';

/** Services, bytes of JSON and events of one batch, at most. */
const MAX_SERVICES = 20;
const MAX_BYTES = 1_000_000;
const MAX_EVENTS = 10_000;
/** What an event's JSON has beside its object's content, in bytes, roughly. */
const EVENT_OVERHEAD_BYTES = 300;
/** Each failure halves the number of services that are tried together, so that one that makes a batch fail is soon alone. */
const MAX_HALVINGS = 5;
/** Changes are waited for at most this many times `settleMs` (W10a). */
const MAX_SETTLES = 10;
/** Deletions kept while they cannot be told: an inventory finds the rest. */
const MAX_DELETIONS = 5000;
/** How long a request without an answer may still change something, in milliseconds (P8). */
export const FENCE_MS = 10_000;

/** Why and how an object is sent, beside its state. */
export interface Marks {
  /** An inventory missed it. */
  readonly isResync: boolean;
  /** Its version is to be recorded although nothing changed (P5). */
  readonly isConfirmed: boolean;
  /** It replaces whatever version is stored. */
  readonly isStateUnknown: boolean;
}

const NO_MARKS: Marks = { isResync: false, isConfirmed: false, isStateUnknown: false };

/** One event as it leaves. */
export interface QueuedEvent extends Marks {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly held: Held;
  /** Other services that it has to leave (S10). */
  readonly former: readonly string[];
}

/** What goes out in one request. */
export interface Batch {
  readonly events: readonly QueuedEvent[];
  /** Services that no other batch may touch meanwhile. */
  readonly services: ReadonlySet<ServiceId>;
  /** How often its services failed, and proved too large, so far. */
  readonly failures: number;
  readonly splits: number;
}

/** What became of a batch. */
export type Outcome =
  /** One status per event. */
  | { readonly kind: 'answered'; readonly statuses: readonly EventStatus[] }
  /** To be sent again, not before `retryAt` (monotonic). `mayHaveRun`: it got no answer, or a 5xx. */
  | { readonly kind: 'failed'; readonly mayHaveRun: boolean; readonly retryAt: number }
  /** To be sent again in smaller pieces. */
  | { readonly kind: 'tooLarge' }
  /** Refused for good. */
  | { readonly kind: 'dropped' };

/** What is untold of one object name. */
interface Entry {
  readonly id: ObjectId;
  readonly namespace: string;
  /** Deletions to tell first, oldest first. */
  deletions: Held[];
  /** Is the state in the cache to be told? */
  isDirty: boolean;
  type: 'ADDED' | 'MODIFIED';
  marks: Marks;
  /** Monotonic time of the oldest change that was not yet taken; null when there is none. */
  since: number | null;
  group: Group | null;
  inFlight: { readonly events: readonly QueuedEvent[]; readonly since: number | null } | null;
  /** The last request with it, when that failed and may have run: when it did, and what it touched; null once answered. */
  failed: { readonly at: number; readonly services: readonly string[] } | null;
}

/** Entries of one service that wait together. */
interface Group {
  readonly id: ServiceId;
  readonly entries: Set<Entry>;
  firstAt: number;
  lastAt: number;
  notBefore: number;
  failures: number;
  splits: number;
}

export interface QueueDeps {
  readonly cache: Cache;
  /** How long a service's changes are collected, in milliseconds; 0 = not at all (W10a). */
  readonly settleMs: number;
  /** Milliseconds that never step back. */
  readonly monotonic: () => number;
}

/** Which services are meant. */
export type InRange = (service: ServiceKey) => boolean;

/**
 * What the cloud has yet to be told: per object its newest state, which is looked up when it leaves, and every deletion
 * (W10). It never lets two batches with one service, nor two events of one object, be in flight (W10a).
 */
export class Queue {
  readonly #deps: QueueDeps;
  readonly #entries = new Map<ObjectId, Entry>();
  readonly #groups = new Map<ServiceId, Group>();
  readonly #locked = new Set<ServiceId>();
  /** The cloud's answer for a state: with none it may not know it. */
  readonly #verdicts = new WeakMap<Held, EventStatus>();
  #deletions = 0;
  #coalesced = 0;
  #unchanged = 0;
  #isOverflown = false;
  #nextAt: number | null = null;
  #isPaused = false;
  #heldBack: InRange | null = null;

  constructor(deps: QueueDeps) {
    this.#deps = deps;
  }

  /** Changes that were merged into later ones, or told nothing new. */
  get coalesced(): { readonly merged: number; readonly unchanged: number } {
    return { merged: this.#coalesced, unchanged: this.#unchanged };
  }

  /** Objects that wait, and that are in flight. */
  get depth(): { readonly waiting: number; readonly inFlight: number } {
    let [waiting, inFlight] = [0, 0];
    for (const entry of this.#entries.values()) {
      if (this.#isUntold(entry)) waiting++;
      if (entry.inFlight !== null) inFlight++;
    }
    return { waiting, inFlight };
  }

  /** Monotonic time of the oldest change that is untold; null when there is none. */
  get oldestAt(): number | null {
    let oldest: number | null = null;
    for (const { since, inFlight } of this.#entries.values()) {
      for (const at of [since, inFlight?.since ?? null]) {
        if (at !== null && (oldest === null || at < oldest)) oldest = at;
      }
    }
    return oldest;
  }

  /** Were more deletions, or moves, to be kept than fit? Then only a new list can tidy up. Asking forgets it. */
  takeOverflow(): boolean {
    const was = this.#isOverflown;
    this.#isOverflown = false;
    return was;
  }

  /** Applies a watch event to the cache and notes what is to be told. */
  observe(type: 'ADDED' | 'MODIFIED' | 'DELETED', held: Held): void {
    const { cache } = this.#deps;
    const id = objectId(held);
    const entry = this.#entries.get(id);
    const before = cache.get(id);
    if (type === 'DELETED') {
      const isPresent = before?.uid === held.uid;
      if (isPresent) cache.remove(held);
      if (!cache.noteDeletion(before, held)) this.#isOverflown = true;
      this.#noteDeletion(this.#entry(held), held, isPresent);
      return;
    }
    if (!cache.put(held)) this.#isOverflown = true;
    const verdict = before === undefined ? undefined : this.#verdicts.get(before);
    if (
      before?.uid === held.uid &&
      before.content.equals(held.content) &&
      (verdict === 'applied' || verdict === 'unchanged') &&
      (entry === undefined || !(this.#isUntold(entry) || entry.inFlight))
    ) {
      this.#verdicts.set(held, verdict);
      this.#unchanged++;
      return;
    }
    this.#touch(this.#entry(held), type);
  }

  /** Sends the present state of an object, whatever was sent before. */
  resend(held: Held, marks: Partial<Marks>, type: 'ADDED' | 'MODIFIED' = 'ADDED'): void {
    const entry = this.#entry(held);
    entry.marks = mergeMarks(entry.marks, { ...NO_MARKS, ...marks });
    this.#touch(entry, type);
  }

  /** An inventory found this state in the cloud. */
  noteStored(held: Held): void {
    this.#verdicts.set(held, 'unchanged');
  }

  /** Would naming this object make no sense, since ingest will not have it? */
  isRefused(held: Held): boolean {
    const verdict = this.#verdicts.get(held);
    return verdict === 'rejected' || verdict === 'ignored';
  }

  /** While paused nothing is taken. */
  pause(isPaused: boolean): void {
    this.#isPaused = isPaused;
  }

  /** Keeps services back, so that a busy range becomes quiet; but those whose last request failed go on. */
  holdBack(range: InRange | null): void {
    this.#heldBack = range;
  }

  /** Is no event of these services unanswered? Waiting ones do not count, unless a request with them failed. */
  isQuiet(range: InRange): boolean {
    for (const entry of this.#entries.values()) {
      if (entry.inFlight === null && !this.#isFailing(entry)) continue;
      if (this.#isWithin(entry, range)) return false;
    }
    return true;
  }

  /** Is everything answered that an inventory missed of these services? */
  isResynced(range: InRange): boolean {
    for (const entry of this.#entries.values()) {
      const isWaiting = this.#isUntold(entry) && entry.marks.isResync;
      if (!isWaiting && !entry.inFlight?.events.some((event) => event.isResync)) continue;
      if (this.#isWithin(entry, range)) return false;
    }
    return true;
  }

  /** The next batch that may leave now, or null. */
  take(): Batch | null {
    this.#nextAt = null;
    if (this.#isPaused) return null;
    const now = this.#deps.monotonic();
    const chosen = new Set<Entry>();
    const services = new Set<ServiceId>();
    let [failures, splits, bytes, events] = [0, 0, 0, 0];
    for (const group of [...this.#groups.values()]) {
      if (services.has(group.id) || this.#waits(this.#readyAt(group), now)) continue;
      const linked = this.#linked(group);
      if (linked.entries.length === 0 || this.#waits(this.#freeAt(linked), now)) continue;
      const worst = {
        failures: Math.max(failures, ...linked.groups.map((member) => member.failures)),
        splits: Math.max(splits, ...linked.groups.map((member) => member.splits)),
      };
      const share = 2 ** worst.splits;
      const room = { bytes: MAX_BYTES / share - bytes, events: MAX_EVENTS / share - events };
      const entries = linked.entries.filter((entry) => !chosen.has(entry));
      const size = this.#sizeOf(entries);
      const fits = size.bytes <= room.bytes && size.events <= room.events;
      const maxServices = MAX_SERVICES / 2 ** Math.min(worst.failures, MAX_HALVINGS);
      if (chosen.size > 0 && !(fits && services.size + linked.services.size <= maxServices)) break;
      for (const entry of fits ? entries : this.#firstOf(entries, room)) chosen.add(entry);
      for (const service of linked.services) services.add(service);
      ({ failures, splits } = worst);
      bytes += size.bytes;
      events += size.events;
    }
    if (chosen.size === 0) return null;
    for (const service of services) this.#locked.add(service);
    const taken = [...chosen].flatMap((entry) => this.#takeEvents(entry));
    return { events: taken, services, failures, splits };
  }

  /** After `take` had nothing: when something that waits for time alone may leave (monotonic); null when nothing does. */
  get nextAt(): number | null {
    return this.#nextAt;
  }

  #waits(at: number, now: number): boolean {
    if (at > now && at !== Number.POSITIVE_INFINITY) this.#nextAt = Math.min(at, this.#nextAt ?? at);
    return at > now;
  }

  /** When a service's changes have settled, its last failure is long enough ago, and it is not held back. */
  #readyAt(group: Group): number {
    const { settleMs } = this.#deps;
    const settledAt = Math.min(group.lastAt + settleMs, group.firstAt + MAX_SETTLES * settleMs);
    return Math.max(settledAt, this.#isHeldBack(group) ? Number.POSITIVE_INFINITY : group.notBefore);
  }

  /** When nothing keeps linked services any more: a batch in flight, a failure, an inventory. */
  #freeAt({ services, groups, entries }: Linked): number {
    if (entries.some((entry) => entry.inFlight !== null)) return Number.POSITIVE_INFINITY;
    if ([...services].some((service) => this.#locked.has(service))) return Number.POSITIVE_INFINITY;
    // A failed request goes on whole: without those that it is linked with it never would, and nothing became quiet.
    const isHeldBack = groups.some((group) => this.#isHeldBack(group));
    if (isHeldBack && !entries.some((entry) => this.#isFailing(entry))) return Number.POSITIVE_INFINITY;
    return Math.max(...groups.map((group) => group.notBefore));
  }

  #isHeldBack({ id, entries }: Group): boolean {
    if (this.#heldBack === null) return false;
    const [namespace = '', name = ''] = id.split('/');
    return this.#heldBack({ namespace, name }) && ![...entries].some((entry) => this.#isFailing(entry));
  }

  /**
   * The services that must be told together with one: an object that moved touches two (S10), and what an inventory has
   * yet to find missing goes along, so that no Service is told without its slices.
   */
  #linked(start: Group): Linked {
    const services = new Set<ServiceId>([start.id]);
    const groups: Group[] = [];
    for (const id of services) {
      const group = this.#groups.get(id);
      if (group === undefined) continue;
      for (const held of this.#deps.cache.ofService(id)) {
        const entry = this.#entries.get(objectId(held));
        if (this.#verdicts.has(held) || entry?.isDirty || entry?.inFlight) continue;
        this.resend(held, { isResync: true });
      }
      for (const entry of group.entries) {
        if (!this.#isUntold(entry)) this.#leaveGroup(entry);
        for (const name of this.#waitingServices(entry)) services.add(serviceId(entry.namespace, name));
      }
      if (group.entries.size > 0) groups.push(group);
    }
    return { services, groups, entries: groups.flatMap((group) => [...group.entries]) };
  }

  /** Of a service too large for one batch: slices first, the Service last, so that its first set is whole. */
  #firstOf(entries: readonly Entry[], room: Size): Entry[] {
    const ordered = [...entries].sort((a, b) => Number(isService(a)) - Number(isService(b)));
    const first: Entry[] = [];
    let [bytes, events] = [0, 0];
    for (const entry of ordered) {
      const size = this.#sizeOf([entry]);
      bytes += size.bytes;
      events += size.events;
      if (first.length > 0 && (bytes > room.bytes || events > room.events)) break;
      first.push(entry);
    }
    return first;
  }

  #sizeOf(entries: readonly Entry[]): Size {
    let [bytes, events] = [0, 0];
    for (const held of entries.flatMap((entry) => this.#waitingStates(entry))) {
      bytes += held.size + EVENT_OVERHEAD_BYTES;
      events++;
    }
    return { bytes, events };
  }

  #takeEvents(entry: Entry): QueuedEvent[] {
    const { cache } = this.#deps;
    const { since, deletions, marks } = entry;
    const events = this.#waitingStates(entry).map((held, index): QueuedEvent => {
      const former = cache.former(held);
      return index < deletions.length
        ? { ...marks, isResync: false, type: 'DELETED', held, former }
        : { ...marks, type: entry.type, held, former };
    });
    this.#leaveGroup(entry);
    this.#deletions -= deletions.length;
    Object.assign(entry, { deletions: [], isDirty: false, marks: NO_MARKS, since: null });
    entry.inFlight = { events, since };
    return events;
  }

  /** Takes back what was sent, with its outcome. */
  settle(batch: Batch, outcome: Outcome): void {
    for (const service of batch.services) this.#locked.delete(service);
    const isOver = outcome.kind === 'answered' || outcome.kind === 'dropped';
    if (isOver) this.#noteVerdicts(batch, outcome.kind === 'answered' ? outcome.statuses : []);
    for (const entry of new Set(batch.events.map(({ held }) => this.#entry(held)))) {
      const { events = [], since = null } = entry.inFlight ?? {};
      entry.inFlight = null;
      if (isOver) this.#close(entry, events);
      else this.#putBack(entry, events, since, batch, outcome);
    }
  }

  #noteVerdicts(batch: Batch, statuses: readonly EventStatus[]): void {
    batch.events.forEach(({ held, type }, index) => {
      const status = statuses[index] ?? 'rejected';
      this.#verdicts.set(held, status);
      // Of what is gone nothing more is told, whatever the answer.
      if (status !== 'stale' || type === 'DELETED') this.#deps.cache.settle(held);
    });
    for (const service of batch.services) {
      const group = this.#groups.get(service);
      if (group !== undefined) group.failures = 0;
    }
  }

  /** Answered: but an object whose answer was `stale` goes on being confirmed (P5). */
  #close(entry: Entry, events: readonly QueuedEvent[]): void {
    entry.failed = null;
    if (events.some((event) => event.isConfirmed && this.#verdicts.get(event.held) === 'stale')) {
      entry.marks = { ...entry.marks, isConfirmed: true };
    }
    this.#forget(entry);
  }

  #putBack(
    entry: Entry,
    events: readonly QueuedEvent[],
    since: number | null,
    batch: Batch,
    outcome: Outcome & { kind: 'failed' | 'tooLarge' },
  ): void {
    const { mayHaveRun, retryAt } = outcome.kind === 'failed' ? outcome : { mayHaveRun: false, retryAt: 0 };
    if (mayHaveRun) {
      const services = events.flatMap(({ held, former }) => [...serviceNames(held), ...former]);
      entry.failed = { at: this.#deps.monotonic(), services };
    }
    for (const { type, isResync, isConfirmed, isStateUnknown } of events) {
      const marks = { isResync, isStateUnknown, isConfirmed: isConfirmed || mayHaveRun };
      entry.marks = mergeMarks(entry.marks, marks);
      if (type !== 'DELETED' && this.#deps.cache.get(entry.id) !== undefined) entry.isDirty = true;
    }
    const deletions = events.filter(({ type }) => type === 'DELETED').map(({ held }) => held);
    entry.deletions = [...deletions, ...entry.deletions];
    this.#deletions += deletions.length;
    entry.since = since ?? entry.since;
    const group = this.#enqueue(entry);
    if (group === null) return;
    group.notBefore = Math.max(group.notBefore, retryAt);
    if (outcome.kind === 'failed') group.failures = Math.max(group.failures, batch.failures + 1);
    else group.splits = Math.max(group.splits, batch.splits + 1);
  }

  #entry(held: Held): Entry {
    const id = objectId(held);
    const known = this.#entries.get(id);
    if (known !== undefined) return known;
    const entry: Entry = {
      id,
      namespace: held.namespace,
      deletions: [],
      isDirty: false,
      type: 'ADDED',
      marks: NO_MARKS,
      since: null,
      group: null,
      inFlight: null,
      failed: null,
    };
    this.#entries.set(id, entry);
    return entry;
  }

  /** The state in the cache is to be told. */
  #touch(entry: Entry, type: 'ADDED' | 'MODIFIED'): void {
    if (entry.isDirty) this.#coalesced++;
    else entry.type = type;
    entry.isDirty = true;
    this.#enqueue(entry);
  }

  #noteDeletion(entry: Entry, held: Held, isPresent: boolean): void {
    if (entry.isDirty && isPresent) {
      this.#coalesced++;
      entry.isDirty = false;
    }
    if (this.#deletions >= MAX_DELETIONS) {
      this.#isOverflown = true;
      this.#deps.cache.settle(held);
      this.#forget(entry);
      return;
    }
    entry.deletions.push(held);
    this.#deletions++;
    this.#enqueue(entry);
  }

  /** Puts an entry into the group of its service. @returns null when there is nobody to tell. */
  #enqueue(entry: Entry): Group | null {
    const now = this.#deps.monotonic();
    const [service] = this.#waitingServices(entry);
    if (service === undefined) {
      this.#deletions -= entry.deletions.length;
      entry.deletions = [];
      entry.isDirty = false;
      this.#leaveGroup(entry);
      return null;
    }
    entry.since ??= now;
    const id = serviceId(entry.namespace, service);
    if (entry.group?.id !== id) this.#leaveGroup(entry);
    let group = this.#groups.get(id);
    if (group === undefined) {
      group = { id, entries: new Set(), firstAt: now, lastAt: now, notBefore: 0, failures: 0, splits: 0 };
      this.#groups.set(id, group);
    }
    entry.group = group;
    group.entries.add(entry);
    group.lastAt = now;
    return group;
  }

  #leaveGroup(entry: Entry): void {
    const { group } = entry;
    entry.group = null;
    group?.entries.delete(entry);
    if (group?.entries.size === 0) this.#groups.delete(group.id);
    if (!this.#isUntold(entry)) this.#forget(entry);
  }

  /** Drops an entry that has nothing more to tell, nor to remember. */
  #forget(entry: Entry): void {
    if (this.#isUntold(entry) || entry.inFlight !== null) return;
    entry.isDirty = false;
    entry.since = null;
    const isRemembered = entry.marks.isConfirmed && this.#deps.cache.get(entry.id) !== undefined;
    if (!isRemembered && entry.failed === null) this.#entries.delete(entry.id);
  }

  /** A list may have taken away what was to be told. */
  #isUntold({ id, deletions, isDirty }: Entry): boolean {
    return deletions.length > 0 || (isDirty && this.#deps.cache.get(id) !== undefined);
  }

  /** May a request with it, which failed, still be running? It is resent until answered; what a list took away cannot be. */
  #isFailing(entry: Entry): boolean {
    if (entry.failed === null) return false;
    if (this.#isUntold(entry) || this.#deps.monotonic() < entry.failed.at + FENCE_MS) return true;
    entry.failed = null;
    this.#forget(entry);
    return false;
  }

  #waitingStates({ id, deletions, isDirty }: Entry): readonly Held[] {
    const live = isDirty ? this.#deps.cache.get(id) : undefined;
    return live === undefined ? deletions : [...deletions, live];
  }

  /** Names of the services that what waits of an entry will touch; the newest state's own one first. */
  #waitingServices(entry: Entry): string[] {
    const states = this.#waitingStates(entry).toReversed();
    return states.flatMap((held) => [...serviceNames(held), ...this.#deps.cache.former(held)]);
  }

  /** Does anything of an entry, waiting or sent, touch the services meant? */
  #isWithin(entry: Entry, range: InRange): boolean {
    const sent = entry.inFlight?.events ?? [];
    const names = [
      ...this.#waitingServices(entry),
      ...sent.flatMap(({ held, former }) => [...serviceNames(held), ...former]),
      ...(entry.failed?.services ?? []),
    ];
    return names.some((name) => range({ namespace: entry.namespace, name }));
  }
}

interface Linked {
  readonly services: ReadonlySet<ServiceId>;
  readonly groups: readonly Group[];
  readonly entries: readonly Entry[];
}

function serviceNames({ service }: Held): string[] {
  return service === null ? [] : [service];
}

function isService({ id }: Entry): boolean {
  return id.startsWith('Service/');
}

interface Size {
  readonly bytes: number;
  readonly events: number;
}

function mergeMarks(a: Marks, b: Marks): Marks {
  return {
    isResync: a.isResync || b.isResync,
    isConfirmed: a.isConfirmed || b.isConfirmed,
    isStateUnknown: a.isStateUnknown || b.isStateUnknown,
  };
}
