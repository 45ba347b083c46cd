import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Address, addressKey } from '../../core/address.ts';
import type { Occurrences } from '../../core/address-set.ts';
import { advanceDigest } from '../../core/delta.ts';
import { diffOccurrences, isEmptyDifference } from '../../core/diff.ts';
import type { Condition } from '../../core/endpoint-object.ts';
import { bareAddress } from '../bare-address.ts';

/** Occurrences from `[ip, condition, zone]`. */
function occurrences(
  ...list: readonly (readonly [ip: string, condition?: Condition, zone?: string])[]
): Occurrences {
  return new Map(
    list.map(([ip, condition = 'ready', zone = null]) => {
      const address = bareAddress({ ip, zone, port: 80 });
      return [addressKey(address), { address, condition, uid: 'u' }];
    }),
  );
}

describe('the difference of two sets (S5, S26)', () => {
  type Row = {
    before: Occurrences;
    after: Occurrences;
    want: [added: string, updated: string, removed: string];
  };
  const cases: Readonly<Record<string, Row>> = {
    'nothing changed': {
      before: occurrences(['1.1.1.1']),
      after: occurrences(['1.1.1.1']),
      want: ['', '', ''],
    },
    'one comes, one goes': {
      before: occurrences(['1.1.1.1']),
      after: occurrences(['1.1.1.2']),
      want: ['1.1.1.2', '', '1.1.1.1'],
    },
    'zone change is an update, not a removal': {
      before: occurrences(['1.1.1.1', 'ready', 'a']),
      after: occurrences(['1.1.1.1', 'ready', 'b']),
      want: ['', '1.1.1.1', ''],
    },
    'no longer ready is a removal (S28)': {
      before: occurrences(['1.1.1.1']),
      after: occurrences(['1.1.1.1', 'draining']),
      want: ['', '', '1.1.1.1'],
    },
    'ready at last is an addition': {
      before: occurrences(['1.1.1.1', 'notReady']),
      after: occurrences(['1.1.1.1']),
      want: ['1.1.1.1', '', ''],
    },
    'what is not ready changes in silence': {
      before: occurrences(['1.1.1.1', 'notReady', 'a']),
      after: occurrences(['1.1.1.1', 'draining', 'b'], ['1.1.1.2', 'terminating']),
      want: ['', '', ''],
    },
    'sorted by key, in code units (S6)': {
      before: occurrences(),
      after: occurrences(['9.9.9.9'], ['10.0.0.10'], ['10.0.0.9']),
      want: ['10.0.0.10 10.0.0.9 9.9.9.9', '', ''],
    },
  };
  for (const [sentence, { before, after, want }] of Object.entries(cases))
    test(sentence, () => {
      const difference = diffOccurrences(before, after);
      const { added, updated, removed } = difference;
      const ips = (list: readonly Address[]) => list.map(({ ip }) => ip).join(' ');
      assert.deepEqual([ips(added), ips(updated.map(({ address }) => address)), ips(removed)], want);
      assert.equal(isEmptyDifference(difference), want.join('') === '');
    });

  test('an update has both addresses', () => {
    const { updated } = diffOccurrences(
      occurrences(['1.1.1.1', 'ready', 'a']),
      occurrences(['1.1.1.1', 'ready', 'b']),
    );
    assert.deepEqual([updated[0]?.former.zone, updated[0]?.address.zone], ['a', 'b']);
  });
});

describe('a digest follows what changes', () => {
  const MAX = (1n << 256n) - 1n;
  const hash = (key: string) => BigInt(key);
  const cases: Readonly<
    Record<string, readonly [digest: bigint, added: string[], removed: string[], want: bigint]>
  > = {
    'keys add up': [0n, ['1', '2'], [], 3n],
    'gone ones are subtracted': [3n, [], ['1'], 2n],
    'to nothing at last': [3n, [], ['1', '2'], 0n],
    'beyond 2^256 it starts again': [MAX, ['2'], [], 1n],
    'and below nothing': [1n, [], ['2'], MAX],
  };
  for (const [sentence, [digest, added, removed, want]] of Object.entries(cases))
    test(sentence, () => assert.equal(advanceDigest(digest, { added, removed }, hash), want));
});
