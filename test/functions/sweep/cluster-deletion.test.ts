import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { EpochMs } from '../../../core/time.ts';
import { deleteCluster } from '../../../functions/api/clusters.ts';
import { UnknownFormatError } from '../../../functions/store/store.ts';
import { emptyService } from '../../../functions/sweep/cluster-deletion.ts';
import { ips, service, slice } from '../../system/laptop.ts';
import { HTTP } from '../store/builders.ts';
import { altered, CLUSTER, DAY_MS, keyOf, MINUTE_MS, World } from './world.ts';

async function populated(): Promise<World> {
  const world = new World();
  await world.send(1, service(), slice('web', ips(2)));
  return world;
}

/** A world whose cluster is deleted, and its name free. */
async function freed(): Promise<World> {
  const world = await populated();
  await deleteCluster(world, CLUSTER);
  world.clock.advance(MINUTE_MS);
  assert.equal((await world.sweep()).clustersDeleted, 1);
  return world;
}

describe('a sweep that is late', () => {
  test('takes nothing from the new owner of the name, whom it did not know of', async () => {
    const world = await freed();
    assert.equal(await world.send(2, service(), slice('web', ips(1, 7))), true);
    assert.equal(await emptyService(world.deps(), keyOf('web')), false);
    assert.deepEqual(await world.ips('web'), ['10.7.0.0']);
  });

  test('loses a race to the first event of the new owner, and does not try again', async () => {
    const world = await freed();
    const { memory } = world;
    // Something is left to take away, as if a lagging index had hidden it.
    await world.send(2, service({ version: 2 }), slice('web', ips(1), { version: 2 }));
    const record = (await memory.getCluster(CLUSTER)) ?? assert.fail('no cluster');
    await memory.putCluster({ ...record, deletion: 'over' }, record);
    let isFirst = true;
    world.store = altered(memory, {
      commit: async (...request) => {
        if (isFirst) {
          isFirst = false;
          world.store = memory;
          assert.equal(
            await world.send(3, service({ version: 3 }), slice('web', ips(1, 7), { version: 3 })),
            true,
          );
        }
        return memory.commit(...request);
      },
    });
    assert.equal(await emptyService(world.deps(), keyOf('web')), false);
    assert.deepEqual(await world.ips('web'), ['10.7.0.0']);
  });

  test('a request from before the deletion, which lands behind the first sweep, leaves nothing', async () => {
    const world = await populated();
    const { memory } = world;
    let land = async () => {};
    world.store = altered(memory, {
      commit: async (...request) => {
        // Under way while the cluster is deleted and swept.
        const inTime = { deadline: Number.POSITIVE_INFINITY };
        land = async () => void (await memory.commit(request[0], request[1], inTime));
        return { kind: 'committed' };
      },
    });
    await world.send(1, service({ name: 'late', uid: 'late' }), slice('late', ips(1, 3), { version: 900 }));
    world.store = memory;
    await deleteCluster(world, CLUSTER);
    assert.equal((await world.sweep()).clustersDeleted, 1);
    await land();
    assert.deepEqual(await world.ips('late'), ['10.3.0.0']);
    assert.equal(await world.send(2, service()), false, 'the name is not free yet');
    world.clock.advance(MINUTE_MS);
    await world.sweep();
    assert.deepEqual(await world.ips('late'), []);
    assert.equal(await world.send(2, service()), true);
  });
});

describe('a deletion', () => {
  test('is made in bounded steps', async () => {
    const world = new World();
    const names = Array.from({ length: 1100 }, (_, index) => `s-${index}`);
    for (let start = 0; start < names.length; start += 100)
      await world.send(1, ...names.slice(start, start + 100).map((name) => service({ name })));
    await deleteCluster(world, CLUSTER);
    const before = world.published.length;
    const steps: [published: number, clusters: number][] = [];
    for (let minute = 0; minute < 4; minute++) {
      world.clock.advance(MINUTE_MS);
      const former = world.published.length;
      const { clustersDeleted } = await world.sweep();
      steps.push([world.published.length - former, clustersDeleted]);
    }
    assert.deepEqual(steps, [
      [500, 0],
      [500, 0],
      [100, 1],
      [0, 0],
    ]);
    assert.equal(world.published.length - before, names.length);
  });

  test('takes its dead letters along, and no others', async () => {
    const world = await populated();
    const { memory } = world;
    const entry = { port: HTTP, sequence: 9, body: { kind: 'inline', bytes: Uint8Array.of(1) } } as const;
    const expiresAt = (world.clock.now() + DAY_MS) as EpochMs;
    const other = { ...keyOf('web'), cluster: 'another' };
    for (const key of [keyOf('web'), keyOf('shop'), other])
      await memory.putReceipt(key, { entry, expiresAt, isDead: true });
    await deleteCluster(world, CLUSTER);
    await world.sweep();
    assert.deepEqual(
      (await memory.listDeadLetters(10)).map(({ key }) => key),
      [other],
    );
  });

  test('leaves of a service a small head with its sequences, which a later daily visit takes off the lists', async () => {
    const world = await freed();
    const head = async () => (await world.memory.getHead(keyOf('web'))) ?? assert.fail('no head');
    for (let day = 0; day < 2; day++) {
      world.clock.advance(DAY_MS);
      await world.sweep();
    }
    const { isListed, objects, pending, garbage, records } = await head();
    assert.deepEqual([isListed, objects, pending, garbage], [false, [], [], []]);
    assert.equal(records.deletions.size, 0);
    assert.equal(records.ports.get(HTTP)?.sequence, 2);
    assert.equal(await world.send(2, service(), slice('web', ips(1))), true);
    assert.equal((await head()).isListed, true);
    assert.equal((await head()).records.ports.get(HTTP)?.sequence, 3);
  });

  test('waits for a service that cannot be read, and for no other', async () => {
    const world = await populated();
    const { memory } = world;
    await world.send(1, service({ name: 'bad' }), service({ name: 'zoo' }));
    await deleteCluster(world, CLUSTER);
    world.store = altered(memory, {
      getHead: async (key) => {
        if (key.name === 'bad') throw new UnknownFormatError('head of format 2');
        return memory.getHead(key);
      },
    });
    world.clock.advance(MINUTE_MS);
    assert.equal((await world.sweep()).clustersDeleted, 0);
    assert.deepEqual(world.failed, ['default/bad']);
    const gone = await Promise.all(
      ['web', 'zoo'].map(async (name) => (await memory.getHead(keyOf(name)))?.records),
    );
    assert.deepEqual(
      gone.map((records) => records?.service),
      [null, null],
    );
    world.store = memory;
    assert.equal((await world.sweep()).clustersDeleted, 1);
  });
});
