import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { addressKey, compareText } from '../../core/address.ts';
import { startRelay } from '../../relay/relay.ts';
import { deltaDetail } from '../../wire/delta.ts';
import type { Mode } from '../../wire/envelope.ts';
import { createLogger, type Logger } from '../../wire/log.ts';
import { eventually } from '../eventually.ts';
import { fastTimers } from '../fast-timers.ts';
import { relayOptions } from '../relay/relay-options.ts';
import { CLUSTER, createPod, deletePod, populate, startSmallCluster } from './small-cluster.ts';
import { StackCluster } from './stack-cluster.ts';
import { answersAreTrue, replayIsTrue } from './truth.ts';

/** Waits pass this much faster than the relay believes. */
const SPEED = 50;

/** A small cluster, and relays that come and go. */
async function startWorld() {
  const small = await startSmallCluster();
  const { clock, logger, apiServer, stack } = small;
  let epoch = 0;
  return {
    ...small,
    startRelay: (mode: Mode, log: Logger = logger) =>
      startRelay(
        relayOptions(apiServer, {
          cluster: CLUSTER,
          epoch: ++epoch,
          mode,
          ingestUrl: new URL(stack.url),
          timers: fastTimers(SPEED, clock),
          random: Math.random,
          log,
        }),
      ),
  };
}

type World = Awaited<ReturnType<typeof startWorld>>;

const usageOf = async ({ stack }: World) =>
  (await (await fetch(`${stack.url}/local/usage`)).json()) as { calls: Record<string, number> };

describe('relay, ingest, table and bus over a control plane', () => {
  for (const mode of ['slices', 'endpoints'] as const) {
    test(`${mode}: a cold start publishes each set whole, without a false NoEndpoints, and a live change at once (W3)`, async () => {
      await using world = await startWorld();
      await populate(world);
      await using _relay = world.startRelay(mode);
      await eventually(() => answersAreTrue(world, mode));
      const deltas = await new StackCluster(world.stack, CLUSTER, mode).takeDeltas();
      const first = new Map(deltas.toReversed().map((delta) => [delta.detail.service, delta]));
      assert.deepEqual(
        [...first].filter(([, { type }]) => type === 'NoEndpoints').map(([name]) => name),
        ['empty'],
      );
      createPod(world.apiServer, 'empty');
      await world.quiet();
      await eventually(() => answersAreTrue(world, mode));
      await replayIsTrue(world, mode);
    });

    test(`${mode}: a restart over an unchanged cluster costs no head, no chunk and no delta (P5)`, async () => {
      await using world = await startWorld();
      await populate(world);
      await using first = world.startRelay(mode);
      await eventually(() => answersAreTrue(world, mode));
      await eventually(() => assert.deepEqual(first.notReady(), []));
      await first[Symbol.asyncDispose]();
      const { last } = await world.stack.bus.read({ after: 0, limit: 0, wait: 0 });
      const { calls: before } = await usageOf(world);
      await using second = world.startRelay(mode);
      await eventually(() => assert.deepEqual(second.notReady(), []));
      const { calls: after } = await usageOf(world);
      assert.equal(after.UpdateItem, before.UpdateItem);
      assert.deepEqual((await world.stack.bus.read({ after: last, limit: 10, wait: 0 })).entries, []);
    });

    test(`${mode}: what changed while no relay watched is told as the net of it, found by the inventory (W11, S4)`, async () => {
      await using world = await startWorld();
      const { web = [], shop = [] } = await populate(world);
      await using first = world.startRelay(mode);
      await eventually(() => answersAreTrue(world, mode));
      await first[Symbol.asyncDispose]();
      const { last } = await world.stack.bus.read({ after: 0, limit: 0, wait: 0 });
      for (const name of web.slice(0, 2)) deletePod(world.apiServer, name);
      createPod(world.apiServer, 'web');
      for (const name of shop) deletePod(world.apiServer, name);
      world.apiServer.objects.delete({ kind: 'Service', namespace: 'default', name: 'shop' });
      await world.quiet();
      await using second = world.startRelay(mode);
      await eventually(() => answersAreTrue(world, mode));
      await eventually(() => assert.deepEqual(second.notReady(), []));
      const replica = await replayIsTrue(world, mode);
      assert.equal(replica.port(`${CLUSTER}/default/shop:80`).exists, false);
      const { entries } = await world.stack.bus.read({ after: last, limit: 100, wait: 0 });
      const details = entries.map(({ detail }) => deltaDetail.parse(detail));
      assert.deepEqual([...new Set(details.map(({ service }) => service))].sort(compareText), [
        'shop',
        'web',
      ]);
      assert.deepEqual([...new Set(details.map(({ cause }) => cause.type))], ['RESYNC']);
      const removed = new Set(details.flatMap((detail) => detail.removed.map(addressKey)));
      const added = details.flatMap((detail) => detail.added.map(addressKey));
      assert.deepEqual([added.length, removed.size], [1, 9]);
      assert.deepEqual(
        added.filter((key) => removed.has(key)),
        [],
      );
    });
  }

  test('the API server restarts and forgets its history in the middle of changes: nothing is lost (W4)', async () => {
    await using world = await startWorld();
    const { web = [] } = await populate(world);
    await using _relay = world.startRelay('slices');
    await eventually(() => answersAreTrue(world, 'slices'));
    for (const name of web.slice(0, 3)) deletePod(world.apiServer, name);
    await world.apiServer.restart();
    world.apiServer.compact();
    for (let count = 0; count < 5; count++) createPod(world.apiServer, 'web');
    await world.quiet();
    await eventually(() => answersAreTrue(world, 'slices'));
    await replayIsTrue(world, 'slices');
  });

  test('a slice whose label changes leaves one service and joins the other (S10)', async () => {
    await using world = await startWorld();
    const { apiServer } = world;
    for (const name of ['blue', 'green']) {
      apiServer.objects.create({
        kind: 'Service',
        metadata: { name, namespace: 'default' },
        spec: { ports: [{ name: 'http', port: 80 }] },
      });
    }
    const sliceOf = (service: string) =>
      ({
        kind: 'EndpointSlice',
        metadata: {
          name: 'hand-made',
          namespace: 'default',
          labels: { 'kubernetes.io/service-name': service },
        },
        addressType: 'IPv4',
        ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
        endpoints: [{ addresses: ['192.0.2.7'], conditions: { ready: true } }],
      }) as const;
    apiServer.objects.create(sliceOf('blue'));
    await using _relay = world.startRelay('slices');
    await eventually(() => answersAreTrue(world, 'slices'));
    apiServer.objects.update(sliceOf('green'));
    await eventually(() => answersAreTrue(world, 'slices'));
    const replica = await replayIsTrue(world, 'slices');
    assert.equal(replica.port(`${CLUSTER}/default/blue:80`).addresses.size, 0);
  });

  test("at debug the relay says what it sees in Linkerd's words", async () => {
    await using world = await startWorld();
    const messages: string[] = [];
    const write = (line: string) => void messages.push((JSON.parse(line) as { message: string }).message);
    await using relay = world.startRelay(
      'slices',
      createLogger({ level: 'debug', clock: world.clock, write }),
    );
    await eventually(() => assert.deepEqual(relay.notReady(), []));
    const { web = [] } = await populate(world);
    await eventually(() => answersAreTrue(world, 'slices'));
    for (const name of web) deletePod(world.apiServer, name);
    await world.quiet();
    await eventually(() => answersAreTrue(world, 'slices'));
    const said = (pattern: RegExp) =>
      assert(
        messages.some((message) => pattern.test(message)),
        `${pattern}`,
      );
    said(/^Watching Service resources$/);
    said(/^Watching EndpointSlice resources$/);
    said(/^Updating service for default\/web$/);
    said(/^Adding ES default\/web-/);
    said(/^Updating ES default\/web-/);
    said(/^Deleting ES default\/web-/);
  });

  test('a cluster changes from slices to Endpoints and back without a removal (S12)', async () => {
    await using world = await startWorld();
    await populate(world);
    for (const mode of ['slices', 'endpoints', 'slices'] as const) {
      await using relay = world.startRelay(mode);
      await eventually(() => answersAreTrue(world, mode));
      await eventually(() => assert.deepEqual(relay.notReady(), []));
    }
    const deltas = await new StackCluster(world.stack, CLUSTER, 'slices').takeDeltas();
    assert.deepEqual(
      deltas.flatMap(({ detail }) => detail.removed),
      [],
    );
    await replayIsTrue(world, 'slices');
  });
});
