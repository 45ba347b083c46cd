import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Relay } from '../../relay/relay.ts';
import { eventually } from '../eventually.ts';
import { fastTimers } from '../fast-timers.ts';
import { createDeployment, createService, rollOut, scale } from './workloads.ts';
import { World } from './world.ts';

const MODES = ['slices', 'endpoints'] as const;
const REPLICAS = 12;
/** The second relay waits for its predecessor's requests so much faster; there are none. */
const SPEED = 10;

let world: World;
before(async () => {
  world = await World.start(['blue', 'green']);
  for (const namespace of ['blue', 'green', 'default']) {
    await createService(world.client, namespace, 'web');
    await createDeployment(world.client, namespace, 'web', REPLICAS);
    await world.hasReady(namespace, 'web', REPLICAS);
  }
});
after(() => world[Symbol.asyncDispose]());

/** Services that readers of a cluster are told of. */
async function toldServices(cluster: string): Promise<string[]> {
  const response = await fetch(`${world.stack.url}/v1/clusters/${cluster}/namespaces/_all/services`);
  const { items } = (await response.json()) as { items: { namespace: string; name: string }[] };
  return items.map(({ namespace, name }) => `${namespace}/${name}`);
}

describe('a relay of some namespaces, which may read nothing outside them (W14)', () => {
  let relays: Relay[];
  before(() => {
    relays = MODES.map((mode) => world.startRelay({ mode, namespaces: ['blue', 'green'] }));
  });
  after(() => Promise.all(relays.map((relay) => relay[Symbol.asyncDispose]())));

  for (const mode of MODES)
    test(`${mode}: tells the truth of each, and nothing else`, async () => {
      await world.isTrue(mode, { namespaces: ['blue', 'green'] });
      await rollOut(world.client, 'blue', 'web', `of ${mode}`);
      await scale(world.client, 'green', 'web', mode === 'slices' ? 0 : REPLICAS);
      await world.isTrue(mode, { namespaces: ['blue', 'green'] });
      assert.deepEqual(await toldServices(mode), ['blue/web', 'green/web']);
    });

  test('is ready: nothing that it needs was denied', () =>
    eventually(() =>
      assert.deepEqual(
        relays.flatMap((relay) => relay.notReady()),
        [],
      ),
    ));
});

describe('a relay of fewer namespaces than before', () => {
  for (const mode of MODES)
    test(`${mode}: what is no longer its own leaves the lists, and the rest stays as it was`, async () => {
      await using relay = world.startRelay({ mode, namespaces: ['blue'], timers: fastTimers(SPEED) });
      await eventually(() => assert.deepEqual(relay.notReady(), []));
      const replica = await world.isTrue(mode, { namespaces: ['blue'] });
      assert.notEqual(replica.port(`${mode}/blue/web:80`).addresses.size, 0);
      assert.equal(replica.port(`${mode}/green/web:80`).exists, false);
    });
});
