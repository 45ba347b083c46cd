import fc from 'fast-check';
import type {
  EndpointSlice,
  Endpoints,
  PodEnrichment,
  RawEndpoint,
  Service,
  WatchedObject,
} from '../../core/kubernetes.ts';

/** One thing that a cluster's watch reports, as a relay tells it. */
export interface HistoryEvent {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly object: WatchedObject & { readonly apiVersion: string };
  readonly enrichVersion: number;
  readonly enrich: Readonly<Record<string, PodEnrichment>>;
}

/** What generators may do beside the usual. */
export interface HistoryOptions {
  /** May a slice change the service that it belongs to, by its label? */
  readonly moves: boolean;
  /** May a slice belong to nobody? In another order than it happened that is not kept apart from what came before. */
  readonly orphans: boolean;
}

const NAMESPACE = 'default';
const SERVICES = ['web', 'api'] as const;
const SLICES = ['a', 'b', 'c', 'v6'] as const;

const SERVICE_PORTS = [
  [{ name: 'http', port: 80 }],
  [
    { name: 'http', port: 80, protocol: 'TCP' },
    { name: 'admin', port: 81 },
  ],
  [{ name: 'admin', port: 80 }],
  [{ port: 80 }],
  [
    { name: 'dns', port: 53, protocol: 'UDP' },
    { name: 'dns-tcp', port: 53, protocol: 'TCP' },
  ],
  [],
];

const SLICE_PORTS = [
  [{ name: 'http', port: 8080, protocol: 'TCP' }],
  [{ name: 'http', port: 8081 }],
  [
    { name: 'http', port: 8080 },
    { name: 'admin', port: 9000, appProtocol: 'h2c' },
  ],
  [{ name: 'admin', port: 8080 }],
  [{ port: 8080 }],
  [
    { name: null, port: 8080 },
    { name: 'http', port: null },
  ],
  [
    { name: 'dns', port: 53, protocol: 'UDP' },
    { name: 'dns-tcp', port: 53 },
  ],
  null,
];

const CONDITIONS: readonly [RawEndpoint['conditions'], ...RawEndpoint['conditions'][]] = [
  undefined,
  { ready: true, serving: true, terminating: false },
  { ready: null, serving: null, terminating: null },
  { ready: false, serving: false, terminating: false },
  { ready: false, serving: true, terminating: true },
  { ready: false, serving: false, terminating: true },
  { ready: true, serving: false, terminating: true },
];

const HINTS = [
  undefined,
  null,
  {},
  { forZones: [{ name: 'b' }, { name: 'a' }] },
  { forNodes: [{ name: 'n1' }] },
];

const index = (length: number) => fc.nat(length - 1);
/** Mostly the first: what differs too much never meets. */
const mostlyFirst = (length: number) =>
  fc.oneof({ arbitrary: fc.constant(0), weight: 3 }, { arbitrary: index(length), weight: 2 });

function mostly<T>(...values: readonly [T, ...T[]]): fc.Arbitrary<T> {
  return mostlyFirst(values.length).map((at) => values[at] as T);
}

const endpoint = fc.record({
  ip: index(4),
  conditions: mostly(...CONDITIONS),
  hostname: fc.constantFrom(undefined, 'h0', ''),
  nodeName: fc.constantFrom(undefined, 'n1'),
  zone: fc.constantFrom(undefined, 'a', 'b'),
  hints: fc.constantFrom(...HINTS),
  target: fc.constantFrom('none', 'pod', 'pod-elsewhere', 'Node'),
  isSecond: fc.boolean(),
});

type EndpointPlan = typeof endpoint extends fc.Arbitrary<infer T> ? T : never;

const serviceStep = fc.record({
  kind: fc.constant('service' as const),
  service: mostlyFirst(SERVICES.length),
  action: mostly('put', 'delete', 'recreate'),
  ports: mostlyFirst(SERVICE_PORTS.length),
  shape: mostly('ClusterIP', 'headless', 'ExternalName'),
});

const objectStep = fc.record({
  kind: fc.constant('object' as const),
  object: index(SLICES.length),
  service: mostlyFirst(SERVICES.length),
  isOrphan: mostly(false, true),
  owner: mostly('none', 'service', 'only'),
  action: mostly('put', 'delete', 'recreate'),
  ports: mostlyFirst(SLICE_PORTS.length),
  otherPorts: mostlyFirst(SLICE_PORTS.length),
  endpoints: fc.array(endpoint, { maxLength: 4, size: 'max' }),
  isMirror: mostly(false, true),
});

const repeatStep = fc.record({
  kind: fc.constant('repeat' as const),
  object: index(SLICES.length),
  what: fc.constantFrom('ready', 'noise', 'pods'),
  endpoint: index(3),
});

type Step =
  typeof serviceStep | typeof objectStep | typeof repeatStep extends fc.Arbitrary<infer T> ? T : never;

/** What a cluster did, in the order in which it did it; versions rise over all objects. */
export function history(
  mode: 'slices' | 'endpoints',
  options: HistoryOptions = { moves: true, orphans: true },
): fc.Arbitrary<HistoryEvent[]> {
  const steps = fc.array(
    fc.oneof(
      { arbitrary: serviceStep, weight: 2 },
      { arbitrary: objectStep, weight: 4 },
      { arbitrary: repeatStep, weight: 2 },
    ),
    { minLength: 1, maxLength: 24, size: 'max' },
  );
  return steps.map((plan) => new HistoryWriter(mode, options).write(plan as Step[]));
}

/** Turns plans into what a watch would report: objects live and die, versions rise, uids are new. */
class HistoryWriter {
  readonly #mode: 'slices' | 'endpoints';
  readonly #options: HistoryOptions;
  readonly #live = new Map<string, WatchedObject & { readonly apiVersion: string }>();
  readonly #events: HistoryEvent[] = [];
  #version = 4;
  #uid = 0;

  constructor(mode: 'slices' | 'endpoints', options: HistoryOptions) {
    this.#mode = mode;
    this.#options = options;
  }

  write(plan: readonly Step[]): HistoryEvent[] {
    for (const step of plan) {
      switch (step.kind) {
        case 'service':
          this.#act(step.action, `Service/${SERVICES[step.service]}`, (meta) => this.#service(step, meta));
          break;
        case 'object':
          this.#act(step.action, this.#idOf(step.object), (meta) =>
            this.#mode === 'slices' ? this.#slice(step, meta) : endpointsObject(step, meta),
          );
          break;
        case 'repeat':
          this.#repeat(step);
          break;
        default:
          return step satisfies never;
      }
    }
    return this.#events;
  }

  #idOf(object: number): string {
    return this.#mode === 'slices'
      ? `EndpointSlice/${SLICES[object]}`
      : `Endpoints/${SERVICES[object % SERVICES.length]}`;
  }

  #act(
    action: string,
    id: string,
    build: (meta: Meta) => WatchedObject & { readonly apiVersion: string },
  ): void {
    const live = this.#live.get(id);
    if (action !== 'put' && live !== undefined) this.#delete(id, live);
    if (action === 'delete') return;
    const known = this.#live.get(id);
    const [, name = ''] = id.split('/');
    const uid = known?.metadata.uid ?? `uid-${this.#uid++}`;
    const object = build({ namespace: NAMESPACE, name, uid, resourceVersion: this.#nextVersion() });
    this.#tell(known === undefined ? 'ADDED' : 'MODIFIED', id, object);
  }

  #delete(id: string, live: WatchedObject & { readonly apiVersion: string }): void {
    this.#live.delete(id);
    const metadata = { ...live.metadata, resourceVersion: this.#nextVersion() };
    this.#push('DELETED', { ...live, metadata } as HistoryEvent['object']);
  }

  /** The same object once more: one condition flipped, noise alone, or the same version with other news of its pods. */
  #repeat({ object, what, endpoint: chosen }: Extract<Step, { kind: 'repeat' }>): void {
    const id = this.#idOf(object);
    const live = this.#live.get(id);
    if (live === undefined || live.kind === 'Service') return;
    if (what === 'pods') {
      this.#push('MODIFIED', live);
      return;
    }
    const metadata = { ...live.metadata, resourceVersion: this.#nextVersion() };
    const again = { ...live, metadata } as EndpointSlice & { readonly apiVersion: string };
    if (what === 'noise' || live.kind === 'Endpoints') {
      const annotations = { ...live.metadata.annotations, 'example.com/noise': `${this.#version}` };
      const endpoints = again.endpoints?.toReversed();
      this.#tell('MODIFIED', id, {
        ...again,
        ...(endpoints && { endpoints }),
        metadata: { ...metadata, annotations },
      });
      return;
    }
    const endpoints = again.endpoints?.map((entry, position) =>
      position === chosen ? { ...entry, conditions: { ready: !(entry.conditions?.ready ?? true) } } : entry,
    );
    this.#tell('MODIFIED', id, { ...again, ...(endpoints && { endpoints }) });
  }

  #service(
    { ports, shape }: Extract<Step, { kind: 'service' }>,
    metadata: Meta,
  ): Service & { readonly apiVersion: string } {
    const isExternal = shape === 'ExternalName';
    return {
      apiVersion: 'v1',
      kind: 'Service',
      metadata,
      spec: {
        type: isExternal ? 'ExternalName' : 'ClusterIP',
        ...(isExternal && { externalName: 'web.example.com' }),
        ...(shape === 'headless' && { clusterIP: 'None' }),
        ports: SERVICE_PORTS[ports] ?? [],
      },
    };
  }

  #slice(
    step: Extract<Step, { kind: 'object' }>,
    metadata: Meta,
  ): EndpointSlice & { readonly apiVersion: string } {
    const isV6 = metadata.name === 'v6';
    const home = SERVICES[this.#options.moves ? step.service : metadata.name.length % SERVICES.length] ?? '';
    const isOrphan = this.#options.orphans && step.isOrphan;
    const owner = this.#live.get(`Service/${home}`);
    const owners =
      step.owner === 'none' || owner === undefined || isOrphan
        ? []
        : [{ kind: 'Service', name: home, uid: owner.metadata.uid }];
    const isLabelled = !isOrphan && (step.owner !== 'only' || owners.length === 0);
    return {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: {
        ...metadata,
        labels: {
          ...(isLabelled && { 'kubernetes.io/service-name': home }),
          ...(step.isMirror && { 'mirror.linkerd.io/cluster-name': 'east' }),
        },
        annotations: mirrorAnnotations(step.isMirror),
        ...(owners.length > 0 && { ownerReferences: owners }),
      },
      addressType: isV6 ? 'IPv6' : 'IPv4',
      ports: SLICE_PORTS[step.ports] ?? null,
      endpoints: withoutTwins(step.endpoints).map((plan) => ({
        addresses: [ipOf(plan, isV6), ...(plan.isSecond ? ['10.9.9.9'] : [])],
        conditions: plan.conditions,
        hostname: plan.hostname,
        nodeName: plan.nodeName,
        zone: plan.zone,
        hints: plan.hints,
        targetRef: targetOf(plan),
      })),
    };
  }

  #nextVersion(): string {
    this.#version += 1;
    return `${this.#version}`;
  }

  #tell(
    type: HistoryEvent['type'],
    id: string,
    object: WatchedObject & { readonly apiVersion: string },
  ): void {
    this.#live.set(id, object);
    this.#push(type, object);
  }

  #push(type: HistoryEvent['type'], object: WatchedObject & { readonly apiVersion: string }): void {
    const enrichVersion = this.#events.length;
    this.#events.push({ type, object, enrichVersion, enrich: enrichments(enrichVersion) });
  }
}

type Meta = Pick<WatchedObject['metadata'], 'namespace' | 'name' | 'uid' | 'resourceVersion'>;

function endpointsObject(
  step: Extract<Step, { kind: 'object' }>,
  metadata: Meta,
): Endpoints & { readonly apiVersion: string } {
  const plans = withoutTwins(step.endpoints);
  const subset = (isOther: boolean, ports: number) => {
    const own = plans.filter((_, position) => (position % 2 === 0) !== isOther);
    const isReady = ({ conditions }: EndpointPlan) => conditions?.ready ?? true;
    const address = (plan: EndpointPlan) => ({
      ip: ipOf(plan, plan.isSecond),
      hostname: plan.hostname,
      nodeName: plan.nodeName,
      targetRef: targetOf(plan),
    });
    return {
      addresses: own.filter(isReady).map(address),
      notReadyAddresses: own.filter((plan) => !isReady(plan)).map(address),
      ports: SLICE_PORTS[ports] ?? null,
    };
  };
  return {
    apiVersion: 'v1',
    kind: 'Endpoints',
    metadata: { ...metadata, annotations: mirrorAnnotations(step.isMirror) },
    subsets: plans.length === 0 ? null : [subset(false, step.ports), subset(true, step.otherPorts)],
  };
}

/** Which of two endpoints with one IP and one target tells the rest is nowhere said: there is one at most. */
function withoutTwins(plans: readonly EndpointPlan[]): EndpointPlan[] {
  return [...new Map(plans.map((plan) => [`${plan.ip} ${plan.target}`, plan])).values()];
}

function ipOf({ ip }: EndpointPlan, isV6: boolean): string {
  return isV6 ? `fd00::${ip + 1}` : `10.244.0.${ip + 1}`;
}

function targetOf({ ip, target }: EndpointPlan) {
  if (target === 'none') return undefined;
  if (target === 'Node') return { kind: 'Node', name: `n${ip}` };
  return { kind: 'Pod', name: `pod-${ip}`, ...(target === 'pod-elsewhere' && { namespace: 'other' }) };
}

function mirrorAnnotations(isMirror: boolean): Record<string, string> {
  if (!isMirror) return {};
  return {
    'mirror.linkerd.io/remote-gateway-identity': 'gateway.east',
    'mirror.linkerd.io/remote-svc-fq-name': 'web.shop.svc.cluster.local',
  };
}

/** What the relay knows of pods changes slowly: most events tell the same. */
function enrichments(version: number): Record<string, PodEnrichment> {
  const age = Math.floor(version / 5);
  return {
    'default/pod-0': { owner: { kind: 'Deployment', name: 'web' }, node: `n${age}`, opaqueProtocol: false },
    'default/pod-1': { owner: null, node: null, opaqueProtocol: age % 2 === 1 },
  };
}
