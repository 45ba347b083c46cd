import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { addressKey } from '../../core/address.ts';
import type { PortSet } from '../../wire/api.ts';
import type { EventsAnswer } from '../../wire/events.ts';
import { type BusMood, type Cloud, startCloud } from './cloud.ts';
import { Subscriber } from './subscriber.ts';

const CLUSTER = 'prod-eu';
const GROUP = `${CLUSTER}/default/web:80`;
const SET = `/v1/clusters/${CLUSTER}/namespaces/default/services/web/endpoints?port=80`;
const WEB = { cluster: CLUSTER, namespace: 'default', name: 'web' };
const MINUTE_MS = 60_000;
/** A change is taken while at most 50 deltas wait. */
const MAX_PENDING = 51;

const OUTAGES: Readonly<Record<string, BusMood>> = {
  missing: { kind: 'picky', codeOf: () => 'ResourceNotFoundException' },
  'denied by entry': { kind: 'picky', codeOf: () => 'AccessDeniedException' },
  'denied by call': { kind: 'refusing', code: 'AccessDeniedException' },
  throttled: { kind: 'refusing', code: 'ThrottlingException' },
  away: { kind: 'away' },
};

/** A Service with a port of the slice for each of its own. */
function service(ports: readonly number[] = [80]) {
  const named = ports.map((port) => ({ name: port === 80 ? 'http' : `http-${port}`, port }));
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { namespace: 'default', name: 'web', uid: 'svc', resourceVersion: '1' },
    spec: { clusterIP: '10.96.0.1', ports: named },
  };
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, index) => from + index);
}

/** Key of the first address of a version of the slice. */
function keyOf(version: number): string {
  return `10.0.0.${version}:8080`;
}

/** A slice whose version is also one of its addresses; `nodes` makes the delta of its change larger. */
function slice(version: number, nodes: readonly string[] = ['n1']) {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      ...{ namespace: 'default', name: 'web-a', uid: 'slice', resourceVersion: `${version}` },
      labels: { 'kubernetes.io/service-name': 'web' },
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080 }, ...range(81, 99).map((port) => ({ name: `http-${port}`, port }))],
    endpoints: nodes.map((nodeName, index) => ({
      addresses: [`10.${index}.${version >> 8}.${version & 255}`],
      nodeName,
    })),
  };
}

async function tell(cloud: Cloud, object: object, confirm = false) {
  const events = [{ type: 'MODIFIED', object, confirm }];
  const response = await cloud.post('/v1/events', { cluster: CLUSTER, epoch: 1, events });
  const { results } = (await response.json()) as Partial<EventsAnswer>;
  return {
    status: response.status,
    retryAfter: response.headers.get('retry-after'),
    became: results?.[0]?.status,
  };
}

async function keysOf(cloud: Cloud): Promise<string[]> {
  const { addresses } = (await (await fetch(`${cloud.url}${SET}`)).json()) as PortSet;
  return addresses.map(addressKey);
}

async function replay(cloud: Cloud) {
  const subscriber = new Subscriber(CLUSTER);
  subscriber.take(await cloud.entries());
  const port = subscriber.replay().port(GROUP);
  const duplicates = [...subscriber.duplicates().values()].reduce((sum, again) => sum + again, 0);
  return { keys: [...port.addresses.keys()], sequence: port.sequence, duplicates };
}

describe('a bus that fails', () => {
  test('for an hour: each change is 503 and kept, pending deltas are bounded, and nothing is lost (P1)', async () => {
    await using cloud = await startCloud();
    assert.equal((await tell(cloud, service())).status, 200);
    cloud.mood = { kind: 'away' };
    let taken = 0;
    for (let minute = 1; minute <= 60; minute++) {
      const answer = await tell(cloud, slice(minute + 1), true);
      assert.equal(answer.status, 503);
      assert.ok(Number(answer.retryAfter) > 0);
      if ((await keysOf(cloud)).includes(keyOf(minute + 1))) taken++;
      // Once too much waits, nothing more is changed.
      assert.equal(taken, Math.min(minute, MAX_PENDING), `minute ${minute}`);
      cloud.clock.advance(MINUTE_MS);
      if (minute % 15 === 0) assert.equal((await cloud.sweep())?.published, 0);
      // Functions do not live for an hour.
      if (minute % 20 === 0) cloud.restart();
    }
    assert.equal((await cloud.store.getHead(WEB))?.pending.length, MAX_PENDING);
    assert.deepEqual((await replay(cloud)).keys, [], 'nothing got out');

    cloud.mood = { kind: 'well' };
    // The relay kept the newest of the slice, and sends that.
    const last = await tell(cloud, slice(61), true);
    assert.deepEqual([last.status, last.became], [200, 'applied']);
    const { keys, sequence, duplicates } = await replay(cloud);
    assert.deepEqual(keys, await keysOf(cloud));
    assert.deepEqual([sequence, duplicates], [MAX_PENDING + 2, 0]);
  });

  for (const [name, mood] of Object.entries(OUTAGES))
    test(`${name}: 503 until it is back, then the next event tells what waited before its own`, async () => {
      await using cloud = await startCloud();
      await tell(cloud, service());
      cloud.mood = mood;
      for (let version = 2; version <= 4; version++)
        assert.equal((await tell(cloud, slice(version), true)).status, 503);
      assert.equal((await cloud.sweep())?.published, 0);
      cloud.mood = { kind: 'well' };
      assert.equal((await tell(cloud, slice(5), true)).status, 200);
      assert.deepEqual(await replay(cloud), { keys: [keyOf(5)], sequence: 5, duplicates: 0 });
    });

  test('a sweep publishes what waits when the bus is back, before any event', async () => {
    await using cloud = await startCloud();
    await tell(cloud, service());
    cloud.mood = { kind: 'away' };
    for (let version = 2; version <= 4; version++) await tell(cloud, slice(version), true);
    cloud.mood = { kind: 'well' };
    assert.equal((await cloud.sweep())?.published, 3);
    assert.deepEqual(await replay(cloud), { keys: [keyOf(4)], sequence: 4, duplicates: 0 });
    assert.equal((await tell(cloud, slice(4), true)).status, 200);
    assert.equal((await cloud.sweep())?.published, 0);
    assert.equal((await replay(cloud)).duplicates, 0);
  });

  test('deltas of many ports, too large for the head, are bounded by their number', async () => {
    await using cloud = await startCloud();
    const ports = range(80, 99);
    await tell(cloud, service(ports));
    cloud.mood = { kind: 'away' };
    const nodes = Array.from({ length: 60 }, (_, index) => `ip-10-0-${index}-${index * 37}.compute.internal`);
    const taken: number[] = [];
    for (let version = 2; version <= 6; version++) {
      assert.equal((await tell(cloud, slice(version, nodes), true)).status, 503);
      if ((await keysOf(cloud)).includes(keyOf(version))) taken.push(version);
    }
    // The third found 40 waiting, and the fourth 60.
    assert.deepEqual(taken, [2, 3, 4]);
    cloud.restart();
    cloud.mood = { kind: 'well' };
    assert.equal((await tell(cloud, slice(6, nodes), true)).status, 200);
    const { keys, sequence, duplicates } = await replay(cloud);
    assert.deepEqual([keys.length, sequence, duplicates], [60, 5, 0]);
  });
});
