import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import type { PortId } from '../../../core/service-port.ts';
import type { EpochMs } from '../../../core/time.ts';
import {
  FencedError,
  type Head,
  type ServiceKey,
  type ServiceRange,
  type ServiceSummary,
  type Store,
  type Subscription,
} from '../../../functions/store/store.ts';
import {
  chunkName,
  clusterRecord,
  HTTP,
  head,
  inlineEntry,
  portState,
  serviceKey,
  serviceRecord,
  storedObject,
} from './builders.ts';
import { type FakeClock, START } from './fake-clock.ts';

/** A store of its own for one run of the suite, on a clock that the suite moves. */
export interface StoreFixture extends AsyncDisposable {
  readonly store: Store;
  readonly clock: FakeClock;
}

const UID = '8c0d6b52-6c4a-4f5f-9f2e-0d4f2a9e9b11';
const OTHER_UID = 'not-a-uuid';
const HOUR_MS = 3_600_000;
const NO_FENCE = { deadline: Number.POSITIVE_INFINITY };

/** What every store promises. */
export function describeStore(name: string, open: () => Promise<StoreFixture>): void {
  describe(name, () => {
    let fixture: StoreFixture;
    let clusters = 0;
    before(async () => {
      fixture = await open();
    });
    after(() => fixture[Symbol.asyncDispose]());

    /** A test with a cluster of its own. */
    const promises = (
      sentence: string,
      test: (context: { store: Store; clock: FakeClock; key: ServiceKey; cluster: string }) => Promise<void>,
    ) => {
      it(sentence, () => {
        const cluster = `cluster-${++clusters}`;
        return test({ ...fixture, cluster, key: serviceKey(cluster) });
      });
    };

    promises('a service that was never written has no head', async ({ store, key }) => {
      assert.equal(await store.getHead(key), null);
    });

    promises('a head comes back as it was committed, write after write', async ({ store, key }) => {
      for (const written of lifeOfAHead()) {
        assert.deepEqual(await store.commit(key, written, NO_FENCE), { kind: 'committed' });
        assert.deepEqual(await store.getHead(key), written);
      }
    });

    promises('of two first heads one loses', async ({ store, key }) => {
      const outcomes = await Promise.all([
        store.commit(key, head({ changedAt: 1 as EpochMs }), NO_FENCE),
        store.commit(key, head({ changedAt: 2 as EpochMs }), NO_FENCE),
      ]);
      assert.deepEqual(outcomes.map(({ kind }) => kind).sort(), ['committed', 'conflict']);
      const winner = outcomes.findIndex(({ kind }) => kind === 'committed') + 1;
      assert.equal((await store.getHead(key))?.changedAt, winner);
    });

    promises('of many writers of one version one wins, and its head stays', async ({ store, key }) => {
      await store.commit(key, head(), NO_FENCE);
      const rivals = [10, 11, 12, 13].map((at) => head({ version: 2, changedAt: at as EpochMs }));
      const outcomes = await Promise.all(rivals.map((rival) => store.commit(key, rival, NO_FENCE)));
      const winners = rivals.filter((_, index) => outcomes[index]?.kind === 'committed');
      assert.equal(winners.length, 1);
      assert.deepEqual(await store.getHead(key), winners[0]);
    });

    promises(
      'a head over none, or over a later one, conflicts and writes nothing',
      async ({ store, key }) => {
        assert.deepEqual(await store.commit(key, head({ version: 2 }), NO_FENCE), { kind: 'conflict' });
        assert.equal(await store.getHead(key), null);
        await store.commit(key, head(), NO_FENCE);
        await store.commit(key, head({ version: 2 }), NO_FENCE);
        assert.deepEqual(await store.commit(key, head({ version: 2 }), NO_FENCE), { kind: 'conflict' });
        assert.deepEqual(await store.commit(key, head({ version: 4 }), NO_FENCE), { kind: 'conflict' });
        assert.equal((await store.getHead(key))?.version, 2);
      },
    );

    promises('no head is written at or behind its deadline (P8)', async ({ store, clock, key }) => {
      const fence = { deadline: clock.monotonic() };
      await assert.rejects(store.commit(key, head(), fence), FencedError);
      assert.equal(await store.getHead(key), null);
    });

    promises('chunks are read by name, missing ones left out', async ({ store, key, cluster }) => {
      const [first, second, missing] = [chunkName(UID, 1), chunkName(OTHER_UID, 2), chunkName(UID, 3)];
      await store.putChunk(key, first, Uint8Array.of(1));
      await store.putChunk(key, second, Uint8Array.of(2, 3));
      const expected = new Map([[first, Uint8Array.of(1)]]);
      assert.deepEqual(await store.getChunks(key, [first, missing]), expected);
      assert.deepEqual(await store.getChunks(key, []), new Map());
      const all = await store.queryChunks(key);
      assert.deepEqual(all, new Map([...expected, [second, Uint8Array.of(2, 3)]]));
      assert.deepEqual(await store.queryChunks(serviceKey(cluster, 'web-2')), new Map());
    });

    promises('any number of chunks is read at once', async ({ store, key }) => {
      const names = Array.from({ length: 230 }, (_, index) => chunkName(UID, index));
      await Promise.all(names.map((name, index) => store.putChunk(key, name, Uint8Array.of(index))));
      const found = await store.getChunks(key, [...names, ...names]);
      assert.equal(found.size, names.length);
      names.forEach((name, index) => void assert.deepEqual(found.get(name), Uint8Array.of(index)));
    });

    promises('a chunk may be put again, but never changes', async ({ store, key }) => {
      const name = chunkName(UID, 1);
      await store.putChunk(key, name, Uint8Array.of(1));
      await store.putChunk(key, name, Uint8Array.of(1));
      await assert.rejects(store.putChunk(key, name, Uint8Array.of(2)));
      assert.deepEqual((await store.getChunks(key, [name])).get(name), Uint8Array.of(1));
    });

    promises(
      'a subscription is read until it ends, and put again it is renewed',
      async ({ store, clock, key }) => {
        const until = (ms: number) => (clock.now() + ms) as EpochMs;
        const subscription = { key, id: 'a.b-C_1', port: '53/UDP' as PortId, until: until(1500) };
        assert.equal(await store.getSubscription(key, subscription.id), null);
        await store.putSubscription(subscription);
        assert.deepEqual(await store.getSubscription(key, subscription.id), subscription);
        assert.equal(await store.getSubscription(key, 'other'), null);
        clock.advance(1000);
        const renewed = { ...subscription, port: HTTP, until: until(1000) };
        await store.putSubscription(renewed);
        clock.advance(999);
        assert.deepEqual(await store.getSubscription(key, subscription.id), renewed);
        clock.advance(1);
        assert.equal(await store.getSubscription(key, subscription.id), null);
      },
    );

    promises(
      'subscriptions are listed of one service and of all, ended ones too',
      async ({ store, clock, cluster }) => {
        const all = ['web', 'web-2', 'we'].flatMap((name) =>
          ['a', 'b'].map((id) => ({ key: serviceKey(cluster, name), id, port: HTTP, until: clock.now() })),
        );
        for (const subscription of all) await store.putSubscription(subscription);
        assert.deepEqual(
          (await subscriptionsOf(store, serviceKey(cluster, 'web')))
            .map(({ key, id }) => `${key.name}#${id}`)
            .sort(),
          ['web#a', 'web#b'],
        );
        const listed = await subscriptionsOf(store, null);
        for (const subscription of all)
          assert(
            listed.some((one) => isDeepStrictEqual(one, subscription)),
            JSON.stringify(subscription),
          );
        assert.deepEqual(await subscriptionsOf(store, serviceKey(cluster, 'none')), []);
      },
    );

    promises(
      'a subscription is deleted once, and not when it was renewed meanwhile',
      async ({ store, clock, key }) => {
        const until = (clock.now() + 10) as EpochMs;
        await store.putSubscription({ key, id: 'a', port: HTTP, until });
        assert.equal(await store.deleteSubscription(key, 'a', (until - 1) as EpochMs), false);
        assert.equal((await store.getSubscription(key, 'a'))?.until, until);
        assert.equal(await store.deleteSubscription(key, 'a', until), true);
        assert.equal(await store.deleteSubscription(key, 'a', until), false);
        await store.putSubscription({ key, id: 'a', port: HTTP, until });
        assert.equal(await store.deleteSubscription(key, 'a', null), true);
        assert.equal(await store.deleteSubscription(key, 'a', null), false);
      },
    );

    promises('deleting chunks counts those that were there', async ({ store, key }) => {
      const names = Array.from({ length: 40 }, (_, index) => chunkName(UID, index));
      for (const name of names.slice(0, 35)) await store.putChunk(key, name, Uint8Array.of(1));
      assert.equal(await store.deleteChunks(key, names), 35);
      assert.equal(await store.deleteChunks(key, names), 0);
      assert.deepEqual(await store.queryChunks(key), new Map());
    });

    promises(
      'a body comes back in one piece, and not at all when a piece is gone',
      async ({ store, key }) => {
        for (const part of [2, 0, 1]) await store.putBody(key, 'b1', part, Uint8Array.of(part, part));
        assert.deepEqual(
          new Uint8Array((await store.getBody(key, 'b1', 3)) ?? []),
          Uint8Array.of(0, 0, 1, 1, 2, 2),
        );
        assert.equal(await store.getBody(key, 'b1', 4), null);
        assert.equal(await store.getBody(key, 'b2', 1), null);
      },
    );

    promises('receipts are found by port and sequence', async ({ store, key }) => {
      const udp = '80/UDP' as PortId;
      const published = [inlineEntry(1), inlineEntry(3, udp)];
      const open = [inlineEntry(2), inlineEntry(3), inlineEntry(1, udp)];
      assert.deepEqual(await store.findReceipts(key, []), new Set());
      for (const entry of published) {
        await store.putReceipt(key, { entry, expiresAt: (START + HOUR_MS) as EpochMs, isDead: false });
      }
      assert.deepEqual(await store.findReceipts(key, [...open, ...published]), new Set(published));
    });

    promises('the history of a port is read in order, a limit at a time', async ({ store, key }) => {
      const receipts = [1, 2, 9, 10, 11, 100].map((sequence) => ({
        entry: inlineEntry(sequence),
        expiresAt: (START + HOUR_MS) as EpochMs,
        isDead: sequence === 10,
      }));
      for (const receipt of receipts.toReversed()) await store.putReceipt(key, receipt);
      const other = { ...receipts[0], entry: inlineEntry(1, '8' as PortId) };
      await store.putReceipt(key, { ...other, expiresAt: (START + HOUR_MS) as EpochMs, isDead: false });
      assert.deepEqual(await store.listReceipts(key, HTTP, 0, 100), receipts);
      assert.deepEqual(await store.listReceipts(key, HTTP, 2, 2), receipts.slice(2, 4));
      assert.deepEqual(await store.listReceipts(key, HTTP, 100, 10), []);
    });

    promises('an expired receipt is no history, but still proves its publication', async (context) => {
      const { store, clock, key } = context;
      const expiresAt = (clock.now() + 1000) as EpochMs;
      for (const sequence of [1, 2, 3]) {
        const later = (expiresAt + (sequence === 2 ? 1000 : 0)) as EpochMs;
        await store.putReceipt(key, { entry: inlineEntry(sequence), expiresAt: later, isDead: false });
      }
      clock.advance(1000);
      const listed = await store.listReceipts(key, HTTP, 0, 2);
      assert.deepEqual(
        listed.map(({ entry }) => entry.sequence),
        [2],
      );
      const first = inlineEntry(1);
      assert.deepEqual(await store.findReceipts(key, [first]), new Set([first]));
    });

    promises('a receipt gives its body the same expiry', async ({ store, clock, key }) => {
      for (const part of [0, 1]) await store.putBody(key, 'b1', part, Uint8Array.of(part));
      await store.putBody(key, 'b2', 0, Uint8Array.of(9));
      const body = { kind: 'stored', name: 'b1', parts: 2 } as const;
      const entry = { port: HTTP, sequence: 7, body };
      const receipt = { entry, expiresAt: (clock.now() + HOUR_MS) as EpochMs, isDead: false };
      await store.putReceipt(key, receipt);
      assert.deepEqual(await store.listReceipts(key, HTTP, 0, 9), [receipt]);
      const { bodies } = await store.listLeftovers(key);
      assert.deepEqual(bodies, [{ name: 'b2', parts: 1, at: clock.now() }]);
      assert.equal(await store.deleteBody(key, { name: 'b1', parts: 2, at: clock.now() }), 0);
      assert.deepEqual(new Uint8Array((await store.getBody(key, 'b1', 2)) ?? []), Uint8Array.of(0, 1));
      clock.advance(HOUR_MS);
      assert.equal(await store.getBody(key, 'b1', 2), null);
    });

    promises('a receipt of a body that is gone makes no body', async ({ store, key }) => {
      const entry = { port: HTTP, sequence: 1, body: { kind: 'stored', name: 'gone', parts: 1 } } as const;
      await store.putReceipt(key, { entry, expiresAt: (START + 99 * HOUR_MS) as EpochMs, isDead: false });
      assert.equal(await store.getBody(key, 'gone', 1), null);
      assert.deepEqual(await store.findReceipts(key, [entry]), new Set([entry]));
    });

    promises('leftovers tell when they were made', async ({ store, clock, key }) => {
      const at = clock.now();
      await store.putChunk(key, chunkName(OTHER_UID, 1), Uint8Array.of(1));
      await store.putBody(key, 'b1', 0, Uint8Array.of(1));
      clock.advance(5000);
      await store.putBody(key, 'b1', 2, Uint8Array.of(1));
      const later = clock.now();
      const body = { name: 'b1', parts: 3, at: later };
      const leftovers = await store.listLeftovers(key);
      assert.deepEqual(leftovers, { chunks: [{ chunk: chunkName(OTHER_UID, 1), at }], bodies: [body] });
      assert.equal(await store.deleteBody(key, body), 2);
      assert.deepEqual((await store.listLeftovers(key)).bodies, []);
    });

    describe('services are listed in the order of (namespace, name)', () => {
      const names = [
        ['a', 'web'],
        ['a', 'web-2'],
        ['a', 'web.x'],
        ['a', 'web0'],
        ['a', 'Web'],
        ['a', 'web_x'],
        ['a-b', 'a'],
        ['a-b', 'x'],
        ['a.b', 'web'],
        ['a0', 'web'],
        ['aa', 'web'],
        ['b', 'a'],
      ] as const;
      const inOrder = names.map(([namespace, name]) => ({ namespace, name })).sort(byNamespaceAndName);
      const cluster = 'listed';
      const list = async (range: ServiceRange) => {
        const summaries = await listAll(fixture.store, cluster, range);
        return summaries.map(({ key }) => `${key.namespace}/${key.name}`);
      };
      const expect = (test: (name: { namespace: string; name: string }) => boolean) =>
        inOrder.filter(test).map(({ namespace, name }) => `${namespace}/${name}`);

      before(async () => {
        for (const { namespace, name } of inOrder.toReversed()) {
          await fixture.store.commit(serviceKey(cluster, name, namespace), head(), NO_FENCE);
        }
        await fixture.store.commit(serviceKey(`${cluster}-2`, 'web', 'a'), head(), NO_FENCE);
      });

      it('all of a cluster', async () => {
        assert.deepEqual(
          await list({}),
          expect(() => true),
        );
      });

      it('one namespace', async () => {
        for (const namespace of ['a', 'a-b', 'a.b', 'b', 'c'])
          assert.deepEqual(
            await list({ namespace }),
            expect((it) => it.namespace === namespace),
          );
      });

      it('every range from behind one service up to another', async () => {
        const ends = [...inOrder, { namespace: 'a', name: 'no-such' }, { namespace: 'Z', name: 'z' }];
        for (const from of ends) {
          const isBehind = (it: (typeof ends)[number]) => byNamespaceAndName(it, from) > 0;
          assert.deepEqual(await list({ after: from }), expect(isBehind));
          for (const to of ends) {
            const isUpTo = (it: (typeof ends)[number]) => byNamespaceAndName(it, to) <= 0;
            const expected = expect((it) => isBehind(it) && isUpTo(it));
            assert.deepEqual(await list({ after: from, upTo: to }), expected);
          }
          const inNamespace = expect((it) => it.namespace === 'a' && isBehind(it));
          assert.deepEqual(await list({ namespace: 'a', after: from }), inNamespace);
        }
      });
    });

    promises(
      'a summary follows its head, and goes when it is not listed',
      async ({ store, key, cluster }) => {
        const summaries = () => listAll(store, cluster);
        const windowUntil = (START + 5) as EpochMs;
        const ports = new Map([[HTTP, portState({ sequence: 4, size: 2, digest: 2n ** 255n + 1n })]]);
        await store.commit(key, head({ windowUntil, records: { ports } }), NO_FENCE);
        assert.deepEqual(await summaries(), [
          {
            key,
            type: 'ClusterIP',
            exists: true,
            changedAt: START,
            windowUntil,
            ports: [{ id: HTTP, name: 'http', size: 2, sequence: 4, digest: 2n ** 255n + 1n }],
          },
        ]);
        await store.commit(key, head({ version: 2, records: { service: null } }), NO_FENCE);
        const [deleted] = await summaries();
        assert.deepEqual([deleted?.exists, deleted?.type, deleted?.windowUntil], [false, null, null]);
        await store.commit(key, head({ version: 3, isListed: false }), NO_FENCE);
        assert.deepEqual(await summaries(), []);
        assert.equal((await store.getHead(key))?.isListed, false);
      },
    );

    promises('a receipt is read by itself, until it expires', async ({ store, clock, key }) => {
      const receipt = { entry: inlineEntry(4), expiresAt: (clock.now() + HOUR_MS) as EpochMs, isDead: false };
      assert.equal(await store.getReceipt(key, receipt.entry), null);
      await store.putReceipt(key, receipt);
      assert.deepEqual(await store.getReceipt(key, { port: HTTP, sequence: 4 }), receipt);
      assert.equal(await store.getReceipt(key, { port: HTTP, sequence: 5 }), null);
      clock.advance(HOUR_MS);
      assert.equal(await store.getReceipt(key, receipt.entry), null);
    });

    promises(
      'dead receipts are listed by port and sequence until they are taken off the list, or expire',
      async ({ store, clock, cluster }) => {
        const [web, api] = [serviceKey(cluster, 'web'), serviceKey(cluster, 'api')];
        const udp = '80/UDP' as PortId;
        const listed = async () => {
          const letters = await store.listDeadLetters(1000);
          return letters.filter(({ key }) => key.cluster === cluster);
        };
        const expiresAt = (clock.now() + HOUR_MS) as EpochMs;
        const die = (key: ServiceKey, port: PortId, sequence: number, isDead = true) =>
          store.putReceipt(key, { entry: { ...inlineEntry(sequence), port }, expiresAt, isDead });
        await die(web, HTTP, 10);
        await die(web, HTTP, 9);
        await die(web, HTTP, 11, false);
        await die(web, udp, 1);
        await die(api, HTTP, 3);
        await die(api, HTTP, 3);
        const letters = [
          { key: api, port: HTTP, sequence: 3 },
          { key: web, port: HTTP, sequence: 9 },
          { key: web, port: HTTP, sequence: 10 },
          { key: web, port: udp, sequence: 1 },
        ];
        assert.deepEqual(await listed(), letters);
        assert.equal((await store.listDeadLetters(2)).length, 2);
        assert.equal((await store.getReceipt(web, { port: HTTP, sequence: 9 }))?.isDead, true);

        for (const letter of letters.slice(1, 3)) await store.deleteDeadLetter(letter);
        await store.deleteDeadLetter({ key: web, port: HTTP, sequence: 99 });
        assert.deepEqual(await listed(), [letters[0], letters[3]]);
        clock.advance(HOUR_MS);
        assert.deepEqual(await listed(), []);
      },
    );

    promises('a cluster is written only over what was expected', async ({ store, cluster }) => {
      const first = clusterRecord(cluster);
      assert.equal(await store.getCluster(cluster), null);
      assert.equal(await store.putCluster(first, clusterRecord(cluster, { epoch: 9 })), false);
      assert.equal(await store.putCluster(first, null), true);
      assert.deepEqual(await store.getCluster(cluster), first);
      assert.equal(await store.putCluster(clusterRecord(cluster, { epoch: 2 }), null), false);
      const second = clusterRecord(cluster, {
        uid: 'u1',
        epoch: 2,
        hadFormerEpoch: true,
        mode: 'endpoints',
        namespaces: ['a', 'b'],
        versions: { Service: '150', EndpointSlice: '149' },
        lastHeartbeat: START,
        lastSynced: START,
        lostSince: START,
        histograms: { lag: [{ labels: { le: 'x' }, bounds: [0.5], buckets: [1], count: 2, sum: 3.25 }] },
        lastEventAges: { Service: null, EndpointSlice: 12.5 },
        resyncs: 3,
        deletion: 'settling',
      });
      assert.equal(await store.putCluster(second, first), true);
      assert.deepEqual(await store.getCluster(cluster), second);
      assert.equal(await store.putCluster(clusterRecord(cluster, { epoch: 3 }), first), false);
      assert.deepEqual(await store.getCluster(cluster), second);
    });

    promises('clusters are listed by name', async ({ store, cluster }) => {
      const names = ['z', 'a', 'a-b'].map((suffix) => `${cluster}-${suffix}`);
      for (const name of names) await store.putCluster(clusterRecord(name), null);
      const listed = (await store.listClusters()).filter(({ name }) => names.includes(name));
      assert.deepEqual(
        listed,
        [...names].sort().map((name) => clusterRecord(name)),
      );
    });

    promises('a lease has one holder until it is given back or runs out', async ({ store, clock }) => {
      const now = clock.now();
      const until = (now + 55_000) as EpochMs;
      const untold = { lastPass: null, lastVisit: null };
      assert.deepEqual(await store.takeLease('one', until, now), untold);
      assert.equal(await store.takeLease('two', until, now), null);
      assert.equal(await store.takeLease('two', until, (until - 1) as EpochMs), null);
      await store.releaseLease('two', { lastPass: START, lastVisit: START });
      assert.equal(await store.takeLease('two', until, now), null);
      await store.releaseLease('one', { lastPass: now, lastVisit: null });
      assert.deepEqual(await store.takeLease('two', until, now), { lastPass: now, lastVisit: null });
      const later = (until + 55_000) as EpochMs;
      assert.deepEqual(await store.takeLease('three', later, until), { lastPass: now, lastVisit: null });
      await store.releaseLease('two', untold);
      assert.equal(await store.takeLease('two', later, until), null);
      assert.deepEqual(await store.takeLease('three', later, until), { lastPass: now, lastVisit: null });
      await store.releaseLease('three', { lastPass: now, lastVisit: until });
      assert.deepEqual(await store.takeLease('four', later, until), { lastPass: now, lastVisit: until });
    });
  });
}

async function listAll(store: Store, cluster: string, range: ServiceRange = {}): Promise<ServiceSummary[]> {
  const summaries: ServiceSummary[] = [];
  for await (const page of store.listServices(cluster, range)) summaries.push(...page);
  return summaries;
}

type Name = Pick<ServiceKey, 'namespace' | 'name'>;

function byNamespaceAndName(a: Name, b: Name): number {
  const order = (left: string, right: string) => (left < right ? -1 : left > right ? 1 : 0);
  return order(a.namespace, b.namespace) || order(a.name, b.name);
}

/** Heads of one service that have everything, then less, then nothing. */
function lifeOfAHead(): Head[] {
  const udp = '53/UDP' as PortId;
  const cause = { kind: 'Service', name: 'web', type: 'MODIFIED', resourceVersion: '130' } as const;
  const window = { formerNames: ['http'], until: (START + 10_000) as EpochMs, isRepeated: true, cause };
  const full = head({
    objects: [
      storedObject({ enrichment: { epoch: 7, number: 12 } }),
      storedObject({
        uid: OTHER_UID,
        name: 'other',
        kind: 'Endpoints',
        isTruncated: true,
        count: 240,
        body: { kind: 'chunks', names: [chunkName(OTHER_UID, 5), chunkName(OTHER_UID, 6)] },
      }),
      storedObject({
        uid: UID.toUpperCase(),
        name: 'web-inline',
        body: { kind: 'inline', parts: [Uint8Array.of(1, 2), Uint8Array.of(), Uint8Array.of(3)] },
      }),
    ],
    pending: [inlineEntry(4), { port: udp, sequence: 9, body: { kind: 'stored', name: 'b1', parts: 3 } }],
    garbage: [
      { chunk: chunkName(UID, 8), at: START },
      { chunk: chunkName(UID, 9), at: (START + 1000) as EpochMs },
      { chunk: chunkName('gone', 7), at: START },
    ],
    windowUntil: window.until,
    records: {
      preferredKind: 'Endpoints',
      service: serviceRecord({ type: 'LoadBalancer', isLocal: true, hasSelector: false }),
      deletions: new Map([
        [UID, { version: '99', at: START }],
        ['odd uid', { version: '1'.repeat(40), at: (START + 1) as EpochMs }],
      ]),
      ports: new Map([
        [HTTP, portState({ name: 'web', sequence: 4, size: 3, digest: 2n ** 256n - 1n })],
        [udp, portState({ port: 53, protocol: 'UDP', name: '', sequence: 9, exists: false })],
      ]),
      windows: new Map([[HTTP, window]]),
    },
  });
  const deleted = head({
    version: 2,
    isListed: false,
    records: { service: null, ports: full.records.ports },
  });
  const again = head({
    version: 3,
    records: { service: serviceRecord({ type: 'ExternalName', externalName: '' }) },
  });
  return [full, deleted, again];
}

async function subscriptionsOf(store: Store, key: ServiceKey | null): Promise<Subscription[]> {
  const found: Subscription[] = [];
  for await (const page of store.listSubscriptions(key)) found.push(...page);
  return found;
}
