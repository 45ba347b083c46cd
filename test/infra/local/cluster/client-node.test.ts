import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  CoordinationV1Api,
  CoreV1Api,
  DiscoveryV1Api,
  KubeConfig,
  VersionApi,
  Watch,
} from '@kubernetes/client-node';
import type { ApiServer } from '../../../../infra/local/cluster/api-server.ts';
import { service, testServer } from './cluster-builders.ts';

/** The official client, configured by the kubeconfig that the server hands out. */
function clientOf(server: ApiServer): KubeConfig {
  const config = new KubeConfig();
  config.loadFromString(server.kubeconfig);
  return config;
}

async function sliceServer(): Promise<ApiServer> {
  const server = await testServer({ token: 'secret' });
  server.objects.create(service('web'));
  server.objects.create({
    kind: 'EndpointSlice',
    metadata: { name: 'web-1', namespace: 'default', labels: { 'kubernetes.io/service-name': 'web' } },
    addressType: 'IPv4',
    endpoints: [{ addresses: ['10.0.0.1'], conditions: { ready: true } }],
    ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
  });
  return server;
}

test('typed lists and reads work against the server', async () => {
  await using server = await sliceServer();
  const config = clientOf(server);
  const core = config.makeApiClient(CoreV1Api);
  const services = await core.listServiceForAllNamespaces();
  assert.deepEqual(
    services.items.map(({ metadata, spec }) => [metadata?.name, spec?.ports?.[0]?.port]),
    [['web', 80]],
  );
  assert.ok(services.items[0]?.metadata?.creationTimestamp instanceof Date);
  const slices = await config
    .makeApiClient(DiscoveryV1Api)
    .listNamespacedEndpointSlice({ namespace: 'default', labelSelector: 'kubernetes.io/service-name=web' });
  assert.deepEqual(slices.items[0]?.endpoints?.[0]?.addresses, ['10.0.0.1']);
  assert.ok((await core.readNamespace({ name: 'kube-system' })).metadata?.uid);
  assert.equal((await config.makeApiClient(VersionApi).getCode()).major, '1');
});

test('a Lease goes through the typed API, and a stale update is a 409', async () => {
  await using server = await sliceServer();
  const leases = clientOf(server).makeApiClient(CoordinationV1Api);
  const namespace = 'default';
  const body = { metadata: { name: 'relay' }, spec: { holderIdentity: 'one' } };
  const created = await leases.createNamespacedLease({ namespace, body });
  const next = { ...created, spec: { holderIdentity: 'two' } };
  const updated = await leases.replaceNamespacedLease({ namespace, name: 'relay', body: next });
  assert.equal(updated.spec?.holderIdentity, 'two');
  await assert.rejects(leases.replaceNamespacedLease({ namespace, name: 'relay', body: next }), {
    code: 409,
  });
});

test('its Watch sees what happens', async () => {
  await using server = await sliceServer();
  const seen: string[] = [];
  const { promise: bookmarked, resolve, reject } = Promise.withResolvers<void>();
  const abort = await new Watch(clientOf(server)).watch(
    '/apis/discovery.k8s.io/v1/endpointslices',
    { allowWatchBookmarks: true },
    (phase, object) => {
      seen.push(`${phase} ${object.kind} ${object.metadata.name ?? object.metadata.resourceVersion}`);
      if (seen.length === 1) {
        server.bookmark();
        server.objects.delete({ kind: 'EndpointSlice', namespace: 'default', name: 'web-1' });
      }
      if (phase === 'BOOKMARK') resolve();
    },
    reject,
  );
  await bookmarked;
  abort.abort();
  assert.deepEqual(seen, [
    'ADDED EndpointSlice web-1',
    'DELETED EndpointSlice web-1',
    'BOOKMARK EndpointSlice 8',
  ]);
});
