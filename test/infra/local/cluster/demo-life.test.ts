import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { startApiServer } from '../../../../infra/local/cluster/api-server.ts';
import { startDemoLife } from '../../../../infra/local/cluster/demo-life.ts';
import type { KubeObject } from '../../../../infra/local/cluster/resources.ts';
import { fakeClock, get } from './cluster-builders.ts';

interface Change {
  /** Milliseconds of the life. */
  readonly at: number;
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly object: KubeObject;
}

/** How far one turn of the event loop moves the life: coarse, so that a minute of it takes a moment. */
const STEP_MS = 10;

/** Lives through `ms` of the demo on mocked timers and answers every change in order. */
async function live(t: TestContext, ms: number): Promise<Change[]> {
  t.mock.timers.enable({ apis: ['setTimeout', 'setInterval'] });
  const clock = fakeClock();
  await using apiServer = await startApiServer({ clock, historySize: 10 });
  const changes: Change[] = [];
  apiServer.objects.subscribe((change) => {
    const object = change?.object ?? change?.previous;
    if (change === null || object === null || object === undefined) return;
    const type = change.object === null ? 'DELETED' : change.previous === null ? 'ADDED' : 'MODIFIED';
    changes.push({ at: clock.monotonic(), type, object });
  });
  const abort = new AbortController();
  const life = startDemoLife({ apiServer, clock, signal: abort.signal });
  for (let passed = 0; passed < ms; passed += STEP_MS) {
    clock.advance(STEP_MS);
    t.mock.timers.tick(STEP_MS);
    await new Promise(setImmediate);
  }
  abort.abort();
  await life.finished;
  return changes;
}

const slicesOf = (changes: readonly Change[], service: string) =>
  changes.flatMap(({ at, object }) => {
    const isOf = object.metadata.labels?.['kubernetes.io/service-name'] === service;
    return object.kind === 'EndpointSlice' && isOf ? [{ at, slice: object }] : [];
  });

const readyIps = (endpoints: KubeObject<'EndpointSlice'>['endpoints']) =>
  (endpoints ?? []).filter(({ conditions }) => conditions?.ready).flatMap(({ addresses }) => addresses);

test('the life shows several services with endpoints within five seconds', async (t) => {
  const changes = await live(t, 5_000);
  const sizes = Object.fromEntries(
    ['kubernetes', 'kube-dns', 'my-service', 'my-app', 'nginx', 'external-service'].map((service) => [
      service,
      readyIps(slicesOf(changes, service).at(-1)?.slice.endpoints ?? null).length,
    ]),
  );
  assert.deepEqual(sizes, {
    kubernetes: 1,
    'kube-dns': 2,
    'my-service': 3,
    'my-app': 2,
    nginx: 3,
    'external-service': 2,
  });
  const namespaces = new Set(changes.map(({ object }) => object.metadata.namespace));
  assert.deepEqual([...namespaces].sort(), ['default', 'kube-system', 'partners', 'web', undefined]);
});

test('the life goes through its whole script and begins again', async (t) => {
  const changes = await live(t, 45_000);
  const sets = (service: string) =>
    slicesOf(changes, service)
      .map(({ slice }) => readyIps(slice.endpoints).toSorted().join())
      .filter((set, index, all) => set !== all[index - 1]);

  const blue = '10.244.0.5,10.244.0.6';
  const green = '10.244.1.7,10.244.1.8';
  assert.deepEqual(sets('my-app').slice(0, 4), [blue, green, blue, green], 'blue-green in one update each');

  const sizes = sets('my-service').map((set) => set.split(',').filter(Boolean).length);
  assert.deepEqual(
    sizes.slice(0, 16),
    [0, 1, 2, 3, 4, 3, 4, 3, 4, 3, 0, 1, 2, 3, 4, 3],
    'start, rolling update, scale to zero and back, rolling update',
  );

  const both = '192.168.1.100,192.168.1.101';
  assert.deepEqual(sets('external-service').slice(0, 3), [both, '192.168.1.100', both]);

  const hostnames = slicesOf(changes, 'nginx').map(({ slice }) =>
    (slice.endpoints ?? []).find(({ hostname }) => hostname === 'web-1')?.addresses.join(),
  );
  const ipsOfWeb1 = [...new Set(hostnames.filter((ip) => ip !== undefined))];
  assert.ok(ipsOfWeb1.length >= 2, 'web-1 comes back under another address');

  const dns = slicesOf(changes, 'kube-dns').at(-1)?.slice.ports;
  assert.deepEqual(
    dns?.map(({ port, protocol }) => `${port}/${protocol}`),
    ['53/UDP', '53/TCP', '9153/TCP'],
  );
});

test('default/kubernetes has a slice of its own, with no manager, owner or node (S9)', async (t) => {
  const [only, ...others] = slicesOf(await live(t, 1_000), 'kubernetes');
  assert.deepEqual(others, []);
  assert.deepEqual(only?.slice.metadata.labels, { 'kubernetes.io/service-name': 'kubernetes' });
  assert.equal(only?.slice.metadata.ownerReferences, undefined);
  assert.deepEqual(only?.slice.endpoints, [{ addresses: ['172.18.0.2'], conditions: { ready: true } }]);
});

test('pods are owned, placed on zoned nodes, and never share an address', async (t) => {
  const changes = await live(t, 20_000);
  const nodes = changes.filter(({ object }) => object.kind === 'Node');
  assert.equal(
    new Set(nodes.map(({ object }) => object.metadata.labels?.['topology.kubernetes.io/zone'])).size,
    3,
  );
  const holders = new Map<string, string>();
  for (const { type, object } of changes) {
    if (object.kind !== 'Pod') continue;
    const { uid, ownerReferences } = object.metadata;
    assert.match(ownerReferences?.[0]?.kind ?? '', /^(ReplicaSet|StatefulSet)$/);
    const ip = object.status?.podIP;
    if (ip === undefined) continue;
    assert.equal(holders.get(ip) ?? uid, uid);
    if (type === 'DELETED') holders.delete(ip);
    else holders.set(ip, uid);
  }
  assert.equal(holders.size > 5, true);
});

test('equal lives are equal', async (t) => {
  const script = (changes: readonly Change[]) =>
    changes.map(
      ({ type, object: { kind, metadata } }) => `${type} ${kind} ${metadata.generateName ?? metadata.name}`,
    );
  const first = script(await live(t, 12_000));
  t.mock.timers.reset();
  assert.deepEqual(script(await live(t, 12_000)), first);
});

test('an aborted life ends at once, and its server goes on', async () => {
  const clock = fakeClock();
  await using apiServer = await startApiServer({ clock });
  const abort = new AbortController();
  const life = startDemoLife({ apiServer, clock, signal: abort.signal });
  abort.abort();
  await life.finished;
  const { body } = await get(apiServer, '/api/v1/services');
  assert.equal(body.items.length, 6);
});

test('a pace of nothing is refused', async () => {
  const clock = fakeClock();
  await using apiServer = await startApiServer({ clock });
  const { signal } = new AbortController();
  assert.throws(() => startDemoLife({ apiServer, clock, signal, pace: 0 }), /pace must be above 0, not 0/);
});
