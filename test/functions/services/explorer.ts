import assert from 'node:assert/strict';
import { parentPort } from 'node:worker_threads';
import { exploreScenario } from './exploration.ts';
import { MUTATIONS } from './mutations.ts';
import { SCENARIOS } from './scenarios.ts';
import type { Bounds } from './scheduler.ts';

/** What a worker is asked to explore. */
export interface Task {
  readonly scenario: string;
  readonly bounds: Bounds;
  /** Name of a mutation, or null for the protocol as it is. */
  readonly mutation: string | null;
}

/** What it came to. */
export interface Finding {
  readonly schedules: number;
  readonly merged: number;
  /** What does not hold, and the schedule that shows it. */
  readonly violation: { readonly message: string; readonly trace: readonly string[] } | null;
}

// In a thread of its own, since the test runner's hooks on promises would double the time of it.
parentPort?.on('message', async ({ scenario: name, bounds, mutation }: Task) => {
  const scenario = SCENARIOS[name];
  assert(scenario, name);
  const flawed = mutation === null ? {} : MUTATIONS[mutation]?.options;
  const { schedules, merged, violation } = await exploreScenario(scenario, bounds, flawed);
  const finding: Finding = {
    schedules,
    merged,
    violation: violation && { message: describe(violation.error), trace: violation.trace },
  };
  parentPort?.postMessage(finding);
});

function describe(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
