import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { EpochMs } from '../../core/time.ts';
import { compact, objectJson } from '../../relay/compact.ts';
import type { WatchedKind } from '../../wire/envelope.ts';

const AT = Date.UTC(2026, 0, 1) as EpochMs;
const NOISE = {
  managedFields: [
    { operation: 'Update', time: '2026-01-01T00:00:01Z' },
    { operation: 'Update', time: '2026-01-01T00:00:03Z' },
    { operation: 'Apply', time: '2026-01-01T00:00:09Z' },
    { operation: 'Update' },
  ],
  generation: 7,
  creationTimestamp: '2026-01-01T00:00:00Z',
};
const IDENTITY = { namespace: 'default', name: 'web', uid: 'u1', resourceVersion: '12' };

interface Case {
  readonly kind: WatchedKind;
  readonly object: object;
  readonly want: object;
}

const CASES: Record<string, Case> = {
  'a Service': {
    kind: 'Service',
    object: {
      metadata: {
        ...IDENTITY,
        ...NOISE,
        labels: { app: 'web', 'mirror.linkerd.io/cluster-name': 'west' },
        annotations: {
          'config.linkerd.io/opaque-ports': '25',
          'kubectl.kubernetes.io/last-applied-configuration': '{}',
        },
      },
      spec: {
        type: 'ClusterIP',
        clusterIP: '10.96.0.1',
        clusterIPs: ['10.96.0.1'],
        selector: { app: 'web' },
        ports: [{ name: 'http', port: 80, protocol: 'TCP', targetPort: 8080, nodePort: 30_080 }],
        publishNotReadyAddresses: true,
        sessionAffinity: 'None',
      },
      status: { loadBalancer: {} },
    },
    want: {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: {
        ...IDENTITY,
        labels: { 'mirror.linkerd.io/cluster-name': 'west' },
        annotations: { 'config.linkerd.io/opaque-ports': '25' },
      },
      spec: {
        type: 'ClusterIP',
        clusterIP: '10.96.0.1',
        selector: { app: 'web' },
        ports: [{ name: 'http', port: 80, protocol: 'TCP' }],
        publishNotReadyAddresses: true,
      },
    },
  },
  'an EndpointSlice': {
    kind: 'EndpointSlice',
    object: {
      metadata: {
        ...IDENTITY,
        ...NOISE,
        labels: {
          'kubernetes.io/service-name': 'web',
          'endpointslice.kubernetes.io/managed-by': 'me',
          'pod-template-hash': 'x',
        },
        annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': '2026-01-01T00:00:02.5Z' },
        ownerReferences: [{ apiVersion: 'v1', kind: 'Service', name: 'web', uid: 's1', controller: true }],
      },
      addressType: 'IPv4',
      ports: [{ name: 'http', port: 8080, protocol: 'TCP', appProtocol: null }],
      endpoints: [
        {
          addresses: ['10.0.0.1'],
          conditions: { ready: true, serving: null },
          nodeName: 'n1',
          zone: 'a',
          hints: { forZones: [{ name: 'a' }] },
          targetRef: { kind: 'Pod', namespace: 'default', name: 'web-1', uid: 'p1', resourceVersion: '9' },
          deprecatedTopology: { region: 'r' },
        },
      ],
    },
    want: {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: {
        ...IDENTITY,
        labels: { 'kubernetes.io/service-name': 'web', 'endpointslice.kubernetes.io/managed-by': 'me' },
        annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': '2026-01-01T00:00:02.5Z' },
        ownerReferences: [{ kind: 'Service', name: 'web', uid: 's1' }],
      },
      addressType: 'IPv4',
      ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
      endpoints: [
        {
          addresses: ['10.0.0.1'],
          conditions: { ready: true },
          nodeName: 'n1',
          zone: 'a',
          hints: { forZones: [{ name: 'a' }] },
          targetRef: { kind: 'Pod', namespace: 'default', name: 'web-1' },
        },
      ],
    },
  },
  'S16: a placeholder slice': {
    kind: 'EndpointSlice',
    object: { metadata: IDENTITY, addressType: 'IPv6', endpoints: null, ports: null },
    want: {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: IDENTITY,
      addressType: 'IPv6',
    },
  },
  'S43: Endpoints without what leader election writes': {
    kind: 'Endpoints',
    object: {
      metadata: { ...IDENTITY, annotations: { 'control-plane.alpha.kubernetes.io/leader': '{}' } },
      subsets: [
        { addresses: [{ ip: '10.0.0.1', targetRef: null }], notReadyAddresses: null, ports: [{ port: 1 }] },
      ],
    },
    want: {
      apiVersion: 'v1',
      kind: 'Endpoints',
      metadata: IDENTITY,
      subsets: [{ addresses: [{ ip: '10.0.0.1' }], ports: [{ port: 1 }] }],
    },
  },
  'P6: fields of a wrong form, for ingest to refuse': {
    kind: 'EndpointSlice',
    object: {
      metadata: { ...IDENTITY, ownerReferences: 'me', labels: { 'kubernetes.io/service-name': 'web' } },
      endpoints: 'all',
      ports: [7],
    },
    want: {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { ...IDENTITY, ownerReferences: 'me', labels: { 'kubernetes.io/service-name': 'web' } },
      endpoints: 'all',
      ports: [7],
    },
  },
};

suite('what is kept of', () => {
  for (const [name, { kind, object, want }] of Object.entries(CASES)) {
    test(name, () => {
      const compacted = compact(kind, object, AT);
      assert.ok(compacted);
      assert.deepEqual(JSON.parse(objectJson(compacted.held)), want);
    });
  }

  test("P6: a slice whose owner has no possible name is nobody's, so that no inventory page names it", () => {
    const named = (name: string) => ({
      metadata: { ...IDENTITY, ownerReferences: [{ kind: 'Service', name, uid: 's1' }] },
      addressType: 'IPv4',
    });
    const services = ['web', 'we/b', 'web '].map(
      (name) => compact('EndpointSlice', named(name), AT)?.held.service,
    );
    assert.deepEqual(services, ['web', null, null]);
  });

  test('a deleted object: its identity', () => {
    const { object } = CASES['an EndpointSlice'] ?? { object: {} };
    const { held } = compact('EndpointSlice', object, AT, true) ?? {};
    assert.ok(held);
    const { apiVersion, kind, metadata, ...rest } = JSON.parse(objectJson(held));
    assert.deepEqual(
      [apiVersion, kind, metadata.name, rest],
      ['discovery.k8s.io/v1', 'EndpointSlice', 'web', {}],
    );
  });

  for (const missing of ['name', 'namespace', 'uid', 'resourceVersion']) {
    test(`an object without ${missing}: nothing`, () => {
      assert.equal(compact('Service', { metadata: { ...IDENTITY, [missing]: undefined } }, AT), null);
    });
  }
});

test('the times: the newest update of a controller, and what triggered it (S47)', () => {
  const { object } = CASES['an EndpointSlice'] ?? { object: {} };
  const { lastUpdate, triggeredAt } = compact('EndpointSlice', object, AT) ?? {};
  assert.deepEqual(
    [lastUpdate, triggeredAt],
    [Date.UTC(2026, 0, 1, 0, 0, 3), Date.UTC(2026, 0, 1, 0, 0, 2, 500)],
  );
});

test('equal content under another version is equal text', () => {
  const one = compact('Service', { metadata: IDENTITY }, AT)?.held;
  const two = compact(
    'Service',
    { metadata: { ...IDENTITY, resourceVersion: '13', generation: 8 } },
    AT,
  )?.held;
  assert.deepEqual(one?.content, two?.content);
});

suite('the service of a slice', () => {
  const SLICES: Record<
    string,
    { readonly metadata: object; readonly addressType?: string; readonly want: string | null }
  > = {
    'S8: its label': { metadata: { labels: { 'kubernetes.io/service-name': 'web' } }, want: 'web' },
    'S8: its owner, where the label is empty': {
      metadata: {
        labels: { 'kubernetes.io/service-name': '' },
        ownerReferences: [{ kind: 'Service', name: 'own', uid: 'x' }],
      },
      want: 'own',
    },
    'S8: nobody': { metadata: {}, want: null },
    'S13: none, with names for addresses': {
      metadata: { labels: { 'kubernetes.io/service-name': 'web' } },
      addressType: 'FQDN',
      want: null,
    },
  };
  for (const [name, { metadata, want, ...rest }] of Object.entries(SLICES)) {
    test(name, () => {
      const { held } =
        compact('EndpointSlice', { metadata: { ...IDENTITY, ...metadata }, ...rest }, AT) ?? {};
      assert.equal(held?.service, want);
    });
  }
});
