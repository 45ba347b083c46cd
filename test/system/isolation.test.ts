import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { startApiServer } from '../../infra/local/cluster/api-server.ts';
import { type Relay, startRelay } from '../../relay/relay.ts';
import { createLogger } from '../../wire/log.ts';
import { eventually } from '../eventually.ts';
import { fastTimers } from '../fast-timers.ts';
import { relayOptions } from '../relay/relay-options.ts';
import { ips, Laptop, LaptopCluster, service, slice } from './laptop.ts';
import { CLUSTER, createPod, createService, populate, startSmallCluster } from './small-cluster.ts';
import { StackCluster } from './stack-cluster.ts';
import { answersAreTrue } from './truth.ts';

/** Waits pass this much faster than the relays believe. */
const SPEED = 50;
/** The reference ends its process when a cluster was away for so long. */
const AWAY_MS = 60_000;
const LOST = 'lost';
/** Readers of the reference that one event kept busy for seconds: one on each node. */
const NODES = 100;

describe('one does not pay for another', () => {
  test('a cluster that is away for long disturbs no other, nor ends its own relay; both go on when it is back (L32)', async () => {
    await using small = await startSmallCluster();
    const { stack, apiServer, clock, quiet } = small;
    await populate(small);
    await using lost = await startApiServer({ clock });
    createService(lost, 'web');
    const timers = fastTimers(SPEED, clock);
    const log = createLogger({ level: 'error', clock, write: () => {} });
    const told = { ingestUrl: new URL(stack.url), timers, log };
    const ends: string[] = [];
    const start = (server: typeof lost, cluster: string): Relay => {
      const relay = startRelay(relayOptions(server, { ...told, cluster, epoch: 1 }));
      relay.done.then(({ kind }) => ends.push(kind));
      return relay;
    };
    await using near = start(apiServer, CLUSTER);
    await using far = start(lost, LOST);
    const answerOfLost = () =>
      new StackCluster(stack, LOST, 'slices').answer({ namespace: 'default', name: 'web' }, { port: '80' });
    await eventually(() => answersAreTrue(small, 'slices'));
    await eventually(() => assert.deepEqual([near.notReady(), far.notReady()], [[], []]));
    assert.equal((await answerOfLost()).set?.addresses.length, 0);
    {
      await using _away = await lost.misbehave({ fault: { kind: 'refuse' } });
      const until = timers.monotonic() + AWAY_MS;
      while (timers.monotonic() < until) {
        createPod(apiServer, 'web');
        await quiet();
        await eventually(() => answersAreTrue(small, 'slices'));
      }
      assert.notDeepEqual(far.notReady(), []);
      assert.deepEqual(near.notReady(), []);
      assert.deepEqual(ends, []);
      assert.equal((await answerOfLost()).status, 200);
    }
    lost.objects.create({
      kind: 'EndpointSlice',
      metadata: { name: 'web-1', namespace: 'default', labels: { 'kubernetes.io/service-name': 'web' } },
      addressType: 'IPv4',
      ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
      endpoints: [{ addresses: ['192.0.2.7'], conditions: { ready: true } }],
    });
    await eventually(async () => assert.equal((await answerOfLost()).set?.addresses.length, 1));
    await eventually(() => assert.deepEqual(far.notReady(), []));
  });

  test('a change is computed, stored and published once, however many subscribe from however many nodes (L33)', async () => {
    await using laptop = await Laptop.start();
    const cluster = new LaptopCluster(laptop, 'prod-eu');
    let version = 1;
    await cluster.apply(service(), slice('web', ips(2), { version }));
    const change = (count: number) =>
      laptop.costOf(() => cluster.apply(slice('web', ips(count), { version: ++version })));
    const alone = await change(3);
    const path = cluster.path('web');
    const nodes = Array.from({ length: NODES }, (_, index) => `node-${index}`);
    await Promise.all(
      nodes.map(async (node) => {
        const subscription = `${path}/subscriptions/${node}?port=80`;
        assert.equal((await laptop.call('PUT', subscription, { ttlSeconds: 60 })).status, 200);
      }),
    );
    assert.deepEqual(await change(4), alone);
    assert.equal(alone.PutEvents, 1);
    for (const node of nodes.slice(0, 3)) {
      const { status, body } = await laptop.call('GET', `${path}/endpoints?port=80&node=${node}`);
      assert.equal(status, 200);
      assert.equal((body as { readonly addresses: unknown[] }).addresses.length, 4);
    }
  });
});
