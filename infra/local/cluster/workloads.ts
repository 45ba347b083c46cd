import { createHash, randomUUID } from 'node:crypto';
import type { Clock } from '../../../core/time.ts';
import type { Objects } from './object-store.ts';
import type { ContainerPort, Labels, Node, ObjectInput, OwnerReference, Pod } from './resources.ts';

/** Waits that long, in the time of whoever plays; rejects when the play is over. */
export type Wait = (ms: number) => Promise<void>;

/** Plays scheduler and kubelet: pods get a node, an address and their conditions, and end step by step. */
export interface Kubelet {
  /** Creates a pod and resolves once it is ready. */
  start(pod: ObjectInput<'Pod'>): Promise<Pod>;
  /** Terminates a pod as on a real node: terminating but serving, then not serving, then gone. */
  stop(pod: Pod): Promise<void>;
  /** What a readiness probe found. */
  setReady(pod: Pod, isReady: boolean): void;
}

export interface PlayOptions {
  readonly objects: Objects;
  readonly clock: Clock;
  readonly wait: Wait;
}

/** What a pod goes through, in milliseconds of the play. */
const SCHEDULE_MS = 50;
const START_CONTAINERS_MS = 150;
const BECOME_READY_MS = 300;
const STOP_SERVING_MS = 500;
const VANISH_MS = 200;
const GRACE_PERIOD_SECONDS = 30;
/** A node's addresses are PREFIX.2 to PREFIX.254, handed out in turn as by host-local IPAM. */
const FIRST_HOST = 2;
const LAST_HOST = 254;

/** Pods go to the nodes in turn; a node needs a `podCIDR` of 24 bits. */
export function createKubelet({ objects, clock, wait }: PlayOptions, nodes: readonly Node[]): Kubelet {
  const nextHosts = new Map<string, number>();
  let scheduled = 0;

  const now = () => new Date(clock.now()).toISOString().replace(/\.\d+Z$/, 'Z');
  const refOf = ({ metadata: { namespace = '', name } }: Pod) => ({ kind: 'Pod', namespace, name }) as const;

  const schedule = (): Node => {
    const node = nodes[scheduled % nodes.length];
    if (node === undefined) throw new RangeError('a kubelet needs at least one node');
    scheduled += 1;
    return node;
  };

  const freeIp = ({ metadata, spec }: Node): string => {
    const prefix = (spec?.podCIDR ?? '').replace(/\.0\/24$/, '');
    const used = new Set(objects.list('Pod').map(({ status }) => status?.podIP));
    for (let tries = FIRST_HOST; tries <= LAST_HOST; tries += 1) {
      const host = nextHosts.get(metadata.name) ?? FIRST_HOST;
      nextHosts.set(metadata.name, host === LAST_HOST ? FIRST_HOST : host + 1);
      const ip = `${prefix}.${host}`;
      if (!used.has(ip)) return ip;
    }
    throw new RangeError(`node ${metadata.name} has no free address`);
  };

  const conditions = (pod: Pod, changes: Readonly<Record<string, boolean>>) => {
    const before = pod.status?.conditions ?? [];
    const kept = before.filter(({ type }) => changes[type] === undefined);
    const changed = Object.entries(changes).map(([type, holds]) => {
      const status = holds ? 'True' : 'False';
      const known = before.find((condition) => condition.type === type && condition.status === status);
      return known ?? { type, status, lastTransitionTime: now() };
    });
    return { conditions: [...kept, ...changed] };
  };

  const setReady = (pod: Pod, isReady: boolean) => {
    const current = objects.get(refOf(pod)) ?? pod;
    objects.patchStatus(refOf(pod), conditions(current, { ContainersReady: isReady, Ready: isReady }));
  };

  return {
    start: async (input) => {
      const created = objects.create({ ...input, status: { phase: 'Pending' } });
      await wait(SCHEDULE_MS);
      const node = schedule();
      const bound = objects.update({
        ...created,
        spec: { ...created.spec, nodeName: node.metadata.name },
      });
      objects.patchStatus(refOf(bound), conditions(bound, { PodScheduled: true }));
      await wait(START_CONTAINERS_MS);
      const ip = freeIp(node);
      const running = objects.patchStatus(refOf(bound), {
        phase: 'Running',
        podIP: ip,
        podIPs: [{ ip }],
        ...conditions(bound, { PodScheduled: true, Initialized: true, ContainersReady: false, Ready: false }),
      });
      await wait(BECOME_READY_MS);
      setReady(running, true);
      return objects.get(refOf(running)) ?? running;
    },
    stop: async (pod) => {
      const current = objects.get(refOf(pod)) ?? pod;
      objects.update({
        ...current,
        metadata: {
          ...current.metadata,
          deletionTimestamp: now(),
          deletionGracePeriodSeconds: GRACE_PERIOD_SECONDS,
        },
      });
      await wait(STOP_SERVING_MS);
      setReady(pod, false);
      await wait(VANISH_MS);
      objects.delete(refOf(pod));
    },
    setReady,
  };
}

export interface WorkloadOptions {
  readonly kubelet: Kubelet;
  readonly namespace: string;
  readonly name: string;
  readonly labels: Labels;
  readonly ports: readonly ContainerPort[];
}

/** Plays the controllers of a Deployment: replica sets, surge, and pods with generated names. */
export interface Deployment {
  readonly pods: readonly Pod[];
  /** Resolves when that many pods are ready and the others are gone. */
  scale(replicas: number): Promise<void>;
  /** Replaces every pod by one of a new template, one more than wanted at a time. */
  rollOut(): Promise<void>;
}

/** Between the starts of two pods of one replica set, so that addresses come one after the other. */
const STAGGER_MS = 120;

export function createDeployment(
  options: WorkloadOptions,
  { objects, wait }: Pick<PlayOptions, 'objects' | 'wait'>,
): Deployment {
  const { kubelet, namespace, name, labels } = options;
  const deployment = ownerReference('Deployment', name);
  let pods: readonly Pod[] = [];
  let revision = 0;

  const createReplicaSet = () => {
    const hash = templateHash(name, revision);
    const ownLabels = { ...labels, 'pod-template-hash': hash };
    return objects.create({
      kind: 'ReplicaSet',
      metadata: { name: `${name}-${hash}`, namespace, labels: ownLabels, ownerReferences: [deployment] },
      spec: { selector: { matchLabels: ownLabels } },
    });
  };
  let replicaSet = createReplicaSet();

  const startOne = () =>
    kubelet.start({
      kind: 'Pod',
      metadata: {
        generateName: `${replicaSet.metadata.name}-`,
        namespace,
        labels: replicaSet.metadata.labels ?? {},
        ownerReferences: [ownerReference('ReplicaSet', replicaSet.metadata.name, replicaSet.metadata.uid)],
      },
      spec: podSpec(options),
    });

  return {
    get pods() {
      return pods;
    },
    scale: async (replicas) => {
      const kept = pods.slice(0, replicas);
      const missing = Array.from({ length: Math.max(0, replicas - pods.length) }, (_, index) => index);
      const [started] = await Promise.all([
        Promise.all(
          missing.map(async (index) => {
            if (index > 0) await wait(index * STAGGER_MS);
            return startOne();
          }),
        ),
        Promise.all(pods.slice(replicas).map((pod) => kubelet.stop(pod))),
      ]);
      pods = [...kept, ...started];
    },
    rollOut: async () => {
      const outdatedSet = replicaSet;
      revision += 1;
      replicaSet = createReplicaSet();
      const next: Pod[] = [];
      for (const [index] of pods.entries()) {
        const outdated = pods[index - 1];
        const [started] = await Promise.all([
          startOne(),
          ...(outdated === undefined ? [] : [kubelet.stop(outdated)]),
        ]);
        next.push(started);
      }
      const last = pods.at(-1);
      if (last !== undefined) await kubelet.stop(last);
      objects.delete({ kind: 'ReplicaSet', namespace, name: outdatedSet.metadata.name });
      pods = next;
    },
  };
}

/** Plays the controller of a StatefulSet: stable names and hostnames, one pod at a time. */
export interface StatefulSet {
  readonly pods: readonly Pod[];
  /** Starts the missing ordinals in order, or stops the surplus from the top. */
  scale(replicas: number): Promise<void>;
  /** Deletes the pod of an ordinal and starts its successor: the same name, another address. */
  replace(ordinal: number): Promise<void>;
}

export interface StatefulSetOptions extends WorkloadOptions {
  /** The headless Service that gives the pods their names (S39). */
  readonly serviceName: string;
}

export function createStatefulSet(options: StatefulSetOptions): StatefulSet {
  const { kubelet, namespace, name, labels, serviceName } = options;
  const owner = ownerReference('StatefulSet', name);
  const pods: Pod[] = [];

  const startOne = (ordinal: number) => {
    const podName = `${name}-${ordinal}`;
    return kubelet.start({
      kind: 'Pod',
      metadata: {
        name: podName,
        generateName: `${name}-`,
        namespace,
        labels: {
          ...labels,
          'apps.kubernetes.io/pod-index': String(ordinal),
          'controller-revision-hash': `${name}-${templateHash(name, 0)}`,
          'statefulset.kubernetes.io/pod-name': podName,
        },
        ownerReferences: [owner],
      },
      spec: { ...podSpec(options), hostname: podName, subdomain: serviceName },
    });
  };

  return {
    pods,
    scale: async (replicas) => {
      while (pods.length < replicas) pods.push(await startOne(pods.length));
      while (pods.length > replicas) {
        const last = pods.pop();
        if (last !== undefined) await kubelet.stop(last);
      }
    },
    replace: async (ordinal) => {
      const pod = pods[ordinal];
      if (pod === undefined) throw new RangeError(`${name} has no pod ${ordinal}`);
      await kubelet.stop(pod);
      pods[ordinal] = await startOne(ordinal);
    },
  };
}

function podSpec({ name, ports }: WorkloadOptions): Pod['spec'] {
  return {
    serviceAccountName: name,
    containers: [{ name, image: `registry.example/${name}:1.0`, ports }],
  };
}

function ownerReference(kind: string, name: string, uid: string = randomUUID()): OwnerReference {
  return { apiVersion: 'apps/v1', kind, name, uid, controller: true, blockOwnerDeletion: true };
}

function templateHash(name: string, revision: number): string {
  return createHash('sha256').update(`${name} ${revision}`).digest('hex').slice(0, 10);
}
