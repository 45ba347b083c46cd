import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import type { Finding, Task } from './explorer.ts';
import { MUTATIONS } from './mutations.ts';
import { SCENARIOS } from './scenarios.ts';

/** Explorations that run at the same time. */
const WORKERS = 2;
const isDeep = process.env.STATE_SPACE === 'deep';

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

describe('the commit protocol holds under every schedule', { concurrency: WORKERS }, () => {
  for (const [scenario, { quick, deep }] of Object.entries(SCENARIOS)) {
    test(scenario, async (context) => {
      for (const bounds of isDeep ? deep : quick) {
        const { schedules, merged, violation } = await explore({ scenario, bounds, mutation: null });
        const { preemptions, faults } = bounds;
        const sum = `${schedules + merged} schedules, ${merged} of them into a known state`;
        context.diagnostic(`${preemptions} preemptions, ${faults} faults: ${sum}`);
        if (violation !== null) assert.fail(`${violation.message}\n  ${violation.trace.join('\n  ')}`);
      }
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
