import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { compareText } from '../../core/address.ts';
import { endpoints, ips, Laptop, LaptopCluster, service, slice } from './laptop.ts';
import { assertReplayed, readSets } from './served-sets.ts';

let laptop: Laptop;
before(async () => {
  laptop = await Laptop.start();
});
after(() => laptop[Symbol.asyncDispose]());

let clusters = 0;
/** Those of the running test. */
const open: LaptopCluster[] = [];
function newCluster(): LaptopCluster {
  const cluster = new LaptopCluster(laptop, `listed-${++clusters}`);
  open.push(cluster);
  return cluster;
}

afterEach(async () => {
  for (const cluster of open.splice(0)) {
    const replica = (await laptop.subscriber(cluster.name)).replay();
    const listed = (await cluster.services()).map((id) => `${cluster.name}/${id}:80`);
    const sets = await readSets((path) => laptop.call('GET', path), [...replica.groups(), ...listed]);
    assertReplayed(replica, sets);
    for (const group of sets.keys()) assert(replica.groups().includes(group), `${group}: was told`);
  }
});

const keysOf = (all: readonly string[]) => all.map((ip) => `${ip}:8080`).sort(compareText);
const NOTHING = { missing: [], deleted: 0, again: false };
const sliceOf = (name: string, namespace = 'default') => ({ kind: 'EndpointSlice', namespace, name });
const serviceOf = (name: string, namespace = 'default') => ({ kind: 'Service', namespace, name });

/** Services of one slice each, with one address. */
async function withServices(...names: readonly string[]): Promise<LaptopCluster> {
  const cluster = newCluster();
  for (const [index, name] of names.entries())
    await cluster.apply(service({ name }), slice(name, ips(1, index)));
  await cluster.takeDeltas();
  return cluster;
}

/** As `withServices` stores them. */
const stored = (name: string) => ({ name, objects: [[`${name}-a`, 1]] as const });

describe('a list of a cluster that did not change', () => {
  test('of 1,000 slices costs no write and no delta (P5)', async () => {
    const cluster = newCluster();
    const names = Array.from({ length: 250 }, (_, index) => `s-${String(index).padStart(3, '0')}`);
    const slicesOf = (name: string) => Array.from({ length: 4 }, (_, index) => `${name}-${index}`);
    const objects = names.flatMap((name, net) => [
      service({ name }),
      ...slicesOf(name).map((one, index) => slice(name, [`10.${net}.0.${index}`], { name: one })),
    ]);
    await cluster.apply(...objects);
    await cluster.takeDeltas();
    const listed = names.map((name) => ({ name, objects: slicesOf(name).map((one) => [one, 1] as const) }));
    const writes = async () => {
      const { writeUnits, putEvents } = await laptop.usage();
      return { writeUnits, putEvents };
    };
    const before = await writes();
    assert.deepEqual(await cluster.reconcile(listed.slice(0, 150), { last: false }), NOTHING);
    const after = { namespace: 'default', name: 's-149' };
    assert.deepEqual(await cluster.reconcile(listed.slice(150), { after, maxRemoved: 0.5 }), NOTHING);
    assert.deepEqual(await writes(), before);
    assert.deepEqual(await cluster.takeDeltas(), []);
  });
});

describe('pages', () => {
  test('each speaks for its own range, and the last to the end', async () => {
    const cluster = await withServices('a', 'b', 'c', 'd', 'e', 'f');
    assert.equal((await cluster.reconcile([stored('b'), stored('c')], { last: false })).deleted, 2);
    assert.deepEqual(await cluster.keys('a'), null);
    assert.notEqual(await cluster.keys('d'), null);
    const after = { namespace: 'default', name: 'c' };
    assert.equal((await cluster.reconcile([stored('e')], { after, last: false })).deleted, 2);
    assert.notEqual(await cluster.keys('f'), null);
    assert.equal((await cluster.reconcile([], { after: { ...after, name: 'e' } })).deleted, 2);
    const left = await Promise.all(['a', 'b', 'c', 'd', 'e', 'f'].map((name) => cluster.keys(name)));
    assert.deepEqual(
      left.map((keys) => keys !== null),
      [false, true, true, false, true, false],
    );
    await cluster.replayed();
  });

  test('of a list that is aborted half-way delete nothing more', async () => {
    const cluster = await withServices('a', 'b', 'c', 'd');
    assert.equal((await cluster.reconcile([stored('b')], { last: false })).deleted, 2);
    assert.deepEqual(Object.values(await cluster.replayed()), [
      [],
      ['10.1.0.0:8080'],
      ['10.2.0.0:8080'],
      ['10.3.0.0:8080'],
    ]);
    // Another list begins from the start.
    assert.deepEqual(await cluster.reconcile([stored('b'), stored('c'), stored('d')]), NOTHING);
  });

  test('cost one head write for each service that lost something, whatever it lost', async () => {
    const cluster = await withServices('a', 'b', 'c');
    await cluster.apply(...[1, 2, 3].map((net) => slice('a', ips(1, net), { name: `a-${net}` })));
    const cost = await laptop.costOf(async () =>
      assert.equal((await cluster.reconcile([{ name: 'b' }, stored('c')])).deleted, 6),
    );
    const { UpdateItem: heads, PutItem: puts, PutEvents: deltas } = cost;
    // Put are the receipt of each delta, and the cluster's record.
    assert.deepEqual({ heads, puts, deltas }, { heads: 2, puts: 3, deltas: 2 });
  });

  test('sent twice at once remove once', async () => {
    const cluster = await withServices('a', 'b', 'c', 'd');
    const answers = await Promise.all([cluster.reconcile([stored('b')]), cluster.reconcile([stored('b')])]);
    assert.equal(
      answers.reduce((sum, { deleted }) => sum + deleted, 0),
      6,
    );
    const deltas = await cluster.takeDeltas();
    assert.deepEqual(deltas.map(({ detail }) => detail.service).sort(compareText), ['a', 'c', 'd']);
  });

  test('remove nothing of a kind whose list has no version, nor for one of a kind that is not watched', async () => {
    const cluster = await withServices('a');
    const lists = (resourceVersions: object) => cluster.reconcile([], { resourceVersions });
    assert.deepEqual(await lists({}), NOTHING);
    assert.deepEqual(await lists({ Pod: '1000', Endpoints: '1000' }), NOTHING);
    assert.equal((await lists({ EndpointSlice: '1000' })).deleted, 1);
    assert.deepEqual(await cluster.keys('a'), []);
    assert.equal((await lists({ Service: '1000' })).deleted, 1);
    assert.equal(await cluster.keys('a'), null);
  });

  test('the first, empty, of a list that goes on, speaks for nothing', async () => {
    const cluster = await withServices('a');
    assert.deepEqual(await cluster.reconcile([], { last: false }), NOTHING);
    assert.notEqual(await cluster.keys('a'), null);
  });

  test('are ordered by namespace, then name, in code units, whatever the names hold', async () => {
    const cluster = newCluster();
    const places = [
      ['a', 'z'],
      ['a-b', 'x'],
      ['a.b', 'x'],
      ['a0', 'a-1'],
      ['a0', 'a.1'],
      ['a0', 'a0'],
    ] as const;
    for (const [namespace, name] of places) await cluster.apply(service({ namespace, name }));
    const listed = places.map(([namespace, name]) => ({ namespace, name }));
    assert.deepEqual(await cluster.reconcile(listed.slice(0, 3), { last: false }), NOTHING);
    assert.deepEqual(
      await cluster.reconcile(listed.slice(3), { after: { namespace: 'a.b', name: 'x' } }),
      NOTHING,
    );
    assert.equal((await cluster.services()).length, places.length);
  });

  test('name what is missing in the order of the page, each service first, twice the same', async () => {
    const cluster = await withServices('b');
    const listed = [
      {
        name: 'a',
        objects: [
          ['a-2', 1],
          ['a-1', 1],
        ] as const,
      },
      {
        name: 'b',
        objects: [
          ['b-0', 1],
          ['b-a', 2],
        ] as const,
      },
      { name: 'c', uid: null, objects: [['c-1', 1]] as const },
    ];
    const expected = [
      ...[serviceOf('a'), sliceOf('a-2'), sliceOf('a-1')],
      ...[sliceOf('b-0'), sliceOf('b-a'), sliceOf('c-1')],
    ];
    for (let time = 0; time < 2; time++)
      assert.deepEqual((await cluster.reconcile(listed)).missing, expected);
  });
});

describe('beside live events', () => {
  test('what is born between the list and its last page is not deleted', async () => {
    const cluster = await withServices('a', 'b');
    await cluster.reconcile([stored('a')], { last: false });
    // The list is of version 1000.
    await cluster.apply(
      service({ name: 'born', version: 1001 }),
      slice('born', ips(1, 9), { version: 1002 }),
    );
    await cluster.apply(slice('b', ips(1, 8), { name: 'b-b', version: 1003 }));
    assert.deepEqual(
      await cluster.reconcile([stored('b')], { after: { namespace: 'default', name: 'a' } }),
      NOTHING,
    );
    assert.deepEqual(await cluster.keys('born'), ['10.9.0.0:8080']);
    assert.deepEqual(await cluster.keys('b'), ['10.1.0.0:8080', '10.8.0.0:8080']);
  });

  test('what was deleted between the list and its page stays deleted, and is not asked for', async () => {
    const cluster = await withServices('a');
    await cluster.apply({ type: 'DELETED', object: slice('a', [], { version: 1001 }) });
    // Items are what the relay holds when it sends the page.
    assert.deepEqual(await cluster.reconcile([{ name: 'a' }]), NOTHING);
    assert.deepEqual(await cluster.apply(slice('a', ips(1))), ['stale']);
  });

  test('an event that overtakes a page, of what the page lacks, is kept; one that follows is applied', async () => {
    const cluster = await withServices('a');
    await cluster.apply(slice('a', ips(1, 5), { version: 1005 }));
    const { missing, deleted } = await cluster.reconcile([stored('a')]);
    // The page was made before the event: the relay sends what it then holds, which is known.
    assert.deepEqual([missing, deleted], [[sliceOf('a-a')], 0]);
    const resent = { type: 'MODIFIED', resync: true, object: slice('a', ips(1, 5), { version: 1005 }) };
    assert.deepEqual(await cluster.apply(resent), ['unchanged']);
    assert.deepEqual(await cluster.keys('a'), ['10.5.0.0:8080']);
  });

  test('a list of a server that lags removes nothing newer, and revives nothing', async () => {
    const cluster = newCluster();
    await cluster.apply(service(), slice('web', ips(1), { version: 500 }));
    await cluster.apply(service({ name: 'new', version: 501 }), slice('new', ips(1, 1), { version: 502 }));
    await cluster.apply({ type: 'DELETED', object: service({ name: 'old', version: 503 }) });
    const lagging = { resourceVersions: { Service: '400', EndpointSlice: '400' } };
    const listed = [
      { name: 'old', version: 300 },
      { name: 'web', objects: [['web-a', 350]] as const },
    ];
    const { missing, deleted } = await cluster.reconcile(listed, lagging);
    assert.deepEqual([missing, deleted], [[serviceOf('old'), sliceOf('web-a')], 0]);
    const resent = [service({ name: 'old', version: 300 }), slice('web', ips(2), { version: 350 })];
    assert.deepEqual(
      await cluster.apply(...resent.map((object) => ({ type: 'ADDED', resync: true, object }))),
      ['stale', 'stale'],
    );
    assert.deepEqual(await cluster.keys('new'), ['10.1.0.0:8080']);
    assert.equal(await cluster.keys('old'), null);
  });

  test('events and pages at the same time end in what both say', async () => {
    const names = Array.from({ length: 12 }, (_, index) => `s-${String(index).padStart(2, '0')}`);
    const cluster = await withServices(...names);
    const kept = names.filter((_, index) => index % 2 === 0);
    const event = (name: string, net: number) => ({
      type: 'MODIFIED',
      confirm: true,
      object: slice(name, ips(2, 100 + net), { version: 2000 }),
    });
    const pages = cluster.reconcile(kept.map(stored));
    const [answer] = await Promise.all([pages, ...kept.map((name, net) => cluster.apply(event(name, net)))]);
    assert.equal(answer.deleted, names.length);
    for (const [net, name] of kept.entries())
      assert.deepEqual(await cluster.keys(name), keysOf(ips(2, 100 + net)));
    for (const name of names) if (!kept.includes(name)) assert.equal(await cluster.keys(name), null);
    await cluster.replayed();
  });
});

describe('while no relay watched', () => {
  test('three changes that come to one are one delta with cause RESYNC', async () => {
    const cluster = newCluster();
    await cluster.apply(service(), slice('web', ips(3)), slice('web', ips(2, 1), { name: 'web-b' }));
    await cluster.takeDeltas();
    // web-a lost an address, web-b went, and its addresses came back in web-c, one of them changed.
    const listed = [
      {
        name: 'web',
        objects: [
          ['web-a', 20],
          ['web-c', 22],
        ] as const,
      },
    ];
    const first = await cluster.reconcile(listed);
    assert.deepEqual(first, { missing: [sliceOf('web-a'), sliceOf('web-c')], deleted: 0, again: true });
    assert.deepEqual(await cluster.takeDeltas(), [], 'no false removal while web-c is absent');
    const resync = (object: object) => ({ type: 'ADDED', resync: true, confirm: true, object });
    await cluster.apply(
      resync(slice('web', ips(2), { version: 20 })),
      resync(slice('web', ips(2, 1), { name: 'web-c', version: 22 })),
    );
    assert.deepEqual(await cluster.reconcile(listed), { missing: [], deleted: 1, again: false });
    const deltas = await cluster.takeDeltas();
    assert.equal(deltas.length, 1);
    const { added, updated, removed, cause } = deltas[0]?.detail ?? assert.fail();
    assert.deepEqual([added, updated], [[], []]);
    assert.deepEqual(
      removed.map(({ ip, reason }) => [ip, reason]),
      [['10.0.0.2', 'gone']],
    );
    assert.deepEqual([cause.type, cause.name, cause.resourceVersion], ['RESYNC', 'web-a', '20']);
  });

  test('a Service that went says NoEndpoints, exists false, once', async () => {
    const cluster = await withServices('web');
    assert.equal((await cluster.reconcile([])).deleted, 2);
    const deltas = await cluster.takeDeltas();
    assert.deepEqual(
      deltas.map(({ type, detail }) => [type, detail.exists, detail.cause.kind, detail.cause.type]),
      [['NoEndpoints', false, 'Service', 'RESYNC']],
    );
    assert.deepEqual(await cluster.reconcile([]), NOTHING);
  });

  test('a removal is remembered at the stored version: an older event does not undo it, a newer one does', async () => {
    const cluster = newCluster();
    await cluster.apply(service(), slice('web', ips(1), { version: 100 }));
    await cluster.reconcile([{ name: 'web' }]);
    assert.deepEqual(await cluster.apply(slice('web', ips(1), { version: 100 })), ['stale']);
    assert.deepEqual(await cluster.apply(slice('web', ips(1), { version: 101 })), ['applied']);
  });

  test('a slice was moved: it is left where it was, and asked for where it is (S10)', async () => {
    const cluster = await withServices('blue', 'green');
    const listed = [
      { name: 'blue' },
      {
        name: 'green',
        objects: [
          ['green-a', 1],
          ['blue-a', 30],
        ] as const,
      },
    ];
    const first = await cluster.reconcile(listed);
    assert.deepEqual(first, { missing: [sliceOf('blue-a')], deleted: 1, again: false });
    const moved = slice('green', ips(1), { name: 'blue-a', version: 30 });
    assert.deepEqual(await cluster.apply({ type: 'MODIFIED', resync: true, object: moved }), ['applied']);
    assert.deepEqual(await cluster.reconcile(listed), NOTHING);
    assert.deepEqual(await cluster.replayed(), {
      'default/blue:80': [],
      'default/green:80': ['10.1.0.0:8080', '10.0.0.0:8080'],
    });
  });

  test('a Service was made anew under another uid, its slice too', async () => {
    const cluster = await withServices('web');
    const listed = [{ name: 'web', uid: 'again', version: 40, objects: [['web-b', 41]] as const }];
    const first = await cluster.reconcile(listed);
    assert.deepEqual(first, { missing: [serviceOf('web'), sliceOf('web-b')], deleted: 0, again: true });
    await cluster.apply(
      { type: 'ADDED', confirm: true, object: service({ uid: 'again', version: 40 }) },
      { type: 'ADDED', confirm: true, object: slice('web', ips(1), { name: 'web-b', version: 41 }) },
    );
    assert.equal((await cluster.reconcile(listed)).deleted, 1);
    // The same address throughout: never gone.
    assert.deepEqual(
      (await cluster.takeDeltas()).flatMap(({ detail }) => detail.removed),
      [],
    );
    assert.deepEqual(await cluster.keys('web'), ['10.0.0.0:8080']);
  });

  test('a Service was made anew and its slice stayed: the old one is held until the new one comes', async () => {
    const cluster = await withServices('web');
    const listed = [{ name: 'web', uid: 'again', version: 40, objects: [['web-a', 1]] as const }];
    assert.deepEqual(await cluster.reconcile(listed), {
      missing: [serviceOf('web')],
      deleted: 0,
      again: true,
    });
    await cluster.apply({ type: 'ADDED', confirm: true, object: service({ uid: 'again', version: 40 }) });
    assert.deepEqual(await cluster.reconcile(listed), NOTHING);
    assert.deepEqual(await cluster.takeDeltas(), []);
  });

  test('a Service went and its slice stayed: that is kept, and counts when the Service comes back (S34, S35)', async () => {
    const cluster = await withServices('web');
    const orphan = { name: 'web', uid: null, objects: [['web-a', 1]] as const };
    assert.deepEqual(await cluster.reconcile([orphan]), { missing: [], deleted: 1, again: false });
    assert.equal(await cluster.keys('web'), null);
    assert.deepEqual(await cluster.reconcile([orphan]), NOTHING);
    assert.deepEqual(
      await cluster.apply(service(), service({ uid: 'again', version: 60 })),
      ['stale', 'applied'],
      'the old one is remembered as deleted',
    );
    assert.deepEqual(await cluster.keys('web'), ['10.0.0.0:8080']);
    const deltas = await cluster.takeDeltas();
    assert.deepEqual(
      deltas.map(({ type, detail }) => [type, detail.exists, detail.added.length]),
      [
        ['NoEndpoints', false, 0],
        ['EndpointsChanged', true, 1],
      ],
    );
  });

  test('Endpoints that changed are asked for, and those that went go', async () => {
    const cluster = newCluster();
    cluster.mode = 'endpoints';
    for (const [net, name] of ['gone', 'same', 'web'].entries())
      await cluster.apply(service({ name }), endpoints(name, ips(2, net), { version: 5 }));
    await cluster.takeDeltas();
    const listed = [
      { name: 'same', objects: [['same', 5, 'endpoints-same']] as const },
      { name: 'web', objects: [['web', 9, 'endpoints-web']] as const },
    ];
    const kind = 'Endpoints';
    assert.deepEqual(await cluster.reconcile(listed), {
      missing: [{ kind, namespace: 'default', name: 'web' }],
      deleted: 2,
      again: false,
    });
    await cluster.apply({ type: 'ADDED', resync: true, object: endpoints('web', ips(1, 2), { version: 9 }) });
    assert.deepEqual(await cluster.reconcile(listed), NOTHING);
    const deltas = await cluster.takeDeltas();
    assert.deepEqual(
      deltas.map(({ detail }) => [detail.service, detail.size, detail.cause.kind, detail.cause.type]),
      [
        ['gone', 0, 'Service', 'RESYNC'],
        ['web', 1, 'Endpoints', 'RESYNC'],
      ],
    );
  });

  test('objects without their Service are kept, and found', async () => {
    const cluster = newCluster();
    const listed = [{ name: 'web', uid: null, objects: [['web-a', 5]] as const }];
    assert.deepEqual((await cluster.reconcile(listed)).missing, [sliceOf('web-a')]);
    await cluster.apply(slice('web', ips(1), { version: 5 }));
    assert.deepEqual(await cluster.reconcile(listed), NOTHING);
    assert.equal((await cluster.reconcile([])).deleted, 1);
  });
});

describe('scopes', () => {
  const places = ['a', 'b', 'c'];
  async function inNamespaces(): Promise<LaptopCluster> {
    const cluster = newCluster();
    for (const [net, namespace] of places.entries())
      await cluster.apply(
        service({ namespace, version: 10 }),
        slice('web', ips(1, net), { namespace, uid: `s-${namespace}`, version: 11 }),
      );
    await cluster.takeDeltas();
    return cluster;
  }
  const listed = (namespace: string) => ({
    namespace,
    ...{ name: 'web', version: 10, objects: [['web-a', 11, `s-${namespace}`]] as const },
  });
  const lists = (versions: Record<string, string>) => ({ Service: versions, EndpointSlice: versions });

  test('a list per namespace counts in its namespace alone', async () => {
    const cluster = await inNamespaces();
    const more = { namespaces: ['a', 'b', 'c'], resourceVersions: lists({ a: '100', b: '5', c: '11' }) };
    assert.equal((await cluster.reconcile([], more)).deleted, 4);
    assert.equal(await cluster.keys('web', 'a'), null);
    assert.notEqual(await cluster.keys('web', 'b'), null, 'its list is older than what is stored');
    assert.equal(await cluster.keys('web', 'c'), null);
  });

  test('what lies outside a narrowed scope goes with the last page, whatever its version, and no deletion is remembered', async () => {
    const cluster = await inNamespaces();
    await cluster.apply(
      slice('web', ips(1, 7), { namespace: 'c', name: 'web-z', uid: 's-z', version: 5000 }),
    );
    const more = { namespaces: ['b'], resourceVersions: lists({ b: '100' }) };
    assert.deepEqual(await cluster.reconcile([], { ...more, last: false }), NOTHING);
    assert.equal((await cluster.reconcile([listed('b')], { ...more, last: false })).deleted, 0);
    assert.notEqual(await cluster.keys('web', 'a'), null);
    const after = { namespace: 'b', name: 'web' };
    assert.equal((await cluster.reconcile([], { ...more, after })).deleted, 5);
    assert.deepEqual(
      await Promise.all(places.map(async (place) => (await cluster.keys('web', place)) !== null)),
      [false, true, false],
    );
    const reasons = (await cluster.takeDeltas()).flatMap(({ detail }) =>
      detail.removed.map(({ reason }) => reason),
    );
    assert.deepEqual(reasons, ['serviceDeleted', 'serviceDeleted', 'serviceDeleted']);
    // The scope is widened again: those objects live, at the versions that they had.
    const all = { namespaces: null };
    assert.equal((await cluster.reconcile(places.map(listed), all)).missing.length, 4);
    const again = await cluster.apply(
      service({ namespace: 'a', version: 10 }),
      slice('web', ips(1), { namespace: 'a', uid: 's-a', version: 11 }),
    );
    assert.deepEqual(again, ['applied', 'applied']);
  });

  test('a page of a narrowed scope speaks for nothing between its namespaces', async () => {
    const cluster = await inNamespaces();
    const more = { namespaces: ['a', 'c'], resourceVersions: lists({ a: '100', c: '100' }), last: false };
    assert.deepEqual(await cluster.reconcile([listed('a'), listed('c')], more), NOTHING);
    assert.notEqual(await cluster.keys('web', 'b'), null);
  });
});

describe('modes (S12)', () => {
  test('slices to Endpoints and back: old objects are held until the new are stored, and nothing is removed', async () => {
    const cluster = newCluster();
    await cluster.apply(service(), slice('web', ips(2)));
    await cluster.takeDeltas();
    const toEndpoints = [{ name: 'web', objects: [['web', 50, 'endpoints-web']] as const }];
    cluster.mode = 'endpoints';
    assert.deepEqual(await cluster.reconcile(toEndpoints), {
      missing: [{ kind: 'Endpoints', namespace: 'default', name: 'web' }],
      ...{ deleted: 0, again: true },
    });
    await cluster.apply({
      type: 'ADDED',
      resync: true,
      confirm: true,
      object: endpoints('web', ips(2), { version: 50 }),
    });
    assert.deepEqual(await cluster.reconcile(toEndpoints), { missing: [], deleted: 1, again: false });
    assert.deepEqual(await cluster.reconcile(toEndpoints), NOTHING);

    cluster.mode = 'slices';
    const toSlices = [stored('web')];
    assert.equal((await cluster.reconcile(toSlices)).again, true);
    // The same version as before: its removal by mode was not remembered as a deletion.
    assert.deepEqual(await cluster.apply({ type: 'ADDED', confirm: true, object: slice('web', ips(2)) }), [
      'applied',
    ]);
    assert.deepEqual(await cluster.reconcile(toSlices), { missing: [], deleted: 1, again: false });
    assert.deepEqual(await cluster.takeDeltas(), [], 'the same keys all the while');
    assert.deepEqual(await cluster.keys('web'), keysOf(ips(2)));
  });

  test('old objects are held until the last of the new is stored at its version, service by service', async () => {
    const cluster = newCluster();
    cluster.mode = 'endpoints';
    await cluster.apply(service(), endpoints('web', ips(4)));
    await cluster.apply(service({ name: 'zoo' }), endpoints('zoo', ips(1, 9)));
    cluster.mode = 'slices';
    await cluster.apply(slice('zoo', ips(1, 9)));
    await cluster.takeDeltas();
    const listed = [
      {
        name: 'web',
        objects: [
          ['web-a', 1],
          ['web-b', 7],
        ] as const,
      },
      stored('zoo'),
    ];
    const all = ips(4);
    const half = (at: number, name: string, version: number) =>
      cluster.apply({
        type: 'ADDED',
        confirm: true,
        object: slice('web', all.slice(at, at + 2), { name, version }),
      });
    const rounds = [
      { missing: [sliceOf('web-a'), sliceOf('web-b')], deleted: 1, again: true },
      { missing: [sliceOf('web-b')], deleted: 0, again: true },
      { missing: [sliceOf('web-b')], deleted: 0, again: true },
      { missing: [], deleted: 1, again: false },
    ];
    const comes = [() => half(0, 'web-a', 1), () => half(2, 'web-b', 6), () => half(2, 'web-b', 7)];
    for (const [round, answer] of rounds.entries()) {
      assert.deepEqual(await cluster.reconcile(listed), answer, `round ${round}`);
      await comes[round]?.();
    }
    assert.deepEqual(await cluster.takeDeltas(), []);
    assert.deepEqual(await cluster.reconcile(listed), NOTHING);
  });

  test('what the old kind held and the new does not goes in one net delta, cause RESYNC', async () => {
    const cluster = newCluster();
    await cluster.apply(service(), slice('web', ips(3)));
    cluster.mode = 'endpoints';
    await cluster.apply(endpoints('web', ips(2), { version: 50 }));
    await cluster.takeDeltas();
    assert.equal(
      (await cluster.reconcile([{ name: 'web', objects: [['web', 50, 'endpoints-web']] }])).deleted,
      1,
    );
    const deltas = await cluster.takeDeltas();
    assert.deepEqual(
      deltas.map(({ type, detail }) => [type, detail.removed.map(({ ip }) => ip), detail.cause.type]),
      [['EndpointsChanged', ['10.0.0.2'], 'RESYNC']],
    );
  });

  test('a service without objects in the new mode loses the old ones', async () => {
    const cluster = newCluster();
    await cluster.apply(service(), slice('web', ips(1)));
    cluster.mode = 'endpoints';
    assert.equal((await cluster.reconcile([{ name: 'web' }])).deleted, 1);
    assert.deepEqual(await cluster.keys('web'), []);
  });
});

describe('storage that was restored from a backup', () => {
  test('version limits fall, all is asked for, and the state is what the backup holds', async () => {
    const cluster = newCluster();
    await cluster.apply(service({ version: 600 }), slice('web', ips(3), { version: 700 }));
    await cluster.apply(
      service({ name: 'young', version: 800 }),
      slice('young', ips(1, 1), { version: 801 }),
    );
    await cluster.apply(service({ name: 'dead', version: 100 }));
    await cluster.apply({ type: 'DELETED', object: service({ name: 'dead', version: 810 }) });
    await cluster.heartbeat({
      kinds: [
        { kind: 'Service', resourceVersion: '900' },
        { kind: 'EndpointSlice', resourceVersion: '900' },
      ],
    });
    await cluster.takeDeltas();

    const backup = { restored: true, resourceVersions: { Service: '650', EndpointSlice: '640' } };
    const listed = [
      { name: 'dead', version: 100 },
      { name: 'web', version: 600, objects: [['web-a', 610]] as const },
    ];
    const answer = await cluster.reconcile(listed, backup);
    assert.deepEqual(answer.missing, [serviceOf('dead'), serviceOf('web'), sliceOf('web-a')]);
    assert.equal(answer.deleted, 2);
    const { versions } = (await cluster.heartbeat()).body;
    assert.deepEqual(versions, { Service: '650', EndpointSlice: '640' });
    const unknown = (object: object) => ({ type: 'ADDED', stateUnknown: true, resync: true, object });
    const statuses = await cluster.apply(
      unknown(service({ name: 'dead', version: 100 })),
      unknown(service({ version: 600 })),
      unknown(slice('web', ips(2), { version: 610 })),
    );
    assert.deepEqual(statuses, ['applied', 'unchanged', 'applied']);
    assert.deepEqual(await cluster.reconcile(listed, { ...backup, restored: false }), NOTHING);
    assert.deepEqual(await cluster.keys('web'), keysOf(ips(2)));
    assert.equal(await cluster.keys('young'), null);
    assert.deepEqual(await cluster.keys('dead'), []);
    assert.deepEqual(
      [...new Set((await cluster.takeDeltas()).map(({ detail }) => detail.cause.type))],
      ['RESYNC'],
    );
    // From there versions rise again, though lower than before.
    assert.deepEqual(await cluster.apply(slice('web', ips(1), { version: 660 })), ['applied']);
  });

  test('what was made anew since the backup is its former self again, and never without addresses', async () => {
    const cluster = newCluster();
    await cluster.apply(
      service({ uid: 'old', version: 10 }),
      slice('web', ips(1), { uid: 'old-a', version: 11 }),
    );
    await cluster.apply(
      { type: 'DELETED', object: slice('web', ips(1), { uid: 'old-a', version: 20 }) },
      { type: 'DELETED', object: service({ uid: 'old', version: 21 }) },
    );
    await cluster.apply(
      service({ uid: 'new', version: 22 }),
      slice('web', ips(1, 1), { uid: 'new-a', version: 23 }),
    );
    await cluster.takeDeltas();

    const backup = { restored: true, resourceVersions: { Service: '12', EndpointSlice: '12' } };
    const listed = [{ name: 'web', uid: 'old', version: 10, objects: [['web-a', 11, 'old-a']] as const }];
    const missing = [serviceOf('web'), sliceOf('web-a')];
    assert.deepEqual(await cluster.reconcile(listed, backup), { missing, deleted: 0, again: true });
    const unknown = (object: object) => ({ type: 'ADDED', stateUnknown: true, resync: true, object });
    assert.deepEqual(
      await cluster.apply(
        unknown(service({ uid: 'old', version: 10 })),
        unknown(slice('web', ips(1), { uid: 'old-a', version: 11 })),
      ),
      ['applied', 'applied'],
    );
    // Versions collide after a restore: all is asked for again, and what the backup lacks is gone.
    assert.deepEqual((await cluster.reconcile(listed, backup)).missing, missing);
    assert.deepEqual(await cluster.reconcile(listed, { ...backup, restored: false }), NOTHING);
    assert.deepEqual(await cluster.keys('web'), ['10.0.0.0:8080']);
    const sizes = (await cluster.takeDeltas()).map(({ detail }) => detail.size);
    assert(!sizes.includes(0), `${sizes}`);
  });

  test('the versions of a list count at once, before the next heartbeat, where the page found anything', async () => {
    const cluster = newCluster();
    await cluster.reconcile([{ name: 'web' }], {
      resourceVersions: { Service: '70', EndpointSlice: { a: '60', b: '65' } },
    });
    assert.deepEqual((await cluster.heartbeat()).body.versions, { Service: '70', EndpointSlice: '65' });
    await cluster.reconcile([{ name: 'web' }], { resourceVersions: { Service: '8' } });
    assert.deepEqual((await cluster.heartbeat()).body.versions, { Service: '70', EndpointSlice: '65' });
  });
});

describe('the guard', () => {
  async function large(count: number): Promise<LaptopCluster> {
    const cluster = newCluster();
    const half = Math.ceil(count / 2);
    await cluster.apply(
      service(),
      slice('web', ips(half)),
      slice('web', ips(count - half, 1), { name: 'web-b' }),
    );
    await cluster.apply(service({ name: 'zoo' }), slice('zoo', ips(1, 2)));
    await cluster.takeDeltas();
    return cluster;
  }
  const guarded: Record<
    string,
    { count: number; listed: readonly (readonly [string, number])[]; maxRemoved: number; isGuarded: boolean }
  > = {
    'all of 20 addresses': { count: 20, listed: [], maxRemoved: 0.5, isGuarded: true },
    'all of 10 addresses, too few to guard': { count: 10, listed: [], maxRemoved: 0.1, isGuarded: false },
    'all of 11 addresses': { count: 11, listed: [], maxRemoved: 0.5, isGuarded: true },
    'half of 40 addresses, the share itself': {
      count: 40,
      listed: [['web-a', 1]],
      maxRemoved: 0.5,
      isGuarded: false,
    },
    'more than the share': { count: 40, listed: [['web-a', 1]], maxRemoved: 0.49, isGuarded: true },
    'all, where all may go': { count: 40, listed: [], maxRemoved: 1, isGuarded: false },
  };
  for (const [name, { count, listed, maxRemoved, isGuarded }] of Object.entries(guarded)) {
    test(`${name}: ${isGuarded ? 'the page changes nothing, and says whose they are' : 'go'}`, async () => {
      const cluster = await large(count);
      const page = [{ name: 'web', objects: listed }];
      const { writeUnits } = await laptop.usage();
      const { status, body } = await cluster.page(page, { maxRemoved });
      if (!isGuarded) {
        assert.equal(status, 200);
        assert.equal(await cluster.keys('zoo'), null);
        return;
      }
      assert.equal((await laptop.usage()).writeUnits, writeUnits);
      assert.equal(status, 409);
      assert.deepEqual(
        [body.error, (body as unknown as { services: string[] }).services],
        ['guard', ['default/web']],
      );
      assert.deepEqual(await cluster.takeDeltas(), []);
      assert.notEqual(await cluster.keys('zoo'), null, 'nor in any other service of the page');
      // A second list agrees.
      assert.equal((await cluster.page(page)).status, 200);
      assert.equal((await cluster.keys('web'))?.length, listed.length === 0 ? 0 : Math.ceil(count / 2));
      await cluster.replayed();
    });
  }

  test('addresses that another slice still holds are not removed, so not guarded', async () => {
    const cluster = newCluster();
    await cluster.apply(service(), slice('web', ips(20)), slice('web', ips(20), { name: 'web-b' }));
    assert.equal((await cluster.page([stored('web')], { maxRemoved: 0.1 })).status, 200);
    assert.deepEqual(await cluster.keys('web'), keysOf(ips(20)));
  });

  test('a scope that was narrowed is guarded too', async () => {
    const cluster = newCluster();
    await cluster.apply(service({ namespace: 'out' }), slice('web', ips(20), { namespace: 'out' }));
    const more = { namespaces: ['default'], maxRemoved: 0.5 };
    const { status, body } = await cluster.page([], more);
    assert.deepEqual([status, (body as unknown as { services: string[] }).services], [409, ['out/web']]);
  });
});

describe('who may send', () => {
  test('a second cluster under one name is refused, and told which has it', async () => {
    const cluster = newCluster();
    cluster.uid = 'first';
    await cluster.apply(service(), slice('web', ips(1)));
    const other = new LaptopCluster(laptop, cluster.name, { epoch: 5, uid: 'second' });
    for (const answer of [await other.page([]), await other.send(service()), await other.heartbeat()]) {
      assert.deepEqual([answer.status, answer.body.error], [409, 'clusterUid']);
      assert.match(answer.body.detail, /^clusterUid: .*first/);
    }
    assert.deepEqual(await cluster.keys('web'), ['10.0.0.0:8080']);
    assert.equal((await cluster.page([stored('web')])).status, 200, 'nor did it raise the epoch');
    const unnamed = new LaptopCluster(laptop, cluster.name);
    assert.equal((await unnamed.page([stored('web')])).status, 200, 'without a uid it is not checked');
  });

  test('a page of an older relay is refused, and changes nothing (W18)', async () => {
    const cluster = await withServices('web');
    const leader = new LaptopCluster(laptop, cluster.name, { epoch: 2 });
    await leader.heartbeat();
    const { status, body } = await cluster.page([]);
    assert.deepEqual(
      [status, body.error, (body as unknown as { current: number }).current],
      [409, 'epoch', 2],
    );
    assert.notEqual(await cluster.keys('web'), null);
  });
});

describe('bounds and bad input', () => {
  const many = (count: number) => Array.from({ length: count }, (_, index) => [`web-${index}`, 1] as const);
  const bad: Record<
    string,
    { services?: Parameters<LaptopCluster['page']>[0]; more?: object; says: RegExp }
  > = {
    'more than 10,000 objects in one service': {
      services: [{ name: 'web', objects: many(10_001) }],
      says: /^services\[0\]\.objects: must have at most 10000 items/,
    },
    'more than 10,000 objects in all': {
      services: [
        { name: 'a', objects: many(5001) },
        { name: 'b', objects: many(5000) },
      ],
      says: /^services: must have at most 10000 objects together; send more pages/,
    },
    'services out of order': {
      services: [{ name: 'b' }, { name: 'a' }],
      says: /^services\[1\]: must sort behind services\[0\]/,
    },
    'a service twice': { services: [{ name: 'a' }, { name: 'a' }], says: /^services\[1\]: must sort behind/ },
    'a service before the range': {
      services: [{ name: 'a' }],
      more: { after: { namespace: 'default', name: 'b' } },
      says: /^services\[0\]: must sort behind after/,
    },
    'a name with a slash': { services: [{ name: 'a/b' }], says: /^services\[0\]\.name: must be/ },
    'a namespace with a slash': {
      services: [{ name: 'a', namespace: 'x/y' }],
      says: /^services\[0\]\.namespace: must be/,
    },
    'a version that is no number': {
      more: { resourceVersions: { Service: 'x' } },
      says: /^resourceVersions\.Service: must be a decimal number/,
    },
    'no versions': { more: { resourceVersions: undefined }, says: /^resourceVersions: required/ },
    'no last': { more: { last: undefined }, says: /^last: required/ },
    'no services': { more: { services: undefined }, says: /^services: required/ },
    'a share above 1': { more: { maxRemoved: 1.1 }, says: /^maxRemoved: must be at most 1/ },
    'a share below 0': { more: { maxRemoved: -0.1 }, says: /^maxRemoved: must be at least 0/ },
    'no namespaces in a list of them': { more: { namespaces: [] }, says: /^namespaces: must/ },
    'a mode that is none': { more: { mode: 'pods' }, says: /^mode: must be "slices" or "endpoints"/ },
    'an epoch that is no integer': { more: { epoch: 1.5 }, says: /^epoch: must be an integer/ },
    'a uid without a version': {
      more: { services: [{ namespace: 'default', name: 'web', uid: 'u' }] },
      says: /^services\[0\]\.resourceVersion: required beside uid/,
    },
    'an object without a uid': {
      more: {
        services: [{ namespace: 'default', name: 'web', objects: [{ name: 'a', resourceVersion: '1' }] }],
      },
      says: /^services\[0\]\.objects\[0\]\.uid: required/,
    },
    'a restored that is no boolean': { more: { restored: 'yes' }, says: /^restored: must be a boolean/ },
  };
  for (const [name, { services = [], more = {}, says }] of Object.entries(bad)) {
    test(`${name} is a 400 that names the field`, async () => {
      const cluster = await withServices('web');
      const { status, body } = await cluster.page(services, more);
      assert.deepEqual([status, says.test(body.detail)], [400, true], body.detail);
      assert.notEqual(await cluster.keys('web'), null);
    });
  }

  test('10,000 objects are a page', async () => {
    const cluster = newCluster();
    const listed = [{ name: 'web', objects: many(10_000) }];
    const { missing } = await cluster.reconcile(listed);
    assert.equal(missing.length, 10_001);
  });
});
