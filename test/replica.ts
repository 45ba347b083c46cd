import assert from 'node:assert/strict';
import { addressKey, compareText } from '../core/address.ts';
import { type DeltaDetail, type DeltaType, deltaTypeOf } from '../wire/delta.ts';
import { digestOf } from '../wire/key-hash.ts';

/** A delta as a subscriber gets it, a split one put together. */
export interface ReceivedDelta {
  readonly type: DeltaType;
  readonly detail: DeltaDetail;
}

type PublishedAddress = DeltaDetail['added'][number];

/** What a subscriber knows of one service port after its last delta. */
export interface ReplicatedPort {
  readonly sequence: number;
  readonly exists: boolean;
  /** By key. */
  readonly addresses: ReadonlyMap<string, PublishedAddress>;
}

/**
 * A subscriber that keeps a copy of every set by replaying deltas, and does not forgive: a gap, a change of what was not
 * there, a list out of order, a wrong size or digest fails the test (P1, P2, S4, S6).
 */
export class Replica {
  /** By group. */
  readonly #ports = new Map<string, ReplicatedPort>();

  /** A port that never spoke: nothing. */
  port(group: string): ReplicatedPort {
    return this.#ports.get(group) ?? { sequence: 0, exists: false, addresses: new Map() };
  }

  groups(): string[] {
    return [...this.#ports.keys()].sort(compareText);
  }

  apply({ type, detail }: ReceivedDelta): void {
    const { group, sequence, added, updated, removed, exists, size, digest } = detail;
    const known = this.port(group);
    const where = `${group}#${sequence}`;
    assert.equal(sequence, known.sequence + 1, `${where}: the sequence has a gap`);
    const addresses = new Map(known.addresses);
    for (const list of [added, updated, removed]) {
      const keys = list.map(addressKey);
      assert.deepEqual(keys, [...new Set(keys)].sort(compareText), `${where}: sorted, each key once`);
    }
    for (const { ip, port } of removed)
      assert(
        addresses.delete(addressKey({ ip, port })),
        `${where}: removes ${ip}:${port}, which was not there`,
      );
    for (const address of updated) {
      const former = addresses.get(addressKey(address));
      assert(former !== undefined, `${where}: updates ${addressKey(address)}, which was not there`);
      assert.notDeepEqual(address, former, `${where}: updates ${addressKey(address)}, which did not change`);
      addresses.set(addressKey(address), address);
    }
    for (const address of added) {
      const key = addressKey(address);
      assert(!known.addresses.has(key), `${where}: adds ${key}, which was there`);
      addresses.set(key, address);
    }
    const isSilent = added.length + updated.length + removed.length === 0;
    const isNews = known.sequence === 0 || known.exists !== exists;
    assert(!isSilent || isNews, `${where}: says nothing`);
    assert.equal(size, addresses.size, `${where}: size`);
    assert.equal(digest, digestOf(addresses.keys()), `${where}: digest`);
    assert.equal(type, deltaTypeOf({ size }), `${where}: type`);
    assert(exists || size === 0, `${where}: addresses of a Service that does not exist`);
    this.#ports.set(group, { sequence, exists, addresses });
  }
}
