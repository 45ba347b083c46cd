import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { compareVersions } from '../../core/version.ts';

describe('versions are integers of any length (S44)', () => {
  const orders: Readonly<Record<string, readonly [a: string, b: string, order: -1 | 0 | 1]>> = {
    'not as text': ['9', '10', -1],
    'the longer is the larger': ['99999999999999999999', '100000000000000000000', -1],
    'beyond what a number holds': ['9007199254740993', '9007199254740992', 1],
    'equal is equal': ['12', '12', 0],
    'leading zeros mean nothing': ['007', '7', 0],
    'nor do they make it longer': ['0099', '100', -1],
    'zero is zero, however long': ['000', '0', 0],
    'zero is the smallest': ['0', '1', -1],
  };
  for (const [sentence, [a, b, order]] of Object.entries(orders))
    test(`${sentence}: ${a}, ${b}`, () => {
      assert.equal(Math.sign(compareVersions(a, b)), order);
      assert.equal(Math.sign(compareVersions(b, a)), order === 0 ? 0 : -order);
    });
});
