import { setTimeout as wait } from 'node:timers/promises';
import type { Objects } from '../../infra/local/cluster/object-store.ts';
import type { Endpoint, ObjectInput, Pod, ServicePort } from '../../infra/local/cluster/resources.ts';
import { SERVICE_NAME } from '../../infra/local/cluster/slice-controller.ts';

/** Whole numbers from 0 up to a bound. */
export type Random = (bound: number) => number;

const NAMESPACES = ['default', 'shop'];
const NODES = ['n1', 'n2', 'n3', 'n4'];
const ZONES = ['a', 'b', 'c'];
/** Pods of a service at most; those of one in ten services at most. */
const FEW_PODS = 6;
const MANY_PODS = 40;
/** How long a pod takes to be gone, or to come up, at most, in milliseconds. */
const SLOW_MS = 1_500;

/** How a service gets its endpoints. */
type Kind = 'pods' | 'named' | 'headless' | 'stateful' | 'slices' | 'endpoints' | 'dns';

/** Of twenty services. */
const KINDS: readonly Kind[] = [
  ...Array<Kind>(7).fill('pods'),
  ...Array<Kind>(3).fill('named'),
  'headless',
  'stateful',
  ...Array<Kind>(5).fill('slices'),
  ...Array<Kind>(2).fill('endpoints'),
  'dns',
];

/** A service that comes and goes, and what it should be while it is there. */
interface Slot {
  readonly kind: Kind;
  readonly namespace: string;
  readonly name: string;
  readonly maxPods: number;
  isExternal: boolean;
  hasSelector: boolean;
  ports: readonly ServicePort[];
  /** Names of pods, or of hand-written slices. */
  readonly members: Set<string>;
}

type Action = readonly [weight: number, act: (life: ClusterLife, slot: Slot) => void];

/** What may happen to a service of any kind while it is there. */
const SERVICE_ACTIONS: readonly Action[] = [
  [2, (life, slot) => life.deleteService(slot)],
  [2, (life, slot) => life.renamePort(slot)],
  [2, (life, slot) => life.repoint(slot)],
  [1, (life, slot) => life.renumber(slot)],
  [1, (life, slot) => life.addOrDropPort(slot)],
  [1, (life, slot) => life.flipExternal(slot)],
  [3, (life, slot) => life.annotateService(slot)],
];
const POD_ACTIONS: readonly Action[] = [
  ...SERVICE_ACTIONS,
  [12, (life, slot) => life.addPod(slot)],
  [8, (life, slot) => life.removePod(slot)],
  [16, (life, slot) => life.flipReady(slot)],
  [2, (life, slot) => life.rollOut(slot)],
  [1, (life, slot) => life.scaleToZero(slot)],
  [1, (life, slot) => life.flipSelector(slot)],
];
const SLICE_ACTIONS: readonly Action[] = [
  ...SERVICE_ACTIONS,
  [8, (life, slot) => life.addSlice(slot)],
  [16, (life, slot) => life.rewriteSlice(slot)],
  [5, (life, slot) => life.removeSlice(slot)],
  [6, (life, slot) => life.moveSlice(slot)],
  [4, (life, slot) => life.annotateSlice(slot)],
];
const ENDPOINTS_ACTIONS: readonly Action[] = [
  ...SERVICE_ACTIONS,
  [16, (life, slot) => life.rewriteEndpoints(slot)],
  [2, (life, slot) => life.deleteEndpoints(slot)],
];

const ACTIONS: Readonly<Record<Kind, readonly Action[]>> = {
  pods: POD_ACTIONS,
  named: POD_ACTIONS,
  headless: POD_ACTIONS,
  stateful: POD_ACTIONS,
  dns: POD_ACTIONS,
  slices: SLICE_ACTIONS,
  endpoints: ENDPOINTS_ACTIONS,
};

/** The random life of a cluster's services; the same calls in the same order for a seed. Controllers follow it elsewhere. */
export class ClusterLife {
  readonly #objects: Objects;
  readonly #random: Random;
  readonly #slots: readonly Slot[];
  readonly #freeIps: string[] = [];
  /** What is still to happen to pods. */
  readonly #later = new Map<object, () => void>();
  #ips = 0;
  #names = 0;

  constructor(objects: Objects, random: Random, services: number) {
    this.#objects = objects;
    this.#random = random;
    this.#slots = Array.from({ length: services }, (_, index): Slot => {
      const kind = KINDS[index % KINDS.length] ?? 'pods';
      return {
        kind,
        namespace: NAMESPACES[index % NAMESPACES.length] ?? 'default',
        name: `${kind}-${index}`,
        maxPods: index % 10 === 0 ? MANY_PODS : FEW_PODS,
        isExternal: false,
        hasSelector: kind !== 'slices' && kind !== 'endpoints',
        ports: portsOf(kind),
        members: new Set(),
      };
    });
  }

  /** Creates the nodes, and every service with what it needs. */
  populate(): void {
    NODES.forEach((name, index) => {
      this.#objects.create({ kind: 'Node', metadata: { name, labels: zoneLabels(index) } });
    });
    for (const slot of this.#slots) {
      this.#createService(slot);
      const [first] = ACTIONS[slot.kind].slice(SERVICE_ACTIONS.length);
      for (let count = this.#random(slot.maxPods); count > 0; count--) first?.[1](this, slot);
    }
  }

  /** Does one thing to one service. */
  act(): void {
    if (this.#random(400) === 0) this.#moveNode();
    const slot = this.#pick(this.#slots);
    // Nobody's pods and slices live on too (S34).
    if (!this.#isThere(slot) && this.#random(3) > 0) this.#createService(slot);
    const actions = ACTIONS[slot.kind];
    let left = this.#random(actions.reduce((sum, [weight]) => sum + weight, 0));
    const chosen = actions.find(([weight]) => {
      left -= weight;
      return left < 0;
    });
    chosen?.[1](this, slot);
  }

  /** Resolves once all that was begun has happened. */
  async settle(): Promise<void> {
    while (this.#later.size > 0) await wait(SLOW_MS);
  }

  deleteService(slot: Slot): void {
    if (!this.#isThere(slot)) return;
    const { namespace, name } = slot;
    this.#objects.delete({ kind: 'Service', namespace, name });
    // Half of them come back at once, beside what is left of the former one (S35).
    if (this.#random(2) === 0) this.#createService(slot);
  }

  renamePort(slot: Slot): void {
    const [first, ...others] = slot.ports;
    if (first === undefined) return;
    const name = this.#pick(
      ['http', 'web', 'grpc', 'api'].filter((it) => slot.ports.every((port) => port.name !== it)),
    );
    this.#setPorts(slot, [{ ...first, name }, ...others]);
  }

  repoint(slot: Slot): void {
    const [first, ...others] = slot.ports;
    if (first === undefined) return;
    const targetPort = slot.kind === 'named' ? this.#pick(['main', 'side', 'none']) : 8080 + this.#random(4);
    this.#setPorts(slot, [{ ...first, targetPort }, ...others]);
  }

  renumber(slot: Slot): void {
    const [first, ...others] = slot.ports;
    if (first !== undefined) this.#setPorts(slot, [{ ...first, port: 80 + this.#random(4) }, ...others]);
  }

  addOrDropPort(slot: Slot): void {
    const [first, second] = slot.ports;
    if (first === undefined || slot.kind === 'dns') return;
    this.#setPorts(
      slot,
      second === undefined ? [first, { name: 'metrics', port: 9090, targetPort: 9090 }] : [first],
    );
  }

  flipExternal(slot: Slot): void {
    slot.isExternal = !slot.isExternal;
    this.#updateService(slot);
  }

  flipSelector(slot: Slot): void {
    slot.hasSelector = !slot.hasSelector;
    this.#updateService(slot);
  }

  annotateService(slot: Slot): void {
    this.#updateService(slot, { note: `${this.#random(1_000_000)}` });
  }

  addPod(slot: Slot): void {
    if (slot.members.size >= slot.maxPods) return;
    const { namespace } = slot;
    const name = `${slot.name}-${++this.#names}`;
    const ip = this.#takeIp();
    slot.members.add(name);
    this.#objects.create({
      kind: 'Pod',
      metadata: { name, namespace, labels: { app: slot.name } },
      spec: {
        nodeName: this.#pick(NODES),
        ...(slot.kind === 'stateful' && { hostname: name, subdomain: slot.name }),
        containers: [
          {
            name: 'main',
            image: 'registry.example/main',
            ports: [
              { name: 'main', containerPort: 8080 + this.#random(2) },
              { name: 'side', containerPort: 8090 },
            ],
          },
        ],
      },
      status: { phase: 'Running', podIP: ip, podIPs: [{ ip }], conditions: [readyCondition(false)] },
    });
    this.#soon(() => this.#setReady(namespace, name, true));
  }

  removePod(slot: Slot): void {
    if (slot.members.size > 0) this.#terminate(slot, this.#pick([...slot.members]));
  }

  flipReady(slot: Slot): void {
    if (slot.members.size === 0) return;
    const { namespace } = slot;
    const name = this.#pick([...slot.members]);
    this.#setReady(namespace, name, this.#random(2) === 0);
    this.#soon(() => this.#setReady(namespace, name, true));
  }

  rollOut(slot: Slot): void {
    const former = [...slot.members];
    for (const name of former) {
      this.#terminate(slot, name);
      this.addPod(slot);
    }
  }

  scaleToZero(slot: Slot): void {
    for (const name of slot.members) this.#terminate(slot, name);
  }

  addSlice(slot: Slot): void {
    if (slot.members.size >= FEW_PODS) return;
    const name = `${slot.name}-${++this.#names}`;
    slot.members.add(name);
    this.#objects.create(this.#slice(slot, name));
  }

  rewriteSlice(slot: Slot): void {
    if (slot.members.size > 0) this.#objects.update(this.#slice(slot, this.#pick([...slot.members])));
  }

  removeSlice(slot: Slot): void {
    if (slot.members.size === 0) return;
    const name = this.#pick([...slot.members]);
    slot.members.delete(name);
    this.#objects.delete({ kind: 'EndpointSlice', namespace: slot.namespace, name });
  }

  /** Changes the label of a slice: it leaves one service and joins another (S10). */
  moveSlice(slot: Slot): void {
    const others = this.#slots.filter(
      (other) => other !== slot && other.kind === 'slices' && other.namespace === slot.namespace,
    );
    if (slot.members.size === 0 || others.length === 0) return;
    const name = this.#pick([...slot.members]);
    const target = this.#pick(others);
    slot.members.delete(name);
    target.members.add(name);
    const { namespace } = slot;
    const slice = this.#objects.get({ kind: 'EndpointSlice', namespace, name });
    if (slice === undefined) return;
    const isRewritten = this.#random(2) === 0;
    const moved = { ...slice, metadata: { ...slice.metadata, labels: { [SERVICE_NAME]: target.name } } };
    this.#objects.update(isRewritten ? this.#slice(target, name) : moved);
  }

  annotateSlice(slot: Slot): void {
    if (slot.members.size === 0) return;
    const { namespace } = slot;
    const slice = this.#objects.get({
      kind: 'EndpointSlice',
      namespace,
      name: this.#pick([...slot.members]),
    });
    if (slice === undefined) return;
    const annotations = { note: `${this.#random(1_000_000)}` };
    this.#objects.update({ ...slice, metadata: { ...slice.metadata, annotations } });
  }

  rewriteEndpoints(slot: Slot): void {
    const { namespace, name } = slot;
    const address = () => ({ ip: this.#sharedIp(slot), nodeName: this.#pick(NODES) });
    const ports = slot.ports.map((port) => ({ name: port.name ?? '', port: 8080 + this.#random(3) }));
    const ready = this.#distinct(4, address);
    const notReady = this.#distinct(2, address).filter(({ ip }) => ready.every((other) => other.ip !== ip));
    const endpoints: ObjectInput<'Endpoints'> = {
      kind: 'Endpoints',
      metadata: { namespace, name },
      ...(this.#random(5) > 0 && { subsets: [{ addresses: ready, notReadyAddresses: notReady, ports }] }),
    };
    if (this.#objects.get({ kind: 'Endpoints', namespace, name }) === undefined)
      this.#objects.create(endpoints);
    else this.#objects.update(endpoints);
  }

  deleteEndpoints({ namespace, name }: Slot): void {
    if (this.#objects.get({ kind: 'Endpoints', namespace, name }) !== undefined)
      this.#objects.delete({ kind: 'Endpoints', namespace, name });
  }

  /** A hand-written slice of a service; the IPs of one service are few, so that its slices share some (S11). */
  #slice(slot: Slot, name: string): ObjectInput<'EndpointSlice'> & { readonly kind: 'EndpointSlice' } {
    const endpoint = (): Endpoint & { readonly ip: string } => {
      const ip = this.#sharedIp(slot);
      return {
        ip,
        addresses: [ip],
        nodeName: this.#pick(NODES),
        zone: this.#pick(ZONES),
        conditions: this.#pick([
          {},
          { ready: true },
          { ready: false },
          { ready: false, serving: true, terminating: true },
        ]),
      };
    };
    const endpoints = this.#distinct(5, endpoint).map(({ ip: _ip, ...rest }) => rest);
    const ports = slot.ports.map((port) => ({ name: port.name ?? '', port: 8080 + this.#random(2) }));
    const isPlaceholder = this.#random(8) === 0;
    return {
      kind: 'EndpointSlice',
      metadata: { namespace: slot.namespace, name, labels: { [SERVICE_NAME]: slot.name } },
      addressType: 'IPv4',
      endpoints: isPlaceholder ? null : endpoints,
      ports: isPlaceholder ? null : ports,
    };
  }

  #distinct<T extends { readonly ip: string }>(max: number, make: () => T): T[] {
    const made = Array.from({ length: this.#random(max + 1) }, make);
    return [...new Map(made.map((item) => [item.ip, item])).values()];
  }

  #sharedIp({ name }: Slot): string {
    const index = Number(name.split('-')[1]);
    return `192.168.${index % 256}.${1 + this.#random(12)}`;
  }

  #createService(slot: Slot): void {
    if (!this.#isThere(slot)) this.#objects.create(this.#service(slot));
  }

  #updateService(slot: Slot, annotations: Readonly<Record<string, string>> = {}): void {
    if (this.#isThere(slot)) this.#objects.update(this.#service(slot, annotations));
  }

  #setPorts(slot: Slot, ports: readonly ServicePort[]): void {
    const ids = ports.map(({ port, protocol = 'TCP' }) => `${port}/${protocol}`);
    if (new Set(ids).size < ids.length) return;
    slot.ports = ports;
    this.#updateService(slot);
  }

  #service(slot: Slot, annotations: Readonly<Record<string, string>> = {}) {
    const { kind, namespace, name, isExternal, hasSelector, ports } = slot;
    const isHeadless = kind === 'headless' || kind === 'stateful';
    return {
      kind: 'Service' as const,
      metadata: { namespace, name, annotations },
      spec: {
        ...(hasSelector && { selector: { app: name } }),
        ...(isHeadless && !isExternal && { clusterIP: 'None' }),
        ...(ports.length > 0 && { ports }),
        ...(isExternal && { type: 'ExternalName' as const, externalName: `${name}.example.org` }),
      },
    };
  }

  #isThere({ namespace, name }: Slot): boolean {
    return this.#objects.get({ kind: 'Service', namespace, name }) !== undefined;
  }

  #terminate(slot: Slot, name: string): void {
    const { namespace } = slot;
    const pod = this.#pod(namespace, name);
    slot.members.delete(name);
    if (pod === undefined) return;
    const deletionTimestamp = '2026-01-01T00:00:00Z';
    this.#objects.update({
      ...pod,
      metadata: { ...pod.metadata, deletionTimestamp, deletionGracePeriodSeconds: 30 },
    });
    this.#soon(() => {
      this.#setReady(namespace, name, false);
      this.#soon(() => {
        this.#objects.delete({ kind: 'Pod', namespace, name });
        const ip = pod.status?.podIP;
        if (ip !== undefined) this.#freeIps.push(ip);
      });
    });
  }

  #setReady(namespace: string, name: string, isReady: boolean): void {
    const pod = this.#pod(namespace, name);
    const isTerminating = pod?.metadata.deletionTimestamp !== undefined;
    if (pod === undefined || (isTerminating && isReady)) return;
    this.#objects.patchStatus({ kind: 'Pod', namespace, name }, { conditions: [readyCondition(isReady)] });
  }

  #pod(namespace: string, name: string): Pod | undefined {
    return this.#objects.get({ kind: 'Pod', namespace, name });
  }

  #moveNode(): void {
    const name = this.#pick(NODES);
    const index = this.#random(ZONES.length);
    this.#objects.update({ kind: 'Node', metadata: { name, labels: zoneLabels(index) } });
  }

  /** Freed addresses are given again, to other pods (S1). */
  #takeIp(): string {
    const freed = this.#random(3) > 0 ? this.#freeIps.shift() : undefined;
    if (freed !== undefined) return freed;
    this.#ips++;
    return `10.${244 + (this.#ips >> 16)}.${(this.#ips >> 8) & 255}.${this.#ips & 255}`;
  }

  #soon(act: () => void): void {
    const handle = {};
    this.#later.set(handle, act);
    void wait(this.#random(SLOW_MS)).then(() => {
      act();
      this.#later.delete(handle);
    });
  }

  #pick<T>(list: readonly T[]): T {
    const picked = list[this.#random(list.length)];
    if (picked === undefined) throw new RangeError('nothing to pick from');
    return picked;
  }
}

function portsOf(kind: Kind): readonly ServicePort[] {
  switch (kind) {
    case 'headless':
      return [];
    case 'dns':
      return [
        { name: 'dns', port: 53, protocol: 'UDP', targetPort: 8080 },
        { name: 'dns-tcp', port: 53, protocol: 'TCP', targetPort: 8080 },
      ];
    case 'named':
      return [{ name: 'http', port: 80, targetPort: 'main' }];
    default:
      return [{ name: 'http', port: 80, targetPort: 8080 }];
  }
}

function zoneLabels(index: number): Readonly<Record<string, string>> {
  return { 'topology.kubernetes.io/zone': ZONES[index % ZONES.length] ?? 'a' };
}

function readyCondition(isReady: boolean) {
  return {
    type: 'Ready',
    status: isReady ? ('True' as const) : ('False' as const),
    lastTransitionTime: '2026-01-01T00:00:00Z',
  };
}
