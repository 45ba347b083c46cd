import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { rulesOf, testsByRule } from '../rules.ts';

/** Faults of the reference that nothing here can share yet, and why. */
const LATER: Readonly<Record<string, string>> = {
  L32: 'each cluster has a relay of its own: there is no process that a lost cluster could take along',
  L33: 'there are no streams of one service to many readers',
};

const tests = testsByRule();

describe('every rule of sets, and every fault of the reference, is named by a test', () => {
  for (const rule of rulesOf(['S', 'L']).filter((name) => !(name in LATER)))
    test(rule, () => assert.notEqual(tests.get(rule)?.length ?? 0, 0));
});

test('what is left for later has no test yet', () => {
  const proven = Object.keys(LATER).filter((rule) => tests.get(rule)?.length !== 0);
  assert.deepEqual(proven, [], 'take them off the list');
});
