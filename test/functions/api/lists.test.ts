import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { EpochMs } from '../../../core/time.ts';
import { clustersAnswer, servicesAnswer } from '../../../wire/api.ts';
import { digestOf } from '../../../wire/key-hash.ts';
import { CLUSTER, endpointOf, START, serviceOf, sliceOf, World } from './world.ts';

const path = (namespace: string, query = '') =>
  `/v1/clusters/${CLUSTER}/namespaces/${namespace}/services${query}`;

interface Page {
  readonly items: readonly { readonly namespace: string; readonly name: string }[];
  readonly continue: string | null;
}

const namesOf = ({ items }: Page) => items.map(({ namespace, name }) => `${namespace}/${name}`);

/** Services a, b, c in default and b in another namespace. */
async function crowdedWorld(): Promise<World> {
  const world = new World();
  await world.putCluster();
  for (const name of ['b', 'a', 'c', 'other/b']) await world.put(name, serviceOf(name));
  return world;
}

async function pageOf(world: World, target: string): Promise<Page> {
  const response = await world.app().request(target);
  assert.equal(response.status, 200);
  const page = (await response.json()) as Page;
  assert.equal(servicesAnswer.safeParse(page).success, true);
  return page;
}

describe('GET services', () => {
  test('answers ports with size, sequence and digest', async () => {
    const world = new World();
    await world.putCluster();
    await world.put('web', serviceOf('web'), sliceOf('s', { endpoints: [endpointOf('10.1.0.1')] }));
    assert.deepEqual(await pageOf(world, path('default')), {
      items: [
        {
          namespace: 'default',
          name: 'web',
          type: 'ClusterIP',
          exists: true,
          changedAt: '2026-11-30T10:00:00.000Z',
          ports: [
            {
              port: 80,
              portName: 'http',
              protocol: 'TCP',
              size: 1,
              sequence: 1,
              digest: digestOf(['10.1.0.1:8080']),
            },
          ],
        },
      ],
      continue: null,
    });
  });

  test('one namespace, in order', async () => {
    assert.deepEqual(namesOf(await pageOf(await crowdedWorld(), path('default'))), [
      'default/a',
      'default/b',
      'default/c',
    ]);
  });

  for (const target of [path('_all'), path('default', '?namespace=_all')]) {
    test(`all namespaces: ${target}`, async () => {
      assert.deepEqual(namesOf(await pageOf(await crowdedWorld(), target)), [
        'default/a',
        'default/b',
        'default/c',
        'other/b',
      ]);
    });
  }

  test("the query's namespace goes before the path's", async () => {
    assert.deepEqual(namesOf(await pageOf(await crowdedWorld(), path('_all', '?namespace=other'))), [
      'other/b',
    ]);
  });

  test('pages follow each other without gap or overlap, and the last says so', async () => {
    const world = await crowdedWorld();
    for (const limit of [1, 2, 3, 4]) {
      const seen: string[] = [];
      let pages = 0;
      let token: string | null = '';
      while (token !== null) {
        const page: Page = await pageOf(
          world,
          path('_all', `?limit=${limit}${token === '' ? '' : `&continue=${token}`}`),
        );
        seen.push(...namesOf(page));
        token = page.continue;
        pages++;
      }
      assert.deepEqual(seen, ['default/a', 'default/b', 'default/c', 'other/b']);
      assert.equal(pages, Math.ceil(4 / limit));
    }
  });

  test('a deleted Service is there until it ages out, and does not exist', async () => {
    const world = await crowdedWorld();
    await world.deleteService('a');
    const [first] = (await pageOf(world, path('default'))).items as unknown as {
      exists: boolean;
      type: null;
    }[];
    assert.deepEqual([first?.exists, first?.type], [false, null]);
  });

  test('a namespace without services is an empty page', async () => {
    assert.deepEqual(await pageOf(await crowdedWorld(), path('empty')), { items: [], continue: null });
  });

  test('a cluster that nobody knows is 404', async () => {
    const response = await (await crowdedWorld()).app().request(path('default').replace(CLUSTER, 'prod-us'));
    assert.equal(response.status, 404);
    assert.equal(((await response.json()) as { title: string }).title, 'No such cluster');
  });

  const token = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const wrong: Record<string, { readonly target: string; readonly detail: RegExp }> = {
    'no page at all': {
      target: path('_all', '?limit=0'),
      detail: /^limit: must be an integer from 1 to 1000$/,
    },
    'a page too large': { target: path('_all', '?limit=1001'), detail: /^limit: must be an integer/ },
    'a limit in words': { target: path('_all', '?limit=ten'), detail: /^limit: must be an integer/ },
    'an invented continue': {
      target: path('_all', '?continue=abc'),
      detail: /^continue: must be the continue of/,
    },
    'a continue in the wrong shape': {
      target: path('_all', `?continue=${token(['a'])}`),
      detail: /^continue: /,
    },
    'a continue with a key in it': {
      target: path('_all', `?continue=${token(['a/b', 'c'])}`),
      detail: /^continue: /,
    },
    'a continue of another list': {
      target: path('default', `?continue=${token(['other', 'b'])}`),
      detail: /^continue: must be the continue of a former page of the same list$/,
    },
    'a namespace in capitals': {
      target: path('Default'),
      detail: /^namespace: must be a name of a-z/,
    },
    'a parameter that is not served': {
      target: path('_all', '?labelSelector=a'),
      detail: /^labelSelector: is no/,
    },
  };
  for (const [name, { target, detail }] of Object.entries(wrong)) {
    test(`${name} is 400`, async () => {
      const response = await (await crowdedWorld()).app().request(target);
      assert.equal(response.status, 400);
      assert.match(((await response.json()) as { detail: string }).detail, detail);
    });
  }

  test('If-None-Match spares an unchanged page', async () => {
    const app = (await crowdedWorld()).app();
    const etag = (await app.request(path('_all'))).headers.get('etag') ?? '';
    assert.equal((await app.request(path('_all'), { headers: { 'if-none-match': etag } })).status, 304);
  });
});

describe('GET clusters', () => {
  test('answers each with its freshness, and counts the Services that exist', async () => {
    const world = await crowdedWorld();
    await world.deleteService('a');
    await world.putCluster({ name: 'dark', uid: null, mode: 'endpoints', lastHeartbeat: null, epoch: 0 });
    world.now = (START + 60_001) as EpochMs;
    const response = await world.app().request('/v1/clusters');
    const body = await response.json();
    assert.deepEqual(body, {
      items: [
        {
          name: 'dark',
          uid: null,
          mode: 'endpoints',
          epoch: 0,
          lastHeartbeat: null,
          stale: true,
          services: 0,
        },
        {
          name: CLUSTER,
          uid: 'uid-of-kube-system',
          mode: 'slices',
          epoch: 7,
          lastHeartbeat: '2026-11-30T10:00:00.000Z',
          stale: true,
          services: 3,
        },
      ],
    });
    assert.equal(clustersAnswer.safeParse(body).success, true);
  });

  test('a heartbeat of the last minute is fresh', async () => {
    const world = await crowdedWorld();
    world.now = (START + 60_000) as EpochMs;
    const { items } = (await (await world.app().request('/v1/clusters')).json()) as {
      items: { stale: boolean }[];
    };
    assert.deepEqual(
      items.map(({ stale }) => stale),
      [false],
    );
  });
});
