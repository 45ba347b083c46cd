import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { RawEndpoint, Service, WatchedObject } from '../../../core/kubernetes.ts';
import { StoreUnavailableError } from '../../../functions/store/store.ts';
import { endpointsAnswer } from '../../../wire/api.ts';
import { digestOf } from '../../../wire/key-hash.ts';
import { serveApp } from '../http/served-app.ts';
import { CLUSTER, endpointOf, START, serviceOf, sliceOf, World } from './world.ts';

const path = (service: string, query = '') =>
  `/v1/clusters/${CLUSTER}/namespaces/default/services/${service}/endpoints${query}`;

interface Set {
  readonly addresses: readonly { readonly ip: string; readonly port: number; readonly dnsName?: string }[];
  readonly draining: readonly { readonly ip: string }[];
  readonly [member: string]: unknown;
}

const keysOf = (set: Set) => set.addresses.map(({ ip, port }) => `${ip}:${port}`);

const DRAINING = { ready: false, serving: true, terminating: true };
const NOT_READY = { ready: false, serving: false, terminating: false };

async function worldWith(name: string, ...objects: WatchedObject[]): Promise<World> {
  const world = new World();
  await world.putCluster();
  await world.put(name, ...objects);
  return world;
}

/** Service `web`: two ready addresses, one that drains and one that is not ready. */
const webWorld = () =>
  worldWith(
    'web',
    serviceOf('web'),
    sliceOf('web-a', {
      endpoints: [
        endpointOf('10.1.0.20', { nodeName: 'n2', zone: 'b' }),
        endpointOf('10.1.0.3', {
          nodeName: 'n1',
          zone: 'a',
          targetRef: { kind: 'Pod', namespace: 'default', name: 'web-1' },
        }),
        endpointOf('10.1.0.4', { conditions: DRAINING }),
        endpointOf('10.1.0.5', { conditions: NOT_READY }),
      ],
    }),
  );

describe('GET endpoints of one port', () => {
  test('answers the whole set in its published shape, sorted by key', async () => {
    const world = await webWorld();
    await using server = await serveApp(world.app());
    const response = await fetch(server.url + path('web', '?port=80'));
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('content-type'), 'application/json');
    const body = await response.text();
    assert.deepEqual(JSON.parse(body), {
      cluster: CLUSTER,
      namespace: 'default',
      service: 'web',
      port: 80,
      portName: 'http',
      protocol: 'TCP',
      exists: true,
      sequence: 1,
      digest: digestOf(['10.1.0.20:8080', '10.1.0.3:8080']),
      size: 2,
      asOf: '2026-11-30T10:00:00.000Z',
      stale: false,
      truncated: false,
      addresses: [
        { ip: '10.1.0.20', port: 8080, family: 'IPv4', node: 'n2', zone: 'b' },
        {
          ip: '10.1.0.3',
          port: 8080,
          family: 'IPv4',
          node: 'n1',
          zone: 'a',
          target: { kind: 'Pod', namespace: 'default', name: 'web-1' },
        },
      ],
      draining: [{ ip: '10.1.0.4', port: 8080, family: 'IPv4' }],
      notReady: 1,
    });
    assert.equal(endpointsAnswer.safeParse(JSON.parse(body)).success, true);
    assert.equal(JSON.stringify(JSON.parse(body)), body);
  });

  test('answers all ports in a list when none is asked for, sorted by number, then protocol', async () => {
    const ports = [
      { name: 'dns-tcp', port: 53, protocol: 'TCP' },
      { name: 'dns', port: 53, protocol: 'UDP' },
      { name: 'metrics', port: 9153 },
    ];
    const world = await worldWith(
      'dns',
      serviceOf('dns', { ports }),
      sliceOf('dns-a', { ports, endpoints: [endpointOf('10.1.0.1')] }),
    );
    const response = await world.app().request(path('dns'));
    const body = (await response.json()) as { ports: Set[] };
    assert.deepEqual(
      body.ports.map(({ port, protocol, portName, size }) => [port, protocol, portName, size]),
      [
        [53, 'TCP', 'dns-tcp', 1],
        [53, 'UDP', 'dns', 1],
        [9153, 'TCP', 'metrics', 1],
      ],
    );
    assert.equal(endpointsAnswer.safeParse(body).success, true);
  });

  test('a Service without addresses has empty lists', async () => {
    const world = await worldWith('web', serviceOf('web'));
    const set = (await (await world.app().request(path('web', '?port=80'))).json()) as Set;
    assert.deepEqual([set.exists, set.size, set.sequence, set.addresses], [true, 0, 1, []]);
    assert.equal(set.digest, '0'.repeat(64));
  });

  test('a Service without ports of its own answers an empty list', async () => {
    const world = await worldWith('web', serviceOf('web', { ports: [] }));
    assert.deepEqual(await (await world.app().request(path('web'))).json(), { ports: [] });
  });

  const ports: Record<string, string> = { '53/UDP': 'UDP', '53%2FUDP': 'UDP', '53/TCP': 'TCP', '53': 'TCP' };
  for (const [text, protocol] of Object.entries(ports)) {
    test(`port=${text} means ${protocol} (S21)`, async () => {
      const both = [
        { name: 'dns', port: 53, protocol: 'UDP' },
        { name: 'dns-tcp', port: 53, protocol: 'TCP' },
      ];
      const world = await worldWith('dns', serviceOf('dns', { ports: both }));
      const set = (await (await world.app().request(path('dns', `?port=${text}`))).json()) as Set;
      assert.equal(set.protocol, protocol);
    });
  }

  test('an Endpoints object over capacity is a lower bound (S42)', async () => {
    const world = await worldWith('web', serviceOf('web'), {
      kind: 'Endpoints',
      metadata: {
        name: 'web',
        namespace: 'default',
        uid: 'e',
        resourceVersion: '1',
        annotations: { 'endpoints.kubernetes.io/over-capacity': 'truncated' },
      },
      subsets: [{ addresses: [{ ip: '10.1.0.1' }], ports: [{ name: 'http', port: 8080 }] }],
    });
    const set = (await (await world.app().request(path('web', '?port=80'))).json()) as Set;
    assert.deepEqual([set.truncated, set.size], [true, 1]);
  });
});

describe('filters change what is shown, not the set (S33)', () => {
  const hinted = (ip: string, node: string, zone: string): RawEndpoint =>
    endpointOf(ip, { nodeName: node, zone, hints: { forZones: [{ name: zone }] } });
  const zonal = sliceOf('s', { endpoints: [hinted('10.1.0.1', 'n1', 'a'), hinted('10.1.0.2', 'n2', 'b')] });
  const dual = [
    sliceOf('v4', { endpoints: [endpointOf('10.1.0.1')] }),
    sliceOf('v6', { endpoints: [endpointOf('fd00::1')], addressType: 'IPv6' }),
  ];
  const tiers = sliceOf('s', { endpoints: [endpointOf('10.1.0.1', { conditions: DRAINING })] });
  const named = sliceOf('s', {
    endpoints: [endpointOf('10.1.0.1', { hostname: 'web-0' }), endpointOf('10.1.0.2', { hostname: 'web-1' })],
  });

  const cases: Record<
    string,
    { spec?: Service['spec']; objects: WatchedObject[]; query: string; want: string[]; size: number }
  > = {
    'hostname: that address alone': {
      objects: [named],
      query: 'hostname=web-1',
      want: ['10.1.0.2:8080'],
      size: 2,
    },
    'a hostname that nobody has: none': { objects: [named], query: 'hostname=web-9', want: [], size: 2 },
    'zone: those that are hinted for it': {
      objects: [zonal],
      query: 'zone=b',
      want: ['10.1.0.2:8080'],
      size: 2,
    },
    'a zone that no hint names: all': {
      objects: [zonal],
      query: 'zone=c',
      want: ['10.1.0.1:8080', '10.1.0.2:8080'],
      size: 2,
    },
    'node with Local traffic policy: that node alone': {
      spec: { internalTrafficPolicy: 'Local' },
      objects: [zonal],
      query: 'node=n1&zone=b',
      want: ['10.1.0.1:8080'],
      size: 2,
    },
    'family: one of the two': { objects: dual, query: 'family=IPv6', want: ['fd00::1:8080'], size: 2 },
    'tier=ready by default: draining ones are not in it (S26)': {
      objects: [tiers],
      query: '',
      want: [],
      size: 0,
    },
    'tier=draining': { objects: [tiers], query: 'tier=draining', want: ['10.1.0.1:8080'], size: 0 },
    'tier=effective falls back to draining (S27)': {
      objects: [tiers],
      query: 'tier=effective',
      want: ['10.1.0.1:8080'],
      size: 0,
    },
    'tier=effective is ready while one is': {
      objects: [zonal],
      query: 'tier=effective&zone=a',
      want: ['10.1.0.1:8080'],
      size: 2,
    },
  };
  for (const [name, { spec = {}, objects, query, want, size }] of Object.entries(cases)) {
    test(name, async () => {
      const world = await worldWith('web', serviceOf('web', spec), ...objects);
      const set = (await (await world.app().request(path('web', `?port=80&${query}`))).json()) as Set;
      assert.deepEqual([keysOf(set), set.size], [want, size]);
    });
  }
});

describe('ports that a Service does not define (S22)', () => {
  const slices = [
    sliceOf('s', {
      endpoints: [
        endpointOf('10.1.0.1', { hostname: 'web-0' }),
        endpointOf('10.1.0.2', { hostname: 'web-1' }),
        endpointOf('10.1.0.3', { conditions: NOT_READY }),
      ],
    }),
  ];

  test('a headless Service gives the raw number on every ready address, with sequence 0', async () => {
    const world = await worldWith('web', serviceOf('web', { clusterIP: 'None' }), ...slices);
    const set = (await (await world.app().request(path('web', '?port=7777'))).json()) as Set;
    assert.deepEqual(keysOf(set), ['10.1.0.1:7777', '10.1.0.2:7777']);
    assert.deepEqual([set.port, set.portName, set.sequence, set.size], [7777, '', 0, 2]);
    assert.equal(set.digest, digestOf(['10.1.0.1:7777', '10.1.0.2:7777']));
  });

  test('with a hostname any Service gives the raw number on its address', async () => {
    const world = await worldWith('web', serviceOf('web'), ...slices);
    const set = (await (await world.app().request(path('web', '?port=7777&hostname=web-1'))).json()) as Set;
    assert.deepEqual(keysOf(set), ['10.1.0.2:7777']);
  });

  test('else it is not found, and the answer names the ports that there are', async () => {
    const world = await worldWith('web', serviceOf('web'), ...slices);
    const response = await world.app().request(path('web', '?port=7777'));
    assert.equal(response.status, 404);
    const { title, detail } = (await response.json()) as { title: string; detail: string };
    assert.equal(title, 'No such port');
    assert.equal(detail, 'port: prod-eu/default/web has no port 7777; its ports: 80');
  });

  test('a headless Service without ports has port 0 (S19)', async () => {
    const world = await worldWith('web', serviceOf('web', { clusterIP: 'None', ports: [] }), ...slices);
    const set = (await (await world.app().request(path('web', '?port=0'))).json()) as Set;
    assert.deepEqual(keysOf(set), ['10.1.0.1:0', '10.1.0.2:0']);
  });
});

describe('names of addresses (S39)', () => {
  const slice = sliceOf('s', {
    endpoints: [endpointOf('10.1.0.1', { hostname: 'web-0' }), endpointOf('10.1.0.2')],
  });
  const namesOf = (set: Set) => set.addresses.map(({ dnsName }) => dnsName);

  test('an address with a hostname in a headless Service has one; the domain is a setting', async () => {
    const world = await worldWith('web', serviceOf('web', { clusterIP: 'None' }), slice);
    const set = (await (await world.app().request(path('web', '?port=80'))).json()) as Set;
    assert.deepEqual(namesOf(set), ['web-0.web.default.svc.cluster.local', undefined]);
    const elsewhere = world.app({ clusterDomain: 'k8s.example' });
    const other = (await (await elsewhere.request(path('web', '?port=80'))).json()) as Set;
    assert.deepEqual(namesOf(other), ['web-0.web.default.svc.k8s.example', undefined]);
  });

  test('in any other Service none has', async () => {
    const world = await worldWith('web', serviceOf('web'), slice);
    const set = (await (await world.app().request(path('web', '?port=80'))).json()) as Set;
    assert.deepEqual(namesOf(set), [undefined, undefined]);
  });
});

describe('freshness', () => {
  const setAt = async (world: World) =>
    (await (await world.app().request(path('web', '?port=80'))).json()) as Set;

  test('asOf is the last heartbeat that was in step; one is stale only after 60 s', async () => {
    const world = await webWorld();
    await world.putCluster({ lastSynced: (START - 5000) as typeof START, lastHeartbeat: START });
    world.now = (START + 60_000) as typeof START;
    const fresh = await setAt(world);
    assert.deepEqual([fresh.asOf, fresh.stale], ['2026-11-30T09:59:55.000Z', false]);
    world.now = (START + 60_001) as typeof START;
    const stale = await setAt(world);
    assert.deepEqual([stale.asOf, stale.stale, stale.size], ['2026-11-30T09:59:55.000Z', true, 2]);
  });

  test('without any heartbeat it is the last commit, and stale', async () => {
    const world = await webWorld();
    await world.putCluster({ lastSynced: null, lastHeartbeat: null });
    const set = await setAt(world);
    assert.deepEqual([set.asOf, set.stale], ['2026-11-30T10:00:00.000Z', true]);
  });

  test('a cluster that never sent anything else is served all the same', async () => {
    const world = new World();
    await world.put('web', serviceOf('web'));
    assert.equal((await setAt(world)).stale, true);
  });
});

describe('what has no endpoints', () => {
  const problemAt = async (world: World, target: string) => {
    const response = await world.app().request(target);
    assert.equal(response.headers.get('content-type'), 'application/problem+json');
    const problem = (await response.json()) as { status: number; title: string; detail: string };
    assert.equal(problem.status, response.status);
    return problem;
  };

  test('an unknown service is 404', async () => {
    const { status, title, detail } = await problemAt(await webWorld(), path('api'));
    assert.deepEqual([status, title], [404, 'No such service']);
    assert.match(detail, /prod-eu\/default\/api/);
  });

  test('slices without their Service are 404 (S34)', async () => {
    const world = await worldWith('web', sliceOf('s', { endpoints: [endpointOf('10.1.0.1')] }));
    assert.equal((await problemAt(world, path('web', '?port=80'))).title, 'No such service');
  });

  test('a deleted service is 404 (S35)', async () => {
    const world = await webWorld();
    await world.deleteService('web');
    assert.equal((await problemAt(world, path('web', '?port=80'))).status, 404);
  });

  test('an ExternalName is 422 and names what it points to (S36)', async () => {
    const world = await worldWith(
      'db',
      serviceOf('db', { type: 'ExternalName', externalName: 'db.example.com' }),
    );
    const problem = await problemAt(world, path('db', '?port=80'));
    assert.equal(problem.status, 422);
    assert.match(problem.detail, /db\.example\.com/);
    assert.equal((problem as Record<string, unknown>).externalName, 'db.example.com');
  });

  test('a store that is away is 503, to be tried again', async () => {
    const world = await webWorld();
    world.store.getHead = () => Promise.reject(new StoreUnavailableError('throttled'));
    const response = await world.app().request(path('web'));
    assert.equal(response.status, 503);
    assert.equal(response.headers.get('retry-after'), '1');
  });
});

describe('a wrong request names the parameter', () => {
  const wrong: Record<string, { readonly target: string; readonly detail: RegExp }> = {
    'a port that is none': { target: path('web', '?port=http'), detail: /^port: must be a port such as 80/ },
    'a port out of range': { target: path('web', '?port=65536'), detail: /^port: must be a port/ },
    'a protocol that Services do not know': { target: path('web', '?port=53/QUIC'), detail: /^port: / },
    'an empty port': { target: path('web', '?port='), detail: /^port: / },
    'an unknown family': {
      target: path('web', '?family=IPv5'),
      detail: /^family: must be "IPv4" or "IPv6"$/,
    },
    'an unknown tier': { target: path('web', '?tier=all'), detail: /^tier: must be "ready" or/ },
    'an unknown format': {
      target: path('web', '?format=xml'),
      detail: /^format: must be "json" or "table" or "wide"$/,
    },
    'a parameter given twice': {
      target: path('web', '?port=80&port=81'),
      detail: /^port: must be given once$/,
    },
    'an instant, which is not served': {
      target: path('web', '?at=2026-11-30T10:00:00Z'),
      detail:
        /^at: is no parameter that is served here; there are port, hostname, node, zone, family, tier, format$/,
    },
    'a cluster in capitals': {
      target: path('web').replace(CLUSTER, 'PROD'),
      detail: /^cluster: must be 1 to 63 of/,
    },
    'all namespaces at once': {
      target: path('web').replace('/default/', '/_all/'),
      detail: /^namespace: must be a name/,
    },
    'a service with a slash in it': {
      target: path('a%2Fb'),
      detail: /^service: must be the name of a Service/,
    },
    'a service with a broken escape': { target: path('a%ZZ'), detail: /^service: must be the name/ },
  };
  for (const [name, { target, detail }] of Object.entries(wrong)) {
    test(name, async () => {
      const response = await (await webWorld()).app().request(target);
      assert.equal(response.status, 400);
      assert.equal(response.headers.get('content-type'), 'application/problem+json');
      assert.match(((await response.json()) as { detail: string }).detail, detail);
    });
  }

  test('the signature of a presigned URL is none', async () => {
    const query = '?port=80&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=00';
    assert.equal((await (await webWorld()).app().request(path('web', query))).status, 200);
  });

  for (const later of ['deltas', 'watch', 'diagnosis', 'subscriptions/a']) {
    test(`/${later} is not served: 404, as a problem`, async () => {
      const response = await (await webWorld()).app().request(path('web').replace('endpoints', later));
      assert.equal(response.status, 404);
      assert.equal(response.headers.get('content-type'), 'application/problem+json');
    });
  }
});

describe('caching', () => {
  const get = (world: World, query: string, headers: Record<string, string> = {}) =>
    world.app().request(path('web', query), { headers });
  const tagOf = async (world: World, query: string, headers?: Record<string, string>) =>
    (await get(world, query, headers)).headers.get('etag') ?? '';

  test('answers carry a weak ETag, Cache-Control and what they depend on', async () => {
    const response = await get(await webWorld(), '?port=80');
    assert.match(response.headers.get('etag') ?? '', /^W\/"[\w-]{22}"$/);
    assert.equal(response.headers.get('cache-control'), 'no-cache');
    assert.equal(response.headers.get('vary'), 'accept');
  });

  test('Cache-Control is a setting', async () => {
    const app = (await webWorld()).app({ cacheControl: 'max-age=0, s-maxage=5' });
    const response = await app.request(path('web'));
    assert.equal(response.headers.get('cache-control'), 'max-age=0, s-maxage=5');
  });

  test('the tag is over the answer but asOf: the same answer later, another one after a change', async () => {
    const world = await webWorld();
    const tag = await tagOf(world, '?port=80');
    world.now = (START + 15_000) as typeof START;
    await world.putCluster();
    assert.equal(await tagOf(world, '?port=80'), tag);
    await world.put('web', sliceOf('web-b', { endpoints: [endpointOf('10.1.0.9')] }));
    assert.notEqual(await tagOf(world, '?port=80'), tag);
  });

  test('the tag covers staleness', async () => {
    const world = await webWorld();
    const tag = await tagOf(world, '?port=80');
    world.now = (START + 61_000) as typeof START;
    assert.notEqual(await tagOf(world, '?port=80'), tag);
  });

  test('the tag covers the form, whether asked by query or by Accept', async () => {
    const world = await webWorld();
    const table = await tagOf(world, '?port=80&format=table');
    assert.notEqual(await tagOf(world, '?port=80'), table);
    assert.notEqual(await tagOf(world, '?port=80&format=wide'), table);
    assert.equal(await tagOf(world, '?port=80', { accept: 'text/plain' }), table);
  });

  test('the tag of a table does not age', async () => {
    const world = await webWorld();
    const tag = await tagOf(world, '?format=table');
    world.now = (START + 59_000) as typeof START;
    assert.equal(await tagOf(world, '?format=table'), tag);
  });

  const conditions: Record<string, { readonly header: (tag: string) => string; readonly status: number }> = {
    'the tag itself: 304': { header: (tag) => tag, status: 304 },
    'the tag in a list: 304': { header: (tag) => `"a", W/"b,c" ,${tag}`, status: 304 },
    'the tag as a strong one, compared weakly: 304': { header: (tag) => tag.slice(2), status: 304 },
    'any tag: 304': { header: () => ' * ', status: 304 },
    'another tag: 200': { header: () => 'W/"other"', status: 200 },
    'a tag without its quotes: 200': { header: (tag) => tag.slice(3, -1), status: 200 },
    'an empty list: 200': { header: () => '', status: 200 },
  };
  for (const [name, { header, status }] of Object.entries(conditions)) {
    test(`If-None-Match with ${name}`, async () => {
      const world = await webWorld();
      const tag = await tagOf(world, '?port=80');
      await using server = await serveApp(world.app());
      const response = await fetch(server.url + path('web', '?port=80'), {
        headers: { 'if-none-match': header(tag) },
      });
      assert.equal(response.status, status);
      assert.equal(response.headers.get('etag'), tag);
      assert.equal(response.headers.get('cache-control'), 'no-cache');
      assert.equal((await response.text()) === '', status === 304);
    });
  }

  test('HEAD has the headers of GET and no body', async () => {
    const world = await webWorld();
    await using server = await serveApp(world.app());
    const target = server.url + path('web', '?port=80');
    const head = await fetch(target, { method: 'HEAD' });
    const get = await fetch(target);
    assert.equal(head.status, 200);
    assert.equal(await head.text(), '');
    for (const name of ['etag', 'content-type', 'cache-control', 'vary'])
      assert.equal(head.headers.get(name), get.headers.get(name), name);
    const missing = await fetch(server.url + path('none'), { method: 'HEAD' });
    assert.equal(missing.status, 404);
    const tag = head.headers.get('etag') ?? '';
    assert.equal((await fetch(target, { method: 'HEAD', headers: { 'if-none-match': tag } })).status, 304);
  });
});

test('a set of more than 6 MB is streamed whole, and its tag holds', async () => {
  const slices = Array.from({ length: 30 }, (_, slice) =>
    sliceOf(`big-${slice}`, {
      endpoints: Array.from({ length: 1000 }, (_, index) => {
        const name = `big-6f7d9c5b8-${slice}-${index}-with-a-name-as-long-as-pods-of-real-clusters-have-them`;
        return endpointOf(`10.${slice}.${index >> 8}.${index & 255}`, {
          nodeName: `ip-10-0-${slice}-1.eu-central-1.compute.internal`,
          zone: 'eu-central-1a',
          targetRef: { kind: 'Pod', namespace: 'default', name },
        });
      }),
    }),
  );
  const world = await worldWith('big', serviceOf('big'), ...slices);
  await using server = await serveApp(world.app());
  const response = await fetch(server.url + path('big', '?port=80'));
  assert.equal(response.headers.get('transfer-encoding'), 'chunked');
  const body = await response.text();
  assert.ok(body.length > 6_000_000, `${body.length} bytes`);
  const set = JSON.parse(body) as Set;
  assert.equal(set.addresses.length, 30_000);
  const tag = response.headers.get('etag') ?? '';
  const again = await fetch(server.url + path('big', '?port=80'), { headers: { 'if-none-match': tag } });
  assert.equal(again.status, 304);
  const head = await fetch(server.url + path('big', '?port=80'), { method: 'HEAD' });
  assert.equal(head.headers.get('etag'), tag);
});
