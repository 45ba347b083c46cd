import assert from 'node:assert/strict';
import { compareText } from '../../core/address.ts';
import type { Service } from '../../core/kubernetes.ts';
import { serviceNameOf } from '../../core/slice.ts';
import type { EventsAnswer } from '../../wire/events.ts';
import type { InventoryAnswer } from '../../wire/inventory.ts';
import type { HistoryEvent } from '../core/history.ts';
import { type NaiveSet, naiveSets, type RecordedObject } from '../core/naive-model.ts';
import { SeenServices } from '../seen-services.ts';
import type { Answer, StackProcess } from './stack-process.ts';
import { type LoggedEntry, Subscriber } from './subscriber.ts';

/** What a relay does when a request got no answer or a 5xx. */
type Remedy =
  /** Sends the same again. */
  | 'resend'
  /** Waits for a sweep first. */
  | 'sweep'
  /** Has heard more meanwhile: the newest of each object goes. */
  | 'coalesce';
const REMEDIES: readonly Remedy[] = ['resend', 'sweep', 'coalesce'];
/** Failures of one batch in a row beyond which something is broken. */
const MAX_FAILURES = 30;
/** Entries of one read of the bus. */
const MAX_READ = 10_000;

type SentEvent = HistoryEvent & { readonly former: readonly string[] };

/** What happened from the first try of a batch to its 200, as far as it may deliver a delta once more. */
interface Era {
  readonly failures: number;
  /** Sweeps that were over before: each later one may publish what is on its way. */
  readonly sweepsEnded: number;
  /** Calls of the bus that may have got no answer in time on a machine that was busy, and were made again inside. */
  readonly lateCalls: number;
}

/** A call of the bus that takes longer is made again, in milliseconds. */
const CALL_TIMEOUT_MS = 2000;
const NOTHING: Era = { failures: 0, sweepsEnded: 0, lateCalls: 0 };

export interface RelayOptions {
  readonly stack: StackProcess;
  readonly cluster: string;
  readonly mode: 'slices' | 'endpoints';
  readonly random: (bound: number) => number;
}

/** Tells one cluster's events as a relay does, over HTTP, until each was answered; and subscribes to what comes of it. */
export class ResendingRelay {
  readonly subscriber: Subscriber;
  readonly #stack: StackProcess;
  readonly #cluster: string;
  readonly #mode: 'slices' | 'endpoints';
  readonly #random: (bound: number) => number;
  readonly #seen = new SeenServices();
  /** The last event of each object, and the last one that was recorded. */
  readonly #latest = new Map<string, HistoryEvent>();
  readonly #recorded = new Map<string, HistoryEvent>();
  /** When each delta was first seen on the bus. */
  readonly #eras = new Map<string, Era>();
  /** The bus's position up to which it was read; null before the first time. */
  #read: number | null = null;
  /** Sweeps that were over when the bus was last read. */
  #sweepsEnded = 0;
  failures = 0;

  constructor({ stack, cluster, mode, random }: RelayOptions) {
    this.#stack = stack;
    this.#cluster = cluster;
    this.#mode = mode;
    this.#random = random;
    this.subscriber = new Subscriber(cluster);
  }

  /** Sends batches in order, each until a 200. */
  async tell(batches: readonly (readonly HistoryEvent[])[]): Promise<void> {
    if (this.#read === null) await this.readBus(NOTHING);
    const rest = [...batches];
    for (let batch = rest.shift(); batch !== undefined; batch = rest.shift()) {
      const era = this.beginEra();
      let events = this.#toSend(batch);
      let failures = 0;
      let answer = await this.#post(events, false);
      while (answer === null || answer.status >= 500) {
        failures++;
        assert(failures <= MAX_FAILURES, `${this.#cluster}: ${JSON.stringify(answer)} over and over`);
        await this.#stack.revive();
        const remedy = REMEDIES[this.#random(REMEDIES.length)];
        if (remedy === 'sweep' && (await this.#stack.sweep()) === null) await this.#stack.revive();
        if (remedy === 'coalesce') events = newestOf([...events, ...this.#toSend(rest.shift() ?? [])]);
        answer = await this.#post(events, true);
      }
      assert.equal(answer.status, 200, JSON.stringify(answer.body));
      this.failures += failures;
      this.#record(events, answer.body as EventsAnswer, failures > 0);
      await this.readBus(era(failures));
    }
  }

  /** Misses the deletion of some of the objects that there are. */
  miss(isMissed: () => boolean): void {
    for (const [uid, { type }] of this.#latest)
      if (type !== 'DELETED' && isMissed()) this.#latest.delete(uid);
  }

  /** Sends an inventory of all, until it was answered, and whatever it finds missing. */
  async reconcile(): Promise<void> {
    for (let isOver = false; !isOver; ) {
      const era = this.beginEra();
      let failures = 0;
      let answer = await this.#stack.request('POST', '/v1/inventory', this.#inventory());
      while (answer === null || answer.status >= 500) {
        failures++;
        assert(failures <= MAX_FAILURES, `${this.#cluster}: ${JSON.stringify(answer)} over and over`);
        await this.#stack.revive();
        if (this.#random(2) === 0 && (await this.#stack.sweep()) === null) await this.#stack.revive();
        answer = await this.#stack.request('POST', '/v1/inventory', this.#inventory());
      }
      assert.equal(answer.status, 200, JSON.stringify(answer.body));
      this.failures += failures;
      await this.readBus(era(failures));
      const { missing, again } = answer.body as InventoryAnswer;
      const named = this.#living().filter(({ object }) =>
        missing.some(({ kind, name }) => kind === object.kind && name === object.metadata.name),
      );
      if (named.length > 0) await this.tell([named]);
      isOver = !again;
    }
  }

  /** From here on; what it is in the end depends on the failures. */
  beginEra(): (failures: number) => Era {
    const { ended: sweepsEnded } = this.#stack.sweeps;
    const start = performance.now();
    return (failures) => ({
      failures,
      sweepsEnded,
      lateCalls: Math.floor((performance.now() - start) / CALL_TIMEOUT_MS),
    });
  }

  /** Takes what is on the bus by now; what is new there belongs to an era. */
  async readBus(told: Era): Promise<void> {
    // Others' sweeps since the last read may have brought what is read now.
    const era = { ...told, sweepsEnded: Math.min(told.sweepsEnded, this.#sweepsEnded) };
    this.#sweepsEnded = this.#stack.sweeps.ended;
    // One read answers so many bytes at most.
    for (let isRead = false; !isRead; ) {
      const path = `/local/bus?after=${this.#read ?? 0}&limit=${this.#read === null ? 0 : MAX_READ}`;
      const answer = await this.#stack.request('GET', path);
      if (answer === null) {
        // Another relay's fault ended the process.
        await this.#stack.revive();
        continue;
      }
      const { entries, last } = answer.body as {
        readonly entries: readonly LoggedEntry[];
        readonly last: number;
      };
      for (const id of this.subscriber.take(entries)) this.#eras.set(id, era);
      this.#read = last;
      isRead = entries.length === 0;
    }
  }

  /** What the newest events say that there is: sets by `namespace/service:port`. */
  expected(): Record<string, NaiveSet> {
    const services: Service[] = [];
    const objects: RecordedObject[] = [];
    for (const { object, enrich } of this.#living()) {
      const { uid } = object.metadata;
      if (object.kind === 'Service') services.push(object);
      else {
        const version = (this.#recorded.get(uid)?.object ?? object).metadata.resourceVersion;
        objects.push({ object, version, enrich });
      }
    }
    return naiveSets(services, objects);
  }

  /** How many deliveries were duplicates; each must have a reason in its delta's era. */
  countDuplicates(): number {
    let duplicates = 0;
    for (const [id, again] of this.subscriber.duplicates()) {
      const { failures, sweepsEnded, lateCalls } = this.#eras.get(id) ?? NOTHING;
      // Also sweeps behind the era: an inventory that comes again finds nothing to change, and leaves it to them.
      const sweeps = this.#stack.sweeps.begun - sweepsEnded;
      const reasons = failures + sweeps + lateCalls;
      assert(again <= reasons, `${id}: came ${again} times more, for ${reasons} reasons`);
      duplicates += again;
    }
    return duplicates;
  }

  #living(): HistoryEvent[] {
    return [...this.#latest.values()].filter(({ type }) => type !== 'DELETED');
  }

  /** All that there is, in one page. */
  #inventory(): object {
    const living = this.#living();
    const versionOf = ({ object }: HistoryEvent) => Number(object.metadata.resourceVersion);
    const listedAt = `${Math.max(1, ...[...this.#recorded.values(), ...living].map(versionOf))}`;
    const kind = this.#mode === 'slices' ? 'EndpointSlice' : 'Endpoints';
    const services = living.flatMap(({ object }) => (object.kind === 'Service' ? [object.metadata] : []));
    const objects = living.flatMap(({ object }) => (object.kind === kind ? [object] : []));
    const ownerOf = ({ kind, metadata }: (typeof objects)[number]) =>
      kind === 'Endpoints' ? metadata.name : serviceNameOf(metadata);
    const names = new Set([
      ...services.map(({ name }) => name),
      ...objects.flatMap((it) => ownerOf(it) ?? []),
    ]);
    return {
      ...{ cluster: this.#cluster, epoch: 1, mode: this.#mode, id: listedAt, after: null, last: true },
      resourceVersions: { Service: listedAt, [kind]: listedAt },
      services: [...names].sort(compareText).map((name) => ({
        ...{ namespace: 'default', name },
        ...identityOf(services.find((service) => service.name === name)),
        objects: objects
          .filter((object) => ownerOf(object) === name)
          .map(({ metadata }) => ({ name: metadata.name, ...identityOf(metadata) })),
      })),
    };
  }

  #toSend(batch: readonly HistoryEvent[]): SentEvent[] {
    const events = batch.map((event) => {
      this.#latest.set(event.object.metadata.uid, event);
      return { ...event, former: this.#seen.formerOf(event.object) };
    });
    return newestOf(events);
  }

  #post(events: readonly SentEvent[], isConfirming: boolean): Promise<Answer | null> {
    return this.#stack.request('POST', '/v1/events', {
      cluster: this.#cluster,
      epoch: 1,
      mode: this.#mode,
      events: isConfirming ? events.map((event) => ({ ...event, confirm: true })) : events,
    });
  }

  #record(events: readonly SentEvent[], { results }: EventsAnswer, isConfirmed: boolean): void {
    for (const [index, event] of events.entries()) {
      const status = results[index]?.status ?? 'rejected';
      assert(
        status !== 'rejected' && status !== 'stale',
        `${this.#cluster}: ${JSON.stringify(results[index])}`,
      );
      if (isConfirmed || status === 'applied') this.#recorded.set(event.object.metadata.uid, event);
    }
  }
}

function identityOf(metadata: HistoryEvent['object']['metadata'] | undefined) {
  return { uid: metadata?.uid ?? null, resourceVersion: metadata?.resourceVersion ?? null };
}

/** Of each object the newest event, as a relay's queue holds it; objects in the order of their newest. */
function newestOf(events: readonly SentEvent[]): SentEvent[] {
  const newest = new Map<string, SentEvent>();
  for (const event of events) {
    const { uid } = event.object.metadata;
    newest.delete(uid);
    newest.set(uid, event);
  }
  return [...newest.values()];
}
