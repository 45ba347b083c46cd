import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import fc from 'fast-check';
import { FAULT_POINTS, type Fault } from '../../infra/local/faults.ts';
import { history } from '../core/history.ts';
import { randomFrom } from '../functions/store/seeded-random.ts';
import { type Batch, fiftyThousand, manyPorts, movingSlices } from './crash-streams.ts';
import { ResendingRelay } from './resending-relay.ts';
import { assertReplayed, readSets, toNaiveSets } from './served-sets.ts';
import { StackProcess } from './stack-process.ts';

/** `all`: every fault against every stream; else a sample that is quick. */
const IS_WHOLE = process.env.MATRIX === 'all';
/** What streams, batches and the places of faults are made from: the same seed makes the same ones. */
const SEED = Number(process.env.SEED ?? Date.now() % 2 ** 31);
/** Clusters that are told of at the same time: one killed process interrupts them all. */
const CLUSTERS = 4;
/** Longer than a rename window, in milliseconds. */
const WINDOWS_CLOSED_MS = 15_000;
/** Random lives of the whole matrix: so many times CLUSTERS a fault. */
const WHOLE_ROUNDS = 3;
/** Batches hold so many events at most. */
const MAX_BATCH = 4;

type Random = (bound: number) => number;
type FaultKind = Pick<Fault, 'on' | 'when' | 'do'>;

const FAULTS: readonly FaultKind[] = [
  ...FAULT_POINTS.flatMap((on) =>
    (['before', 'after'] as const).flatMap((when) =>
      (['exit', 'error', 'throttle'] as const).map((kind) => ({ on, when, do: kind })),
    ),
  ),
  { on: 'bus.publish', when: 'before', do: 'partial' },
];

/** What came of all tries of one fault. */
interface Row {
  tried: number;
  hit: number;
  failures: number;
  duplicates: number;
  lost: number;
  wrong: number;
}
const rows = new Map<string, Row>();

function rowOf(scenario: string, { on, when, do: kind }: FaultKind): Row {
  const name = `${scenario.padEnd(24)} ${kind.padEnd(8)} ${when.padEnd(6)} ${on}`;
  const row = rows.get(name) ?? { tried: 0, hit: 0, failures: 0, duplicates: 0, lost: 0, wrong: 0 };
  rows.set(name, row);
  return row;
}

/** One cluster's life in batches; the fault is put before one of them, and then hits one of its calls. */
interface Trial {
  readonly mode: 'slices' | 'endpoints';
  readonly batches: readonly Batch[];
  /** The batch before which the fault is put. */
  readonly from: number;
  /** Chance in percent of each object to be gone in the end, which an inventory must find; 0 by default. */
  readonly missed?: number;
}

let clusters = 0;

/** Lives through a fault, then holds subscriber, reader and the rules against each other. */
async function run(
  stack: StackProcess,
  scenario: string,
  fault: FaultKind & Pick<Fault, 'skip' | 'times'>,
  trials: readonly Trial[],
  random: Random,
): Promise<void> {
  const row = rowOf(scenario, fault);
  row.tried++;
  const relays = trials.map(({ mode }) => {
    return new ResendingRelay({ stack, cluster: `c${++clusters}`, mode, random });
  });
  await Promise.all(trials.map(({ batches, from }, index) => relays[index]?.tell(batches.slice(0, from))));
  await stack.putFaults(fault);
  await Promise.all(
    trials.map(async ({ batches, from, missed = 0 }, index) => {
      await relays[index]?.tell(batches.slice(from));
      relays[index]?.miss(() => random(100) < missed);
      if (missed > 0) await relays[index]?.reconcile();
    }),
  );
  await stack.putFaults();
  await stack.advance(WINDOWS_CLOSED_MS);
  const eras = relays.map((relay) => relay.beginEra());
  assert.equal((await stack.sweep())?.status, 200);
  for (const [index, relay] of relays.entries()) {
    await relay.readBus(eras[index]?.(0) ?? assert.fail());
    row.failures += relay.failures;
    await check(stack, relay, row);
  }
  if (relays.some(({ failures }) => failures > 0)) row.hit++;
}

async function check(stack: StackProcess, relay: ResendingRelay, row: Row): Promise<void> {
  try {
    row.lost++;
    row.duplicates += relay.countDuplicates();
    const replica = relay.subscriber.replay();
    const sets = await readSets((path) => stack.request('GET', path), replica.groups());
    assertReplayed(replica, sets);
    row.lost--;
    row.wrong++;
    assert.deepEqual(toNaiveSets(sets), relay.expected(), 'state is what the objects say');
    row.wrong--;
  } catch (error) {
    throw new Error(`seed ${SEED}`, { cause: error });
  }
}

/** Random lives of some clusters, cut into batches. */
function randomTrials(random: Random): Trial[] {
  const seed = random(2 ** 31);
  return (['slices', 'endpoints'] as const).flatMap((mode) =>
    fc.sample(history(mode), { numRuns: CLUSTERS / 2, seed }).map((events) => {
      const batches: Batch[] = [];
      for (let start = 0; start < events.length; ) {
        const end = start + 1 + random(MAX_BATCH);
        batches.push(events.slice(start, end));
        start = end;
      }
      return { mode, batches, from: random(Math.max(1, batches.length - 1)) };
    }),
  );
}

interface Scenario {
  readonly sentence: string;
  readonly flags: readonly string[];
  /** Those whose calls it makes. */
  readonly faults: readonly FaultKind[];
  /** A quick run tries one of so many faults. */
  readonly quick: number;
  /** Each makes a trial of a fault, or several at the same time; a quick run takes one of them. */
  readonly rounds: readonly ((
    fault: FaultKind,
    random: Random,
  ) => { readonly skip: number; readonly trials: readonly Trial[] })[];
}

/** Once with small contents in the head, and once without. */
const LAYOUTS = { 'in the head': [], 'in chunks': ['--inline-bytes', '0'] } as const;

const SCENARIOS: Readonly<Record<string, Scenario>> = Object.fromEntries([
  ...Object.entries(LAYOUTS).flatMap(([where, flags]): [string, Scenario][] => {
    const isChunked = flags.length > 0;
    const removals = FAULTS.filter(({ on }) => on !== 'store.putBody' && on !== 'store.putChunk');
    const faults = FAULTS.filter(
      ({ on }) => on !== 'store.putBody' && (on !== 'store.putChunk' || isChunked),
    );
    const moves = [
      [1, 0],
      [1, 1],
      [3, 0],
      [3, 1],
      [3, 2],
    ] as const;
    return [
      [
        `random, ${where}`,
        {
          sentence: `random lives, contents ${where} (P1, P2, P3)`,
          ...{ flags, faults, quick: 4 },
          rounds: range(WHOLE_ROUNDS).map(() => (_fault, random) => ({
            skip: random(4),
            trials: randomTrials(random),
          })),
        },
      ],
      [
        `inventory, ${where}`,
        {
          sentence: `inventories that find things gone, contents ${where} (P1, P2, P3)`,
          ...{ flags, faults: removals, quick: 10 },
          rounds: range(WHOLE_ROUNDS).map(() => (_fault, random) => ({
            skip: random(2),
            trials: randomTrials(random).map((life) => ({ ...life, from: life.batches.length, missed: 40 })),
          })),
        },
      ],
      [
        `moves, ${where}`,
        {
          sentence: `slices that move, contents ${where}: at each of a move's writes (S10, P1)`,
          ...{ flags, faults, quick: 8 },
          // The batches that move: one slice with two writes, and two slices in a circle with three.
          rounds: moves.map(([from, skip]) => () => ({
            skip,
            trials: [{ mode: 'slices', batches: movingSlices(), from }],
          })),
        },
      ],
    ];
  }),
  [
    'big deltas',
    {
      sentence: 'deltas too big for a head, several at a time (P1)',
      ...{ flags: LAYOUTS['in chunks'], faults: FAULTS, quick: 16 },
      rounds: range(3).map((from) => ({ on }: FaultKind, random: Random) => ({
        skip: on === 'bus.publish' || on === 'store.commit' ? 0 : random(6),
        trials: [{ mode: 'slices', batches: manyPorts(), from }],
      })),
    },
  ],
  [
    '50,000 addresses',
    {
      sentence: 'a first Add of 50,000 addresses is split into parts, all delivered (P1, P3)',
      flags: [],
      faults: FAULTS.filter(({ on }) => on !== 'store.putChunk'),
      quick: FAULTS.length,
      // Its slices are known; the Service makes the delta.
      rounds: [() => ({ skip: 0, trials: [{ mode: 'slices', batches: fiftyThousand(), from: 3 }] })],
    },
  ],
] satisfies [string, Scenario][]);

describe(`a fault at any call of the pipeline loses nothing, from seed ${SEED}`, { concurrency: 2 }, () => {
  for (const [name, { sentence, flags, faults, quick, rounds }] of Object.entries(SCENARIOS))
    test(sentence, async () => {
      const random = randomFrom(SEED);
      for (const round of sampled(rounds, rounds.length, random)) {
        await using stack = await StackProcess.start(...flags);
        for (const fault of sampled(faults, quick, random)) {
          const { skip, trials } = round(fault, random);
          await run(stack, name, { ...fault, skip, times: 1 + random(2) }, trials, random);
        }
      }
    });
});

/** One of so many, spread evenly; all of them when the whole matrix is asked for. */
function sampled<T>(all: readonly T[], of: number, random: Random): readonly T[] {
  if (IS_WHOLE) return all;
  const offset = random(Math.min(of, all.length));
  return all.filter((_, index) => index % of === offset);
}

function range(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}

after(() => {
  if (!IS_WHOLE) return;
  const numbers = (row: Row) => Object.values(row).map((number) => `${number}`.padStart(10));
  const titles = ['tried', 'hit', 'failures', 'duplicates', 'lost', 'wrong'].map((title) =>
    title.padStart(10),
  );
  const lines = [...rows].map(([name, row]) => `${name.padEnd(60)}${numbers(row).join('')}`);
  process.stdout.write(`${[`${''.padEnd(60)}${titles.join('')}`, ...lines].join('\n')}\n`);
});
