import assert from 'node:assert/strict';
import { addressKey, compareText } from '../../core/address.ts';
import { queryPorts } from '../../core/query.ts';
import { portId } from '../../core/service-port.ts';
import { formatAddress } from '../../wire/address.ts';
import { parseGroup } from '../../wire/delta.ts';
import { type ReceivedDelta, Replica } from '../replica.ts';
import type { CoreCluster } from './core-cluster.ts';
import type { NaiveSet } from './naive-model.ts';

/** Watches a cluster the way a subscriber and a reader do, and holds the two against each other (P1). */
export class ObservedSets {
  readonly #cluster: CoreCluster;
  readonly #replica = new Replica();

  constructor(cluster: CoreCluster) {
    this.#cluster = cluster;
  }

  /**
   * Replays the cluster's new deltas, which must be `others`: those of a cluster that was told the same in another way.
   * @returns those deltas.
   */
  check(when: string, others?: readonly ReceivedDelta[]): readonly ReceivedDelta[] {
    const deltas = this.#cluster.drain();
    if (others !== undefined) assert.deepEqual(others, deltas, `${when}: both ways make the same deltas`);
    const groups = deltas.map(({ detail }) => detail.group);
    for (const delta of deltas) this.#replica.apply(delta);
    for (const group of new Set(groups)) this.#replicaEqualsRead(group, when);
    return deltas;
  }

  /** Every set that a reader sees now, by `namespace/service:port`; all of them are what a subscriber has. */
  current(): Record<string, NaiveSet> {
    for (const group of this.#replica.groups()) this.#replicaEqualsRead(group, 'now');
    const sets: [string, NaiveSet][] = [];
    for (const [id, state] of this.#cluster.states) {
      for (const { port, addresses, draining, notReady } of queryPorts(state, { tier: 'ready' })) {
        const ready = addresses.map((address) => [addressKey(address), formatAddress(address)]);
        sets.push([
          `${id}:${portId(port)}`,
          { name: port.name, ready: Object.fromEntries(ready), draining: draining.map(addressKey), notReady },
        ]);
      }
    }
    return Object.fromEntries(sets.sort(([a], [b]) => compareText(a, b)));
  }

  #replicaEqualsRead(group: string, when: string): void {
    const replicated = this.#replica.port(group);
    const read = this.#read(group);
    assert.equal(replicated.exists, read.exists, `${when}, ${group}: exists`);
    assert.deepEqual(
      Object.fromEntries([...replicated.addresses].sort(([a], [b]) => compareText(a, b))),
      read.addresses,
      `${when}, ${group}: replayed deltas are the set`,
    );
  }

  #read(group: string) {
    const port = parseGroup(group);
    assert(port !== null, `${group} is a group`);
    const state = this.#cluster.state({ namespace: port.namespace, name: port.service });
    const answers = queryPorts(state, { tier: 'ready' });
    const answer = answers.find((candidate) => portId(candidate.port) === portId(port));
    const ready = (answer?.addresses ?? []).map((address) => [addressKey(address), formatAddress(address)]);
    return { exists: state.service !== null, addresses: Object.fromEntries(ready) };
  }
}
