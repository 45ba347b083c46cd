import { describe, test } from 'node:test';
import { loadCases, ordersOf, runCase, runReordered } from '../cases.ts';
import { CoreCluster } from './core-cluster.ts';

/** Orders tried of a story that has more. */
const ORDERS = Number(process.env.ORDERS ?? 200);

const stories = loadCases();

describe('the core tells every case as it is written', () => {
  for (const story of stories)
    test(`${story.name} [${story.rules}]`, () => runCase(story, new CoreCluster(story.mode)));
});

describe('a warm function tells every case as it is written', () => {
  for (const story of stories)
    test(`${story.name} [${story.rules}]`, () =>
      runCase(story, new CoreCluster(story.mode, { usesHolders: true })));
});

describe('whatever the order of the events, the end is the same (S3)', () => {
  for (const story of stories.filter(({ permutable }) => permutable))
    test(`${story.name} [${story.rules}]`, async () => {
      for (const order of ordersOf(story, ORDERS)) {
        const cluster = new CoreCluster(story.mode);
        const world = { newTarget: () => cluster, advance: (ms: number) => cluster.advance(ms) };
        await runReordered(story, [order], world);
      }
    });
});
