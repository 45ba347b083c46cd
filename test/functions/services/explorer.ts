import assert from 'node:assert/strict';
import { parentPort } from 'node:worker_threads';
import { exploreScenario, type Itinerary } from './exploration.ts';
import { MUTATIONS } from './mutations.ts';
import { SCENARIOS } from './scenarios.ts';

/** What a worker is asked to explore. */
export interface Task extends Itinerary {
  readonly scenario: string;
  /** Name of a mutation; none for the protocol as it is. */
  readonly mutation?: string;
}

/** What it came to. */
export interface Finding {
  readonly schedules: number;
  readonly merged: number;
  /** What does not hold, and the schedule that shows it. */
  readonly violation: { readonly message: string; readonly trace: readonly string[] } | null;
}

// In a thread of its own, since the test runner's hooks on promises would double the time of it.
parentPort?.on('message', async ({ scenario: name, mutation, ...itinerary }: Task) => {
  const scenario = SCENARIOS[name];
  assert(scenario, name);
  const flawed = mutation === undefined ? {} : MUTATIONS[mutation]?.options;
  const { schedules, merged, violation } = await exploreScenario(scenario, itinerary, flawed);
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
