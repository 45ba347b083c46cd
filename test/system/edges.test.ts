import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { LocalStack } from '../../infra/local/stack.ts';
import type { EventsAnswer } from '../../wire/events.ts';
import type { HeartbeatAnswer } from '../../wire/heartbeat.ts';
import type { InventoryAnswer } from '../../wire/inventory.ts';
import { startQuietStack } from '../quiet-stack.ts';
import { type ReceivedDelta, Replica } from '../replica.ts';
import { StackCluster } from './stack-cluster.ts';

let stack: LocalStack;
before(async () => {
  stack = await startQuietStack();
});
after(() => stack[Symbol.asyncDispose]());

let clusters = 0;
function newCluster(): { readonly cluster: StackCluster; readonly name: string } {
  const name = `edge-${++clusters}`;
  return { name, cluster: new StackCluster(stack, name, 'slices') };
}

function postJson(path: string, body: unknown): Promise<Response> {
  const headers = { 'content-type': 'application/json' };
  return fetch(`${stack.url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
}

const heartbeat = (cluster: string, more: object) =>
  postJson('/v1/heartbeat', { cluster, epoch: 1, ...more });

interface ObjectOptions {
  readonly namespace?: string;
  readonly name?: string;
}

function service({ namespace = 'default', name = 'web' }: ObjectOptions = {}, ports?: readonly object[]) {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { namespace, name, uid: `service-${name}`, resourceVersion: '1' },
    spec: { clusterIP: '10.96.0.1', ports: ports ?? [{ name: 'http', port: 80 }] },
  };
}

interface SliceOptions extends ObjectOptions {
  readonly metadata?: object;
  readonly fields?: object;
  readonly endpoint?: object;
}

function slice({ namespace = 'default', name = 'web', metadata, fields, endpoint }: SliceOptions = {}) {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      ...{ namespace, name: `${name}-a`, uid: `slice-${name}`, resourceVersion: '2' },
      labels: { 'kubernetes.io/service-name': name },
      ...metadata,
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080 }],
    endpoints: [{ addresses: ['10.0.0.1'], ...endpoint }],
    ...fields,
  };
}

const added = (object: unknown) => ({ type: 'ADDED', object });

async function statuses(response: Response): Promise<string[]> {
  assert.equal(response.status, 200);
  const { results } = (await response.json()) as EventsAnswer;
  return results.map(({ status }) => status);
}

/** The addresses that a subscriber ends up with; it throws at a gap. */
function replay(deltas: readonly ReceivedDelta[], group: string): string[] {
  const replica = new Replica();
  for (const delta of deltas) replica.apply(delta);
  return [...replica.port(group).addresses.keys()];
}

describe('names that every JavaScript object has', () => {
  for (const kind of ['constructor', 'toString', 'hasOwnProperty']) {
    test(`a heartbeat may tell of a kind ${kind}`, async () => {
      const { name } = newCluster();
      const response = await heartbeat(name, { kinds: [{ kind, resourceVersion: '5' }] });
      assert.equal(response.status, 200);
      const { versions } = (await response.json()) as HeartbeatAnswer;
      assert.deepEqual(Object.entries(versions), [[kind, '5']]);
    });
  }

  test('a histogram of such a name breaks no scrape, nor that of another cluster', async () => {
    const [one, other] = [newCluster().name, newCluster().name];
    const series = [{ bounds: [1], buckets: [2], count: 3, sum: 4.5 }];
    await heartbeat(one, { histograms: { constructor: series } });
    await heartbeat(other, { histograms: {} });
    const response = await fetch(`${stack.url}/metrics`);
    const text = await response.text();
    assert.match(text, new RegExp(`^constructor_count\\{cluster="${one}"\\} 3$`, 'm'));
    assert.doesNotMatch(text, new RegExp(`constructor_count\\{cluster="${other}"`));
  });

  test('a namespace of such a name without a list of its own loses nothing to an inventory', async () => {
    const { name, cluster } = newCluster();
    const place = { namespace: 'constructor' };
    const sent = await cluster.post([added(service(place)), added(slice(place))]);
    assert.deepEqual(await statuses(sent), ['applied', 'applied']);
    const response = await postJson('/v1/inventory', {
      ...{ cluster: name, epoch: 1, last: true, services: [] },
      resourceVersions: { Service: { default: '9' }, EndpointSlice: { default: '9' } },
    });
    assert.equal(response.status, 200);
    const { deleted } = (await response.json()) as InventoryAnswer;
    assert.equal(deleted, 0);
  });
});

describe('metrics that relays tell', () => {
  test('of two series that are alike but for labels of our own one is served', async () => {
    const { name } = newCluster();
    const series = { bounds: [1], buckets: [1], count: 1, sum: 1 };
    await heartbeat(name, {
      histograms: { twins: [series, { ...series, labels: { cluster: 'other', le: '7' } }] },
    });
    const text = await (await fetch(`${stack.url}/metrics`)).text();
    const counts = text.split('\n').filter((line) => line.startsWith(`twins_count{cluster="${name}"}`));
    assert.equal(counts.length, 1);
  });

  test('more than an item holds is a bad request, and the next heartbeat is taken', async () => {
    const { name } = newCluster();
    const series = Array.from({ length: 16 }, (_, index) => ({
      labels: Object.fromEntries(Array.from({ length: 8 }, (_, label) => [`l${label}`, 'é'.repeat(128)])),
      ...{ bounds: [index], buckets: [0], count: 0, sum: 0 },
    }));
    const histograms = Object.fromEntries(Array.from({ length: 32 }, (_, index) => [`h${index}`, series]));
    const refused = await heartbeat(name, { histograms });
    assert.equal(refused.status, 400);
    const { detail } = (await refused.json()) as { detail: string };
    assert.match(detail, /^histograms: must have at most 40000 characters as JSON$/);
    assert.equal((await heartbeat(name, {})).status, 200);
  });
});

describe('annotations that anybody may write', () => {
  const TRIGGER_TIME = 'endpoints.kubernetes.io/last-change-trigger-time';
  const triggers: Record<string, { text: string; triggeredAt: string | null }> = {
    'nanoseconds are kept': {
      text: '2026-11-30T10:00:00.123456789Z',
      triggeredAt: '2026-11-30T10:00:00.123456789Z',
    },
    'a date alone is no instant': { text: '2026-11-30', triggeredAt: null },
    'a date in words is none': { text: 'Mon, 30 Nov 2026 10:00:00 GMT', triggeredAt: null },
    'a comment of 250 KB makes none': {
      text: `30 Nov 2026 10:00:00 GMT (${'x'.repeat(250_000)})`,
      triggeredAt: null,
    },
    'a fraction of 250 KB makes none': {
      text: `2026-11-30T10:00:00.${'1'.repeat(250_000)}Z`,
      triggeredAt: null,
    },
  };
  for (const [name, { text, triggeredAt }] of Object.entries(triggers)) {
    test(`S47: ${name}, and the delta leaves`, async () => {
      const { cluster } = newCluster();
      await cluster.post([
        added(service()),
        added(slice({ metadata: { annotations: { [TRIGGER_TIME]: text } } })),
      ]);
      const [delta] = await cluster.takeDeltas();
      assert.equal(delta?.detail.triggeredAt ?? null, triggeredAt);
      assert.equal(delta?.detail.size, 1);
    });
  }

  test('S32: a gateway identity longer than any name is none, and the delta leaves', async () => {
    const { name, cluster } = newCluster();
    const annotations = { 'mirror.linkerd.io/remote-gateway-identity': 'x'.repeat(250_000) };
    await cluster.post([added(service()), added(slice({ metadata: { annotations } }))]);
    assert.deepEqual(replay(await cluster.takeDeltas(), `${name}/default/web:80`), ['10.0.0.1:8080']);
  });
});

describe('objects that fit a request but no item of the table', () => {
  const zones = Array.from({ length: 1000 }, (_, index) => ({ name: `${index}`.padEnd(253, 'z') }));
  const names = Array.from({ length: 1000 }, (_, index) => `${index}`.padEnd(253, '漢'));
  const tooLarge: Record<string, object> = {
    'an endpoint with hints for every zone there is': slice({ endpoint: { hints: { forZones: zones } } }),
    'a slice with ports of endless names': slice({
      fields: { ports: names.map((name) => ({ name, port: 8080 })) },
    }),
    'a Service with ports of endless names': service(
      { name: 'large' },
      names.map((name, index) => ({ name, port: index + 1 })),
    ),
  };
  for (const [name, object] of Object.entries(tooLarge)) {
    test(`P6: ${name} is rejected alone`, async () => {
      const { cluster } = newCluster();
      const other = { name: 'other' };
      const sent = await cluster.post([added(object), added(service(other)), added(slice(other))]);
      assert.deepEqual(await statuses(sent), ['rejected', 'applied', 'applied']);
    });
  }
});

describe('POST /local/sweep', () => {
  const bodies: Record<string, { init: RequestInit; status: number }> = {
    'needs no body': { init: {}, status: 200 },
    'needs none where its type is told': {
      init: { headers: { 'content-type': 'application/json' } },
      status: 200,
    },
    'takes none that a web page may send unasked': { init: { body: 'x' }, status: 415 },
  };
  for (const [name, { init, status }] of Object.entries(bodies)) {
    test(name, async () => {
      const response = await fetch(`${stack.url}/local/sweep`, { method: 'POST', ...init });
      assert.equal(response.status, status);
    });
  }
});

describe('the OpenAPI document names the status', () => {
  const json = { 'content-type': 'application/json' };
  const requests: Record<string, { path: string; init?: RequestInit; status: number }> = {
    'of a body that is no JSON': {
      path: '/v1/events',
      init: { method: 'POST', body: '{}', headers: { 'content-type': 'text/plain' } },
      status: 415,
    },
    'of a body in an encoding that is not served': {
      path: '/v1/heartbeat',
      init: { method: 'POST', body: '{}', headers: { ...json, 'content-encoding': 'br' } },
      status: 415,
    },
    'of a parameter that clusters have not': { path: '/v1/clusters?limit=1', status: 400 },
    'of clusters that the reader has': {
      path: '/v1/clusters',
      init: { headers: { 'if-none-match': '*' } },
      status: 304,
    },
    'of this document, which the reader has': {
      path: '/openapi.json',
      init: { headers: { 'if-none-match': '*' } },
      status: 304,
    },
  };
  for (const [name, { path, init = {}, status }] of Object.entries(requests)) {
    test(name, async () => {
      const response = await fetch(`${stack.url}${path}`, init);
      assert.equal(response.status, status);
      const { paths } = (await (await fetch(`${stack.url}/openapi.json`)).json()) as {
        paths: Record<string, Record<string, { responses: object }>>;
      };
      const [route = ''] = path.split('?');
      const { responses } = paths[route]?.[(init.method ?? 'GET').toLowerCase()] ?? assert.fail(route);
      assert(Object.hasOwn(responses, status));
    });
  }
});
