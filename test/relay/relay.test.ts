import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { RelayEnd } from '../../relay/relay.ts';
import { createService, createSlice, deleteSlice, testLog, updateSlice } from './builders.ts';
import { populate, Rig } from './relay-rig.ts';

suite('start', { concurrency: true }, () => {
  test('a cold start sends each Service with its slices, in one batch', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    await rig.synced();
    assert.deepEqual(rig.ingest.events.sort(), [
      'ADDED db resync',
      'ADDED db-1 resync',
      'ADDED web resync',
      'ADDED web-1 resync',
      'ADDED web-2 resync',
    ]);
    assert.equal(rig.ingest.bodies('/v1/events').length, 1);
    const [heartbeat] = rig.ingest.bodies('/v1/heartbeat');
    assert.equal(rig.ingest.received[0]?.path, '/v1/heartbeat');
    assert.equal(
      heartbeat.clusterUid,
      rig.server.objects.get({ kind: 'Namespace', name: 'kube-system' })?.metadata.uid,
    );
    assert.deepEqual([heartbeat.synced, heartbeat.epoch, heartbeat.mode], [false, 7, 'slices']);
  });

  test('a restart over an unchanged cluster sends an inventory and no event', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    const first = await rig.synced();
    await first[Symbol.asyncDispose]();
    rig.ingest.received.length = 0;
    await rig.synced({ epoch: 8 });
    assert.deepEqual(rig.ingest.events, []);
    const [page] = rig.ingest.bodies('/v1/inventory');
    assert.deepEqual(
      page.services.map(({ name, objects }: { name: string; objects: unknown[] }) => [name, objects.length]),
      [
        ['db', 1],
        ['web', 2],
      ],
    );
    assert.deepEqual([page.after, page.last, page.maxRemoved, page.namespaces], [null, true, 0.5, null]);
  });

  test('what changed while no relay ran is found: a new slice is sent, a deleted one removed by the page', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    await (await rig.synced())[Symbol.asyncDispose]();
    rig.ingest.received.length = 0;
    deleteSlice(rig.server.objects, 'web-1');
    createSlice(rig.server.objects, { name: 'db-2', service: 'db' });
    const relay = rig.relay({ epoch: 8 });
    await rig.settled();
    await rig.timers.until(() => relay.notReady().length === 0, 'ready');
    assert.deepEqual(rig.ingest.events, ['ADDED db-2 confirm resync']);
  });

  test('W3: nothing leaves before every kind is listed', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    const refusal = await rig.server.misbehave({
      fault: { kind: 'status', code: 503 },
      on: { resource: 'services' },
    });
    rig.relay();
    await rig.timers.until(() => rig.server.watched.includes('endpointslices'), 'slices are watched');
    createSlice(rig.server.objects, { name: 'web-3', service: 'web' });
    await rig.timers.advance(20_000);
    assert.deepEqual([...new Set(rig.ingest.received.map(({ path }) => path))], ['/v1/heartbeat']);
    await refusal[Symbol.asyncDispose]();
    await rig.settled();
  });

  test('W18: the first inventory waits as long as requests of a former leader may run', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    rig.ingest.waitMs = 10_000;
    await rig.synced();
    const first = (path: string) => rig.ingest.received.find((request) => request.path === path)?.at ?? 0;
    assert.ok(first('/v1/inventory') - first('/v1/heartbeat') >= 10_000);
  });

  test('W14, S8, S13: a relay for one namespace names what belongs to a service there', async () => {
    await using rig = await Rig.start();
    createService(rig.server.objects, 'web', 'kube-public');
    createSlice(rig.server.objects, { name: 'web-1', service: 'web', namespace: 'kube-public' });
    createSlice(rig.server.objects, { name: 'nobody', service: null, namespace: 'kube-public' });
    createSlice(rig.server.objects, {
      name: 'names',
      service: 'web',
      namespace: 'kube-public',
      addressType: 'FQDN',
      ips: ['a.b'],
    });
    createService(rig.server.objects, 'other');
    const relay = rig.relay({ namespaces: ['kube-public'] });
    await rig.timers.until(() => relay.notReady().length === 0 && rig.ingest.stored.size === 2, 'told');
    const [page] = rig.ingest.bodies('/v1/inventory');
    const { revision } = rig.server.snapshot();
    assert.deepEqual(page.resourceVersions, {
      Service: { 'kube-public': String(revision) },
      EndpointSlice: { 'kube-public': String(revision) },
    });
    assert.deepEqual(page.namespaces, ['kube-public']);
    assert.deepEqual(
      page.services.map(({ name, objects }: { name: string; objects: { name: string }[] }) => [
        name,
        objects.map((object) => object.name),
      ]),
      [['web', ['web-1']]],
    );
  });
});

suite('events', { concurrency: true }, () => {
  test('changes within settleMs are one request', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    await rig.synced();
    rig.ingest.received.length = 0;
    updateSlice(rig.server.objects, { name: 'web-1', service: 'web', ips: ['10.0.0.7'] });
    updateSlice(rig.server.objects, { name: 'web-2', service: 'web', ips: [] });
    deleteSlice(rig.server.objects, 'db-1');
    await rig.settled();
    assert.deepEqual(rig.ingest.events.sort(), ['DELETED db-1', 'MODIFIED web-1', 'MODIFIED web-2']);
    const [{ events }] = rig.ingest.bodies('/v1/events');
    const modified = events.find(
      ({ object }: { object: { metadata: { name: string } } }) => object.metadata.name === 'web-1',
    );
    assert.deepEqual(modified.object.endpoints, [{ addresses: ['10.0.0.7'], conditions: { ready: true } }]);
    assert.equal(modified.object.metadata.managedFields, undefined);
    assert.match(modified.observedAt, /^2026-01-01T00:/);
  });

  test('S10: a slice whose label changed names its former service', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    await rig.synced();
    rig.ingest.received.length = 0;
    updateSlice(rig.server.objects, { name: 'web-1', service: 'db' });
    await rig.settled();
    assert.deepEqual(rig.ingest.events, ['MODIFIED web-1 former web']);
  });

  test('P5: a request without an answer is sent again with confirm, and later ones without', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    await rig.synced();
    rig.ingest.received.length = 0;
    rig.ingest.mishaps.push({ path: '/v1/events', status: 'hangUp', isApplied: true });
    updateSlice(rig.server.objects, { name: 'web-1', service: 'web', ips: ['10.0.0.7'] });
    await rig.timers.until(() => rig.ingest.events.length === 2, 'sent again');
    updateSlice(rig.server.objects, { name: 'web-1', service: 'web', ips: ['10.0.0.8'] });
    await rig.settled();
    assert.deepEqual(rig.ingest.events, ['MODIFIED web-1', 'MODIFIED web-1 confirm', 'MODIFIED web-1']);
  });

  const RETRIED = {
    '503 with Retry-After waits as long': { status: 503, retryAfter: '9', waitsMs: 9000, isConfirmed: true },
    '503 backs off': { status: 503, retryAfter: undefined, waitsMs: 200, isConfirmed: true },
    '429 backs off, and needs no confirm': {
      status: 429,
      retryAfter: undefined,
      waitsMs: 200,
      isConfirmed: false,
    },
  };
  for (const [name, { status, retryAfter, waitsMs, isConfirmed }] of Object.entries(RETRIED)) {
    test(name, async () => {
      await using rig = await Rig.start();
      populate(rig.server);
      await rig.synced();
      rig.ingest.received.length = 0;
      rig.ingest.mishaps.push({
        path: '/v1/events',
        status,
        ...(retryAfter !== undefined && { headers: { 'retry-after': retryAfter } }),
      });
      updateSlice(rig.server.objects, { name: 'web-1', service: 'web', ips: ['10.0.0.7'] });
      await rig.settled();
      const [first, second] = rig.ingest.received.filter(({ path }) => path === '/v1/events');
      assert.ok((second?.at ?? 0) - (first?.at ?? 0) >= waitsMs);
      assert.equal(rig.ingest.events[1], `MODIFIED web-1${isConfirmed ? ' confirm' : ''}`);
    });
  }

  test('413 splits the batch', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    await rig.synced({ settleMs: 1000 });
    rig.ingest.received.length = 0;
    rig.ingest.mishaps.push({ path: '/v1/events', status: 413 });
    for (let index = 0; index < 60; index++) {
      const ips = Array.from({ length: 200 }, (_, ip) => `10.${index}.0.${ip}`);
      createSlice(rig.server.objects, { name: `web-${index + 3}`, service: 'web', ips });
    }
    await rig.settled();
    const sizes = rig.ingest.bodies('/v1/events').map(({ events }) => events.length);
    assert.ok(sizes[0] > 40 && sizes[1] < sizes[0], `${sizes}`);
    assert.equal(rig.ingest.events.filter((event) => event.includes('confirm')).length, 0);
  });

  test('400 drops the batch, says so, and goes on', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    const lines: string[] = [];
    await rig.synced({ log: testLog(lines) });
    rig.ingest.mishaps.push({ path: '/v1/events', status: 400, body: { detail: 'cluster: required' } });
    updateSlice(rig.server.objects, { name: 'web-1', service: 'web', ips: ['10.0.0.7'] });
    await rig.timers.until(() => lines.some((line) => line.includes('ingest refused it')), 'said');
    updateSlice(rig.server.objects, { name: 'web-1', service: 'web', ips: ['10.0.0.8'] });
    await rig.settled();
    const line = JSON.parse(lines.find((text) => text.includes('ingest refused it')) ?? '{}');
    assert.deepEqual([line.level, line.reason, line.count], ['error', 'cluster: required', 1]);
  });

  test('while ingest is away changes are merged, and told once when it is back', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    const relay = await rig.synced();
    rig.ingest.received.length = 0;
    for (let index = 0; index < 8; index++) rig.ingest.mishaps.push({ path: '/v1/events', status: 503 });
    for (let index = 0; index < 50; index++) {
      updateSlice(rig.server.objects, { name: 'web-1', service: 'web', ips: [`10.0.1.${index}`] });
      await rig.timers.advance(1000);
    }
    await rig.settled();
    assert.ok(rig.ingest.events.length < 30, `${rig.ingest.events.length} events`);
    assert.match(relay.metrics.render(), /endpoints_watcher_relay_coalesced_total\{kind="merged"\} [1-9]/);
  });
});

suite('inventory', { concurrency: true }, () => {
  /** The watches come back behind a history that is gone, so both kinds are listed again. */
  async function relisted(rig: Rig, change: () => void): Promise<void> {
    const outage = await rig.server.misbehave({ fault: { kind: 'refuse' } });
    change();
    rig.server.compact();
    await outage[Symbol.asyncDispose]();
  }

  test('W11: what a list finds gone is removed by the page, not by an event', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    await rig.synced();
    rig.ingest.received.length = 0;
    await relisted(rig, () => deleteSlice(rig.server.objects, 'web-1'));
    await rig.settled();
    assert.deepEqual(rig.ingest.events, []);
    assert.ok(rig.ingest.bodies('/v1/inventory').length >= 1);
  });

  test('an answer `again` sends what is missing with confirm, then the page again', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    await rig.synced();
    rig.ingest.received.length = 0;
    await relisted(rig, () => {
      deleteSlice(rig.server.objects, 'web-1');
      createSlice(rig.server.objects, { name: 'web-3', service: 'web' });
    });
    await rig.settled();
    assert.ok(rig.ingest.events.includes('ADDED web-3 confirm resync'));
    const paths = rig.ingest.received.map(({ path }) => path).filter((path) => path !== '/v1/heartbeat');
    const sent = paths.lastIndexOf('/v1/events');
    assert.equal(paths[sent + 1], '/v1/inventory');
  });

  test('P8: a page without an answer follows again ten seconds later', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    rig.ingest.mishaps.push({ path: '/v1/inventory', status: 'hangUp' });
    await rig.synced();
    const [first, second] = rig.ingest.received.filter(({ path }) => path === '/v1/inventory');
    assert.ok((second?.at ?? 0) - (first?.at ?? 0) >= 10_000);
  });

  test('W11: a page waits until no event of its services is unanswered', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    await rig.synced();
    rig.ingest.received.length = 0;
    for (let index = 0; index < 3; index++) rig.ingest.mishaps.push({ path: '/v1/events', status: 503 });
    updateSlice(rig.server.objects, { name: 'web-1', service: 'web', ips: ['10.0.0.7'] });
    await rig.timers.until(() => rig.ingest.events.length === 1, 'failed once');
    await relisted(rig, () => {});
    await rig.timers.until(() => rig.ingest.bodies('/v1/inventory').length > 0, 'page');
    assert.deepEqual(rig.ingest.events, ['MODIFIED web-1', ...Array(3).fill('MODIFIED web-1 confirm')]);
  });

  test('a removal that the guard refuses is listed again, and goes through when the list agrees', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    const relay = await rig.synced();
    rig.ingest.received.length = 0;
    rig.ingest.guards = Array(10).fill(['default/web']);
    await relisted(rig, () => deleteSlice(rig.server.objects, 'web-1'));
    await rig.settled();
    const pages = rig.ingest.bodies('/v1/inventory').map(({ maxRemoved }) => maxRemoved);
    assert.deepEqual([...new Set(pages)], [0.5, null]);
    assert.match(relay.metrics.render(), /lists_total\{kind="EndpointSlice",cause="guard"\} 1/);
  });

  test('a removal that the guard refuses after an inventory that went through is looked at twice again', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    const relay = await rig.synced();
    const guardLists = () =>
      /lists_total\{kind="EndpointSlice",cause="guard"\} (\d+)/.exec(relay.metrics.render())?.[1];
    let refusals = 0;
    rig.ingest.onReceived = ({ path, body }) => {
      if (path !== '/v1/inventory' || body.maxRemoved === null) return;
      const web = body.services.find(({ name }: { name: string }) => name === 'web');
      if (web.objects.length > 1 || refusals === 1) return;
      refusals = 1;
      rig.ingest.guards = [['default/web']];
      createSlice(rig.server.objects, { name: 'web-1', service: 'web' });
    };
    await relisted(rig, () => deleteSlice(rig.server.objects, 'web-1'));
    await rig.timers.until(() => refusals === 1, 'refused');
    await rig.settled();
    await rig.timers.until(() => guardLists() === '1', 'listed again');
    await rig.timers.advance(30_000);
    rig.ingest.guards = Array(10).fill(['default/web']);
    await relisted(rig, () => deleteSlice(rig.server.objects, 'web-1'));
    await rig.settled();
    assert.equal(guardLists(), '2');
  });

  test('W11: the second look is one at every kind', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    await rig.synced();
    rig.ingest.received.length = 0;
    rig.ingest.guards = Array(10).fill(['default/web']);
    let outage: AsyncDisposable | null = null;
    rig.ingest.onReceived = ({ path }) => {
      if (path !== '/v1/inventory' || outage !== null) return;
      void rig.server
        .misbehave({ fault: { kind: 'status', code: 503 }, on: { resource: 'services' } })
        .then((started) => {
          outage = started;
        });
    };
    await relisted(rig, () => deleteSlice(rig.server.objects, 'web-1'));
    await rig.timers.until(() => rig.ingest.bodies('/v1/inventory').length >= 2, 'two pages');
    await rig.timers.advance(20_000);
    assert.ok(rig.ingest.bodies('/v1/inventory').every(({ maxRemoved }) => maxRemoved === 0.5));
    await (outage as AsyncDisposable | null)?.[Symbol.asyncDispose]();
    await rig.settled();
  });

  test('a page is not kept waiting by a service that changes without end', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    await rig.synced({ settleMs: 0 });
    let updates = 0;
    rig.ingest.onReceived = ({ path }) => {
      if (path !== '/v1/events') return;
      updateSlice(rig.server.objects, { name: 'web-1', service: 'web', ips: [`10.1.0.${updates++ % 250}`] });
    };
    updateSlice(rig.server.objects, { name: 'web-1', service: 'web', ips: ['10.0.0.7'] });
    await rig.timers.until(() => updates > 5, 'busy');
    rig.ingest.received.length = 0;
    await rig.timers.advance(35 * 60_000);
    await rig.timers.until(() => rig.ingest.bodies('/v1/inventory').length > 0, 'page');
    rig.ingest.onReceived = () => {};
    await rig.settled();
  });

  test('pages hold whole services, and each speaks for the range behind the former', async () => {
    await using rig = await Rig.start();
    for (const name of ['a', 'b', 'c']) {
      createService(rig.server.objects, name);
      for (let index = 0; index < 900; index++)
        createSlice(rig.server.objects, { name: `${name}-${index}`, service: name });
    }
    await rig.synced();
    const pages = rig.ingest.bodies('/v1/inventory');
    assert.deepEqual(
      pages.map(({ after, last, services }) => [
        after?.name ?? null,
        services.map(({ name }: { name: string }) => name),
        last,
      ]),
      [
        [null, ['a', 'b'], false],
        ['b', ['c'], true],
      ],
    );
    assert.equal(new Set(pages.map(({ id }) => id)).size, 1);
  });

  test('a cluster restored from a backup: the relay says so, and everything is sent over what is stored', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    const backup = rig.server.snapshot();
    const relay = await rig.synced();
    createSlice(rig.server.objects, { name: 'web-3', service: 'web' });
    updateSlice(rig.server.objects, { name: 'web-1', service: 'web', ips: ['10.0.0.7'] });
    await rig.settled();
    await relay[Symbol.asyncDispose]();
    rig.server.restore(backup);
    rig.ingest.received.length = 0;
    await rig.synced({ epoch: 8 });
    const pages = rig.ingest.bodies('/v1/inventory').map(({ restored }) => restored);
    assert.deepEqual([pages[0], pages.at(-1)], [true, false]);
    assert.ok(rig.ingest.events.includes('ADDED web-1 confirm resync stateUnknown'));
    const paths = rig.ingest.received.map(({ path }) => path);
    assert.ok(paths.indexOf('/v1/inventory') < paths.indexOf('/v1/events'));
  });

  test('a list that comes while a restored cluster is told anew does not stop the telling', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    const backup = rig.server.snapshot();
    await rig.synced();
    createSlice(rig.server.objects, { name: 'web-3', service: 'web' });
    await rig.settled();
    rig.ingest.received.length = 0;
    rig.ingest.mishaps.push({ path: '/v1/events', status: 503 });
    let isListedAgain = false;
    rig.ingest.onReceived = ({ path }) => {
      if (path !== '/v1/events' || isListedAgain) return;
      isListedAgain = true;
      void rig.server.restart();
      createSlice(rig.server.objects, { name: 'web-4', service: 'web' });
      rig.server.compact();
    };
    rig.server.restore(backup);
    await rig.timers.until(() => isListedAgain, 'the first events', 500);
    await rig.settled(500);
  });

  test('P8: what replaces any version is sent again only ten seconds after a failure', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    const backup = rig.server.snapshot();
    const relay = await rig.synced();
    createSlice(rig.server.objects, { name: 'web-3', service: 'web' });
    await rig.settled();
    await relay[Symbol.asyncDispose]();
    rig.server.restore(backup);
    rig.ingest.received.length = 0;
    rig.ingest.mishaps.push({ path: '/v1/events', status: 503 });
    await rig.synced({ epoch: 8 });
    const [first, second] = rig.ingest.received.filter(({ path }) => path === '/v1/events');
    assert.ok((second?.at ?? 0) - (first?.at ?? 0) >= 10_000);
  });

  test('a cluster restored under a running relay: what came after the backup goes, what went before it comes back', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    const backup = rig.server.snapshot();
    await rig.synced();
    createSlice(rig.server.objects, { name: 'web-3', service: 'web' });
    createService(rig.server.objects, 'late');
    deleteSlice(rig.server.objects, 'web-2');
    updateSlice(rig.server.objects, { name: 'db-1', service: 'web' });
    await rig.settled();
    rig.server.restore(backup);
    await rig.settled();
    assert.ok(rig.ingest.bodies('/v1/inventory').some(({ restored }) => restored));
    updateSlice(rig.server.objects, { name: 'web-2', service: 'web', ips: [] });
    await rig.settled();
  });

  test('W7: every half hour everything is listed and compared again', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    const relay = await rig.synced();
    rig.ingest.stored.delete('EndpointSlice/default/web-1');
    await rig.timers.advance(30 * 60_000);
    await rig.settled();
    assert.match(relay.metrics.render(), /lists_total\{kind="Service",cause="audit"\} 1/);
  });
});

suite('end', { concurrency: true }, () => {
  const ENDS: Record<string, { readonly arrange: (rig: Rig) => unknown; readonly want: RelayEnd['kind'] }> = {
    'W18: a newer epoch in the cloud: the relay stands down': {
      arrange: (rig) => {
        rig.ingest.epoch = 8;
      },
      want: 'fenced',
    },
    'another cluster has the name': {
      arrange: (rig) => {
        rig.ingest.mishaps.push({ path: '/v1/heartbeat', status: 409, body: { error: 'clusterUid' } });
      },
      want: 'otherCluster',
    },
    'slices cannot be read at all': {
      arrange: ({ server }) =>
        server.misbehave({ fault: { kind: 'status', code: 403 }, on: { resource: 'endpointslices' } }),
      want: 'noSlices',
    },
  };
  for (const [name, { arrange, want }] of Object.entries(ENDS)) {
    test(name, async () => {
      await using rig = await Rig.start();
      await arrange(rig);
      let end: RelayEnd | null = null;
      void rig.relay().done.then((value) => {
        end = value;
      });
      await rig.timers.until(() => end !== null, 'the end');
      assert.equal((end as RelayEnd | null)?.kind, want);
    });
  }

  test('a server that has just started denies everything for a moment: the relay starts none the less, and knows the cluster (W4)', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    for (const resource of ['namespaces', 'services', 'endpointslices'])
      await rig.server.misbehave({ fault: { kind: 'status', code: 403 }, times: 3, on: { resource } });
    await rig.synced();
    const uid = rig.server.objects.get({ kind: 'Namespace', name: 'kube-system' })?.metadata.uid;
    assert.equal(rig.ingest.bodies('/v1/heartbeat').at(-1).clusterUid, uid);
  });

  test('disposing stops everything, also while nothing can be reached', async () => {
    await using rig = await Rig.start();
    await rig.server.misbehave({ fault: { kind: 'refuse' } });
    const relay = rig.relay();
    await rig.timers.advance(5000);
    await relay[Symbol.asyncDispose]();
    assert.deepEqual(await relay.done, { kind: 'stopped' });
  });

  test('synced in a heartbeat: after the first inventory, and not while something older than 5 s is untold', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    await rig.synced();
    const last = () => rig.ingest.bodies('/v1/heartbeat').at(-1);
    await rig.timers.until(() => last().synced === true, 'synced', 500);
    assert.deepEqual(
      last().kinds.map(({ kind }: { kind: string }) => kind),
      ['Service', 'EndpointSlice'],
    );
    for (let index = 0; index < 20; index++) rig.ingest.mishaps.push({ path: '/v1/events', status: 503 });
    updateSlice(rig.server.objects, { name: 'web-1', service: 'web', ips: ['10.0.0.7'] });
    await rig.timers.until(() => last().synced === false, 'not synced', 500);
    await rig.timers.until(() => rig.ingest.mishaps.length === 0, 'failed often', 500);
    await rig.settled();
    await rig.timers.until(() => last().synced === true, 'synced again', 500);
  });
});
