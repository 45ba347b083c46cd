import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, test } from 'node:test';
import { digestOf, formatDigest, hashKey, parseDigest } from '../../wire/key-hash.ts';

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

describe('the digest of a set', () => {
  test('of nothing is zeros', () => {
    assert.equal(digestOf([]), '0'.repeat(64));
  });

  test("of one key is the key's SHA-256", () => {
    assert.equal(digestOf(['[fd00::5]:8080']), sha256('[fd00::5]:8080'));
  });

  test('does not depend on the order of the keys', () => {
    assert.equal(digestOf(['10.0.0.1:80', '10.0.0.2:80']), digestOf(['10.0.0.2:80', '10.0.0.1:80']));
  });

  test('wraps at 2^256, up and down', () => {
    const top = (1n << 256n) - 1n;
    assert.equal(formatDigest(top + 2n), `${'0'.repeat(63)}1`);
    assert.equal(formatDigest(-1n), 'f'.repeat(64));
  });

  test('what is subtracted was never added', () => {
    const keys = ['10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80'];
    const sum = keys.reduce((total, key) => total + hashKey(key), 0n);
    assert.equal(formatDigest(sum - hashKey('10.0.0.2:80')), digestOf(['10.0.0.1:80', '10.0.0.3:80']));
  });

  test('reads back, and nothing else does', () => {
    const digest = digestOf(['10.0.0.1:80', '10.0.0.2:80']);
    assert.equal(formatDigest(parseDigest(digest) ?? 0n), digest);
    for (const wrong of ['', '0'.repeat(63), 'F'.repeat(64), `0x${'0'.repeat(62)}`])
      assert.equal(parseDigest(wrong), null);
  });
});
