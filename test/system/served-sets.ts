import assert from 'node:assert/strict';
import { addressKey, compareText } from '../../core/address.ts';
import type { PortSet } from '../../wire/api.ts';
import { groupOf } from '../../wire/delta.ts';
import type { NaiveSet } from '../core/naive-model.ts';
import type { Replica } from '../replica.ts';

/** Gets a path of the api. */
export type Get = (path: string) => Promise<{ readonly status: number; readonly body: unknown } | null>;

/** What the api answers of all ports of the services that groups name, by group. */
export async function readSets(get: Get, groups: readonly string[]): Promise<Map<string, PortSet>> {
  const sets = new Map<string, PortSet>();
  for (const id of new Set(groups.map((group) => group.slice(0, group.indexOf(':'))))) {
    const [cluster, namespace, service] = id.split('/');
    const answer = await get(`/v1/clusters/${cluster}/namespaces/${namespace}/services/${service}/endpoints`);
    // A Service that is gone, or that is a name.
    assert(answer !== null && [200, 404, 422].includes(answer.status), JSON.stringify(answer));
    if (answer.status !== 200) continue;
    const { ports } = answer.body as { readonly ports: readonly PortSet[] };
    for (const set of ports) sets.set(groupOf(set), set);
  }
  return sets;
}

/** Holds what a subscriber has against what a reader gets: the same addresses, and the last delta (P1, P2). */
export function assertReplayed(replica: Replica, sets: ReadonlyMap<string, PortSet>): void {
  for (const group of replica.groups()) {
    const set = sets.get(group);
    const { addresses, sequence } = replica.port(group);
    const keys = [...addresses.keys()].sort(compareText);
    assert.deepEqual(
      keys.map((key) => addresses.get(key)),
      (set?.addresses ?? []).map(withoutName),
      `${group}: replayed deltas are the set`,
    );
    if (set !== undefined) assert.equal(sequence, set.sequence, `${group}: the last delta was published`);
  }
}

/** The sets in the words of the naive model, by `namespace/service:port`. */
export function toNaiveSets(sets: ReadonlyMap<string, PortSet>): Record<string, NaiveSet> {
  return Object.fromEntries(
    [...sets].map(([group, { portName, addresses, draining, notReady }]) => {
      const ready = addresses.map((address) => [addressKey(address), withoutName(address)]);
      return [
        group.slice(group.indexOf('/') + 1),
        { name: portName, ready: Object.fromEntries(ready), draining: draining.map(addressKey), notReady },
      ];
    }),
  );
}

/** The api names addresses of headless services; the bus does not (S39). */
function withoutName(address: object): object {
  const { dnsName: _dnsName, ...rest } = address as { readonly dnsName?: string };
  return rest;
}
