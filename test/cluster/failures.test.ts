import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Relay } from '../../relay/relay.ts';
import { eventually } from '../eventually.ts';
import { fastTimers } from '../fast-timers.ts';
import { RelayProcess } from '../system/relay-process.ts';
import { Gate } from './gate.ts';
import { createDeployment, createService, rollOut, scale } from './workloads.ts';
import { RELAY_NAMESPACE, World } from './world.ts';

/** Back-offs and polls pass so much faster than by default. */
const SPEED = 10;
const BINDING = { kind: 'ClusterRoleBinding', name: 'endpoints-watcher-relay' } as const;
const REPLICAS = 15;

let world: World;
before(async () => {
  world = await World.start();
});
after(() => world[Symbol.asyncDispose]());

/** A namespace of its own with one Service of pods. */
async function populate(namespace: string): Promise<void> {
  await world.client.create('Namespace', { name: namespace });
  await createService(world.client, namespace, 'web');
  await createDeployment(world.client, namespace, 'web', REPLICAS);
  await world.hasReady(namespace, 'web', REPLICAS);
}

/** A relay on fast timers, whose first inventory is done and right. */
async function startRelay(
  access: { readonly server?: string; readonly tokenFile?: string } = {},
): Promise<Relay> {
  const relay = world.startRelay({ mode: 'slices', timers: fastTimers(SPEED), ...access });
  await eventually(() => assert.deepEqual(relay.notReady(), []));
  await world.isTrue('slices');
  return relay;
}

function countOf(relay: Relay, metric: string, label: string): number {
  const lines = relay.metrics
    .render()
    .split('\n')
    .filter((line) => line.startsWith(`${metric}{`) && line.includes(label));
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
}

const endsBy = (relay: Relay, cause: string) =>
  countOf(relay, 'endpoints_watcher_relay_watch_ends_total', `cause="${cause}"`);
const listsBy = (relay: Relay, cause: string) =>
  countOf(relay, 'endpoints_watcher_relay_lists_total', `cause="${cause}"`);

describe('faults of a real API server', () => {
  test('it is killed and started again in the middle of a rollout (W4)', async () => {
    await populate('killed');
    await using relay = await startRelay();
    await rollOut(world.client, 'killed', 'web', '2');
    await world.plane.killApiServer();
    await eventually(() => assert.notDeepEqual(relay.notReady(), []));
    await world.plane.startApiServer();
    await scale(world.client, 'killed', 'web', REPLICAS + 5);
    await world.hasReady('killed', 'web', REPLICAS + 5);
    await world.isTrue('slices');
    await eventually(() => assert.deepEqual(relay.notReady(), []));
  });

  test('it has forgotten the version from which the relay would go on: 410, a list, nothing lost (W4)', async () => {
    await populate('forgotten');
    await using gate = await Gate.to(world.plane.server);
    await using relay = await startRelay({ server: gate.url });
    gate.shut();
    await scale(world.client, 'forgotten', 'web', 4);
    await world.hasReady('forgotten', 'web', 4);
    await world.client.delete({ kind: 'Service', namespace: 'killed', name: 'web' });
    // What it serves watches from begins anew with it.
    await world.plane.killApiServer();
    await world.plane.startApiServer();
    gate.open();
    const replica = await world.isTrue('slices');
    assert.equal(replica.port('slices/killed/web:80').exists, false);
    assert(endsBy(relay, 'expired') > 0, relay.metrics.render());
    assert(listsBy(relay, 'expired') > 0);
  });

  test('the way to it breaks for a while: the relay goes on at its version, and lists nothing (W4)', async () => {
    await populate('broken');
    await using gate = await Gate.to(world.plane.server);
    await using relay = await startRelay({ server: gate.url });
    gate.shut();
    await scale(world.client, 'broken', 'web', 3);
    await world.hasReady('broken', 'web', 3);
    gate.open();
    await world.isTrue('slices');
    assert(endsBy(relay, 'broken') > 0);
    assert.equal(countOf(relay, 'endpoints_watcher_relay_lists_total', ''), 2);
  });

  test('its storage goes back to a backup: versions fall, and the state is what the backup holds (S44)', async () => {
    await populate('restored');
    await world.plane.backUp();
    await using relay = await startRelay();
    await scale(world.client, 'restored', 'web', 2);
    await createService(world.client, 'restored', 'late');
    await createDeployment(world.client, 'restored', 'late', 3);
    await world.hasReady('restored', 'late', 3);
    await world.hasReady('restored', 'web', 2);
    await world.isTrue('slices');
    await world.plane.restore();
    const replica = await world.isTrue('slices');
    assert.equal(replica.port('slices/restored/late:80').exists, false);
    assert.equal(replica.port('slices/restored/web:80').addresses.size, REPLICAS);
    await scale(world.client, 'restored', 'web', 6);
    await world.hasReady('restored', 'web', 6);
    await world.isTrue('slices');
    assert(listsBy(relay, 'tooLarge') > 0, relay.metrics.render());
  });

  test('it takes the token no longer: the relay reads its file again (W12)', async () => {
    await populate('token');
    const tokenFile = join(world.folder, 'token');
    writeFileSync(tokenFile, world.plane.relayToken);
    await using relay = await startRelay({ tokenFile });
    await world.plane.killApiServer();
    world.plane.relayToken = 'another-token';
    await world.plane.startApiServer();
    await eventually(() => assert(endsBy(relay, 'unauthorized') > 0));
    await scale(world.client, 'token', 'web', 5);
    await world.hasReady('token', 'web', 5);
    writeFileSync(tokenFile, world.plane.relayToken);
    await world.isTrue('slices');
    await eventually(() => assert.deepEqual(relay.notReady(), []));
  });

  test('the relay may read nothing any more: nothing is taken for deleted, and it goes on when it may (W4)', async () => {
    await populate('denied');
    await using relay = await startRelay();
    const { rules: _rules, ...binding } = await world.client.get(BINDING);
    const before = (await world.subscriber('slices')).deltas().length;
    await world.client.delete(BINDING);
    // Live watches outlast their right; those after a restart do not begin.
    await world.plane.killApiServer();
    await world.plane.startApiServer();
    await eventually(() => assert(endsBy(relay, 'denied') >= 2));
    assert.equal(relay.notReady().length, 2);
    assert.equal((await world.subscriber('slices')).deltas().length, before);
    await scale(world.client, 'denied', 'web', 8);
    await world.hasReady('denied', 'web', 8);
    await world.client.create(
      'ClusterRoleBinding',
      { name: BINDING.name },
      { subjects: binding.subjects, roleRef: binding.roleRef },
    );
    await world.isTrue('slices');
    await eventually(() => assert.deepEqual(relay.notReady(), []));
  });

  test('two relay processes elect one; it is killed, the next stands still: nothing is lost (W17, W18, W19)', async () => {
    await populate('elected');
    const cloud = { stack: world.stack, apiServer: { kubeconfig: world.plane.kubeconfig() } };
    const lease = { name: 'endpoints-watcher-relay', namespace: RELAY_NAMESPACE };
    await using one = new RelayProcess('one', cloud, lease);
    await eventually(async () => assert.equal(await one.leads(), 0));
    await using two = new RelayProcess('two', cloud, lease);
    await eventually(() => two.standsBy());
    await world.isTrue('slices', { cluster: one.cluster });

    await rollOut(world.client, 'elected', 'web', '2');
    one.signal('SIGKILL');
    await scale(world.client, 'elected', 'web', 4);
    await world.hasReady('elected', 'web', 4);
    await eventually(async () => assert.equal(await two.leads(), 1));
    await world.isTrue('slices', { cluster: two.cluster });

    await using three = new RelayProcess('three', cloud, lease);
    await eventually(() => three.standsBy());
    two.signal('SIGSTOP');
    await scale(world.client, 'elected', 'web', 9);
    await eventually(async () => assert.equal(await three.leads(), 2));
    await world.hasReady('elected', 'web', 9);
    two.signal('SIGCONT');
    await scale(world.client, 'elected', 'web', 6);
    await eventually(() => two.standsBy());
    await world.hasReady('elected', 'web', 6);
    await world.isTrue('slices', { cluster: three.cluster });
  });
});
