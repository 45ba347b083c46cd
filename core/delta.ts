import type { Address, Protocol } from './address.ts';
import type { Cause } from './service-state.ts';
import type { EpochMs } from './time.ts';

/** Why an address left the set; the first that holds (S29). */
export type RemovalReason =
  | 'serviceDeleted'
  | 'portRemoved'
  | 'terminating'
  | 'notReady'
  | 'sliceMoved'
  | 'gone';

/** An address whose metadata changed while its key stayed. */
export interface UpdatedAddress {
  readonly address: Address;
  /** As it was published before; lets a reader of the history walk backwards. */
  readonly former: Address;
}

export interface RemovedAddress {
  /** As it was last published. */
  readonly address: Address;
  readonly reason: RemovalReason;
}

/** What changed for one service port in one commit; each list is sorted by key (S6). Empty `size` makes it a NoEndpoints. */
export interface PortDelta {
  readonly port: number;
  readonly protocol: Protocol;
  readonly portName: string;
  /** One more than the former delta's of this port (P2). */
  readonly sequence: number;
  readonly exists: boolean;
  /** Size of the set after the delta. */
  readonly size: number;
  /** Digest of the set after the delta. */
  readonly digest: bigint;
  readonly isTruncated: boolean;
  readonly added: readonly Address[];
  readonly updated: readonly UpdatedAddress[];
  readonly removed: readonly RemovedAddress[];
  readonly cause: Cause;
  readonly triggeredAt: string | null;
  readonly observedAt: EpochMs;
}

/** Hash of an address key as an unsigned 256-bit number (SHA-256); a dependency, since the core has no imports. */
export type KeyHash = (key: string) => bigint;

const DIGEST_MODULUS = 1n << 256n;

/** The digest of a set that gains and loses keys: the sum of all keys' hashes modulo 2^256. Its cost is the change's. */
export function advanceDigest(
  digest: bigint,
  keys: { readonly added: Iterable<string>; readonly removed: Iterable<string> },
  hash: KeyHash,
): bigint {
  let sum = digest;
  for (const key of keys.added) sum += hash(key);
  for (const key of keys.removed) sum -= hash(key);
  return ((sum % DIGEST_MODULUS) + DIGEST_MODULUS) % DIGEST_MODULUS;
}
