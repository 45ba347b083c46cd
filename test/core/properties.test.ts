import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { Service } from '../../core/kubernetes.ts';
import { compareVersions } from '../../core/version.ts';
import type { EventStatus } from '../../wire/events.ts';
import { SeenServices } from '../seen-services.ts';
import { CoreCluster } from './core-cluster.ts';
import { type HistoryEvent, type HistoryOptions, history } from './history.ts';
import { naiveSets, type RecordedObject } from './naive-model.ts';
import { ObservedSets } from './observed-sets.ts';

/** Runs of each property. */
const RUNS = Number(process.env.RUNS ?? 2000);
/** What the runs are made from: the same seed makes the same ones. */
const SEED = Number(process.env.SEED ?? Date.now() % 2 ** 31);
/** After so many seconds a property has run enough; however long it takes when it is not given. */
const MAX_SECONDS = process.env.MAX_SECONDS;
/** Longer than a rename window, in milliseconds. */
const WINDOWS_CLOSED_MS = 15_000;

const PARAMETERS = {
  numRuns: RUNS,
  seed: SEED,
  ...(MAX_SECONDS !== undefined && { interruptAfterTimeLimit: Number(MAX_SECONDS) * 1000 }),
};

/** A relay in front of one cluster, or of several that are told the same. */
class Relay {
  readonly #clusters: readonly CoreCluster[];
  readonly #seen = new SeenServices();
  readonly #isConfirming: boolean;
  /** Where each living object stands by its last event that was recorded: by uid. */
  readonly #recorded = new Map<string, HistoryEvent>();
  readonly #latest = new Map<string, HistoryEvent>();

  constructor(clusters: readonly CoreCluster[], { isConfirming = false } = {}) {
    this.#clusters = clusters;
    this.#isConfirming = isConfirming;
  }

  send(batch: readonly HistoryEvent[]): EventStatus[] {
    const events = batch.map((event) => ({
      ...event,
      confirm: this.#isConfirming,
      former: this.#seen.formerOf(event.object),
    }));
    const [statuses = []] = this.#clusters.map((cluster) => cluster.post(events));
    for (const [index, event] of batch.entries()) {
      const { uid } = event.object.metadata;
      const latest = this.#latest.get(uid);
      if (latest !== undefined && isOlder(event, latest)) continue;
      this.#latest.set(uid, event);
      if (this.#isConfirming || statuses[index] === 'applied') this.#recorded.set(uid, event);
    }
    return statuses;
  }

  /** What the newest events say that there is. */
  expected() {
    const living = [...this.#latest.values()].filter(({ type }) => type !== 'DELETED');
    return setsOf(living, ({ uid }) => this.#recorded.get(uid)?.object.metadata.resourceVersion);
  }
}

/** The sets of objects by their last events; `recorded` tells which of an object's versions counts, by default its own (S11). */
function setsOf(
  living: readonly HistoryEvent[],
  recorded: (metadata: { readonly uid: string }) => string | undefined = () => undefined,
) {
  const services: Service[] = [];
  const objects: RecordedObject[] = [];
  for (const { object, enrich } of living) {
    if (object.kind === 'Service') services.push(object);
    else
      objects.push({ object, version: recorded(object.metadata) ?? object.metadata.resourceVersion, enrich });
  }
  return naiveSets(services, objects);
}

/** The last event of each object that is there after a history. */
function livingAfter(events: readonly HistoryEvent[]): HistoryEvent[] {
  const last = new Map(events.map((event) => [event.object.metadata.uid, event]));
  return [...last.values()].filter(({ type }) => type !== 'DELETED');
}

/** What a relay says after a list that came back lower: each object of it, and the deletion of whatever else it held (S44). */
function relistOf(
  listed: readonly HistoryEvent[],
  held: readonly HistoryEvent[],
  enrichVersion: number,
): (HistoryEvent & { readonly stateUnknown: true })[] {
  const uids = new Set(listed.map(({ object }) => object.metadata.uid));
  const gone = held.filter(({ object }) => !uids.has(object.metadata.uid));
  return [
    ...listed.map((event) => ({
      ...event,
      type: 'MODIFIED' as const,
      enrichVersion,
      stateUnknown: true as const,
    })),
    ...gone.map((event) => ({ ...event, type: 'DELETED' as const, stateUnknown: true as const })),
  ];
}

function isOlder(a: HistoryEvent, b: HistoryEvent): boolean {
  const order = compareVersions(a.object.metadata.resourceVersion, b.object.metadata.resourceVersion);
  return order < 0 || (order === 0 && a.enrichVersion < b.enrichVersion);
}

function hasOpenWindow(cluster: CoreCluster): boolean {
  return [...cluster.states.values()].some(({ windows }) => windows.size > 0);
}

for (const mode of ['slices', 'endpoints'] as const) {
  const given = (options?: HistoryOptions) => history(mode, options);

  describe(`properties in ${mode} mode, ${RUNS} runs of each from seed ${SEED}`, () => {
    test('in order, every set is what the objects say, at every step, computed from all or from what was touched', async () => {
      await fc.assert(
        fc.asyncProperty(given(), async (events) => {
          const whole = new CoreCluster(mode);
          const warm = new CoreCluster(mode, { usesHolders: true });
          const relay = new Relay([whole, warm]);
          const sets = new ObservedSets(whole);
          for (const [index, event] of events.entries()) {
            relay.send([event]);
            sets.check(`event ${index}`, warm.drain());
            if (!hasOpenWindow(whole))
              assert.deepEqual(sets.current(), relay.expected(), `after event ${index}`);
          }
          for (const cluster of [whole, warm]) await cluster.advance(WINDOWS_CLOSED_MS);
          sets.check('at the end', warm.drain());
          assert.deepEqual(sets.current(), relay.expected());
        }),
        PARAMETERS,
      );
    });

    test('with versions confirmed, every order and every repetition ends in the same sets (S3)', async () => {
      const events = given({ moves: true, orphans: false }).chain((told) =>
        fc
          .tuple(fc.constant(told), fc.array(fc.nat(Math.max(0, told.length - 1)), { maxLength: 8 }))
          .chain(([all, again]) => {
            const repeated = [...all, ...again.flatMap((index) => all[index] ?? [])];
            return fc.shuffledSubarray(repeated, { minLength: repeated.length });
          }),
      );
      await fc.assert(
        fc.asyncProperty(events, async (shuffled) => {
          const whole = new CoreCluster(mode);
          const warm = new CoreCluster(mode, { usesHolders: true });
          const relay = new Relay([whole, warm], { isConfirming: true });
          const sets = new ObservedSets(whole);
          for (const [index, event] of shuffled.entries()) {
            relay.send([event]);
            sets.check(`event ${index}`, warm.drain());
          }
          for (const cluster of [whole, warm]) await cluster.advance(WINDOWS_CLOSED_MS);
          sets.check('at the end', warm.drain());
          assert.deepEqual(sets.current(), relay.expected());
        }),
        PARAMETERS,
      );
    });

    test('whatever the interleaving of objects, each told in order, the end is the same (S3)', async () => {
      const interleaved = given().chain((events) =>
        fc
          .array(fc.nat(), { minLength: events.length, maxLength: events.length })
          .map((choices) => interleave(events, choices)),
      );
      await fc.assert(
        fc.asyncProperty(interleaved, async (events) => {
          const cluster = new CoreCluster(mode);
          const relay = new Relay([cluster]);
          const sets = new ObservedSets(cluster);
          for (const [index, event] of events.entries()) {
            relay.send([event]);
            sets.check(`event ${index}`);
          }
          await cluster.advance(WINDOWS_CLOSED_MS);
          sets.check('at the end');
          assert.deepEqual(sets.current(), relay.expected());
        }),
        PARAMETERS,
      );
    });

    test('however events are batched, the end is the same (P4)', async () => {
      const split = given().chain((events) =>
        fc.tuple(
          fc.constant(events),
          fc.array(fc.integer({ min: 1, max: 8 }), { minLength: events.length, maxLength: events.length }),
        ),
      );
      await fc.assert(
        fc.asyncProperty(split, async ([events, lengths]) => {
          const single = new CoreCluster(mode);
          const batched = new CoreCluster(mode, { usesHolders: true });
          const sets = new ObservedSets(batched);
          const singleRelay = new Relay([single]);
          const batchRelay = new Relay([batched]);
          for (const event of events) singleRelay.send([event]);
          for (let start = 0, turn = 0; start < events.length; turn++) {
            const end = start + (lengths[turn] ?? 1);
            batchRelay.send(events.slice(start, end));
            sets.check(`batch from ${start}`);
            start = end;
          }
          for (const cluster of [single, batched]) await cluster.advance(WINDOWS_CLOSED_MS);
          sets.check('at the end');
          assert.deepEqual(recordsOf(batched), recordsOf(single));
          assert.deepEqual(sets.current(), singleRelay.expected());
        }),
        PARAMETERS,
      );
    });

    test('a batch that moves no slice makes at most one delta a port (S4)', () => {
      fc.assert(
        fc.property(given({ moves: false, orphans: false }), (events) => {
          const cluster = new CoreCluster(mode);
          new Relay([cluster]).send(events);
          const groups = cluster.drain().map(({ detail }) => detail.group);
          assert.equal(new Set(groups).size, groups.length);
        }),
        PARAMETERS,
      );
    });

    test('after storage went back to a backup, its re-list in any order leaves what it holds and nothing else (S44)', async () => {
      const restored = given().chain((events) =>
        fc.nat(events.length).chain((kept) => {
          const living = livingAfter(events.slice(0, kept));
          const relist = relistOf(living, livingAfter(events), events.length);
          const shuffled = fc.shuffledSubarray(relist, { minLength: relist.length });
          return fc.tuple(fc.constant(events), fc.constant(living), shuffled);
        }),
      );
      await fc.assert(
        fc.asyncProperty(restored, async ([events, living, relist]) => {
          const whole = new CoreCluster(mode);
          const warm = new CoreCluster(mode, { usesHolders: true });
          const relay = new Relay([whole, warm]);
          const sets = new ObservedSets(whole);
          for (const event of [...events, ...relist]) {
            relay.send([event]);
            sets.check(`${event.type} ${event.object.metadata.uid}`, warm.drain());
          }
          for (const cluster of [whole, warm]) await cluster.advance(WINDOWS_CLOSED_MS);
          sets.check('at the end', warm.drain());
          assert.deepEqual(sets.current(), setsOf(living));
        }),
        PARAMETERS,
      );
    });

    test('what was told before, or of another uid, changes no set (S45)', () => {
      const replayed = given().chain((events) =>
        fc.tuple(
          fc.constant(events),
          fc.array(fc.tuple(fc.nat(), fc.boolean()), { minLength: 1, maxLength: 12 }),
        ),
      );
      fc.assert(
        fc.property(replayed, ([events, choices]) => {
          const cluster = new CoreCluster(mode);
          const relay = new Relay([cluster]);
          for (const event of events) relay.send([event]);
          cluster.drain();
          for (const [choice, isForeign] of choices) {
            const event = events[choice % events.length];
            if (event === undefined) continue;
            const late = isForeign ? foreign(event) : event;
            if (late === null) continue;
            relay.send([late]);
            assert.deepEqual(cluster.drain(), [], `a late ${late.type} of ${late.object.metadata.uid}`);
          }
        }),
        PARAMETERS,
      );
    });
  });
}

/** Events of one uid keep their order; `choices` says whose turn it is. */
function interleave(events: readonly HistoryEvent[], choices: readonly number[]): HistoryEvent[] {
  const queues = [...Map.groupBy(events, ({ object }) => object.metadata.uid).values()];
  const order: HistoryEvent[] = [];
  for (const choice of choices) {
    const waiting = queues.filter((queue) => queue.length > 0);
    const next = waiting[choice % waiting.length]?.shift();
    if (next !== undefined) order.push(next);
  }
  return order;
}

/** A late deletion of an object that is not the one of its name. */
function foreign({ object, ...event }: HistoryEvent): HistoryEvent | null {
  const metadata = { ...object.metadata, uid: `${object.metadata.uid}-other` };
  return { ...event, type: 'DELETED', object: { ...object, metadata } as HistoryEvent['object'] };
}

/** All that is recorded, but for when. */
function recordsOf({ states }: CoreCluster): object {
  return Object.fromEntries(
    [...states]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([id, { service, objects, deletions }]) => [
        id,
        {
          service,
          objects: [...objects.values()]
            .map(({ uid, version, content }) => ({ uid, version, content: content() }))
            .sort((a, b) => (a.uid < b.uid ? -1 : 1)),
          deletions: Object.fromEntries([...deletions].map(([uid, { version }]) => [uid, version])),
        },
      ]),
  );
}
