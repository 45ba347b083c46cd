import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { PortId } from '../../../core/service-port.ts';
import type { EpochMs } from '../../../core/time.ts';
import { MAX_SUBSCRIPTIONS } from '../../../functions/api/subscriptions.ts';
import { portSet, subscriptionAnswer } from '../../../wire/api.ts';
import { CLUSTER, endpointOf, serviceOf, sliceOf, World } from './world.ts';

const path = (id = 'reader', { service = 'web', query = '?port=80' } = {}) =>
  `/v1/clusters/${CLUSTER}/namespaces/default/services/${service}/subscriptions/${id}${query}`;

async function worldWithServices(): Promise<World> {
  const world = new World();
  await world.putCluster();
  const endpoints = [endpointOf('10.1.0.1', { hostname: 'web-0' })];
  await world.put('web', serviceOf('web'), sliceOf('s', { endpoints }));
  await world.put('bare', serviceOf('bare', { clusterIP: 'None' }), sliceOf('b', { endpoints }));
  await world.put('name', serviceOf('name', { type: 'ExternalName', externalName: 'example.com' }));
  return world;
}

type App = ReturnType<World['app']>;

interface PutOptions {
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
}

const put = (
  app: App,
  target = path(),
  { body = { ttlSeconds: 60 }, headers = { 'content-type': 'application/json' } }: PutOptions = {},
) => app.request(target, { method: 'PUT', body: JSON.stringify(body), headers });

describe('subscriptions', () => {
  test('PUT answers the set, GET the lease, and both until it ends', async () => {
    const world = await worldWithServices();
    const app = world.app();
    const answer = await put(app);
    assert.equal(answer.status, 200);
    const set = portSet.parse(await answer.json());
    assert.deepEqual([set.sequence, set.addresses.length], [1, 1]);
    assert.deepEqual(await (await app.request(path())).json(), {
      id: 'reader',
      ...{ cluster: CLUSTER, namespace: 'default', service: 'web', port: 80, protocol: 'TCP' },
      expiresAt: '2026-11-30T10:01:00.000Z',
    });
    world.now = (world.now + 59_999) as EpochMs;
    assert.equal((await app.request(path('reader', { query: '' }))).status, 200);
    world.now = (world.now + 1) as EpochMs;
    assert.equal((await app.request(path())).status, 404);
  });

  test('PUT again renews it, and DELETE ends it once', async () => {
    const world = await worldWithServices();
    const app = world.app();
    await put(app);
    await put(app, path(), { body: { ttlSeconds: 3600 } });
    const lease = subscriptionAnswer.parse(await (await app.request(path())).json());
    assert.equal(lease.expiresAt, '2026-11-30T11:00:00.000Z');
    assert.equal(
      (await app.request(path('reader', { query: '?port=81' }), { method: 'DELETE' })).status,
      404,
    );
    const ended = await app.request(path(), { method: 'DELETE' });
    assert.deepEqual([ended.status, await ended.text()], [204, '']);
    assert.equal((await app.request(path(), { method: 'DELETE' })).status, 404);
    assert.equal((await app.request(path())).status, 404);
  });

  const refused: Record<string, { target?: string; options?: PutOptions; status: number; says: RegExp }> = {
    'without a port': { target: path('a', { query: '' }), status: 400, says: /^port: required/ },
    'of a port that is none': {
      target: path('a', { query: '?port=x' }),
      status: 400,
      says: /^port: must be/,
    },
    'with a parameter that is not served': {
      target: path('a', { query: '?port=80&after=1' }),
      status: 400,
      says: /^after: /,
    },
    'of an id with a # in it': { target: path('a%23b'), status: 400, says: /^id: must be of letters/ },
    'of a longer id': { target: path('a'.repeat(129)), status: 400, says: /^id: must have at most 128/ },
    'of no length': { options: { body: {} }, status: 400, says: /^ttlSeconds: required/ },
    'of length 0': {
      options: { body: { ttlSeconds: 0 } },
      status: 400,
      says: /^ttlSeconds: must be at least 1/,
    },
    'for more than an hour': {
      options: { body: { ttlSeconds: 3601 } },
      status: 400,
      says: /^ttlSeconds: must be at most 3600/,
    },
    'for half a second': {
      options: { body: { ttlSeconds: 0.5 } },
      status: 400,
      says: /^ttlSeconds: must be an integer/,
    },
    'with a larger body': {
      options: { body: { ttlSeconds: 60, x: 'x'.repeat(5000) } },
      status: 413,
      says: /4096 bytes/,
    },
    'that a web page may send': {
      options: { headers: { 'content-type': 'text/plain' } },
      status: 415,
      says: /^content-type: /,
    },
    'to a Service that there is not': {
      target: path('a', { service: 'no' }),
      status: 404,
      says: /^service: /,
    },
    'to a port that the Service has not': {
      target: path('a', { query: '?port=81' }),
      status: 404,
      says: /^port: /,
    },
    'to a raw port, which has no deltas (S22)': {
      target: path('a', { service: 'bare', query: '?port=9090' }),
      status: 404,
      says: /^port: .*its ports: 80$/,
    },
    'to an ExternalName': { target: path('a', { service: 'name' }), status: 422, says: /ExternalName/ },
  };
  for (const [name, { target, options, status, says }] of Object.entries(refused)) {
    test(`PUT ${name} is refused`, async () => {
      const world = await worldWithServices();
      const answer = await put(world.app(), target, options);
      assert.equal(answer.status, status);
      assert.match(((await answer.json()) as { detail: string }).detail, says);
      for await (const page of world.store.listSubscriptions(null)) assert.deepEqual(page, []);
    });
  }

  test('a service has a bounded number; those that it has may be renewed, and ended ones do not count', async () => {
    const world = await worldWithServices();
    const app = world.app();
    const lease = {
      key: { cluster: CLUSTER, namespace: 'default', name: 'web' },
      ...{ port: '80' as PortId, until: (world.now + 60_000) as EpochMs },
    };
    for (let count = 1; count < MAX_SUBSCRIPTIONS; count++)
      await world.store.putSubscription({ ...lease, id: `r${count}` });
    assert.equal((await put(app, path('last'))).status, 200);
    const refusal = await put(app);
    assert.equal(refusal.status, 429);
    assert.match(
      ((await refusal.json()) as { detail: string }).detail,
      /default\/web has 1000 live subscriptions/,
    );
    assert.equal((await put(app, path('r7'))).status, 200);
    assert.equal((await put(app, path('r', { service: 'bare' }))).status, 200);
    world.now = (world.now + 60_000) as EpochMs;
    assert.equal((await put(app)).status, 200);
  });
});
