import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { EpochMs } from '../../../core/time.ts';
import { formatAge } from '../../../functions/api/age.ts';
import { CLUSTER, endpointOf, START, serviceOf, sliceOf, World } from './world.ts';

const path = (service: string, query: string) =>
  `/v1/clusters/${CLUSTER}/namespaces/default/services/${service}/endpoints${query}`;

const DRAINING = { ready: false, serving: true, terminating: true };

async function tableOf(world: World, query = '?format=table', headers: Record<string, string> = {}) {
  const response = await world.app().request(path('web', query), { headers });
  assert.equal(response.status, 200);
  assert.equal(response.headers.get('content-type'), 'text/plain; charset=utf-8');
  return response.text();
}

async function worldOf(spec: Parameters<typeof serviceOf>[1], ...slices: Parameters<typeof sliceOf>[1][]) {
  const world = new World();
  await world.putCluster();
  await world.put(
    'web',
    serviceOf('web', spec),
    ...slices.map((parts, index) => sliceOf(`s${index}`, parts)),
  );
  world.now = (START + 90_000) as EpochMs;
  return world;
}

const ready = (count: number) =>
  Array.from({ length: count }, (_, index) => endpointOf(`10.1.0.${index + 1}`));

describe('the table is what kubectl get endpoints prints', () => {
  test('one address', async () => {
    const world = await worldOf({}, { endpoints: ready(1) });
    assert.equal(
      await tableOf(world),
      'NAME   ENDPOINTS       AGE\n' + //
        'web    10.1.0.1:8080   90s\n',
    );
  });

  const cells: Record<
    string,
    { readonly world: () => Promise<World>; readonly query?: string; readonly want: string }
  > = {
    'three addresses are shown': {
      world: () => worldOf({}, { endpoints: ready(3) }),
      want: '10.1.0.1:8080,10.1.0.2:8080,10.1.0.3:8080',
    },
    'what is beyond three is counted': {
      world: () => worldOf({}, { endpoints: ready(5) }),
      want: '10.1.0.1:8080,10.1.0.2:8080,10.1.0.3:8080 + 2 more...',
    },
    'without an address': { world: () => worldOf({}), want: '<none>' },
    'draining ones are not shown': {
      world: () => worldOf({}, { endpoints: [endpointOf('10.1.0.1', { conditions: DRAINING })] }),
      want: '<none>',
    },
    'but in their own tier': {
      world: () => worldOf({}, { endpoints: [endpointOf('10.1.0.1', { conditions: DRAINING })] }),
      query: '?format=table&tier=effective',
      want: '10.1.0.1:8080',
    },
    'IPv6 stands in brackets': {
      world: () => worldOf({}, { endpoints: [endpointOf('FD00::1')], addressType: 'IPv6' }),
      want: '[fd00::1]:8080',
    },
    'a headless Service without ports has IPs alone (S19)': {
      world: () => worldOf({ clusterIP: 'None', ports: [] }, { endpoints: ready(2) }),
      want: '10.1.0.1,10.1.0.2',
    },
    'two ports count twice': {
      world: () => {
        const ports = [
          { name: 'http', port: 80 },
          { name: 'https', port: 443 },
        ];
        return worldOf({ ports }, { endpoints: ready(2), ports });
      },
      want: '10.1.0.1:80,10.1.0.2:80,10.1.0.1:443 + 1 more...',
    },
    'one port that is asked for stands alone': {
      world: () => {
        const ports = [
          { name: 'http', port: 80 },
          { name: 'https', port: 443 },
        ];
        return worldOf({ ports }, { endpoints: ready(1), ports });
      },
      query: '?format=table&port=443',
      want: '10.1.0.1:443',
    },
  };
  for (const [name, { world, query, want }] of Object.entries(cells)) {
    test(name, async () => {
      const [, row = ''] = (await tableOf(await world(), query)).split('\n');
      assert.deepEqual(row.split(/ {3,}/), ['web', want, '90s']);
    });
  }

  test('Accept: text/plain asks for it, unless JSON is preferred or the query says otherwise', async () => {
    const world = await worldOf({}, { endpoints: ready(1) });
    const typeFor = async (accept: string, query = '') => {
      const response = await world.app().request(path('web', query), { headers: { accept } });
      return response.headers.get('content-type')?.split(';')[0];
    };
    assert.equal(await typeFor('text/plain'), 'text/plain');
    assert.equal(await typeFor('text/html, text/plain;q=0.9, */*;q=0.1'), 'text/plain');
    assert.equal(await typeFor('text/plain;q=0.5, application/json'), 'application/json');
    assert.equal(await typeFor('*/*'), 'application/json');
    assert.equal(await typeFor('text/html,*/*;q=0.8'), 'application/json');
    assert.equal(await typeFor('text/plain', '?format=json'), 'application/json');
  });
});

describe('the wide table has a row an address', () => {
  test('with node, zone, target and condition; draining ones come last', async () => {
    const world = await worldOf(
      {},
      {
        endpoints: [
          endpointOf('10.1.0.9', { conditions: DRAINING, nodeName: 'n2' }),
          endpointOf('10.1.0.10', {
            nodeName: 'n1',
            zone: 'a',
            targetRef: { kind: 'Pod', namespace: 'default', name: 'web-1' },
          }),
        ],
      },
    );
    assert.equal(
      await tableOf(world, '?format=wide'),
      'NAME   ENDPOINTS        AGE   NODE   ZONE     TARGET      CONDITION\n' +
        'web    10.1.0.10:8080   90s   n1     a        Pod/web-1   ready\n' +
        'web    10.1.0.9:8080    90s   n2     <none>   <none>      draining\n',
    );
  });

  test('without an address it has one row that says so', async () => {
    assert.equal(
      await tableOf(await worldOf({}), '?format=wide'),
      'NAME   ENDPOINTS   AGE   NODE     ZONE     TARGET   CONDITION\n' +
        'web    <none>      90s   <none>   <none>   <none>   <none>\n',
    );
  });

  test('a draining address that the tier asks for is there once', async () => {
    const world = await worldOf({}, { endpoints: [endpointOf('10.1.0.1', { conditions: DRAINING })] });
    const lines = (await tableOf(world, '?format=wide&tier=draining')).trimEnd().split('\n');
    assert.equal(lines.length, 2);
    assert.match(lines[1] ?? '', /10\.1\.0\.1:8080.*draining$/);
  });
});

describe('ages are written as kubectl writes them', () => {
  const SECOND = 1000;
  const MINUTE = 60 * SECOND;
  const HOUR = 60 * MINUTE;
  const DAY = 24 * HOUR;
  const ages: readonly (readonly [number, string])[] = [
    [-2 * SECOND, '<invalid>'],
    [-SECOND, '0s'],
    [0, '0s'],
    [119 * SECOND + 999, '119s'],
    [2 * MINUTE, '2m'],
    [9 * MINUTE + 59 * SECOND, '9m59s'],
    [10 * MINUTE + 30 * SECOND, '10m'],
    [179 * MINUTE, '179m'],
    [3 * HOUR, '3h'],
    [7 * HOUR + 59 * MINUTE, '7h59m'],
    [8 * HOUR + 59 * MINUTE, '8h'],
    [47 * HOUR, '47h'],
    [48 * HOUR, '2d'],
    [7 * DAY + 23 * HOUR, '7d23h'],
    [8 * DAY + 5 * HOUR, '8d'],
    [729 * DAY, '729d'],
    [730 * DAY, '2y'],
    [731 * DAY, '2y1d'],
    [8 * 365 * DAY + DAY, '8y'],
  ];
  for (const [ms, want] of ages) test(`${ms} ms is ${want}`, () => assert.equal(formatAge(ms), want));
});
