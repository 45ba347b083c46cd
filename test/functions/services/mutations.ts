import { createHash } from 'node:crypto';
import type { EpochMs } from '../../../core/time.ts';
import { toBusEntries } from '../../../functions/bus/delta-events.ts';
import { unpackDelta } from '../../../functions/store/delta-entry.ts';
import type { ChunkName, Head, Store } from '../../../functions/store/store.ts';
import type { Bounds } from './scheduler.ts';
import type { WorldOptions } from './world.ts';

/** A clause of the protocol that is taken away, and where that must be noticed. */
export interface Mutation {
  /** Name of a scenario. */
  readonly scenario: string;
  readonly bounds: Bounds;
  readonly options: WorldOptions;
  /** What is found broken. */
  readonly found: RegExp;
}

const RACE = 'two requests change different slices of one service';
const CHANGE_AND_BACK = 'a change is sent again, and taken back, while its first request may still run';
const MOVE = 'a slice moves to another service, and comes back';
const TAKE_OVER = 'a new relay takes over while requests of its predecessor run';
const SWEEP = 'a sweep publishes what a request has not published yet';
const PENDING = 'the next request finds a delta pending';
const VISIT = 'a daily visit collects chunks while a content comes back';
const BIG = 'a delta is too big for its head, and for one entry of the bus';
const INVENTORY = 'an inventory is on its way while a slice is created';
const DELETION = 'a slice is created and deleted, while its creation may still run';
const BACKUP = 'a cluster comes back from a backup';

const REBUILT = 'a cluster is deleted while requests of its relay run, and is rebuilt under its name';

export const MUTATIONS: Readonly<Record<string, Mutation>> = {
  'the name of a deleted cluster is free before requests to it have landed': {
    scenario: REBUILT,
    bounds: { preemptions: 2, faults: 0 },
    options: {
      outer: (store) =>
        override(store, {
          putCluster: (record, expected) => {
            const isEarly = record.deletion === 'settling';
            return store.putCluster(isEarly ? { ...record, deletion: 'over' } : record, expected);
          },
        }),
    },
    found: /P4/,
  },
  'a head is written without a condition': {
    scenario: RACE,
    bounds: { preemptions: 1, faults: 0 },
    options: {
      inner: (store) =>
        override(store, {
          commit: async (key, head, fence) => {
            const stored = await store.getHead(key);
            return store.commit(key, { ...head, version: (stored?.version ?? 0) + 1 }, fence);
          },
        }),
    },
    found: /P[1-4]/,
  },
  'deltas are published before their head is written': {
    scenario: RACE,
    bounds: { preemptions: 1, faults: 0 },
    options: {
      outer: (store, world) =>
        override(store, {
          commit: async (key, head, fence) => {
            for (const { body } of head.pending) {
              if (body.kind === 'inline') {
                await world.bus.publish(toBusEntries({ key, ...unpackDelta(body.bytes) }, 240_000));
              }
            }
            return store.commit(key, head, fence);
          },
        }),
    },
    found: /P3: two contents/,
  },
  'a head does not carry on what its former one had pending': {
    scenario: PENDING,
    bounds: { preemptions: 0, faults: 1 },
    options: {
      outer: (store, world) =>
        override(store, {
          commit: async (key, head, fence) => {
            const former = (await world.memory.getHead(key))?.pending ?? [];
            const isCarried = ({ port, sequence }: (typeof former)[number]) =>
              former.some((entry) => entry.port === port && entry.sequence === sequence);
            const pending = head.pending.filter((entry) => !isCarried(entry));
            return store.commit(key, { ...head, pending }, fence);
          },
        }),
    },
    found: /gap|before its former/,
  },
  'every pending delta is taken for published': {
    scenario: SWEEP,
    bounds: { preemptions: 0, faults: 1 },
    options: {
      outer: (store) => override(store, { findReceipts: async (_key, entries) => new Set(entries) }),
    },
    found: /gap|before its former|has its receipt/,
  },
  'a receipt is put although the bus refused': {
    scenario: SWEEP,
    bounds: { preemptions: 0, faults: 1 },
    options: {
      outerBus: (bus) => ({
        publish: async (entries) => (await bus.publish(entries)).map(() => ({ kind: 'accepted' })),
        describe: () => bus.describe(),
      }),
    },
    found: /which was not published/,
  },
  'a head is written before its chunks': {
    scenario: VISIT,
    bounds: { preemptions: 0, faults: 0 },
    options: { outer: (store) => putLate(store, 'putChunk') },
    found: /names chunks that are gone/,
  },
  'a head is written before the bodies of its deltas': {
    scenario: BIG,
    bounds: { preemptions: 0, faults: 1 },
    options: { outer: (store) => putLate(store, 'putBody') },
    found: /gap|has its receipt/,
  },
  'chunks are deleted before the head that replaces them': {
    scenario: VISIT,
    bounds: { preemptions: 0, faults: 0 },
    options: {
      outer: (store) =>
        override(store, {
          commit: async (key, head, fence) => {
            await store.deleteChunks(
              key,
              head.garbage.map(({ chunk }) => chunk),
            );
            return store.commit(key, head, fence);
          },
        }),
    },
    found: /names chunks that are gone/,
  },
  'the loser of a race deletes its chunks': {
    scenario: VISIT,
    bounds: { preemptions: 0, faults: 1 },
    options: { outer: deleteWhenLost },
    found: /names chunks that are gone/,
  },
  'a visit takes every chunk without a head for an orphan': {
    scenario: VISIT,
    bounds: { preemptions: 2, faults: 0 },
    options: {
      inner: (store) =>
        override(store, {
          listLeftovers: async (key) => {
            const { chunks, bodies } = await store.listLeftovers(key);
            return { chunks: chunks.map(({ chunk }) => ({ chunk, at: 0 as EpochMs })), bodies };
          },
        }),
    },
    found: /names chunks that are gone/,
  },
  'a chunk is named after its content': {
    scenario: VISIT,
    bounds: { preemptions: 0, faults: 0 },
    options: { outer: nameByContent },
    found: /names chunks that are gone/,
  },
  'a head is written whenever its request comes to it': {
    scenario: TAKE_OVER,
    bounds: { preemptions: 0, faults: 1 },
    options: {
      outer: (store) =>
        override(store, {
          commit: (key, head) => store.commit(key, head, { deadline: Number.POSITIVE_INFINITY }),
        }),
    },
    found: /P8/,
  },
  'an old relay is not told from a new one': {
    scenario: TAKE_OVER,
    bounds: { preemptions: 0, faults: 1 },
    options: { flaws: { isUnfenced: true } },
    found: /P4/,
  },
  'a new relay reconciles at once': {
    scenario: TAKE_OVER,
    bounds: { preemptions: 0, faults: 1 },
    options: { flaws: { isHasty: true } },
    found: /P4/,
  },
  'what is sent again is not confirmed': {
    scenario: CHANGE_AND_BACK,
    bounds: { preemptions: 0, faults: 1 },
    options: { flaws: { isUnconfirmed: true } },
    found: /P4/,
  },
  'a moved slice does not say where it was': {
    scenario: MOVE,
    bounds: { preemptions: 0, faults: 0 },
    options: { flaws: { isFormerUntold: true } },
    found: /P4/,
  },
  'deletions are not remembered': {
    scenario: DELETION,
    bounds: { preemptions: 0, faults: 1 },
    options: {
      outer: (store) =>
        override(store, {
          commit: (key, head, fence) =>
            store.commit(key, { ...head, records: { ...head.records, deletions: new Map() } }, fence),
        }),
    },
    found: /P4/,
  },
  'an inventory removes what was born after its list': {
    scenario: INVENTORY,
    bounds: { preemptions: 1, faults: 0 },
    options: { flaws: { isOverconfident: true } },
    found: /P4/,
  },
  'an unknown state is sent again at once': {
    scenario: BACKUP,
    bounds: { preemptions: 0, faults: 1 },
    options: { flaws: { isImpatient: true } },
    found: /P4/,
  },
};

function override(store: Store, methods: Partial<Store>): Store {
  return Object.assign(Object.create(store) as Store, methods);
}

/** What should be put before a head is put behind it. */
function putLate(store: Store, method: 'putChunk' | 'putBody'): Store {
  const late: (() => Promise<void>)[] = [];
  const putChunk: Store['putChunk'] = async (...piece) => void late.push(() => store.putChunk(...piece));
  const putBody: Store['putBody'] = async (...piece) => void late.push(() => store.putBody(...piece));
  return override(store, {
    ...(method === 'putChunk' ? { putChunk } : { putBody }),
    commit: async (key, head, fence) => {
      const outcome = await store.commit(key, head, fence);
      for (const put of late.splice(0)) await put();
      return outcome;
    },
  });
}

/** Tidies up after itself, as if no write succeeded without saying so. */
function deleteWhenLost(store: Store): Store {
  const put: ChunkName[] = [];
  return override(store, {
    putChunk: (key, name, bytes) => {
      put.push(name);
      return store.putChunk(key, name, bytes);
    },
    commit: async (key, head, fence) => {
      const names = namesOf(head).filter((name) => put.includes(name));
      const outcome = await store.commit(key, head, fence);
      if (outcome.kind === 'conflict') await store.deleteChunks(key, names);
      return outcome;
    },
  });
}

function namesOf({ objects }: Head): ChunkName[] {
  return objects.flatMap(({ body }) => (body.kind === 'chunks' ? body.names : []));
}

/** The same content has the same name again, after it became garbage too. */
function nameByContent(store: Store): Store {
  const names = new Map<ChunkName, ChunkName>();
  const rename = (head: Head): Head => ({
    ...head,
    objects: head.objects.map((object) => {
      if (object.body.kind === 'inline') return object;
      return {
        ...object,
        body: { kind: 'chunks', names: object.body.names.map((name) => names.get(name) ?? name) },
      };
    }),
  });
  return override(store, {
    putChunk: async (key, name, bytes) => {
      const hash = createHash('sha256').update(bytes).digest('hex').slice(0, 8);
      const byContent = `${name.split('#')[0]}#${hash}` as ChunkName;
      names.set(name, byContent);
      await store.putChunk(key, byContent, bytes);
    },
    commit: (key, head, fence) => store.commit(key, rename(head), fence),
  });
}
