import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Relay } from '../../relay/relay.ts';
import { eventually } from '../eventually.ts';
import { createDeployment, createService, createStatefulSet, HTTP, rollOut, scale } from './workloads.ts';
import { World } from './world.ts';

let world: World;
let relays: Relay[];
before(async () => {
  world = await World.start();
  relays = (['slices', 'endpoints'] as const).map((mode) => world.startRelay({ mode }));
});
after(async () => {
  for (const relay of relays) await relay[Symbol.asyncDispose]();
  await world[Symbol.asyncDispose]();
});

/** Both modes tell the truth, each by a relay of its own. */
async function allIsTrue(): Promise<void> {
  await world.isTrue('slices');
  await world.isTrue('endpoints');
}

/** The deltas of one service port since a moment, in slices mode. */
async function deltasOf(namespace: string, port: string) {
  const subscriber = await world.subscriber('slices');
  return subscriber.deltas().filter(({ detail }) => detail.group === `slices/${namespace}/${port}`);
}

const SCENARIOS: Readonly<Record<string, (namespace: string) => Promise<void>>> = {
  'a rollout replaces every pod': async (ns) => {
    await createService(world.client, ns, 'web');
    await createDeployment(world.client, ns, 'web', 12);
    await world.hasReady(ns, 'web', 12);
    const before = new Set(await world.readyIps(ns, 'web'));
    await allIsTrue();
    const { length } = await deltasOf(ns, 'web:80');
    await rollOut(world.client, ns, 'web', '2');
    await eventually(async () => {
      const now = await world.readyIps(ns, 'web');
      assert.equal(now.length, 12);
      assert(now.every((ip) => !before.has(ip)));
    });
    await allIsTrue();
    const since = (await deltasOf(ns, 'web:80')).slice(length);
    assert.deepEqual(
      since.filter(({ type }) => type === 'NoEndpoints'),
      [],
    );
  },
  'pods go from 0 to 35, 12, 0 and 5 over several slices': async (ns) => {
    await createService(world.client, ns, 'web');
    await createDeployment(world.client, ns, 'web', 0);
    for (const count of [35, 12, 0, 5]) {
      await scale(world.client, ns, 'web', count);
      await world.hasReady(ns, 'web', count);
      await allIsTrue();
    }
  },
  'the target port, then the name of the port changes: the port is never without endpoints (S17, S23)':
    async (ns) => {
      await createService(world.client, ns, 'web');
      await createDeployment(world.client, ns, 'web', 25);
      await world.hasReady(ns, 'web', 25);
      await allIsTrue();
      const { length } = await deltasOf(ns, 'web:80');
      const id = { kind: 'Service', namespace: ns, name: 'web' } as const;
      const hasPort = (name: string, port: number) =>
        eventually(async () => {
          const { slices } = await world.client.listSets();
          const own = slices.filter(({ metadata }) => metadata.namespace === ns);
          assert(own.every(({ ports }) => ports?.[0]?.name === name && ports[0].port === port));
        });
      await world.client.patch(id, { spec: { ports: [{ ...HTTP, targetPort: 'other' }] } });
      await hasPort('http', 9090);
      await allIsTrue();
      await world.client.patch(id, { spec: { ports: [{ ...HTTP, name: 'www' }] } });
      await hasPort('www', 8080);
      await allIsTrue();
      const since = (await deltasOf(ns, 'web:80')).slice(length);
      assert.deepEqual(
        since.filter(({ type }) => type === 'NoEndpoints'),
        [],
      );
    },
  'a Service is deleted and created at once (S35)': async (ns) => {
    await createService(world.client, ns, 'web');
    await createDeployment(world.client, ns, 'web', 5);
    await world.hasReady(ns, 'web', 5);
    await allIsTrue();
    await world.client.delete({ kind: 'Service', namespace: ns, name: 'web' });
    await createService(world.client, ns, 'web');
    await world.hasReady(ns, 'web', 5);
    await allIsTrue();
    await world.client.delete({ kind: 'Service', namespace: ns, name: 'web' });
    await world.hasReady(ns, 'web', 0);
    await allIsTrue();
    assert.equal((await deltasOf(ns, 'web:80')).at(-1)?.detail.exists, false);
  },
  'a selector is taken away, and Endpoints written by hand are mirrored (S37)': async (ns) => {
    await createService(world.client, ns, 'web');
    await createDeployment(world.client, ns, 'web', 3);
    await world.hasReady(ns, 'web', 3);
    await allIsTrue();
    const name = 'web';
    await world.client.patch({ kind: 'Service', namespace: ns, name }, { spec: { selector: null } });
    // The Endpoints controller leaves it alone from now on; its label would keep it from being mirrored.
    const byHand = (...ips: string[]) => ({
      apiVersion: 'v1',
      kind: 'Endpoints',
      metadata: { name, namespace: ns },
      subsets: [{ addresses: ips.map((ip) => ({ ip })), ports: [{ name: 'http', port: 8080 }] }],
    });
    await world.client.replace(
      { kind: 'Endpoints', namespace: ns, name },
      byHand('198.51.100.7', '198.51.100.8'),
    );
    await eventually(async () =>
      assert((await world.readyIps(ns, 'web')).some((ip) => ip.startsWith('198.51.100.'))),
    );
    await allIsTrue();
    await world.client.replace({ kind: 'Endpoints', namespace: ns, name }, byHand('198.51.100.9'));
    await eventually(async () => assert((await world.readyIps(ns, 'web')).includes('198.51.100.9')));
    await allIsTrue();
  },
  'a pod of a StatefulSet is replaced: its name stays, its address does not (S1, S39)': async (ns) => {
    await createStatefulSet(world.client, ns, 'db', 3);
    await world.hasReady(ns, 'db', 3);
    await allIsTrue();
    const before = await world.readyIps(ns, 'db');
    await world.client.delete({ kind: 'Pod', namespace: ns, name: 'db-1' });
    await eventually(async () => {
      const now = await world.readyIps(ns, 'db');
      assert.equal(now.filter((ip) => before.includes(ip)).length, 2);
      assert.equal(now.length, 3);
    });
    await allIsTrue();
    const url = `${world.stack.url}/v1/clusters/slices/namespaces/${ns}/services/db/endpoints?port=80&hostname=db-1`;
    const { addresses } = (await (await fetch(url)).json()) as {
      addresses: { ip: string; target: object }[];
    };
    assert.equal(addresses.length, 1);
    assert(!before.includes(addresses[0]?.ip ?? ''));
  },
  'a dual-stack Service is made single-stack (S13)': async (ns) => {
    await createService(world.client, ns, 'web', { ipFamilyPolicy: 'RequireDualStack' });
    await createDeployment(world.client, ns, 'web', 4);
    await world.hasReady(ns, 'web', 8);
    await allIsTrue();
    await world.client.patch(
      { kind: 'Service', namespace: ns, name: 'web' },
      { spec: { ipFamilyPolicy: 'SingleStack' } },
    );
    await world.hasReady(ns, 'web', 4);
    await allIsTrue();
  },
  'a Service becomes an ExternalName and a Service again (S36)': async (ns) => {
    await createService(world.client, ns, 'web');
    await createDeployment(world.client, ns, 'web', 3);
    await world.hasReady(ns, 'web', 3);
    await allIsTrue();
    const id = { kind: 'Service', namespace: ns, name: 'web' } as const;
    await world.client.patch(id, {
      spec: {
        type: 'ExternalName',
        externalName: 'web.example.com',
        clusterIP: null,
        clusterIPs: null,
        ipFamilies: null,
        ipFamilyPolicy: null,
      },
    });
    const url = `${world.stack.url}/v1/clusters/slices/namespaces/${ns}/services/web/endpoints?port=80`;
    await eventually(async () => assert.equal((await fetch(url)).status, 422));
    assert.equal((await deltasOf(ns, 'web:80')).at(-1)?.detail.size, 0);
    await world.client.patch(id, { spec: { type: 'ClusterIP', externalName: null } });
    await world.hasReady(ns, 'web', 3);
    await allIsTrue();
  },
  'with publishNotReadyAddresses an unready pod is published; without it, it is not (S26, S27)': async (
    ns,
  ) => {
    await createService(world.client, ns, 'web', { publishNotReadyAddresses: true });
    await createDeployment(world.client, ns, 'web', 2);
    await world.hasReady(ns, 'web', 2);
    const [pod] = (await world.client.list('Pod')).filter(({ metadata }) => metadata.namespace === ns);
    assert(pod !== undefined);
    world.player.setReady(ns, pod.metadata.name, false);
    await eventually(async () => {
      const { slices } = await world.client.listSets();
      const own = slices.filter(({ metadata }) => metadata.namespace === ns);
      const serving = own
        .flatMap(({ endpoints }) => endpoints ?? [])
        .map(({ conditions }) => conditions?.serving);
      assert.deepEqual(serving.sort(), [false, true]);
    });
    await world.hasReady(ns, 'web', 2);
    await allIsTrue();
    await world.client.patch(
      { kind: 'Service', namespace: ns, name: 'web' },
      { spec: { publishNotReadyAddresses: false } },
    );
    await world.hasReady(ns, 'web', 1);
    await allIsTrue();
  },
};

describe('what the real controllers do is told by both modes', () => {
  for (const [index, [name, scenario]] of Object.entries(SCENARIOS).entries()) {
    test(name, async () => {
      const namespace = `scenario-${index}`;
      await world.client.create('Namespace', { name: namespace });
      await scenario(namespace);
    });
  }

  test('the watch-list is taken, never refused, and the relay has no right that it does not need (W1)', async () => {
    for (const relay of relays) {
      const metrics = relay.metrics.render();
      assert.doesNotMatch(metrics, /cause="(refused|failed|denied)"/);
      assert.match(metrics, /endpoints_watcher_relay_lists_total\{[^}]*cause="start"[^}]*\} 1/);
    }
    const own = world.plane.relayClient();
    for (const path of ['/api/v1/secrets', '/api/v1/namespaces', '/api/v1/configmaps']) {
      assert.equal((await own.status('GET', path)).status, 403, path);
    }
    assert.equal((await own.status('GET', '/api/v1/services?limit=1')).status, 200);
    await own[Symbol.asyncDispose]();
  });
});
