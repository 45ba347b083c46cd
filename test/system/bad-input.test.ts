import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import type { LocalStack } from '../../infra/local/stack.ts';
import { startQuietStack } from '../quiet-stack.ts';

const SERVICE = {
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { namespace: 'default', name: 'web', uid: 'svc-1', resourceVersion: '1' },
  spec: { clusterIP: '10.96.0.1', ports: [{ name: 'http', port: 80, protocol: 'TCP' }] },
};
const SLICE = {
  apiVersion: 'discovery.k8s.io/v1',
  kind: 'EndpointSlice',
  metadata: {
    namespace: 'default',
    name: 'web-abc',
    uid: 'es-1',
    resourceVersion: '2',
    labels: { 'kubernetes.io/service-name': 'web' },
  },
  addressType: 'IPv4',
  ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
  endpoints: [{ addresses: ['10.244.0.5'], conditions: { ready: true } }],
};
const GOOD = [
  { type: 'ADDED', object: SERVICE },
  { type: 'ADDED', object: SLICE },
];

interface Mistake {
  readonly body: string | Buffer;
  readonly headers?: Record<string, string>;
  readonly status: number;
  /** What the problem's detail must name. */
  readonly says: RegExp;
}

const envelope = (change: object) => JSON.stringify({ cluster: 'prod-eu', epoch: 1, events: [], ...change });

const refused: Record<string, Mistake> = {
  'a body that is not JSON': { body: '{"cluster":', status: 400, says: /not JSON/ },
  'a body that is not gzip though it says so': {
    body: envelope({}),
    headers: { 'content-encoding': 'gzip' },
    status: 400,
    says: /not gzip/,
  },
  'an empty body': { body: '', status: 400, says: /empty/ },
  'a body of another shape': { body: '[]', status: 400, says: /body: must be an object/ },
  'events that are no list': {
    body: envelope({ events: {} }),
    status: 400,
    says: /^events: must be an array/,
  },
  'no events': { body: JSON.stringify({ cluster: 'a', epoch: 1 }), status: 400, says: /^events: required/ },
  'no epoch': { body: JSON.stringify({ cluster: 'a', events: [] }), status: 400, says: /^epoch: required/ },
  'a negative epoch': { body: envelope({ epoch: -1 }), status: 400, says: /^epoch: / },
  'a cluster name with a slash': { body: envelope({ cluster: 'prod/eu' }), status: 400, says: /^cluster: / },
  'a mode of no known kind': { body: envelope({ mode: 'pods' }), status: 400, says: /^mode: / },
  '6 MB': { body: envelope({ relay: 'x'.repeat(6_000_000) }), status: 413, says: /5000000 bytes/ },
  '6 MB behind gzip': {
    body: gzipSync(envelope({ relay: 'x'.repeat(6_000_000) })),
    headers: { 'content-encoding': 'gzip' },
    status: 413,
    says: /5000000 bytes/,
  },
  '10,001 events': {
    body: envelope({ events: Array.from({ length: 10_001 }, () => 0) }),
    status: 413,
    says: /10000/,
  },
};

/** One event of a batch of three; the other two are applied. */
const inABatch: Record<string, { event: unknown; status: string; reason: RegExp }> = {
  'an event that is no object': { event: 7, status: 'rejected', reason: /event: must be an object/ },
  'an event without an object': { event: { type: 'ADDED' }, status: 'rejected', reason: /^object: required/ },
  'a type of no known kind': {
    event: { type: 'CHANGED', object: SLICE },
    status: 'rejected',
    reason: /^type: /,
  },
  'a bookmark': { event: { type: 'BOOKMARK', object: SLICE }, status: 'ignored', reason: /BOOKMARK/ },
  'a kind that makes no sets': {
    event: { type: 'ADDED', object: { apiVersion: 'v1', kind: 'Pod', metadata: SLICE.metadata } },
    status: 'ignored',
    reason: /not a Service/,
  },
  'a Service of Knative': {
    event: { type: 'ADDED', object: { ...SERVICE, apiVersion: 'serving.knative.dev/v1' } },
    status: 'ignored',
    reason: /not a Service/,
  },
  'a slice without metadata': {
    event: { type: 'ADDED', object: { apiVersion: SLICE.apiVersion, kind: 'EndpointSlice' } },
    status: 'rejected',
    reason: /^object\.metadata: required/,
  },
  'a slice without a uid': {
    event: { type: 'ADDED', object: { ...SLICE, metadata: { ...SLICE.metadata, uid: undefined } } },
    status: 'rejected',
    reason: /^object\.metadata\.uid: required/,
  },
  'an object of another shape than its kind says': {
    event: { type: 'ADDED', object: { ...SLICE, endpoints: 'none' } },
    status: 'rejected',
    reason: /^object\.endpoints: must be an array/,
  },
  'a version that is no number': {
    event: { type: 'ADDED', object: { ...SLICE, metadata: { ...SLICE.metadata, resourceVersion: 'abc' } } },
    status: 'rejected',
    reason: /^object\.metadata\.resourceVersion: /,
  },
  'an object of Endpoints in slices mode': {
    event: {
      type: 'ADDED',
      object: { apiVersion: 'v1', kind: 'Endpoints', metadata: { ...SLICE.metadata, name: 'web' } },
    },
    status: 'ignored',
    reason: /S12/,
  },
};

describe('bad input', () => {
  let stack: LocalStack;
  let clusters = 0;
  before(async () => {
    stack = await startQuietStack();
  });
  after(() => stack[Symbol.asyncDispose]());

  const post = (body: string | Buffer, headers: Record<string, string> = {}) =>
    fetch(`${stack.url}/v1/events`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : new Uint8Array(body),
    });

  /** Sends a batch to a cluster of its own; its statuses, and the set that is answered. */
  const apply = async (events: readonly unknown[]) => {
    const cluster = `bad-${++clusters}`;
    const response = await post(JSON.stringify({ cluster, epoch: 1, events }));
    assert.equal(response.status, 200);
    const { results } = (await response.json()) as { results: { status: string; reason?: string }[] };
    const answer = await fetch(
      `${stack.url}/v1/clusters/${cluster}/namespaces/default/services/web/endpoints?port=80`,
    );
    const { addresses } = (await answer.json()) as { addresses: { ip: string; port: number }[] };
    return { results, keys: addresses.map(({ ip, port }) => `${ip}:${port}`) };
  };

  for (const [name, { body, headers, status, says }] of Object.entries(refused)) {
    test(`${name} is a ${status} that says so, and the process lives`, async () => {
      const response = await post(body, headers);
      assert.equal(response.status, status);
      assert.match(response.headers.get('content-type') ?? '', /^application\/problem\+json/);
      assert.match(((await response.json()) as { detail: string }).detail, says);
      assert.equal((await fetch(`${stack.url}/healthz`)).status, 200);
    });
  }

  for (const [name, { event, status, reason }] of Object.entries(inABatch)) {
    test(`${name} is ${status} alone, and the rest is applied (P6)`, async () => {
      const { results, keys } = await apply([GOOD[0], event, GOOD[1]]);
      assert.deepEqual(
        results.map((result) => result.status),
        ['applied', status, 'applied'],
      );
      assert.match(results[1]?.reason ?? '', reason);
      assert.deepEqual(keys, ['10.244.0.5:8080']);
    });
  }

  test('a negative port is skipped alone, in a Service and in a slice (S20, P6)', async () => {
    const ports = [{ name: 'bad', port: -80, protocol: 'TCP' }, ...SERVICE.spec.ports];
    const slicePorts = [{ name: 'http', port: -8080, protocol: 'TCP' }, ...SLICE.ports];
    const { results, keys } = await apply([
      { type: 'ADDED', object: { ...SERVICE, spec: { ...SERVICE.spec, ports } } },
      { type: 'ADDED', object: { ...SLICE, ports: slicePorts } },
    ]);
    assert.deepEqual(
      results.map(({ status }) => status),
      ['applied', 'applied'],
    );
    assert.deepEqual(keys, ['10.244.0.5:8080']);
  });

  test('an address that is none is skipped alone (S14, P6)', async () => {
    const endpoints = [{ addresses: ['10.244.000.6'] }, { addresses: ['nowhere'] }, ...SLICE.endpoints];
    const { keys } = await apply([GOOD[0], { type: 'ADDED', object: { ...SLICE, endpoints } }]);
    assert.deepEqual(keys, ['10.244.0.5:8080']);
  });
});
