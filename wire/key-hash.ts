import { hash } from 'node:crypto';

/** Digests are sums modulo 2^256, so that a change costs what changed: gone keys are subtracted, new ones added. */
const MODULUS_BITS = 256;
const HEX_DIGITS = MODULUS_BITS / 4;
const DIGEST = /^[0-9a-f]{64}$/;

/** SHA-256 of an address key, as the number that a digest adds up. */
export function hashKey(key: string): bigint {
  return BigInt(`0x${hash('sha256', key, 'hex')}`);
}

/** The published digest: 64 hex digits of the sum modulo 2^256, which may be given before reduction or negative. */
export function formatDigest(sum: bigint): string {
  return BigInt.asUintN(MODULUS_BITS, sum).toString(16).padStart(HEX_DIGITS, '0');
}

/** The sum behind a published digest; null for what is none. */
export function parseDigest(digest: string): bigint | null {
  return DIGEST.test(digest) ? BigInt(`0x${digest}`) : null;
}

/** Digest of a whole set. */
export function digestOf(keys: Iterable<string>): string {
  let sum = 0n;
  for (const key of keys) sum += hashKey(key);
  return formatDigest(sum);
}
