import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { EpochMs } from '../../../core/time.ts';
import { BusUnavailableError } from '../../../functions/bus/bus.ts';
import {
  type DeltaEntry,
  type Head,
  type Store,
  StoreUnavailableError,
} from '../../../functions/store/store.ts';
import { sweepAlone } from '../../../functions/sweep/sweep.ts';
import { ips, service, slice } from '../../system/laptop.ts';
import { chunkName, clusterRecord, HTTP, head, storedObject } from '../store/builders.ts';
import { START } from '../store/fake-clock.ts';
import { altered, CLUSTER, DAY_MS, HOUR_MS, keyOf, MINUTE_MS, World } from './world.ts';

const KEY = keyOf('web');
const UID = '8c0d6b52-6c4a-4f5f-9f2e-0d4f2a9e9b11';
const ORPHAN = chunkName(UID, 7);
const BODY: DeltaEntry = { port: HTTP, sequence: 2, body: { kind: 'stored', name: 'b1', parts: 2 } };
const NO_FENCE = { deadline: Number.POSITIVE_INFINITY };

/** A world in which some services are known, and nothing is left to do. */
async function settled(...names: readonly string[]): Promise<World> {
  const world = new World();
  for (const name of names) await world.send(1, service({ name }), slice(name, ips(2)));
  await world.sweep();
  world.published.splice(0);
  return world;
}

/** Changes a service while the bus is away, so that its delta waits. */
async function leavePending(world: World, name: string): Promise<void> {
  world.isBusAway = true;
  await assert.rejects(world.send(1, slice(name, ips(3), { version: 2 })), BusUnavailableError);
  world.isBusAway = false;
}

/** What the last sweep to end has left to the next. */
function memoryOf(world: World) {
  return world.memory.snapshot().lease.memory;
}

describe('a pass that fails', () => {
  test('at one service goes on with the others, says which it was, and looks back to the last good one until it is mended', async () => {
    const world = await settled('bad', 'good');
    const lastGood = memoryOf(world).lastPass;
    for (const name of ['bad', 'good']) await leavePending(world, name);
    world.store = altered(world.memory, {
      getHead: async (key) => {
        if (key.name === 'bad') throw new StoreUnavailableError('away');
        return world.memory.getHead(key);
      },
    });
    // Far longer than a pass looks back behind the last good one.
    for (let pass = 0; pass < 6; pass++) {
      world.clock.advance(10 * MINUTE_MS);
      assert.equal((await world.sweep()).published, pass === 0 ? 1 : 0);
      assert.deepEqual(world.failed.splice(0), ['default/bad']);
      assert.deepEqual(memoryOf(world).lastPass, lastGood);
    }
    world.store = world.memory;
    assert.equal((await world.sweep()).published, 1);
    assert.deepEqual(
      world.published,
      ['good', 'bad'].map((name) => `${CLUSTER}/default/${name}:80#2`),
    );
    assert.equal(memoryOf(world).lastPass, world.clock.now());
  });

  test('for the bus is away publishes all once it is back, an hour later', async () => {
    const world = await settled('a', 'b', 'c');
    for (const name of ['a', 'b', 'c']) await leavePending(world, name);
    world.isBusAway = true;
    for (let pass = 0; pass < 6; pass++) {
      world.clock.advance(10 * MINUTE_MS);
      assert.equal((await world.sweep()).published, 0);
    }
    world.isBusAway = false;
    assert.equal((await world.sweep()).published, 3);
    assert.equal((await world.sweep()).published, 0);
    assert.equal(world.published.length, 3);
  });

  test('at its daily visit visits all again', async () => {
    const world = await settled('web');
    world.clock.advance(DAY_MS);
    world.store = altered(world.memory, {
      listLeftovers: () => Promise.reject(new StoreUnavailableError('')),
    });
    await world.sweep();
    world.store = world.memory;
    await world.memory.putChunk(KEY, ORPHAN, Uint8Array.of(1));
    world.clock.advance(2 * HOUR_MS);
    assert.equal((await world.sweep()).chunksDeleted, 1);
  });

  test('at a cluster goes on with the next', async () => {
    const world = await settled('web');
    await world.memory.putCluster(clusterRecord('a-first-one'), null);
    await leavePending(world, 'web');
    world.store = altered(world.memory, {
      listServices: (cluster, range) => {
        if (cluster === 'a-first-one') throw new StoreUnavailableError('away');
        return world.memory.listServices(cluster, range);
      },
    });
    assert.equal((await world.sweep()).published, 1);
    assert.deepEqual(world.failed, ['a-first-one']);
  });
});

describe('leftovers of a crash', () => {
  const chunks: Readonly<Record<string, { after: number; age: number; deleted: number }>> = {
    'younger than an hour stay': { after: 23 * HOUR_MS, age: HOUR_MS, deleted: 0 },
    'older go with the daily visit': { after: 23 * HOUR_MS, age: HOUR_MS + 1, deleted: 1 },
    'stay between two daily visits, however old': { after: 0, age: DAY_MS - 1, deleted: 0 },
    'go with the next': { after: 0, age: DAY_MS, deleted: 1 },
  };
  for (const [sentence, { after, age, deleted }] of Object.entries(chunks))
    test(sentence, async () => {
      const world = await settled('web');
      world.clock.advance(after);
      await world.memory.putChunk(KEY, ORPHAN, Uint8Array.of(1));
      world.clock.advance(age);
      assert.equal((await world.sweep()).chunksDeleted, deleted);
      assert.equal((await world.memory.getChunks(KEY, [ORPHAN])).size, 1 - deleted);
    });

  test('are none when a live head names them, however old', async () => {
    const world = new World();
    world.inlineBytes = 0;
    await world.send(1, service(), slice('web', ips(200)));
    world.clock.advance(40 * DAY_MS);
    assert.equal((await world.sweep()).chunksDeleted, 0);
    assert.equal((await world.ips('web')).length, 200);
  });

  /** Something that is done while a sweep has listed what is there, and has not read the head behind it. */
  async function sweepDuring(world: World, between: (present: Head) => Promise<unknown>): Promise<void> {
    const { memory } = world;
    await memory.putChunk(KEY, ORPHAN, Uint8Array.of(1));
    for (const part of [0, 1]) await memory.putBody(KEY, 'b1', part, Uint8Array.of(part));
    world.clock.advance(2 * DAY_MS);
    world.store = altered(memory, {
      listLeftovers: async (key) => {
        const listed = await memory.listLeftovers(key);
        await between((await memory.getHead(key)) ?? assert.fail('no head'));
        return listed;
      },
    });
    await world.sweep();
    assert.deepEqual(world.failed, []);
  }
  const left = async ({ memory }: World) => ({
    chunks: (await memory.getChunks(KEY, [ORPHAN])).size,
    body: [...((await memory.getBody(KEY, 'b1', 2)) ?? [])],
  });

  const commits: Readonly<Record<string, readonly [Partial<Head>, Awaited<ReturnType<typeof left>>]>> = {
    'go when nobody names them': [{}, { chunks: 0, body: [] }],
    'that a head names which is written after the listing: its chunk stays': [
      { objects: [storedObject({ body: { kind: 'chunks', names: [ORPHAN] } })] },
      { chunks: 1, body: [] },
    ],
    'that a delta names whose head is written after the listing: its body stays': [
      { pending: [BODY] },
      { chunks: 0, body: [0, 1] },
    ],
  };
  for (const [sentence, [change, want]] of Object.entries(commits))
    test(sentence, async () => {
      const world = await settled('web');
      await sweepDuring(world, (present) =>
        world.memory.commit(KEY, { ...present, ...change, version: present.version + 1 }, NO_FENCE),
      );
      assert.deepEqual(await left(world), want);
    });

  test('a body that gets its expiry after the listing stays: it is history', async () => {
    const world = await settled('web');
    const expiresAt = (START + 9 * DAY_MS) as EpochMs;
    await sweepDuring(world, () => world.memory.putReceipt(KEY, { entry: BODY, expiresAt, isDead: false }));
    assert.deepEqual(await left(world), { chunks: 0, body: [0, 1] });
  });
});

describe('a sweep visits', () => {
  /** Names of services whose heads a sweep reads. */
  async function visited(world: World): Promise<string[]> {
    const names = new Set<string>();
    world.store = altered(world.memory, {
      getHead: (key) => {
        names.add(key.name);
        return world.memory.getHead(key);
      },
    });
    await world.sweep();
    return [...names].sort();
  }

  test('what changed until 15 minutes before the last pass, due windows whenever they were opened, and daily all', async () => {
    const world = new World();
    const { memory, clock } = world;
    const at = (ms: number) => (START + ms) as EpochMs;
    await memory.putCluster(clusterRecord(CLUSTER), null);
    const heads: Readonly<Record<string, Partial<Head>>> = {
      old: { changedAt: at(0) },
      lately: { changedAt: at(46 * MINUTE_MS) },
      window: { changedAt: at(0), windowUntil: at(61 * MINUTE_MS) },
      later: { changedAt: at(0), windowUntil: at(90 * MINUTE_MS) },
    };
    for (const [name, part] of Object.entries(heads)) await memory.commit(keyOf(name), head(part), NO_FENCE);
    assert.deepEqual(await visited(world), ['lately', 'later', 'old', 'window']);
    for (const minutes of [30, 60]) {
      clock.advance(at(minutes * MINUTE_MS) - clock.now());
      await world.sweep();
    }
    clock.advance(MINUTE_MS);
    assert.deepEqual(await visited(world), ['lately', 'window']);
    clock.advance(DAY_MS);
    assert.deepEqual(await visited(world), ['lately', 'later', 'old', 'window']);
  });
});

describe('the lease', () => {
  /** A world whose first sweep has begun, and ends when it is let go. */
  async function running() {
    const world = await settled('web');
    const { promise, resolve } = Promise.withResolvers<void>();
    const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
    const held: Store = altered(world.memory, {
      listClusters: async () => {
        begin();
        await promise;
        return world.memory.listClusters();
      },
    });
    const first = sweepAlone({ ...world.deps(), store: held });
    await begun;
    return { world, first, end: resolve };
  }

  test('leaves the work to the sweep that runs, until that is taken for dead', async () => {
    const { world, first, end } = await running();
    assert.equal(await sweepAlone(world.deps()), null);
    world.clock.advance(54_999);
    assert.equal(await sweepAlone(world.deps()), null);
    world.clock.advance(1);
    assert.notEqual(await sweepAlone(world.deps()), null);
    end();
    await first;
  });

  test('is taken from whoever has it by a sweep that is forced', async () => {
    const { world, first, end } = await running();
    assert.notEqual(await sweepAlone(world.deps(), { isForced: true }), null);
    end();
    await first;
  });

  test("of a sweep that was taken for dead is not given back by it: its memory of the past does not replace its successor's", async () => {
    const { world, first, end } = await running();
    world.clock.advance(HOUR_MS);
    await sweepAlone(world.deps());
    const newest = memoryOf(world);
    assert.equal(newest.lastPass, world.clock.now());
    end();
    await first;
    assert.deepEqual(memoryOf(world), newest);
  });

  test('is free again for the next when a sweep has ended', async () => {
    const world = await settled('web');
    for (let pass = 0; pass < 2; pass++) assert.notEqual(await sweepAlone(world.deps()), null);
  });
});

describe('a Service that was deleted', () => {
  /** Gone from the cluster, with its slice. */
  async function remove(world: World): Promise<void> {
    const present = (await world.memory.getHead(KEY)) ?? assert.fail('no head');
    const records = { ...present.records, service: null };
    const changes = { objects: [], records, changedAt: world.clock.now(), version: present.version + 1 };
    await world.memory.commit(KEY, { ...present, ...changes }, NO_FENCE);
  }

  test('keeps a head of nothing but its sequences behind the retention', async () => {
    const world = await settled('web');
    await remove(world);
    for (let day = 1; day <= 7; day++) {
      world.clock.advance(DAY_MS);
      await world.sweep();
      assert.equal((await world.memory.getHead(KEY))?.isListed, true, `day ${day}`);
    }
    world.clock.advance(DAY_MS);
    await world.sweep();
    const { isListed, objects, pending, garbage, records } =
      (await world.memory.getHead(KEY)) ?? assert.fail('no head');
    assert.deepEqual(
      { isListed, objects, pending, garbage },
      { isListed: false, objects: [], pending: [], garbage: [] },
    );
    assert.deepEqual(
      [...records.ports].map(([port, { sequence }]) => [port, sequence]),
      [[HTTP, 1]],
    );
  });

  test('stays listed while a delta of it waits: else no sweep would find it', async () => {
    const world = await settled('web');
    await leavePending(world, 'web');
    await remove(world);
    world.isBusAway = true;
    for (let day = 1; day <= 9; day++) {
      world.clock.advance(DAY_MS);
      await world.sweep();
    }
    assert.equal((await world.memory.getHead(KEY))?.isListed, true);
    world.isBusAway = false;
    assert.equal((await world.sweep()).published, 1);
    assert.equal((await world.memory.getHead(KEY))?.isListed, false);
  });
});

describe('subscriptions that have ended', () => {
  test('go, at most 1,000 a pass', async () => {
    const world = await settled('web');
    const ended = (id: number) => ({ key: KEY, id: `r${id}`, port: HTTP, until: world.clock.now() });
    for (let id = 0; id < 1200; id++) await world.memory.putSubscription(ended(id));
    await world.memory.putSubscription({ ...ended(9999), until: (world.clock.now() + 1) as EpochMs });
    const deleted = [];
    for (let pass = 0; pass < 3; pass++) deleted.push((await world.sweep()).leasesDeleted);
    assert.deepEqual(deleted, [1000, 200, 0]);
  });

  test('stay when they were renewed after they were listed', async () => {
    const world = await settled('web');
    const { memory } = world;
    const lease = { key: KEY, id: 'a', port: HTTP, until: world.clock.now() };
    await memory.putSubscription(lease);
    world.store = altered(memory, {
      async *listSubscriptions(key) {
        for await (const page of memory.listSubscriptions(key)) {
          yield page;
          await memory.putSubscription({ ...lease, until: (world.clock.now() + HOUR_MS) as EpochMs });
        }
      },
    });
    assert.equal((await world.sweep()).leasesDeleted, 0);
    assert.notEqual(await memory.getSubscription(KEY, 'a'), null);
  });
});
