import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { LocalStack } from '../../infra/local/stack.ts';
import { startQuietStack } from '../quiet-stack.ts';
import { StackCluster } from './stack-cluster.ts';

const service = (resourceVersion: string) => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { namespace: 'default', name: 'web', uid: 'svc-1', resourceVersion },
  spec: { clusterIP: '10.96.0.1', ports: [{ name: 'http', port: 80, protocol: 'TCP' }] },
});

const slice = (name: string, resourceVersion: string, ip: string) => ({
  apiVersion: 'discovery.k8s.io/v1',
  kind: 'EndpointSlice',
  metadata: {
    namespace: 'default',
    name,
    uid: `uid-${name}`,
    resourceVersion,
    labels: { 'kubernetes.io/service-name': 'web' },
  },
  addressType: 'IPv4',
  ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
  endpoints: [{ addresses: [ip], conditions: { ready: true } }],
});

/** A deletion as a re-list makes it up: it names the object, and not whose it was. */
const tombstone = (name: string) => ({
  type: 'DELETED',
  stateUnknown: true,
  object: {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { namespace: 'default', name },
  },
});

describe('what a batch holds of one service is one difference (S4)', () => {
  let stack: LocalStack;
  before(async () => {
    stack = await startQuietStack();
  });
  after(() => stack[Symbol.asyncDispose]());

  test('deletions that do not say whose they are belong to it too (S45)', async () => {
    const cluster = new StackCluster(stack, 'unplaced', 'slices');
    const added = ['a', 'b', 'c'].map((name, index) => ({
      type: 'ADDED',
      object: slice(name, `1${index}`, `10.0.0.${index + 1}`),
    }));
    await cluster.post([{ type: 'ADDED', object: service('1') }, ...added]);
    await cluster.takeDeltas();
    const response = await cluster.post([
      tombstone('a'),
      { type: 'MODIFIED', object: slice('c', '20', '10.0.0.9') },
      tombstone('b'),
    ]);
    assert.equal(response.status, 200);
    const { results } = (await response.json()) as { results: { status: string }[] };
    assert.deepEqual(
      results.map(({ status }) => status),
      ['applied', 'applied', 'applied'],
    );
    const deltas = await cluster.takeDeltas();
    assert.deepEqual(
      deltas.map(({ detail }) => [detail.sequence, detail.added.length, detail.removed.length, detail.size]),
      [[2, 1, 3, 1]],
    );
  });

  test('a slice that moves there and back within it has not moved (S10)', async () => {
    const cluster = new StackCluster(stack, 'there-and-back', 'slices');
    const moved = slice('a', '11', '10.0.0.1');
    const away = {
      ...moved,
      metadata: { ...moved.metadata, labels: { 'kubernetes.io/service-name': 'api' } },
    };
    await cluster.post([
      { type: 'ADDED', object: service('1') },
      { type: 'ADDED', object: slice('a', '10', '10.0.0.1') },
    ]);
    await cluster.takeDeltas();
    const response = await cluster.post([
      { type: 'MODIFIED', object: away, former: ['web'] },
      { type: 'MODIFIED', object: slice('a', '12', '10.0.0.1'), former: ['api'] },
    ]);
    assert.equal(response.status, 200);
    const { set } = await cluster.answer({ namespace: 'default', name: 'web' }, { port: '80' });
    assert.deepEqual(
      set?.addresses.map(({ ip }) => ip),
      ['10.0.0.1'],
    );
  });
});
