import { after, before, describe, test } from 'node:test';
import { type LocalStack, startLocalStack } from '../../infra/local/stack.ts';
import { StackClock } from '../../infra/local/stack-clock.ts';
import { createLogger } from '../../wire/log.ts';
import { type Case, loadCases, ordersOf, runCase, runReordered } from '../cases.ts';
import { StackCluster } from './stack-cluster.ts';

/** Other orders that each permutable story is told in over HTTP. */
const ORDERS = Number(process.env.ORDERS ?? 3);
/** Stories that share a stack: each sweep looks at what all of them changed. */
const STORIES_PER_STACK = 10;

const stories = loadCases();
for (let start = 0; start < stories.length; start += STORIES_PER_STACK) {
  const shared = stories.slice(start, start + STORIES_PER_STACK);
  describe(`over HTTP, table and bus, stories ${start + 1} to ${start + shared.length}`, () => {
    const newCluster = useStack(undefined);
    for (const story of shared) {
      test(`${story.name} [${story.rules}]`, () => runCase(story, newCluster(story.mode)));
    }
    for (const story of shared.filter(({ permutable }) => permutable)) {
      test(`in other orders: ${story.name} [S3]`, async () => {
        for (const steps of ordersOf(story, ORDERS)) await runReordered(story, steps, newCluster(story.mode));
      });
    }
  });
  describe(`the same with every object in chunks, stories ${start + 1} to ${start + shared.length}`, () => {
    const newCluster = useStack(0);
    for (const story of shared) {
      test(`${story.name} [${story.rules}]`, () => runCase(story, newCluster(story.mode)));
    }
  });
}

/** A stack for the tests of a suite; each call gives a cluster that nothing else uses. */
function useStack(inlineBytes: number | undefined): (mode: Case['mode']) => StackCluster {
  let stack: LocalStack;
  let clusters = 0;
  before(async () => {
    const clock = new StackClock();
    const logger = createLogger({
      level: 'error',
      clock,
      write: (line) => void process.stderr.write(`${line}\n`),
    });
    stack = await startLocalStack({ port: 0, dataDir: null, inlineBytes, isSweeping: false, logger, clock });
  });
  after(() => stack[Symbol.asyncDispose]());
  return (mode) => new StackCluster(stack, `case-${++clusters}`, mode);
}
