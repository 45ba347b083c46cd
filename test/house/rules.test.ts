import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { RULES, testsByRule } from '../rules.ts';

const tests = testsByRule();

describe('every rule, and every fault of the reference, is named by a test', () => {
  for (const rule of RULES) test(rule, () => assert.notEqual(tests.get(rule)?.length ?? 0, 0));
});
