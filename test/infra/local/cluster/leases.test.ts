import assert from 'node:assert/strict';
import { test } from 'node:test';
import { get, send, testServer, watch } from './cluster-builders.ts';

const LEASES = '/apis/coordination.k8s.io/v1/namespaces/kube-system/leases';
const LEASE = `${LEASES}/relay`;
const lease = (holderIdentity: string, metadata: object = {}) => ({
  apiVersion: 'coordination.k8s.io/v1',
  kind: 'Lease',
  metadata: { name: 'relay', ...metadata },
  spec: { holderIdentity, leaseDurationSeconds: 15 },
});

test('a Lease is created once, read, updated on top of its version, and deleted', async () => {
  await using server = await testServer();
  const created = await send(server, 'POST', LEASES, lease('one'));
  assert.equal(created.code, 201);
  assert.deepEqual(
    [created.body.kind, created.body.apiVersion, created.body.metadata.namespace, created.body.spec],
    ['Lease', 'coordination.k8s.io/v1', 'kube-system', { holderIdentity: 'one', leaseDurationSeconds: 15 }],
  );
  const again = await send(server, 'POST', LEASES, lease('two'));
  assert.equal(again.code, 409);
  assert.deepEqual(again.body, {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message: 'leases.coordination.k8s.io "relay" already exists',
    reason: 'AlreadyExists',
    details: { name: 'relay', group: 'coordination.k8s.io', kind: 'leases' },
    code: 409,
  });

  const { resourceVersion, uid } = created.body.metadata;
  const updated = await send(server, 'PUT', LEASE, lease('two', { resourceVersion }));
  assert.equal(updated.code, 200);
  assert.equal(updated.body.metadata.uid, uid);
  assert.notEqual(updated.body.metadata.resourceVersion, resourceVersion);
  assert.equal((await get(server, LEASE)).body.spec.holderIdentity, 'two');

  const late = await send(server, 'PUT', LEASE, lease('three', { resourceVersion }));
  assert.deepEqual(late.body, {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message:
      'Operation cannot be fulfilled on leases.coordination.k8s.io "relay": the object has been modified; please apply your changes to the latest version and try again',
    reason: 'Conflict',
    details: { name: 'relay', group: 'coordination.k8s.io', kind: 'leases' },
    code: 409,
  });

  const deleted = await send(server, 'DELETE', LEASE);
  assert.deepEqual(deleted.body, {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Success',
    details: { name: 'relay', group: 'coordination.k8s.io', kind: 'leases', uid },
  });
  assert.equal((await get(server, LEASE)).code, 404);
});

test('Leases are listed and watched like everything else', async () => {
  await using server = await testServer();
  await using stream = await watch(server, `${LEASES}?resourceVersion=5`);
  await send(server, 'POST', LEASES, lease('one'));
  const { body } = await get(server, '/apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.name=relay');
  assert.equal(body.items.length, 1);
  assert.deepEqual(await stream.take(1), ['ADDED relay 6']);
});

const REFUSALS = {
  'an update without a version': [
    'PUT',
    LEASE,
    lease('x'),
    422,
    /metadata.resourceVersion: Invalid value: 0/,
  ],
  'an update of what is not there': [
    'PUT',
    `${LEASES}/other`,
    lease('x', { name: 'other' }),
    404,
    /"other" not found/,
  ],
  'another name than in the path': [
    'PUT',
    `${LEASES}/other`,
    lease('x'),
    400,
    /does not match the name on the URL/,
  ],
  'another namespace than in the path': ['POST', LEASES, lease('x', { namespace: 'y' }), 400, /namespace/],
  'a namespace that is not there': [
    'POST',
    '/apis/coordination.k8s.io/v1/namespaces/none/leases',
    lease('x'),
    404,
    /^namespaces "none" not found$/,
  ],
  'a Lease without a name': ['POST', LEASES, { metadata: {} }, 422, /metadata.name: Required value/],
  'a deletion under another uid': [
    'DELETE',
    LEASE,
    { preconditions: { uid: 'other' } },
    409,
    /Precondition failed: UID/,
  ],
  'a deletion of what is not there': ['DELETE', `${LEASES}/other`, {}, 404, /"other" not found/],
  'a patch': ['PATCH', LEASE, {}, 405, /does not allow this method/],
  'a deletion of all': ['DELETE', LEASES, {}, 405, /does not allow this method/],
  'a write of anything else': [
    'POST',
    '/api/v1/namespaces/default/services',
    {},
    405,
    /does not allow this method/,
  ],
} as const;

for (const [what, [method, path, body, code, message]] of Object.entries(REFUSALS)) {
  test(`${code}: ${what}`, async () => {
    await using server = await testServer();
    await send(server, 'POST', LEASES, lease('one'));
    const answer = await send(server, method, path, body);
    assert.equal(answer.code, code);
    assert.match(answer.body.message, message);
  });
}

test('a body that is no object, or too large, is refused', async () => {
  await using server = await testServer();
  const post = async (body: string) => (await fetch(server.url + LEASES, { method: 'POST', body })).status;
  assert.equal(await post('{'), 400);
  assert.equal(await post('[1'), 400);
  assert.equal(await post(`"${'x'.repeat(3 * 1024 * 1024)}"`), 413);
});
