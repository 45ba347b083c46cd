import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import type { EndpointSlice, Service } from '../../core/kubernetes.ts';
import type { EventsAnswer } from '../../wire/events.ts';
import type { InventoryAnswer } from '../../wire/inventory.ts';
import { naiveSets } from '../core/naive-model.ts';
import { randomFrom } from '../functions/store/seeded-random.ts';
import { SeenServices } from '../seen-services.ts';
import { type Cloud, type CloudOptions, startCloud } from './cloud.ts';
import { assertReplayed, readSets, toNaiveSets } from './served-sets.ts';
import { Subscriber } from './subscriber.ts';

const CLUSTER = 'prod-eu';
const SENDERS = 8;
/** Versions that each sender tells. */
const CHANGES = 3;
/** Times that a request is refused in a row beyond which something is broken. */
const MAX_REFUSALS = 200;

type Told<T> = T & { readonly apiVersion: string };

function service(name: string, version: number): Told<Service> {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { namespace: 'default', name, uid: `uid-${name}`, resourceVersion: `${version}` },
    spec: { clusterIP: '10.96.0.1', ports: [{ name: 'http', port: 80 }] },
  };
}

/** A slice of one address of its own and one that all share, other ones in each version. */
function slice(number: number, version: number, of = 'web'): Told<EndpointSlice> {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      ...{ namespace: 'default', name: `s${number}`, uid: `uid-s${number}`, resourceVersion: `${version}` },
      labels: { 'kubernetes.io/service-name': of },
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080 }],
    endpoints: [
      { addresses: [`10.0.${number}.${version % 250}`], conditions: { ready: true }, zone: 'a' },
      { addresses: [`10.1.0.${version % 7}`], conditions: { ready: version % 2 === 0 }, zone: `z${number}` },
    ],
  };
}

interface Sent {
  readonly type?: 'MODIFIED' | 'DELETED';
  readonly object: Told<Service | EndpointSlice>;
  readonly former?: readonly string[];
}

/** What the cluster has in the end. */
class Truth {
  readonly #objects = new Map<string, Told<Service | EndpointSlice>>();

  put(object: Told<Service | EndpointSlice>): void {
    this.#objects.set(object.metadata.uid, object);
  }

  delete(object: Told<Service | EndpointSlice>): void {
    this.#objects.delete(object.metadata.uid);
  }

  get objects(): readonly Told<Service | EndpointSlice>[] {
    return [...this.#objects.values()];
  }

  sets() {
    const services = this.objects.filter((object) => object.kind === 'Service') as Service[];
    const slices = this.objects.filter((object) => object.kind === 'EndpointSlice') as EndpointSlice[];
    return naiveSets(
      services,
      slices.map((object) => ({ object, version: object.metadata.resourceVersion })),
    );
  }
}

/** Sends until it is answered; 409 ends it too. */
async function send(cloud: Cloud, path: string, body: (isAgain: boolean) => object): Promise<Response> {
  for (let refusals = 0; refusals < MAX_REFUSALS; refusals++) {
    const response = await cloud.post(path, body(refusals > 0));
    if (response.status < 500) return response;
    await response.arrayBuffer();
  }
  assert.fail('refused over and over');
}

async function tell(cloud: Cloud, events: readonly Sent[], epoch = 1): Promise<EventsAnswer | null> {
  const response = await send(cloud, '/v1/events', (confirm) => ({
    ...{ cluster: CLUSTER, epoch },
    events: events.map((event) => ({ type: 'MODIFIED', ...event, confirm })),
  }));
  if (response.status === 409) return null;
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()) as EventsAnswer;
}

/** Of each list, the version that an inventory names. */
async function takeInventory(
  cloud: Cloud,
  truth: Truth,
  listedAt: number,
  epoch = 1,
): Promise<InventoryAnswer> {
  const services = truth.objects
    .filter(({ kind }) => kind === 'Service')
    .sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))
    .map(({ metadata: { namespace, name, uid, resourceVersion } }) => {
      const objects = truth.objects
        .filter(
          ({ kind, metadata }) =>
            kind !== 'Service' && metadata.labels?.['kubernetes.io/service-name'] === name,
        )
        .map(({ metadata }) => ({
          name: metadata.name,
          uid: metadata.uid,
          resourceVersion: metadata.resourceVersion,
        }));
      return { namespace, name, uid, resourceVersion, objects };
    });
  const response = await send(cloud, '/v1/inventory', () => ({
    ...{ cluster: CLUSTER, epoch, id: `list-${listedAt}`, namespaces: null, after: null, last: true },
    resourceVersions: { Service: `${listedAt}`, EndpointSlice: `${listedAt}` },
    services,
  }));
  assert.equal(response.status, 200);
  return (await response.json()) as InventoryAnswer;
}

/** State is the truth, and so is what the bus adds up to, gapless (P1, P2); an id has one content (P3). */
async function check(cloud: Cloud, truth: Truth, epoch = 1): Promise<void> {
  await cloud.sweep();
  const subscriber = new Subscriber(CLUSTER);
  subscriber.take(await cloud.entries());
  const replica = subscriber.replay();
  const get = async (path: string) => {
    const response = await fetch(`${cloud.url}${path}`);
    return { status: response.status, body: await response.json() };
  };
  const sets = await readSets(get, replica.groups());
  assertReplayed(replica, sets);
  assert.deepEqual(toNaiveSets(sets), truth.sets());
  // Who lists now finds nothing to mend.
  assert.deepEqual(await takeInventory(cloud, truth, 10_000, epoch), {
    missing: [],
    deleted: 0,
    again: false,
  });
}

/** Both lose answers, so that a failed condition may be one's own doing. */
const STORES: Readonly<Record<string, CloudOptions>> = {
  'that hides the item of a failed condition': { losesEvery: 5 },
  'that shows the item of a failed condition': { losesEvery: 5, showsOldItems: true },
};

const numbers = Array.from({ length: SENDERS }, (_, index) => index);

for (const [store, options] of Object.entries(STORES))
  describe(`races on a store ${store}`, () => {
    /** Where the writes of one service do not meet more than in another race, one store is enough. */
    const once = options.showsOldItems ? () => {} : test;
    const start = () =>
      startCloud({ ...options, instances: SENDERS, inlineBytes: 200, pause: (ms) => wait(ms) });

    test('eight senders of slices of one service (P1, P2, P4)', async () => {
      await using cloud = await start();
      const truth = new Truth();
      truth.put(service('web', 1));
      await tell(cloud, [{ object: service('web', 1) }]);
      await Promise.all(
        numbers.map(async (number) => {
          for (let change = 1; change <= CHANGES; change++) {
            const object = slice(number, 10 * change + number);
            truth.put(object);
            await tell(cloud, [{ object }]);
          }
        }),
      );
      await check(cloud, truth);
    });

    once('eight senders of the same events, one behind the other (P4)', async () => {
      await using cloud = await start();
      const truth = new Truth();
      const events: Sent[] = [{ object: service('web', 1) }];
      for (let version = 2; version < 12; version++) events.push({ object: slice(version % 3, version) });
      const last = slice(1, 12);
      events.push({ object: last, type: 'DELETED' });
      for (const { object } of events) truth.put(object);
      truth.delete(last);
      await Promise.all(
        numbers.map(async () => {
          for (const event of events) await tell(cloud, [event]);
        }),
      );
      await check(cloud, truth);
    });

    test('eight slices that move between neighbours at the same time (S10)', async () => {
      await using cloud = await start();
      const truth = new Truth();
      const random = randomFrom(7);
      const names = ['api', 'db', 'web'];
      for (const [index, name] of names.entries()) {
        truth.put(service(name, index + 1));
        await tell(cloud, [{ object: service(name, index + 1) }]);
      }
      await Promise.all(
        numbers.map(async (number) => {
          const seen = new SeenServices();
          for (let change = 1; change <= CHANGES; change++) {
            const object = slice(number, 10 * change + number, names[random(names.length)]);
            truth.put(object);
            await tell(cloud, [{ object, former: seen.formerOf(object) }]);
          }
        }),
      );
      await check(cloud, truth);
    });

    once(
      'two relays of two epochs: the older one ends, and what it still sends changes nothing (W18)',
      async () => {
        await using cloud = await start();
        const truth = new Truth();
        truth.put(service('web', 1));
        await tell(cloud, [{ object: service('web', 1) }]);
        let refused = 0;
        await Promise.all(
          numbers.map(async (number) => {
            const isNew = number % 2 === 1;
            for (let change = 1; change <= CHANGES; change++) {
              // Both tell of one slice; the older relay is behind.
              const object = slice(number >> 1, 10 * change + (number >> 1) + (isNew ? 100 : 0));
              if (isNew) truth.put(object);
              if ((await tell(cloud, [{ object }], isNew ? 2 : 1)) === null) refused++;
            }
          }),
        );
        assert.ok(refused > 0);
        await check(cloud, truth, 2);
      },
    );

    once('inventories against events: nothing born meanwhile goes, nothing gone stays', async () => {
      await using cloud = await start();
      const truth = new Truth();
      truth.put(service('web', 1));
      const stale = slice(20, 5);
      await tell(cloud, [{ object: service('web', 1) }, { object: stale }]);
      let version = 10;
      const senders = numbers.slice(2).map(async (number) => {
        for (let change = 1; change <= CHANGES; change++) {
          const object = slice(number, version++);
          truth.put(object);
          await tell(cloud, [{ object }]);
          if (change % 3 !== 1) continue;
          const gone = slice(number, version++);
          truth.delete(gone);
          await tell(cloud, [{ object: gone, type: 'DELETED' }]);
        }
      });
      const inventories = numbers.slice(0, 2).map(async () => {
        for (let list = 0; list < CHANGES; list++) {
          // What is missing is on its way in the other requests.
          await takeInventory(cloud, truth, version - 1);
        }
      });
      await Promise.all([...senders, ...inventories]);
      // While something named was on its way, nothing of the service went: then the page follows again.
      assert.equal((await takeInventory(cloud, truth, version - 1)).again, false);
      await check(cloud, truth);
    });

    once('sweeps against events, over a bus that fails now and then', async () => {
      await using cloud = await start();
      const truth = new Truth();
      truth.put(service('web', 1));
      await tell(cloud, [{ object: service('web', 1) }]);
      const random = randomFrom(3);
      const codeOf = () => (random(3) === 0 ? 'AccessDeniedException' : null);
      cloud.mood = { kind: 'picky', codeOf };
      const senders = numbers.slice(2).map(async (number) => {
        for (let change = 1; change <= CHANGES; change++) {
          const object = slice(number, 10 * change + number);
          truth.put(object);
          await tell(cloud, [{ object }]);
        }
      });
      let isOver = false;
      const sweeps = numbers.slice(0, 2).map(async () => {
        while (!isOver) await cloud.sweep();
      });
      await Promise.all(senders);
      isOver = true;
      await Promise.all(sweeps);
      cloud.mood = { kind: 'well' };
      await check(cloud, truth);
    });
  });
