import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { ScanCommand } from '@aws-sdk/client-dynamodb';
import { startTable } from '../functions/store/dynalite-table.ts';
import { ips, Laptop, LaptopCluster, service, slice } from './laptop.ts';

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** What a sweep that finds nothing asks of the table, beside reads: it takes its lease, and gives it back. */
const LEASE_ALONE = 2;
const NOTHING = {
  ...{
    published: 0,
    windowsClosed: 0,
    chunksDeleted: 0,
    leasesDeleted: 0,
    relaysLost: 0,
    clustersDeleted: 0,
  },
};

let laptop: Laptop;
/** Every object in a chunk. */
let chunked: Laptop;
before(async () => {
  laptop = await Laptop.start();
  chunked = await Laptop.start({ inlineBytes: 0 });
});
after(() => Promise.all([laptop[Symbol.asyncDispose](), chunked[Symbol.asyncDispose]()]));

let clusters = 0;
const newCluster = (of: Laptop = laptop) => new LaptopCluster(of, `swept-${++clusters}`);

async function idleSweep(of: Laptop): Promise<void> {
  const cost = await of.costOf(async () => assert.deepEqual(await of.sweep(), NOTHING));
  const { UpdateItem, PutItem, DeleteItem, PutEvents } = cost;
  assert.deepEqual(
    { UpdateItem, PutItem, DeleteItem, PutEvents },
    { UpdateItem: LEASE_ALONE, PutItem: undefined, DeleteItem: undefined, PutEvents: undefined },
  );
}

describe('what is pending', () => {
  test('is published once, in order, and the next sweep writes nothing', async () => {
    const cluster = newCluster();
    await laptop.faults({ on: 'bus.publish', do: 'throttle', times: 100 });
    for (const [version, net] of [10, 11, 12].entries())
      assert.equal(
        (await cluster.send(service(), slice('web', ips(1, net), { version: version + 1 }))).status,
        503,
      );
    assert.deepEqual(await cluster.takeDeltas(), []);
    await laptop.faults();
    assert.equal((await laptop.sweep()).published, 3);
    assert.deepEqual(
      (await cluster.takeDeltas()).map(({ detail }) => detail.sequence),
      [1, 2, 3],
    );
    assert.deepEqual(await cluster.replayed(), { 'default/web:80': ['10.12.0.0:8080'] });
    await idleSweep(laptop);
  });

  test('whose publication got no receipt is published again under its id, then it has one', async () => {
    const cluster = newCluster();
    await laptop.faults({ on: 'store.putReceipt', do: 'throttle', times: 100 });
    assert.equal((await cluster.send(service())).status, 503);
    await laptop.faults();
    assert.equal((await laptop.sweep()).published, 1);
    const subscriber = await laptop.subscriber(cluster.name);
    assert.deepEqual([...subscriber.duplicates().values()], [1]);
    await idleSweep(laptop);
  });

  const failures: Readonly<Record<string, { fault: object; published: number; duplicates: number }>> = {
    'whose publication got no answer is published again under its id': {
      fault: { on: 'bus.publish', when: 'after', do: 'error' },
      ...{ published: 1, duplicates: 1 },
    },
    'of which the receipt was put, and nobody heard of it, is left alone': {
      fault: { on: 'store.putReceipt', when: 'after', do: 'error' },
      ...{ published: 0, duplicates: 0 },
    },
    'whose head was written, and nobody heard of it, is published': {
      fault: { on: 'store.commit', when: 'after', do: 'error' },
      ...{ published: 1, duplicates: 0 },
    },
  };
  for (const [sentence, { fault, published, duplicates }] of Object.entries(failures))
    test(sentence, async () => {
      const cluster = newCluster();
      await cluster.apply(service());
      await laptop.faults(fault);
      assert.equal((await cluster.send(slice('web', ips(1)))).status, 500);
      await laptop.faults();
      assert.equal((await laptop.sweep()).published, published);
      const again = (await laptop.subscriber(cluster.name)).duplicates().values();
      assert.equal(
        [...again].reduce((sum, count) => sum + count, 0),
        duplicates,
      );
      assert.deepEqual(await cluster.replayed(), { 'default/web:80': ['10.0.0.0:8080'] });
      await idleSweep(laptop);
    });

  test('of a call of which the bus took half, the other half is published', async () => {
    const cluster = newCluster();
    const named = [80, 81, 82, 83].map((port) => ({ name: `p${port}`, port, protocol: 'TCP' }));
    await laptop.faults({ on: 'bus.publish', do: 'partial' });
    const { spec, ...rest } = service();
    assert.equal((await cluster.send({ ...rest, spec: { ...spec, ports: named } })).status, 503);
    assert.equal((await cluster.takeDeltas()).length, 2);
    assert.equal((await laptop.sweep()).published, 2);
    const subscriber = await laptop.subscriber(cluster.name);
    assert.deepEqual([...subscriber.duplicates().values()], [0, 0, 0, 0]);
    await idleSweep(laptop);
  });

  test('is published whole by sweeps that run at the same time, beside events', async () => {
    const cluster = newCluster();
    const names = Array.from({ length: 20 }, (_, index) => `s-${index}`);
    await laptop.faults({ on: 'bus.publish', do: 'throttle', times: 100 });
    await cluster.send(...names.flatMap((name) => [service({ name }), slice(name, ips(2))]));
    await laptop.faults();
    await Promise.all([
      laptop.sweep(),
      laptop.sweep(),
      ...names.map((name) => cluster.apply(slice(name, ips(2, 1), { version: 2 }))),
      laptop.sweep(),
    ]);
    await laptop.sweep();
    const expected = names.map((name) => [`default/${name}:80`, ['10.1.0.0:8080', '10.1.0.1:8080']]);
    assert.deepEqual(await cluster.replayed(), Object.fromEntries(expected.sort()));
    await idleSweep(laptop);
  });
});

describe('relays', () => {
  test('a silence is told once, and its end once', async () => {
    const cluster = newCluster();
    const told = async () =>
      (await laptop.busEntries())
        .filter(({ detail, detailType }) => {
          return detailType.startsWith('Relay') && (detail as { cluster: string }).cluster === cluster.name;
        })
        .map(({ detailType }) => detailType);
    await cluster.heartbeat();
    await laptop.advance(59 * SECOND_MS);
    await laptop.sweep();
    assert.deepEqual(await told(), []);
    await laptop.advance(2 * SECOND_MS);
    for (let sweep = 0; sweep < 2; sweep++) await laptop.sweep();
    await laptop.advance(MINUTE_MS);
    await laptop.sweep();
    assert.deepEqual(await told(), ['RelayLost']);
    for (let beat = 0; beat < 2; beat++) await cluster.heartbeat();
    await laptop.sweep();
    assert.deepEqual(await told(), ['RelayLost', 'RelayRecovered']);
    await laptop.advance(2 * MINUTE_MS);
    await laptop.sweep();
    assert.deepEqual(await told(), ['RelayLost', 'RelayRecovered', 'RelayLost']);
    await cluster.heartbeat();
  });

  test('a silence of which the bus would not hear is told by the next sweep', async () => {
    await newCluster().heartbeat();
    await laptop.advance(61 * SECOND_MS);
    await laptop.faults({ on: 'bus.publish', do: 'throttle', times: 100 });
    assert.equal((await laptop.sweep()).relaysLost, 0);
    await laptop.faults();
    assert.ok((await laptop.sweep()).relaysLost > 0);
    assert.equal((await laptop.sweep()).relaysLost, 0);
  });
});

describe('garbage', () => {
  test('replaced chunks go after 5 minutes, the live ones stay', async () => {
    const cluster = newCluster(chunked);
    await chunked.sweep();
    await cluster.apply(service(), slice('web', ips(3)), slice('web', ips(3, 1), { name: 'web-b' }));
    await cluster.apply(slice('web', ips(3, 2), { version: 2 }));
    assert.equal((await chunked.sweep()).chunksDeleted, 0);
    // Heads keep whole seconds, rounded up.
    await chunked.advance(5 * MINUTE_MS - 2 * SECOND_MS);
    assert.equal((await chunked.sweep()).chunksDeleted, 0);
    await chunked.advance(4 * SECOND_MS);
    assert.equal((await chunked.sweep()).chunksDeleted, 1);
    await idleSweep(chunked);
    assert.equal((await cluster.keys('web'))?.length, 6);
  });

  test('an orphan of a write that failed goes by the daily visit, and not before', async () => {
    const cluster = newCluster(chunked);
    await cluster.apply(service(), slice('web', ips(1)));
    await chunked.faults({ on: 'store.commit', do: 'throttle', times: 100 });
    assert.equal((await cluster.send(slice('web', ips(2), { version: 2 }))).status, 503);
    await chunked.faults();
    await chunked.advance(2 * HOUR_MS);
    assert.equal((await chunked.sweep()).chunksDeleted, 0);
    await chunked.advance(DAY_MS);
    assert.equal((await chunked.sweep()).chunksDeleted, 1);
    assert.equal((await cluster.keys('web'))?.length, 1);
    assert.deepEqual(await chunked.sweep(), NOTHING);
  });
});

describe('what time ends', () => {
  test('a rename window is closed with the renaming event as its cause (S23)', async () => {
    const cluster = newCluster();
    await cluster.apply(service(), slice('web', ips(1)));
    const renamed = service({ version: 2 });
    const ports = [{ name: 'web', port: 80, protocol: 'TCP' }];
    await cluster.apply({ ...renamed, spec: { ...renamed.spec, ports } });
    await cluster.takeDeltas();
    assert.equal((await laptop.sweep()).windowsClosed, 0);
    await laptop.advance(11 * SECOND_MS);
    const report = await laptop.sweep();
    assert.deepEqual([report.windowsClosed, report.published], [1, 1]);
    const [delta] = await cluster.takeDeltas();
    assert.deepEqual(
      [delta?.type, delta?.detail.cause.kind, delta?.detail.cause.type],
      ['NoEndpoints', 'Service', 'ADDED'],
    );
    await idleSweep(laptop);
  });

  test('subscriptions end: their series goes, and the sweep deletes them', async () => {
    const cluster = newCluster();
    await cluster.apply(service(), slice('web', ips(1)));
    const put = (id: string, ttlSeconds: number) =>
      laptop.call('PUT', `${cluster.path('web')}/subscriptions/${id}?port=80`, { ttlSeconds });
    assert.equal((await put('short', 10)).status, 200);
    assert.equal((await put('long', 3600)).status, 200);
    const labels = `cluster="${cluster.name}",hostname="",namespace="default",port="80",service="web"`;
    const series = async () =>
      (await laptop.metrics())
        .split('\n')
        .filter((line) => line.startsWith(`endpoints_subscribers{${labels}}`));
    assert.deepEqual(await series(), [`endpoints_subscribers{${labels}} 2`]);
    await laptop.advance(10 * SECOND_MS);
    assert.deepEqual(await series(), [`endpoints_subscribers{${labels}} 1`]);
    assert.equal((await laptop.sweep()).leasesDeleted, 1);
    assert.equal((await laptop.sweep()).leasesDeleted, 0);
    await laptop.advance(HOUR_MS);
    assert.deepEqual(await series(), []);
    assert.equal((await laptop.sweep()).leasesDeleted, 1);
  });

  test('a deleted Service leaves the lists after the retention; its sequences stay, and it may come again', async () => {
    const cluster = newCluster();
    await cluster.apply(service(), slice('web', ips(1)));
    await cluster.apply(
      { type: 'DELETED', object: service({ version: 2 }) },
      { type: 'DELETED', object: slice('web', [], { version: 2 }) },
    );
    await laptop.advance(6 * DAY_MS);
    await laptop.sweep();
    assert.deepEqual(await cluster.services(), ['default/web']);
    await laptop.advance(2 * DAY_MS);
    await laptop.sweep();
    assert.deepEqual(await cluster.services(), []);
    assert.deepEqual(await laptop.sweep(), NOTHING);
    await cluster.apply(service({ uid: 'again', version: 3 }));
    assert.deepEqual(await cluster.services(), ['default/web']);
    assert.equal((await cluster.set('web'))?.sequence, 3);
  });
});

describe('on a laptop, where the table deletes nothing by itself', () => {
  test('what has expired goes with the sweep, and nothing of it is said again', async () => {
    const dataDir = await mkdtemp(join(tmpdir(), 'sweep-'));
    try {
      const own = await Laptop.start({ dataDir });
      try {
        const cluster = new LaptopCluster(own, 'old');
        await cluster.apply(service());
        for (let version = 1; version <= 10; version++)
          await cluster.apply(slice('web', ips(1, version), { version }));
        await own.sweep();
        await own.advance(8 * DAY_MS);
        await own.sweep();
        await own.advance(2 * DAY_MS);
        assert.deepEqual(await own.sweep(), NOTHING);
        assert.equal((await cluster.set('web'))?.sequence, 11);
        await cluster.apply(slice('web', ips(1, 20), { version: 20 }));
        assert.deepEqual(await cluster.replayed(), { 'default/web:80': ['10.20.0.0:8080'] });
        assert.deepEqual(own.errors, []);
      } finally {
        await own[Symbol.asyncDispose]();
      }
      await using table = await startTable({
        dataDir: join(dataDir, 'table'),
        tableName: 'endpoints-watcher',
      });
      const client = table.newClient();
      const { Items } = await client.send(new ScanCommand({ TableName: table.tableName }));
      client.destroy();
      const receipts = Items?.flatMap(({ sk }) => sk?.S?.match(/^DELTA#80#0*(\d+)$/)?.[1] ?? []);
      assert.deepEqual(receipts, ['12'], 'the only one that has not expired');
    } finally {
      await rm(dataDir, { recursive: true, force: true });
    }
  });
});
