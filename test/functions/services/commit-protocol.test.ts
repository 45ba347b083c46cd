import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, describe, type TestContext, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import type { Itinerary } from './exploration.ts';
import type { Finding, Task } from './explorer.ts';
import { MUTATIONS } from './mutations.ts';
import { SCENARIOS } from './scenarios.ts';

/** Explorations that run at the same time. */
const WORKERS = 2;
/** Minutes instead of seconds: wider bounds, then schedules at random. */
const isDeep = process.env.STATE_SPACE === 'deep';
/** The seed of a former run, told in its output, repeats that. */
const WALKS: Itinerary = {
  bounds: { preemptions: 8, faults: 5 },
  walks: { schedules: 10_000, seed: Number(process.env.STATE_SPACE_SEED ?? Date.now() % 1e9) },
};

const workers = Array.from({ length: WORKERS }, () => new Worker(new URL('explorer.ts', import.meta.url)));
const idle = [...workers];
after(() => Promise.all(workers.map((worker) => worker.terminate())));

/** As many tests run at a time as there are workers. */
async function explore(task: Task): Promise<Finding> {
  const worker = idle.pop();
  assert(worker, 'a worker is idle');
  worker.postMessage(task);
  const [finding] = (await once(worker, 'message')) as [Finding];
  idle.push(worker);
  return finding;
}

/** @throws with the schedule, when something does not hold. */
async function exploreSound(context: TestContext, task: Task): Promise<void> {
  const { schedules, merged, violation } = await explore(task);
  const { bounds, walks } = task;
  const how =
    walks === undefined ? `${merged} of them into a known state` : `at random from seed ${walks.seed}`;
  const within = `${bounds.preemptions} switches and ${bounds.faults} faults`;
  context.diagnostic(`${within}: ${schedules} schedules, ${how}`);
  if (violation !== null) assert.fail(`${violation.message}\n  ${violation.trace.join('\n  ')}`);
}

describe('the commit protocol holds under every schedule', { concurrency: WORKERS }, () => {
  for (const [scenario, { quick, deep }] of Object.entries(SCENARIOS)) {
    test(scenario, async (context) => {
      for (const bounds of isDeep ? deep : quick) await exploreSound(context, { scenario, bounds });
      if (isDeep) await exploreSound(context, { scenario, ...WALKS });
    });
  }
});

describe('a protocol without one of its clauses breaks', { concurrency: WORKERS }, () => {
  for (const [mutation, { scenario, bounds, found }] of Object.entries(MUTATIONS)) {
    test(mutation, async () => {
      const { violation } = await explore({ scenario, bounds, mutation });
      assert.match(violation?.message ?? 'nothing is found', found);
    });
  }
});
