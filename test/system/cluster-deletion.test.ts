import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { ips, Laptop, LaptopCluster, service, slice } from './laptop.ts';

const MINUTE_MS = 60_000;

let laptop: Laptop;
before(async () => {
  laptop = await Laptop.start();
});
after(() => laptop[Symbol.asyncDispose]());

let clusters = 0;

/** A cluster with two services, and one that has a slice alone. */
async function populated(): Promise<LaptopCluster> {
  const cluster = new LaptopCluster(laptop, `doomed-${++clusters}`, { epoch: 7, uid: 'old' });
  await cluster.heartbeat({ kinds: [{ kind: 'Service', resourceVersion: '900' }] });
  await cluster.apply(
    ...[service(), slice('web', ips(3), { version: 500 })],
    ...[service({ name: 'shop' }), slice('shop', ips(2, 1))],
    slice('lone', ips(1, 2)),
  );
  await cluster.takeDeltas();
  return cluster;
}

const remove = (name: string) => laptop.call<{ epoch: number }>('DELETE', `/v1/clusters/${name}`);
const listed = async (name: string) => (await laptop.clusters()).find((cluster) => cluster.name === name);

/** Sweeps each minute until the name is free. */
async function sweepAway(): Promise<number> {
  let deleted = 0;
  for (let minute = 0; minute < 3; minute++) {
    await laptop.advance(MINUTE_MS);
    deleted += (await laptop.sweep()).clustersDeleted;
  }
  return deleted;
}

describe('DELETE /v1/clusters/{c}', () => {
  test('removals are published with cause RESYNC, everything is forgotten but epoch and sequences, and a rebuilt cluster takes the name', async () => {
    const cluster = await populated();
    const { status, body } = await remove(cluster.name);
    assert.deepEqual([status, body.epoch], [202, 8]);
    assert.equal((await listed(cluster.name))?.deleting, true);
    assert.equal(await sweepAway(), 1);

    const deltas = await cluster.takeDeltas();
    assert.deepEqual(
      deltas
        .map(({ type, detail }) => [detail.service, type, detail.exists, detail.cause.type, detail.sequence])
        .sort(),
      [
        ['shop', 'NoEndpoints', false, 'RESYNC', 2],
        ['web', 'NoEndpoints', false, 'RESYNC', 2],
      ],
    );
    const reasons = deltas.flatMap(({ detail }) => detail.removed.map(({ reason }) => reason));
    assert.deepEqual([...new Set(reasons)], ['serviceDeleted']);
    assert.equal(reasons.length, 5);

    assert.equal(await listed(cluster.name), undefined);
    assert.doesNotMatch(await laptop.metrics(), new RegExp(`cluster="${cluster.name}"`));
    assert.equal(
      (await laptop.call('GET', `/v1/clusters/${cluster.name}/namespaces/_all/services`)).status,
      404,
    );
    assert.equal(await cluster.set('web'), null);
    assert.equal((await remove(cluster.name)).status, 404);

    const rebuilt = new LaptopCluster(laptop, cluster.name, { epoch: 1, uid: 'new' });
    const refused = await rebuilt.heartbeat();
    assert.deepEqual([refused.status, (refused.body as unknown as { current: number }).current], [409, 8]);
    rebuilt.epoch = 9;
    const { body: heard } = await rebuilt.heartbeat();
    assert.deepEqual(heard.versions, {});
    assert(heard.waitMs > 0, 'the last step of a sweep may be under way');
    // The same uids at lower versions: those objects live, so that no deletion is remembered.
    await rebuilt.apply(service(), slice('web', ips(2, 5), { version: 3 }));
    assert.equal((await rebuilt.keys('web'))?.length, 2);
    assert.equal((await rebuilt.set('web'))?.sequence, 3);
    assert.equal(await rebuilt.keys('lone'), null);
    await laptop.sweep();
    assert.equal((await rebuilt.keys('web'))?.length, 2);
    assert.deepEqual(Object.keys(await rebuilt.replayed()), ['default/shop:80', 'default/web:80']);
    assert.equal((await listed(cluster.name))?.uid, 'new');
  });

  test('relays of the time before are refused at once; newer ones, and another cluster, until the sweep is done', async () => {
    const cluster = await populated();
    await remove(cluster.name);
    for (const answer of [await cluster.heartbeat(), await cluster.send(service()), await cluster.page([])])
      assert.deepEqual([answer.status, answer.body.error], [409, 'epoch']);
    const successor = new LaptopCluster(laptop, cluster.name, { epoch: 8, uid: 'old' });
    const rebuilt = new LaptopCluster(laptop, cluster.name, { epoch: 9, uid: 'new' });
    for (const relay of [successor, rebuilt]) {
      const answer = await relay.send(service());
      assert.equal(answer.status, 503);
      assert.match(answer.body.detail, /^cluster: /);
      assert(Number(answer.headers.get('retry-after')) > 0);
    }
    await sweepAway();
    assert.deepEqual(await rebuilt.apply(service(), slice('web', ips(1))), ['applied', 'applied']);
    assert.equal((await successor.send(service())).status, 409);
  });

  test('a sweep right after it takes all away, but the name is free only once requests of the time before have landed (P8)', async () => {
    const cluster = await populated();
    await remove(cluster.name);
    assert.equal((await laptop.sweep()).clustersDeleted, 1);
    assert.equal(await listed(cluster.name), undefined);
    assert.equal((await cluster.takeDeltas()).length, 2);
    cluster.epoch = 8;
    assert.equal((await cluster.heartbeat()).status, 503);
    await laptop.advance(9000);
    await laptop.sweep();
    assert.equal((await cluster.heartbeat()).status, 503);
    await laptop.advance(1500);
    assert.equal((await laptop.sweep()).clustersDeleted, 0);
    assert.equal((await cluster.heartbeat()).status, 200);
  });

  test('asked for twice it is one; of an unknown one it is 404', async () => {
    const cluster = await populated();
    const [first, second] = [await remove(cluster.name), await remove(cluster.name)];
    assert.deepEqual([second.status, second.body.epoch], [202, first.body.epoch]);
    assert.equal((await remove('nobody')).status, 404);
    assert.equal((await remove('Not-A-Name')).status, 400);
    await sweepAway();
  });

  test('two sweeps at once delete it once, and say nothing twice', async () => {
    const cluster = await populated();
    await remove(cluster.name);
    await laptop.advance(MINUTE_MS);
    const reports = await Promise.all([laptop.sweep(), laptop.sweep()]);
    for (let more = 0; more < 2; more++) reports.push(await laptop.sweep());
    assert.equal(
      reports.reduce((sum, { clustersDeleted }) => sum + clustersDeleted, 0),
      1,
    );
    const subscriber = await laptop.subscriber(cluster.name);
    subscriber.replay();
    assert.equal(subscriber.deltas().length, 4);
    assert.deepEqual(laptop.errors, []);
  });

  test('with the bus away nothing is lost: the removals are published later', async () => {
    const cluster = await populated();
    await remove(cluster.name);
    await laptop.advance(MINUTE_MS);
    await laptop.faults({ on: 'bus.publish', do: 'throttle', times: 100 });
    await laptop.sweep();
    assert.deepEqual(await cluster.takeDeltas(), []);
    await laptop.faults();
    assert.equal(await sweepAway(), 1);
    assert.deepEqual(await cluster.replayed(), { 'default/shop:80': [], 'default/web:80': [] });
    laptop.errors.splice(0);
  });

  for (const fault of [
    { on: 'store.commit', do: 'error', skip: 1, times: 100 },
    { on: 'store.commit', when: 'after', do: 'error', times: 100 },
    { on: 'bus.publish', do: 'error', times: 100 },
    { on: 'bus.publish', when: 'after', do: 'error', times: 100 },
    { on: 'store.putReceipt', do: 'error', times: 100 },
  ])
    test(`a sweep that fails ${fault.when ?? 'before'} ${fault.on} is finished by the next, and other clusters are not touched`, async () => {
      const neighbour = await populated();
      const cluster = await populated();
      await remove(cluster.name);
      await laptop.advance(MINUTE_MS);
      await laptop.faults(fault);
      assert.equal((await laptop.sweep()).clustersDeleted, 0);
      assert.equal((await listed(cluster.name))?.deleting, true);
      await laptop.faults();
      assert.equal((await laptop.sweep()).clustersDeleted, 1);
      assert.deepEqual(await cluster.replayed(), { 'default/shop:80': [], 'default/web:80': [] });
      assert.deepEqual(await neighbour.takeDeltas(), []);
      assert.equal((await neighbour.keys('web'))?.length, 3);
      assert.equal((await listed(neighbour.name))?.deleting, undefined);
      laptop.errors.splice(0);
    });

  test('a silent relay of a cluster that is deleted is not lost', async () => {
    const cluster = await populated();
    await remove(cluster.name);
    await laptop.advance(10 * MINUTE_MS);
    assert.equal((await laptop.sweep()).relaysLost, 0);
  });
});
