import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { PortId } from '../../../core/service-port.ts';
import type { EpochMs } from '../../../core/time.ts';
import { BusUnavailableError } from '../../../functions/bus/bus.ts';
import { StoreUnavailableError } from '../../../functions/store/store.ts';
import { healthAnswer } from '../../../wire/api.ts';
import { ROUTES, type Route } from '../../../wire/routes.ts';
import { serveApp } from '../http/served-app.ts';
import { CLUSTER, START, serviceOf, World } from './world.ts';

const json = async (response: Response) => (await response.json()) as Record<string, unknown>;

describe('health', () => {
  test('a process that runs is alive, whatever is away', async () => {
    const world = new World();
    world.store.listClusters = () => Promise.reject(new StoreUnavailableError('away'));
    await using server = await serveApp(world.app());
    const response = await fetch(`${server.url}/healthz`);
    assert.equal(response.status, 200);
    assert.deepEqual(await json(response), { status: 'ok', reasons: [] });
  });

  test('ready with table and bus', async () => {
    const response = await new World().app().request('/readyz');
    assert.equal(response.status, 200);
    assert.deepEqual(await json(response), { status: 'ok', reasons: [] });
  });

  const failures: Record<
    string,
    { readonly isTableAway?: boolean; readonly describe: () => Promise<boolean>; readonly reasons: string[] }
  > = {
    'no table': {
      isTableAway: true,
      describe: async () => true,
      reasons: ['the table cannot be read'],
    },
    'a bus that does not exist': { describe: async () => false, reasons: ['the event bus does not exist'] },
    'a bus that is away': {
      describe: () => Promise.reject(new BusUnavailableError('inside')),
      reasons: ['the event bus cannot be described'],
    },
    'a bus that may not be described': {
      describe: () => Promise.reject(new Error('inside')),
      reasons: ['the event bus cannot be described'],
    },
    'neither of them': {
      isTableAway: true,
      describe: async () => false,
      reasons: ['the table cannot be read', 'the event bus does not exist'],
    },
  };
  for (const [name, { isTableAway, describe, reasons }] of Object.entries(failures)) {
    test(`not ready with ${name}`, async () => {
      const world = new World();
      if (isTableAway) world.store.listClusters = () => Promise.reject(new StoreUnavailableError('inside'));
      const response = await world.app({ bus: { describe } }).request('/readyz');
      assert.equal(response.status, 503);
      const answer = await json(response);
      assert.deepEqual(answer, { status: 'failing', reasons });
      assert.equal(healthAnswer.safeParse(answer).success, true);
    });
  }
});

test('the OpenAPI document is served, with its ETag', async () => {
  const app = new World().app();
  const response = await app.request('/openapi.json');
  assert.equal(response.headers.get('content-type'), 'application/json');
  const document = (await response.json()) as { openapi: string; info: { version: string } };
  assert.match(document.openapi, /^3\.1/);
  assert.equal(document.info.version, '1.2.3');
  const etag = response.headers.get('etag') ?? '';
  assert.equal((await app.request('/openapi.json', { headers: { 'if-none-match': etag } })).status, 304);
});

/** Whom ADMINS names. */
const ADMIN = 'arn:aws:iam::123456789012:role/operator';

describe('who may read, and who may delete', () => {
  const places: Readonly<Record<string, string>> = {
    cluster: CLUSTER,
    namespace: 'default',
    service: 'web',
    id: 'a',
  };
  const targetOf = ({ path, body }: Route) =>
    `${path.replace(/\{(\w+)\}/g, (_, name: string) => places[name] ?? '')}${body === undefined ? '' : '?port=80'}`;
  const served = Object.values<Route>(ROUTES).filter(({ servedBy }) => servedBy === 'api');

  for (const route of served) {
    test(`with AUTH=iam, ${route.method} ${route.path} is for ${route.scope === null ? 'all' : 'those whom IAM let in'}`, async () => {
      const world = new World();
      await world.putCluster();
      await world.put('web', serviceOf('web'));
      const until = (START + 60_000) as EpochMs;
      const key = { cluster: CLUSTER, namespace: 'default', name: 'web' };
      await world.store.putSubscription({ key, id: 'a', port: '80' as PortId, until });
      const init = {
        method: route.method.toUpperCase(),
        headers: { 'content-type': 'application/json' },
        ...(route.body !== undefined && { body: '{"ttlSeconds":60}' }),
      };
      const app = world.app({ authentication: { kind: 'iam', relays: null, admins: [ADMIN] } });
      const stranger = await app.request(targetOf(route), init, { event: {}, requestContext: {} });
      assert.equal(stranger.status, route.scope === null ? 200 : 401);
      const askAs = (userArn: string) => {
        const requestContext = { authorizer: { iam: { userArn } } };
        return app.request(targetOf(route), init, { event: { requestContext }, requestContext });
      };
      const success = Math.min(...Object.keys(route.answers).map(Number));
      const reader = await askAs('arn:aws:iam::123456789012:user/reader');
      assert.equal(reader.status, route.scope === 'admin' ? 403 : success);
      if (route.scope === 'admin') assert.equal((await askAs(ADMIN)).status, success);
    });
  }
});

describe('what is not served', () => {
  for (const [method, target] of [
    ['GET', '/'],
    ['GET', '/v1/federated/default/web/endpoints'],
    ['POST', '/v1/events'],
    ['DELETE', '/v1/tokens/a'],
    ['PUT', '/v1/tokens/a'],
  ] as const) {
    test(`${method} ${target} is a 404 problem`, async () => {
      const response = await new World().app().request(target, { method });
      assert.equal(response.status, 404);
      assert.equal(response.headers.get('content-type'), 'application/problem+json');
    });
  }

  test('an error of the inside is 500 without the inside, logged once', async () => {
    const world = new World();
    world.store.listClusters = () => Promise.reject(new Error('secret of the inside'));
    const response = await world.app().request('/v1/clusters');
    assert.equal(response.status, 500);
    assert.equal((await response.text()).includes('secret'), false);
    assert.deepEqual(
      world.logged.map(({ level, message }) => [level, message]),
      [['error', 'request failed']],
    );
  });
});
