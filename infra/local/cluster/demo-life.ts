import timers from 'node:timers/promises';
import type { Clock } from '../../../core/time.ts';
import type { ApiServer } from './api-server.ts';
import { startControllers } from './controllers.ts';
import { SKIP_MIRROR } from './mirroring-controller.ts';
import type { Objects } from './object-store.ts';
import type { EndpointSubset, Labels, Node, ObjectInput } from './resources.ts';
import { SERVICE_NAME } from './slice-controller.ts';
import {
  createDeployment,
  createKubelet,
  createStatefulSet,
  type PlayOptions,
  type Wait,
} from './workloads.ts';

export interface DemoLifeOptions {
  readonly apiServer: Pick<ApiServer, 'objects'>;
  readonly clock: Clock;
  /** Ends the life when it aborts. */
  readonly signal: AbortSignal;
  /** Whether Linkerd's Servers are served: then one comes and goes. Default false. */
  readonly linkerdPolicy?: boolean;
  /** How much time everything takes: 1 is as written, 0.1 ten times as fast. Above 0; default 1. */
  readonly pace?: number;
}

export interface DemoLife {
  /** Resolves when the signal has ended the life; rejects only on a defect. */
  readonly finished: Promise<void>;
}

/** Pause between two steps of the script. */
const BETWEEN_STEPS_MS = 2_500;
/** Pause after a step whose state is worth a look: no endpoints at all, or a pod that is not ready. */
const HOLD_MS = 2_000;
/** Between two writes of one controller, as on a real control plane. */
const WRITE_GAP_MS = 3;
const RANDOM_SEED = 20_240_601;
const ZONES = ['eu-west-1a', 'eu-west-1b', 'eu-west-1c'];
const NAMESPACES = ['partners', 'web'];
const API_SERVER_IP = '172.18.0.2';
const BLUE = subset(8080, ['10.244.0.5', '10.244.0.6']);
const GREEN = subset(8080, ['10.244.1.7', '10.244.1.8']);
const EXTERNAL = subset(8080, ['192.168.1.100', '192.168.1.101']);
const EXTERNAL_HALF_READY: EndpointSubset = {
  addresses: [{ ip: '192.168.1.100' }],
  notReadyAddresses: [{ ip: '192.168.1.101' }],
  ports: [{ port: 8080, protocol: 'TCP' }],
};

const SERVICES: readonly ObjectInput<'Service'>[] = [
  {
    kind: 'Service',
    metadata: {
      name: 'kubernetes',
      namespace: 'default',
      labels: { component: 'apiserver', provider: 'kubernetes' },
    },
    spec: { ports: [{ name: 'https', port: 443, targetPort: 6443 }], clusterIP: '10.96.0.1' },
  },
  {
    kind: 'Service',
    metadata: {
      name: 'kube-dns',
      namespace: 'kube-system',
      labels: { 'k8s-app': 'kube-dns', 'kubernetes.io/name': 'CoreDNS' },
    },
    spec: {
      ports: [
        { name: 'dns', protocol: 'UDP', port: 53 },
        { name: 'dns-tcp', protocol: 'TCP', port: 53 },
        { name: 'metrics', protocol: 'TCP', port: 9153 },
      ],
      selector: { 'k8s-app': 'kube-dns' },
      clusterIP: '10.96.0.10',
    },
  },
  {
    kind: 'Service',
    metadata: { name: 'my-service', namespace: 'default', labels: { app: 'my-service' } },
    spec: { ports: [{ name: 'http', port: 80, targetPort: 8080 }], selector: { app: 'my-service' } },
  },
  {
    kind: 'Service',
    metadata: { name: 'my-app', namespace: 'default' },
    spec: { ports: [{ port: 80, targetPort: 8080 }] },
  },
  {
    kind: 'Service',
    metadata: { name: 'nginx', namespace: 'web', labels: { app: 'nginx' } },
    spec: { ports: [{ name: 'web', port: 80 }], selector: { app: 'nginx' }, clusterIP: 'None' },
  },
  {
    kind: 'Service',
    metadata: { name: 'external-service', namespace: 'partners' },
    spec: { ports: [{ port: 80 }] },
  },
];

/**
 * Starts an endless scripted life: it sets the cluster up at once, shows the first changes within five seconds, and
 * then goes through rollouts, blue-green, scale to zero and back, a replaced StatefulSet pod and hand-written
 * Endpoints, always in the same order.
 */
export function startDemoLife(options: DemoLifeOptions): DemoLife {
  const { apiServer, clock, signal, linkerdPolicy = false, pace = 1 } = options;
  if (!(pace > 0)) throw new RangeError(`pace must be above 0, not ${pace}`);
  const { objects } = apiServer;
  const wait: Wait = async (ms) => {
    await timers.setTimeout(ms * pace, undefined, { signal });
  };
  const nodes = setUp(objects);
  const live = async () => {
    signal.throwIfAborted();
    using _controllers = startControllers({
      objects,
      writeGapMs: WRITE_GAP_MS * pace,
      random: seededRandom(RANDOM_SEED),
    });
    await play({ objects, clock, wait }, nodes, linkerdPolicy ? [() => comeAndGo(objects, wait)] : []);
  };
  const finished = live().catch((error: unknown) => {
    if (!signal.aborted) throw error;
  });
  return { finished };
}

/** Linkerd takes the port of my-service for opaque as long as the Server is there. */
async function comeAndGo(objects: Objects, wait: Wait): Promise<void> {
  const server = objects.create({
    kind: 'Server',
    metadata: { name: 'my-service-http', namespace: 'default' },
    spec: { podSelector: { matchLabels: { app: 'my-service' } }, port: 'http', proxyProtocol: 'opaque' },
  });
  await wait(HOLD_MS);
  objects.delete({ kind: 'Server', namespace: 'default', name: server.metadata.name });
}

async function play(
  { objects, clock, wait }: PlayOptions,
  nodes: readonly Node[],
  moreSteps: readonly (() => unknown)[],
): Promise<never> {
  const kubelet = createKubelet({ objects, clock, wait }, nodes);
  const dns = createDeployment(
    {
      kubelet,
      namespace: 'kube-system',
      name: 'coredns',
      labels: { 'k8s-app': 'kube-dns' },
      ports: [
        { name: 'dns', containerPort: 53, protocol: 'UDP' },
        { name: 'dns-tcp', containerPort: 53, protocol: 'TCP' },
        { name: 'metrics', containerPort: 9153, protocol: 'TCP' },
      ],
    },
    { objects, wait },
  );
  const myService = createDeployment(
    {
      kubelet,
      namespace: 'default',
      name: 'my-service',
      labels: { app: 'my-service' },
      ports: [{ name: 'http', containerPort: 8080, protocol: 'TCP' }],
    },
    { objects, wait },
  );
  const web = createStatefulSet({
    kubelet,
    namespace: 'web',
    name: 'web',
    serviceName: 'nginx',
    labels: { app: 'nginx' },
    ports: [{ name: 'web', containerPort: 80, protocol: 'TCP' }],
  });
  const setAddresses = (namespace: string, name: string, subsets: readonly EndpointSubset[]) =>
    objects.update({ kind: 'Endpoints', metadata: { name, namespace }, subsets });

  const steps: readonly (() => unknown)[] = [
    () => setAddresses('default', 'my-app', [GREEN]),
    () => myService.rollOut(),
    async () => {
      await myService.scale(0);
      await wait(HOLD_MS);
      await myService.scale(3);
    },
    () => web.replace(1),
    async () => {
      setAddresses('partners', 'external-service', [EXTERNAL_HALF_READY]);
      await wait(HOLD_MS);
      setAddresses('partners', 'external-service', [EXTERNAL]);
    },
    async () => {
      const [pod] = dns.pods;
      if (pod === undefined) return;
      kubelet.setReady(pod, false);
      await wait(HOLD_MS);
      kubelet.setReady(pod, true);
    },
    () => setAddresses('default', 'my-app', [BLUE]),
    ...moreSteps,
  ];

  await Promise.all([dns.scale(2), myService.scale(3), web.scale(3)]);
  for (;;) {
    for (const step of steps) {
      await step();
      await wait(BETWEEN_STEPS_MS);
    }
  }
}

/** Creates what does not change, and answers the nodes. */
function setUp(objects: Objects): readonly Node[] {
  const nodes = ZONES.map((zone, index) => {
    const name = `node-${index + 1}`;
    return objects.create({
      kind: 'Node',
      metadata: {
        name,
        labels: {
          'kubernetes.io/hostname': name,
          'topology.kubernetes.io/region': zone.slice(0, -1),
          'topology.kubernetes.io/zone': zone,
        },
      },
      spec: { podCIDR: `10.244.${index + 10}.0/24` },
    });
  });
  for (const name of NAMESPACES) {
    objects.create({
      kind: 'Namespace',
      metadata: { name, labels: { 'kubernetes.io/metadata.name': name } },
    });
  }
  for (const service of SERVICES) objects.create(service);
  const create = (namespace: string, name: string, subsets: readonly EndpointSubset[], labels: Labels = {}) =>
    objects.create({ kind: 'Endpoints', metadata: { name, namespace, labels }, subsets });
  create('default', 'my-app', [BLUE]);
  create('partners', 'external-service', [EXTERNAL]);
  create('default', 'kubernetes', [subset(6443, [API_SERVER_IP], 'https')], { [SKIP_MIRROR]: 'true' });
  // The API server keeps its own slice: no owner, no manager, no node.
  objects.create({
    kind: 'EndpointSlice',
    metadata: { name: 'kubernetes', namespace: 'default', labels: { [SERVICE_NAME]: 'kubernetes' } },
    addressType: 'IPv4',
    endpoints: [{ addresses: [API_SERVER_IP], conditions: { ready: true } }],
    ports: [{ name: 'https', protocol: 'TCP', port: 6443 }],
  });
  return nodes;
}

function subset(port: number, ips: readonly string[], name?: string): EndpointSubset {
  return {
    addresses: ips.map((ip) => ({ ip })),
    ports: [{ ...(name === undefined ? {} : { name }), port, protocol: 'TCP' }],
  };
}

/** Numbers from 0 to below 1 that are the same in every run (mulberry32). */
function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}
