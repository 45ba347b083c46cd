import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ApiServer } from '../../../../infra/local/cluster/api-server.ts';
import { fakeClock, get, pod, service, testServer, until, watch } from './cluster-builders.ts';

const SERVICES = '/api/v1/services';
const WATCH_LIST = 'sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true';
const ref = (name: string) => ({ kind: 'Service', namespace: 'default', name }) as const;

/** The four namespaces are revisions 2 to 5; `a` and `b` are 6 and 7. */
async function twoServices(options = {}): Promise<ApiServer> {
  const server = await testServer(options);
  server.objects.create(service('a', {}, { labels: { tier: 'front' } }));
  server.objects.create(service('b'));
  return server;
}

const STARTS = {
  'from a version: what came after it': ['resourceVersion=6', ['ADDED b 7']],
  'from the current version: nothing yet': ['resourceVersion=7', []],
  'without a version: the state first': ['', ['ADDED a 6', 'ADDED b 7']],
  'from version 0: the state first': ['resourceVersion=0', ['ADDED a 6', 'ADDED b 7']],
  'watch-list (W1): the state, then the bookmark that ends it': [
    WATCH_LIST,
    ['ADDED a 6', 'ADDED b 7', 'BOOKMARK 7 initial-events-end'],
  ],
  'watch-list from a version: the state all the same': [
    `${WATCH_LIST}&resourceVersion=6`,
    ['ADDED a 6', 'ADDED b 7', 'BOOKMARK 7 initial-events-end'],
  ],
  'watch-list without bookmarks: the state alone': [
    'sendInitialEvents=true&resourceVersionMatch=NotOlderThan',
    ['ADDED a 6', 'ADDED b 7'],
  ],
  'initial events declined: nothing yet': ['sendInitialEvents=false&resourceVersionMatch=NotOlderThan', []],
  'one object by name': ['fieldSelector=metadata.name=b', ['ADDED b 7']],
} as const;

for (const [what, [query, want]] of Object.entries(STARTS)) {
  test(`a watch starts ${what}`, async () => {
    await using server = await twoServices();
    await using stream = await watch(server, `${SERVICES}?${query}`);
    assert.equal(stream.code, 200);
    server.objects.update({ ...service('b', { ports: [{ port: 81 }] }) });
    assert.deepEqual(await stream.take(want.length + 1), [...want, 'MODIFIED b 8']);
  });
}

const REFUSALS = {
  'initial events without a match': [
    'sendInitialEvents=true',
    [
      'resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan',
    ],
  ],
  'a match without initial events': [
    'resourceVersionMatch=NotOlderThan',
    [
      'resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided',
    ],
  ],
  'a match that watches do not have': [
    'sendInitialEvents=true&resourceVersionMatch=Exact',
    [
      'resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan',
      'resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"',
    ],
  ],
} as const;

for (const [what, [query, causes]] of Object.entries(REFUSALS)) {
  test(`a watch refuses with 422: ${what}`, async () => {
    await using server = await twoServices();
    const { code, body } = await get(server, `${SERVICES}?watch=1&${query}`);
    const list = causes.length === 1 ? causes[0] : `[${causes.join(', ')}]`;
    assert.equal(code, 422);
    assert.equal(body.message, `ListOptions.meta.k8s.io "" is invalid: ${list}`);
  });
}

test('a server that does not know watch-list begins such a watch with the state, and marks no end of it (W2)', async () => {
  await using server = await twoServices({ watchList: 'ignored' });
  await using stream = await watch(server, `${SERVICES}?${WATCH_LIST}`);
  const { length } = await stream.take(2);
  server.objects.create(service('later'));
  assert.match((await stream.take(1))[0] ?? '', /^ADDED later /);
  assert.equal(length, 2);
});

test('a server without watch-list refuses it with 422 (W2)', async () => {
  await using server = await twoServices({ watchList: false });
  const { code, body } = await get(server, `${SERVICES}?watch=1&${WATCH_LIST}`);
  assert.equal(code, 422);
  assert.deepEqual(body, {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message:
      'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled',
    reason: 'Invalid',
    details: {
      group: 'meta.k8s.io',
      kind: 'ListOptions',
      causes: [
        {
          reason: 'FieldValueForbidden',
          message:
            'Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled',
          field: 'sendInitialEvents',
        },
      ],
    },
    code: 422,
  });
});

test('a deletion has a version of its own, and a recreated object another uid', async () => {
  await using server = await twoServices();
  await using stream = await watch(server, `${SERVICES}?resourceVersion=7`);
  const before = server.objects.get(ref('a'));
  const deleted = server.objects.delete(ref('a'));
  const recreated = server.objects.create(service('a'));
  assert.equal(deleted.metadata.resourceVersion, '8');
  const first = await stream.next();
  assert.deepEqual([first?.type, first?.object], ['DELETED', deleted]);
  assert.deepEqual(await stream.take(1), ['ADDED a 9']);
  assert.notEqual(recreated.metadata.uid, before?.metadata.uid);
});

test('events carry the kind of the object, all resources share one revision', async () => {
  await using server = await twoServices();
  await using pods = await watch(server, '/api/v1/namespaces/default/pods?resourceVersion=7');
  server.objects.update(service('a', { ports: [{ port: 1 }] }));
  server.objects.create({ ...pod('p') });
  const event = await pods.next();
  assert.deepEqual(
    [event?.object.kind, event?.object.apiVersion, event?.object.metadata.resourceVersion],
    ['Pod', 'v1', '9'],
  );
});

test('an update without a change is no event; a change of the status is one', async () => {
  await using server = await twoServices();
  await using stream = await watch(server, `${SERVICES}?resourceVersion=7`);
  const same = server.objects.update(service('b'));
  assert.equal(same.metadata.resourceVersion, '7');
  server.objects.patchStatus(ref('b'), { loadBalancer: { ingress: [{ ip: '192.0.2.1' }] } });
  assert.deepEqual(await stream.take(1), ['MODIFIED b 8']);
});

test('a filtered watch sees an object enter, change and leave its selection', async () => {
  await using server = await twoServices();
  await using stream = await watch(server, `${SERVICES}?resourceVersion=7&labelSelector=tier=front`);
  const label = (name: string, tier: string, port: number) =>
    server.objects.update(service(name, { ports: [{ port }] }, { labels: { tier } }));
  label('b', 'back', 80);
  label('b', 'front', 80);
  label('b', 'front', 81);
  label('b', 'back', 82);
  label('b', 'back', 83);
  server.objects.delete(ref('b'));
  server.objects.delete(ref('a'));
  assert.deepEqual(await stream.take(3), ['ADDED b 9', 'MODIFIED b 10', 'DELETED b 11']);
  assert.deepEqual(await stream.take(1), ['DELETED a 14']);
});

test('what leaves a selection is sent as it was in it', async () => {
  await using server = await twoServices();
  await using stream = await watch(server, `${SERVICES}?resourceVersion=7&labelSelector=tier=front`);
  server.objects.update(service('a', { ports: [{ port: 81 }] }, { labels: { tier: 'back' } }));
  const event = await stream.next();
  assert.deepEqual(
    [
      event?.object.metadata.labels.tier,
      event?.object.spec.ports[0].port,
      event?.object.metadata.resourceVersion,
    ],
    ['front', 80, '8'],
  );
});

test('a namespaced watch is silent about other namespaces', async () => {
  await using server = await twoServices();
  await using stream = await watch(server, '/api/v1/namespaces/other/services?resourceVersion=7');
  server.objects.delete(ref('a'));
  server.objects.create(service('c', {}, { namespace: 'other' }));
  assert.deepEqual(await stream.take(1), ['ADDED c 9']);
});

const TOO_OLD = {
  'the history is bounded': { historySize: 1, compacts: false, oldest: 7 },
  'it was compacted': { historySize: 100, compacts: true, oldest: 8 },
} as const;

for (const [what, { historySize, compacts, oldest }] of Object.entries(TOO_OLD)) {
  test(`a version that is too old is a 410 event in an accepted watch: ${what}`, async () => {
    await using server = await twoServices({ historySize });
    server.objects.delete(ref('b'));
    if (compacts) server.compact();
    await using stream = await watch(server, `${SERVICES}?resourceVersion=6`);
    assert.equal(stream.code, 200);
    assert.deepEqual((await stream.next())?.object, {
      kind: 'Status',
      apiVersion: 'v1',
      metadata: {},
      status: 'Failure',
      message: `too old resource version: 6 (${oldest})`,
      reason: 'Expired',
      code: 410,
    });
    assert.equal(await stream.next(), null);
    await using current = await watch(server, `${SERVICES}?resourceVersion=${oldest}`);
    server.objects.create(service('c'));
    assert.match((await current.take(1))[0] ?? '', oldest === 7 ? /^DELETED b 8$/ : /^ADDED c 9$/);
  });
}

test('a watch from a version still to come is silent until it is passed, as with a real watch cache', async () => {
  await using server = await twoServices();
  await using stream = await watch(server, `${SERVICES}?resourceVersion=9&allowWatchBookmarks=true`);
  server.bookmark();
  server.objects.create(service('c'));
  server.objects.create(service('d'));
  server.objects.create(service('e'));
  assert.deepEqual(await stream.take(1), ['ADDED e 10']);
});

test('a watch-list not older than a version that does not come is a 504 event', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  await using server = await twoServices();
  await using stream = await watch(server, `${SERVICES}?${WATCH_LIST}&resourceVersion=99`);
  t.mock.timers.tick(3_000);
  assert.deepEqual(await stream.rest(), ['ERROR 504 Timeout']);
});

test('a watch-list not older than a version still to come waits for it', async () => {
  await using server = await twoServices();
  await using stream = await watch(server, `${SERVICES}?${WATCH_LIST}&resourceVersion=8`);
  server.objects.delete(ref('a'));
  assert.deepEqual(await stream.take(2), ['ADDED b 7', 'BOOKMARK 8 initial-events-end']);
});

test('bookmarks come every minute of the clock once there is something new, and on demand', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const clock = fakeClock();
  await using server = await twoServices({ clock });
  await using stream = await watch(server, `${SERVICES}?resourceVersion=7&allowWatchBookmarks=true`);
  await using silent = await watch(server, `${SERVICES}?resourceVersion=7`);
  const pass = (ms: number) => {
    clock.advance(ms);
    t.mock.timers.tick(1_000);
  };
  pass(60_000);
  server.objects.create({ ...pod('p') });
  pass(59_000);
  server.objects.create(service('c'));
  pass(1_000);
  assert.deepEqual(await stream.take(2), ['ADDED c 9', 'BOOKMARK 9']);
  server.bookmark();
  const bookmark = await stream.next();
  assert.deepEqual(bookmark?.object, {
    kind: 'Service',
    apiVersion: 'v1',
    metadata: { resourceVersion: '9' },
    spec: {},
    status: { loadBalancer: {} },
  });
  server.objects.delete(ref('c'));
  assert.deepEqual(await silent.take(2), ['ADDED c 9', 'DELETED c 10']);
});

test('a watch ends cleanly after timeoutSeconds, with a bookmark two seconds before', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const clock = fakeClock();
  await using server = await twoServices({ clock });
  await using stream = await watch(
    server,
    `${SERVICES}?resourceVersion=7&allowWatchBookmarks=true&timeoutSeconds=30`,
  );
  server.objects.create({ ...pod('p') });
  clock.advance(28_000);
  t.mock.timers.tick(1_000);
  assert.deepEqual(await stream.take(1), ['BOOKMARK 8']);
  clock.advance(2_000);
  t.mock.timers.tick(1_000);
  assert.deepEqual(await stream.rest(), []);
  await until(() => server.watched.length === 0);
});

test('metadata alone, when only that is accepted, in events and bookmarks', async () => {
  await using server = await twoServices();
  await using stream = await watch(server, `${SERVICES}?${WATCH_LIST}`, {
    accept: 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1',
  });
  const events = [await stream.next(), await stream.next(), await stream.next()];
  assert.deepEqual(
    events.map((event) => [event?.type, event?.object.kind, event?.object.apiVersion, event?.object.spec]),
    [
      ['ADDED', 'PartialObjectMetadata', 'meta.k8s.io/v1', undefined],
      ['ADDED', 'PartialObjectMetadata', 'meta.k8s.io/v1', undefined],
      ['BOOKMARK', 'PartialObjectMetadata', 'meta.k8s.io/v1', undefined],
    ],
  );
});

test('a restored snapshot drops the watches and gives versions again', async () => {
  await using server = await twoServices();
  const snapshot = server.snapshot();
  server.objects.create(service('c'));
  server.objects.delete(ref('a'));
  await using stream = await watch(server, `${SERVICES}?resourceVersion=9`);
  server.restore(snapshot);
  await assert.rejects(stream.next());
  const { body } = await get(server, SERVICES);
  assert.equal(body.metadata.resourceVersion, '7');
  assert.deepEqual(
    body.items.map((item: { metadata: { name: string } }) => item.metadata.name),
    ['a', 'b'],
  );
  assert.equal(server.objects.create(service('other')).metadata.resourceVersion, '8');
});

test('a restart drops the watches and keeps address, state and history', async () => {
  await using server = await twoServices();
  await using stream = await watch(server, `${SERVICES}?resourceVersion=7`);
  await server.restart();
  await assert.rejects(stream.next());
  server.objects.create(service('c'));
  await using again = await watch(server, `${SERVICES}?resourceVersion=7`);
  assert.deepEqual(await again.take(1), ['ADDED c 8']);
});

test('closing the server leaves no watch and no listener behind', async () => {
  const server = await twoServices();
  await using stream = await watch(server, `${SERVICES}?resourceVersion=7`);
  assert.deepEqual(server.watched, ['services']);
  await server[Symbol.asyncDispose]();
  await assert.rejects(stream.next());
  await until(() => server.watched.length === 0);
  await assert.rejects(get(server, '/readyz'));
});
