import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ApiServer } from '../../../../infra/local/cluster/api-server.ts';
import { get, service, testServer, until } from './cluster-builders.ts';

const SERVICES = '/api/v1/services';
const INCONSISTENT =
  'The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.';

/** The four namespaces are revisions 2 to 5; `a` to `e` are 6 to 10. */
async function fiveServices(options = {}): Promise<ApiServer> {
  const server = await testServer(options);
  for (const [name, tier] of Object.entries({ a: 'front', b: 'back', c: 'front', d: 'back', e: 'none' })) {
    const labels = tier === 'none' ? {} : { tier };
    server.objects.create(service(name, {}, { namespace: name < 'c' ? 'one' : 'two', labels }));
  }
  return server;
}

const names = (body: { items: { metadata: { name: string } }[] }) =>
  body.items.map(({ metadata }) => metadata.name).join();

const SELECTIONS = {
  'everything in the cluster': ['/api/v1/services', 'a,b,c,d,e'],
  'one namespace': ['/api/v1/namespaces/two/services', 'c,d,e'],
  'a namespace without any': ['/api/v1/namespaces/none/services', ''],
  'label equals': ['/api/v1/services?labelSelector=tier=back', 'b,d'],
  'label equals, written with two signs': ['/api/v1/services?labelSelector=tier==back', 'b,d'],
  'label differs or is absent': ['/api/v1/services?labelSelector=tier!=back', 'a,c,e'],
  'label in a set': ['/api/v1/services?labelSelector=tier+in+(back,front)', 'a,b,c,d'],
  'label not in a set, or absent': ['/api/v1/services?labelSelector=tier+notin+(back)', 'a,c,e'],
  'label is there': ['/api/v1/services?labelSelector=tier', 'a,b,c,d'],
  'label is not there': ['/api/v1/services?labelSelector=!tier', 'e'],
  'two terms, both must hold': ['/api/v1/services?labelSelector=tier+in+(back,front),tier!=back', 'a,c'],
  'field metadata.name': ['/api/v1/services?fieldSelector=metadata.name=d', 'd'],
  'field and label': ['/api/v1/services?fieldSelector=metadata.name=d&labelSelector=tier=front', ''],
} as const;

for (const [what, [path, want]] of Object.entries(SELECTIONS)) {
  test(`a list selects: ${what}`, async () => {
    await using server = await fiveServices();
    const { code, body } = await get(server, path);
    assert.deepEqual([code, names(body)], [200, want]);
  });
}

const REFUSALS = {
  'a version that is no number': ['resourceVersion=x', 400, /invalid resourceVersion: "x"/],
  'an unreadable label selector': ['labelSelector=a,,b', 400, /unable to parse requirement/],
  'an unknown field': ['fieldSelector=spec.type=x', 400, /field label not supported: spec.type/],
  'a token that is none': ['continue=abc', 400, /continue key is not valid/],
  'a match without a version': [
    'resourceVersionMatch=Exact',
    422,
    /^ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided$/,
  ],
  'an unknown match': ['resourceVersionMatch=Newer&resourceVersion=1', 422, /Unsupported value: "Newer"/],
  'version 0 exactly': [
    'resourceVersionMatch=Exact&resourceVersion=0',
    422,
    /forbidden for resourceVersion "0"/,
  ],
  'initial events in a list': ['sendInitialEvents=true', 422, /sendInitialEvents is forbidden for list/],
  'a forgotten exact version': [
    'resourceVersionMatch=Exact&resourceVersion=3',
    410,
    /^The resourceVersion for the provided list is too old.$/,
  ],
  'an exact version that is still to come': [
    'resourceVersionMatch=Exact&resourceVersion=99',
    504,
    /^Timeout: Too large resource version: 99, current: 10$/,
  ],
} as const;

for (const [what, [query, code, message]] of Object.entries(REFUSALS)) {
  test(`a list refuses with ${code}: ${what}`, async () => {
    await using server = await fiveServices({ historySize: 5 });
    const answer = await get(server, `${SERVICES}?${query}`);
    assert.equal(answer.code, code);
    assert.equal(answer.body.kind, 'Status');
    assert.equal(answer.body.code, code);
    assert.match(answer.body.message, message);
  });
}

test('items of a list have no kind, the list has', async () => {
  await using server = await fiveServices();
  const { body, headers } = await get(server, SERVICES);
  assert.deepEqual(
    [body.kind, body.apiVersion, body.metadata],
    ['ServiceList', 'v1', { resourceVersion: '10' }],
  );
  assert.deepEqual(Object.keys(body.items[0]), ['metadata', 'spec', 'status']);
  assert.match(headers.get('audit-id') ?? '', /^[0-9a-f-]{36}$/);
});

test('pages show one revision, whatever happens between them', async () => {
  await using server = await fiveServices();
  const first = await get(server, `${SERVICES}?limit=2`);
  assert.equal(names(first.body), 'a,b');
  assert.equal(first.body.metadata.remainingItemCount, 3);
  server.objects.delete({ kind: 'Service', namespace: 'two', name: 'c' });
  server.objects.create(service('new', {}, { namespace: 'two' }));
  server.objects.update(service('d', { ports: [{ port: 1 }] }, { namespace: 'two' }));
  const second = await get(server, `${SERVICES}?limit=2&continue=${first.body.metadata.continue}`);
  assert.equal(names(second.body), 'c,d');
  assert.equal(second.body.items[1].spec.ports[0].port, 80);
  const last = await get(server, `${SERVICES}?limit=2&continue=${second.body.metadata.continue}`);
  assert.deepEqual([names(last.body), last.body.metadata], ['e', { resourceVersion: '10' }]);
});

test('a page of a forgotten revision is 410, and its token goes on with what is there now', async () => {
  await using server = await fiveServices();
  const first = await get(server, `${SERVICES}?limit=2`);
  server.objects.create(service('new', {}, { namespace: 'two' }));
  server.compact();
  const expired = await get(server, `${SERVICES}?limit=2&continue=${first.body.metadata.continue}`);
  const token = expired.body.metadata.continue;
  assert.deepEqual(expired.body, {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: { continue: token },
    status: 'Failure',
    message: INCONSISTENT,
    reason: 'Expired',
    code: 410,
  });
  const rest = await get(server, `${SERVICES}?continue=${token}`);
  assert.deepEqual([names(rest.body), rest.body.metadata.resourceVersion], ['c,d,e,new', '11']);
});

test('pages of a selection do not say how many are left', async () => {
  await using server = await fiveServices();
  const { body } = await get(server, `${SERVICES}?limit=1&labelSelector=tier=back`);
  assert.equal(names(body), 'b');
  assert.deepEqual(Object.keys(body.metadata), ['resourceVersion', 'continue']);
});

test('version 0 is answered from the cache, which ignores the limit', async () => {
  await using server = await fiveServices();
  const { body } = await get(server, `${SERVICES}?limit=2&resourceVersion=0`);
  assert.deepEqual([names(body), body.metadata], ['a,b,c,d,e', { resourceVersion: '10' }]);
});

test('an exact version shows the past', async () => {
  await using server = await fiveServices();
  const { body } = await get(server, `${SERVICES}?resourceVersion=8&resourceVersionMatch=Exact`);
  assert.deepEqual([names(body), body.metadata.resourceVersion], ['a,b,c', '8']);
});

test('a list not older than a version still to come waits for it', async () => {
  await using server = await fiveServices();
  const answer = get(server, `${SERVICES}?resourceVersion=11&resourceVersionMatch=NotOlderThan`);
  await until(() => server.requests.length === 1);
  server.objects.create(service('f', {}, { namespace: 'two' }));
  assert.equal(names((await answer).body), 'a,b,c,d,e,f');
});

test('a list not older than a version that does not come is 504 after three seconds', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  await using server = await fiveServices();
  const answer = get(server, `${SERVICES}?resourceVersion=99`);
  await until(() => server.requests.length === 1);
  t.mock.timers.tick(3_000);
  const { body, headers } = await answer;
  assert.equal(headers.get('retry-after'), '1');
  assert.deepEqual(body, {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message: 'Timeout: Too large resource version: 99, current: 10',
    reason: 'Timeout',
    details: {
      causes: [{ reason: 'ResourceVersionTooLarge', message: 'Too large resource version' }],
      retryAfterSeconds: 1,
    },
    code: 504,
  });
});

test('one object, or a 404 that names it', async () => {
  await using server = await fiveServices();
  const found = await get(server, '/api/v1/namespaces/one/services/a');
  assert.deepEqual([found.body.kind, found.body.metadata.name], ['Service', 'a']);
  const system = await get(server, '/api/v1/namespaces/kube-system');
  assert.match(system.body.metadata.uid, /^[0-9a-f-]{36}$/);
  const missing = await get(server, '/apis/coordination.k8s.io/v1/namespaces/default/leases/x');
  assert.deepEqual(missing.body, {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message: 'leases.coordination.k8s.io "x" not found',
    reason: 'NotFound',
    details: { name: 'x', group: 'coordination.k8s.io', kind: 'leases' },
    code: 404,
  });
});

test('metadata alone, when only that is accepted (W13)', async () => {
  await using server = await fiveServices();
  const accept = (kind: string) => ({ accept: `application/json;as=${kind};g=meta.k8s.io;v=v1` });
  const list = await get(server, SERVICES, accept('PartialObjectMetadataList'));
  assert.deepEqual(
    [list.body.kind, list.body.apiVersion, list.body.metadata.resourceVersion],
    ['PartialObjectMetadataList', 'meta.k8s.io/v1', '10'],
  );
  assert.deepEqual(Object.keys(list.body.items[0]), ['kind', 'apiVersion', 'metadata']);
  const one = await get(server, '/api/v1/namespaces/one/services/a', accept('PartialObjectMetadata'));
  assert.deepEqual([one.body.kind, one.body.spec], ['PartialObjectMetadata', undefined]);
  const wrong = await get(server, SERVICES, { accept: 'application/vnd.kubernetes.protobuf' });
  assert.equal(wrong.code, 406);
});

const PATHS = {
  '/version': 200,
  '/readyz': 200,
  '/api/v1/pods': 200,
  '/api/v1/nodes': 200,
  '/api/v1/endpoints': 200,
  '/api/v1/namespaces': 200,
  '/api/v1/namespaces/default/nodes': 404,
  '/api/v1/services/one/a': 404,
  '/api/v1/secrets': 404,
  '/apis/discovery.k8s.io/v1/endpointslices': 200,
  '/apis/coordination.k8s.io/v1/leases': 200,
  '/apis/policy.linkerd.io/v1beta3/servers': 404,
} as const;

for (const [path, code] of Object.entries(PATHS)) {
  test(`${path} is ${code}`, async () => {
    await using server = await testServer();
    const answer = await get(server, path);
    assert.equal(answer.code, code);
    if (code === 404) assert.equal(answer.text, '404 page not found\n');
  });
}

test('Servers are served where Linkerd is installed', async () => {
  await using server = await testServer({ linkerdPolicy: true });
  const { body } = await get(server, '/apis/policy.linkerd.io/v1beta3/namespaces/default/servers');
  assert.deepEqual([body.kind, body.apiVersion, body.items], ['ServerList', 'policy.linkerd.io/v1beta3', []]);
});

test('a malformed URL is 400', async () => {
  await using server = await testServer();
  const { request } = await import('node:http');
  const code = await new Promise((resolve) => {
    request(server.url, { path: 'http://[' }, (response) => {
      response.resume();
      resolve(response.statusCode);
    }).end();
  });
  assert.equal(code, 400);
});

test('a token is needed, except for public paths', async () => {
  await using server = await testServer({ token: 'secret' });
  const withToken = (token: string) => ({ authorization: `Bearer ${token}` });
  const refused = await get(server, SERVICES);
  assert.equal(refused.code, 401);
  assert.deepEqual(refused.body, {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message: 'Unauthorized',
    reason: 'Unauthorized',
    code: 401,
  });
  assert.equal((await get(server, SERVICES, withToken('wrong'))).code, 401);
  assert.equal((await get(server, SERVICES, withToken('secret'))).code, 200);
  assert.equal((await get(server, '/readyz')).code, 200);
  assert.equal((await get(server, '/readyz', withToken('wrong'))).code, 401);
  server.setToken('next');
  assert.equal((await get(server, SERVICES, withToken('secret'))).code, 401);
  assert.equal((await get(server, SERVICES, withToken('next'))).code, 200);
});

test('a history of less than one change is refused at once', async () => {
  await assert.rejects(testServer({ historySize: 0 }), /historySize must be a whole number from 1 on, not 0/);
});
