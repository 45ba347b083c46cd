import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { addressKey } from '../../core/address.ts';
import type { WatchedObject } from '../../core/kubernetes.ts';
import { queryPort } from '../../core/query.ts';
import { parsePortId } from '../../core/service-port.ts';
import { hashKey } from '../../wire/key-hash.ts';
import { endpoint, endpoints, HTTP_8080, service, slice } from './builders.ts';
import { CoreCluster } from './core-cluster.ts';

/** What Services are used for, one example each. */

function told(mode: 'slices' | 'endpoints', ...objects: readonly WatchedObject[]): CoreCluster {
  const cluster = new CoreCluster(mode);
  cluster.post(objects.map((object) => ({ type: 'ADDED', object })));
  return cluster;
}

function addressesOf(cluster: CoreCluster, name: string, port: string, hostname?: string): string[] {
  const asked = parsePortId(port);
  assert(asked !== null);
  const answer = queryPort(
    cluster.state({ namespace: 'default', name }),
    asked,
    { tier: 'ready', hostname },
    hashKey,
  );
  return (answer?.addresses ?? []).map(addressKey);
}

/** The one delta that came, as added and removed keys. */
function onlyDelta(cluster: CoreCluster) {
  const [delta, ...others] = cluster.drain();
  assert.deepEqual(others, []);
  const { added = [], removed = [], exists, size } = delta?.detail ?? {};
  return { type: delta?.type, exists, size, added: added.map(addressKey), removed: removed.map(addressKey) };
}

describe('my-service: a selector and three pods', () => {
  const pods = ['10.244.0.5', '10.244.1.6', '10.244.2.7'];
  const web = service({ selector: { app: 'my-app' } }, { name: 'my-service' });
  const three = pods.map((ip, at) => endpoint(ip, 'ready', { pod: `my-app-${at}`, nodeName: `node-${at}` }));
  const keys = pods.map((ip) => `${ip}:8080`);

  test('the slice my-service-abc tells them', () => {
    const cluster = told('slices', web, slice('my-service-abc', three, { service: 'my-service' }));
    assert.deepEqual(onlyDelta(cluster), {
      type: 'EndpointsChanged',
      exists: true,
      size: 3,
      added: keys,
      removed: [],
    });
    assert.deepEqual(addressesOf(cluster, 'my-service', '80'), keys);
  });
  test('so do its Endpoints, where those are watched', () => {
    const subsets = [{ addresses: pods.map((ip) => ({ ip })), ports: [HTTP_8080] }];
    const cluster = told('endpoints', web, endpoints(subsets, { name: 'my-service' }));
    assert.deepEqual(addressesOf(cluster, 'my-service', '80'), keys);
  });
  test('a pod that fails its readiness probe goes, and comes back', () => {
    const cluster = told('slices', web, slice('my-service-abc', three, { service: 'my-service' }));
    cluster.drain();
    const unready = three.with(
      1,
      endpoint(pods[1] ?? '', 'notReady', { pod: 'my-app-1', nodeName: 'node-1' }),
    );
    for (const [version, list, want] of [
      [2, unready, { added: [], removed: ['10.244.1.6:8080'], size: 2 }],
      [3, three, { added: ['10.244.1.6:8080'], removed: [], size: 3 }],
    ] as const) {
      cluster.post([
        { type: 'MODIFIED', object: slice('my-service-abc', list, { service: 'my-service', version }) },
      ]);
      assert.deepEqual(onlyDelta(cluster), { type: 'EndpointsChanged', exists: true, ...want });
    }
  });
});

describe('external-service: no selector, two addresses outside the cluster (S37)', () => {
  const external = service({ selector: null }, { name: 'external-service' });
  const keys = ['192.168.1.100:8080', '192.168.1.101:8080'];
  const ips = ['192.168.1.100', '192.168.1.101'];
  const subsets = [{ addresses: ips.map((ip) => ({ ip })), ports: [HTTP_8080] }];

  test('in hand-written Endpoints', () => {
    const cluster = told('endpoints', external, endpoints(subsets, { name: 'external-service' }));
    assert.deepEqual(addressesOf(cluster, 'external-service', '80'), keys);
  });
  test('and in the slice that mirrors them', () => {
    const mirrored = slice('external-service-x', ips, {
      service: 'external-service',
      labels: { 'endpointslice.kubernetes.io/managed-by': 'endpointslicemirroring-controller.k8s.io' },
      ownerReferences: [{ kind: 'Endpoints', name: 'external-service', uid: 'ep' }],
    });
    assert.deepEqual(addressesOf(told('slices', external, mirrored), 'external-service', '80'), keys);
  });
});

describe('my-app: blue-green by hand', () => {
  const app = service({ selector: null }, { name: 'my-app' });
  const swapped = {
    type: 'EndpointsChanged',
    exists: true,
    size: 2,
    added: ['10.244.1.7:8080', '10.244.1.8:8080'],
    removed: ['10.244.0.5:8080', '10.244.0.6:8080'],
  };

  test('the switch from blue to green is one delta', () => {
    const color = (...ips: string[]) => [{ addresses: ips.map((ip) => ({ ip })), ports: [HTTP_8080] }];
    const cluster = told('endpoints', app, endpoints(color('10.244.0.5', '10.244.0.6'), { name: 'my-app' }));
    cluster.drain();
    const green = endpoints(color('10.244.1.7', '10.244.1.8'), { name: 'my-app', version: 2 });
    cluster.post([{ type: 'MODIFIED', object: green }]);
    assert.deepEqual(onlyDelta(cluster), swapped);
  });
  test('with a slice as well', () => {
    const color = (version: number, ...ips: string[]) =>
      slice('my-app-1', ips, { service: 'my-app', version });
    const cluster = told('slices', app, color(1, '10.244.0.5', '10.244.0.6'));
    cluster.drain();
    cluster.post([{ type: 'MODIFIED', object: color(2, '10.244.1.7', '10.244.1.8') }]);
    assert.deepEqual(onlyDelta(cluster), swapped);
  });
});

describe('remote-service: another cluster behind a Service without a selector', () => {
  const remote = service({ selector: null }, { name: 'remote-service' });
  const gateway = slice('remote-service-gateway', ['203.0.113.10'], {
    service: 'remote-service',
    annotations: { 'mirror.linkerd.io/remote-svc-fq-name': 'remote-service.default.svc.cluster.local' },
    labels: { 'mirror.linkerd.io/cluster-name': 'east' },
    ports: [{ ...HTTP_8080, port: 4143 }],
  });
  const published = {
    ip: '203.0.113.10',
    port: 4143,
    family: 'IPv4',
    authority: 'remote-service.default.svc.cluster.local:80',
    labels: {
      target_cluster: 'east',
      target_service: 'remote-service',
      target_service_namespace: 'default',
    },
  };

  test('its gateway is an address like any other, and says whom it stands for', () => {
    const [delta] = told('slices', remote, gateway).drain();
    assert.deepEqual(delta?.detail.added, [published]);
  });
  test('deleted and back, it still says whom it stands for (L40)', () => {
    const cluster = told('slices', remote, gateway);
    const again = (object: WatchedObject) => ({
      ...object,
      metadata: { ...object.metadata, uid: `${object.metadata.uid}-2`, resourceVersion: '9' },
    });
    cluster.post([remote, gateway].map((object) => ({ type: 'DELETED', object })));
    cluster.drain();
    cluster.post([remote, gateway].map((object) => ({ type: 'ADDED', object: again(object) })));
    const [delta] = cluster.drain();
    assert.deepEqual(delta?.detail.added, [published]);
  });
});

describe('nginx: a headless Service and its StatefulSet (S39)', () => {
  const nginx = service({ clusterIP: 'None', ports: [{ name: 'web', port: 80 }] }, { name: 'nginx' });
  const pods = [0, 1, 2].map((n) =>
    endpoint(`10.244.0.1${n}`, 'ready', { pod: `web-${n}`, hostname: `web-${n}`, nodeName: `node-${n}` }),
  );
  const cluster = told(
    'slices',
    nginx,
    slice('nginx-1', pods, { service: 'nginx', ports: [{ name: 'web', port: 80 }] }),
  );

  test('all of them', () => {
    assert.deepEqual(addressesOf(cluster, 'nginx', '80'), [
      '10.244.0.10:80',
      '10.244.0.11:80',
      '10.244.0.12:80',
    ]);
  });
  for (const n of [0, 1, 2])
    test(`web-${n} by its name`, () => {
      assert.deepEqual(addressesOf(cluster, 'nginx', '80', `web-${n}`), [`10.244.0.1${n}:80`]);
    });
  test('any other port number stands for itself, as in DNS (S22)', () => {
    assert.deepEqual(addressesOf(cluster, 'nginx', '9113', 'web-1'), ['10.244.0.11:9113']);
  });
});
