import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Relay } from '../../relay/relay.ts';
import { portSet } from '../../wire/api.ts';
import { eventually } from '../eventually.ts';
import { fastTimers } from '../fast-timers.ts';
import { createDeployment, createService, createStatefulSet, rollOut } from './workloads.ts';
import { World } from './world.ts';

/** A resource that is not installed is asked for so much more often than by default. */
const SPEED = 20;
const NAMESPACE = 'enriched';
const REPLICAS = 5;

let world: World;
let relay: Relay;
before(async () => {
  world = await World.start();
  relay = world.startRelay({
    mode: 'slices',
    timers: fastTimers(SPEED),
    enrich: ['pods', 'servers'],
  });
  await world.client.create('Namespace', { name: NAMESPACE });
});
after(async () => {
  await relay[Symbol.asyncDispose]();
  await world[Symbol.asyncDispose]();
});

/** Linkerd's Servers, as its chart installs them; the schema takes anything. */
const SERVERS = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'servers.policy.linkerd.io' },
  spec: {
    group: 'policy.linkerd.io',
    scope: 'Namespaced',
    names: { kind: 'Server', plural: 'servers', singular: 'server' },
    versions: [
      {
        name: 'v1beta3',
        served: true,
        storage: true,
        schema: { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
      },
    ],
  },
};

async function send(method: string, path: string, body?: object): Promise<void> {
  const { status, text } = await world.client.status(method, path, body);
  assert(status < 300, `${method} ${path}: ${status} ${text}`);
}

async function addressesOf(service: string) {
  const path = `/v1/clusters/slices/namespaces/${NAMESPACE}/services/${service}/endpoints?port=80`;
  const response = await fetch(world.stack.url + path);
  assert.equal(response.status, 200);
  return portSet.parse(await response.json()).addresses;
}

/** Waits until so many addresses all tell the same. */
const allTell = (service: string, count: number, want: object) =>
  eventually(async () => {
    const told = await addressesOf(service);
    assert.deepEqual(
      told.map(({ owner, opaqueProtocol }) => ({ owner, opaqueProtocol: opaqueProtocol ?? false })),
      Array.from({ length: count }, () => want),
    );
  });

describe('what a real API server tells of the pods behind addresses', () => {
  test('the owner of a pod is its Deployment, beyond the ReplicaSet, or its StatefulSet; also after a rollout (S30)', async () => {
    const { client } = world;
    await createService(client, NAMESPACE, 'web');
    await createDeployment(client, NAMESPACE, 'web', REPLICAS);
    await createStatefulSet(client, NAMESPACE, 'db', 3);
    const ofWeb = { owner: { kind: 'Deployment', name: 'web' }, opaqueProtocol: false };
    await allTell('web', REPLICAS, ofWeb);
    await allTell('db', 3, { owner: { kind: 'StatefulSet', name: 'db' }, opaqueProtocol: false });
    const before = new Set(await world.readyIps(NAMESPACE, 'web'));
    await rollOut(client, NAMESPACE, 'web', '2');
    await eventually(async () =>
      assert((await world.readyIps(NAMESPACE, 'web')).every((ip) => !before.has(ip))),
    );
    await world.hasReady(NAMESPACE, 'web', REPLICAS);
    await allTell('web', REPLICAS, ofWeb);
    const [address] = await addressesOf('web');
    assert.match(address?.node ?? '', /^n\d$/);
    assert.equal(address?.zone, `zone-${address?.node}`);
  });

  test('Servers are installed while the relay runs; one makes the port opaque until it is deleted, by updates alone (S5, S7)', async () => {
    const owner = { kind: 'Deployment', name: 'web' };
    await eventually(() => assert.deepEqual(relay.notReady(), []));
    const updates = async () => {
      const subscriber = await world.subscriber('slices');
      return subscriber.deltas().filter(({ detail }) => detail.group === `slices/${NAMESPACE}/web:80`);
    };
    const { length } = await updates();
    await send('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', SERVERS);
    const servers = `/apis/policy.linkerd.io/v1beta3/namespaces/${NAMESPACE}/servers`;
    await eventually(() =>
      send('POST', servers, {
        apiVersion: 'policy.linkerd.io/v1beta3',
        kind: 'Server',
        metadata: { name: 'web' },
        spec: { podSelector: { matchLabels: { app: 'web' } }, port: 'http', proxyProtocol: 'opaque' },
      }),
    );
    await allTell('web', REPLICAS, { owner, opaqueProtocol: true });
    await send('DELETE', `${servers}/web`);
    await allTell('web', REPLICAS, { owner, opaqueProtocol: false });
    const since = (await updates()).slice(length);
    assert.deepEqual(
      since.map(({ detail }) => [detail.added.length, detail.removed.length]),
      since.map(() => [0, 0]),
    );
    assert.notEqual(since.length, 0);
  });

  test("all of it is in the chart's role: nothing but the absent Servers was denied, and no form of request was refused (W4, W13)", () => {
    const ends = relay.metrics
      .render()
      .split('\n')
      .filter((line) =>
        /^endpoints_watcher_relay_watch_ends_total\{.*cause="(denied|refused|failed)"/.test(line),
      );
    assert.deepEqual(
      ends.filter((line) => !line.includes('kind="Server"')),
      [],
    );
    assert.notEqual(ends.length, 0);
  });
});
