import { describe, test } from 'node:test';
import fc from 'fast-check';
import { loadCases, runCase, runReordered } from '../cases.ts';
import { CoreCluster } from './core-cluster.ts';

/** Orders tried of a story that has more. */
const MAX_ORDERS = 200;
const SEED = 20_261_130;

describe('the core tells every case as it is written', () => {
  for (const story of loadCases())
    test(`${story.name} [${story.rules}]`, () => runCase(story, new CoreCluster(story.mode)));
});

describe('a warm function tells every case as it is written', () => {
  for (const story of loadCases())
    test(`${story.name} [${story.rules}]`, () =>
      runCase(story, new CoreCluster(story.mode, { usesHolders: true })));
});

describe('whatever the order of the events, the end is the same (S3)', () => {
  for (const story of loadCases().filter(({ permutable }) => permutable))
    test(`${story.name} [${story.rules}]`, async () => {
      for (const order of ordersOf(story.steps.length))
        await runReordered(story, order, new CoreCluster(story.mode));
    });
});

/** Every order of so many steps, or a sample of them. */
function ordersOf(count: number): number[][] {
  const steps = [...new Array(count).keys()];
  const all = factorial(count);
  if (all <= MAX_ORDERS) return permutations(steps);
  const order = fc.shuffledSubarray(steps, { minLength: count });
  return [steps.toReversed(), ...fc.sample(order, { numRuns: MAX_ORDERS - 1, seed: SEED })];
}

function permutations(items: readonly number[]): number[][] {
  if (items.length === 0) return [[]];
  return items.flatMap((first) =>
    permutations(items.filter((item) => item !== first)).map((rest) => [first, ...rest]),
  );
}

function factorial(n: number): number {
  return n < 2 ? 1 : n * factorial(n - 1);
}
