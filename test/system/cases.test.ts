import { after, before, describe, test } from 'node:test';
import type { LocalStack } from '../../infra/local/stack.ts';
import { type Case, type CaseWorld, loadCases, ordersOf, runCase, runReordered } from '../cases.ts';
import { startQuietStack } from '../quiet-stack.ts';
import { StackCluster } from './stack-cluster.ts';

/** Other orders that each permutable story is told in over HTTP. */
const ORDERS = Number(process.env.ORDERS ?? 3);
/** Stories that share a stack: each sweep looks at what all of them changed. */
const STORIES_PER_STACK = 10;
/** Orders that share a stack. */
const ORDERS_PER_STACK = 50;

const stories = loadCases();
for (let start = 0; start < stories.length; start += STORIES_PER_STACK) {
  const shared = stories.slice(start, start + STORIES_PER_STACK);
  const which = `stories ${start + 1} to ${start + shared.length}`;
  for (const [name, inlineBytes] of [
    [`over HTTP, table and bus, ${which}`, undefined],
    [`the same with every object in chunks, ${which}`, 0],
  ] as const) {
    describe(name, () => {
      let world: StackWorld;
      before(async () => {
        world = await StackWorld.start(inlineBytes);
      });
      after(() => world[Symbol.asyncDispose]());
      for (const story of shared) {
        test(`${story.name} [${story.rules}]`, () => runCase(story, world.newTarget(story.mode)));
      }
    });
  }
}

describe('over HTTP, table and bus, whatever the order of the events, the end is the same (S3)', () => {
  for (const story of stories.filter(({ permutable }) => permutable)) {
    test(`${story.name} [${story.rules}]`, async () => {
      const orders = ordersOf(story, ORDERS);
      for (let start = 0; start < orders.length; start += ORDERS_PER_STACK) {
        await using world = await StackWorld.start(undefined);
        await runReordered(story, orders.slice(start, start + ORDERS_PER_STACK), world);
      }
    });
  }
});

/** A stack on which each telling has a cluster of its own. */
class StackWorld implements CaseWorld, AsyncDisposable {
  readonly #stack: LocalStack;
  #clusters = 0;

  private constructor(stack: LocalStack) {
    this.#stack = stack;
  }

  static async start(inlineBytes: number | undefined): Promise<StackWorld> {
    return new StackWorld(await startQuietStack({ inlineBytes }));
  }

  newTarget(mode: Case['mode']): StackCluster {
    return new StackCluster(this.#stack, `case-${++this.#clusters}`, mode);
  }

  advance(ms: number): Promise<void> {
    return this.newTarget('slices').advance(ms);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack[Symbol.asyncDispose]();
  }
}
