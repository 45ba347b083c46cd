import { isDeepStrictEqual } from 'node:util';
import { hostnameUnder, isAddressable, isReady, isTerminating, targetNumber } from './pod-facts.ts';
import type {
  Endpoint,
  EndpointSlice,
  IpFamily,
  Labels,
  Node,
  ObjectInput,
  Pod,
  Service,
  SlicePort,
} from './resources.ts';
import { withTriggerTime } from './trigger-time.ts';

export const SERVICE_NAME = 'kubernetes.io/service-name';
export const MANAGED_BY = 'endpointslice.kubernetes.io/managed-by';
export const SLICE_CONTROLLER = 'endpointslice-controller.k8s.io';
/** Label that controllers put on what belongs to a Service without a cluster IP. */
export const HEADLESS = 'service.kubernetes.io/headless';
const ZONE = 'topology.kubernetes.io/zone';
const RESERVED_LABELS: ReadonlySet<string> = new Set([SERVICE_NAME, MANAGED_BY, HEADLESS]);

/** A write of a controller, in the order in which it is done: creates, then updates, then deletes. */
export type SliceWrite =
  | { readonly kind: 'create' | 'update'; readonly slice: ObjectInput<'EndpointSlice'> }
  | { readonly kind: 'delete'; readonly slice: EndpointSlice };

export interface SliceInput {
  readonly service: Service;
  /** Those that the Service selects. */
  readonly pods: readonly Pod[];
  readonly nodeOf: (name: string) => Node | undefined;
  /** The slices of the Service that this controller manages, also left-overs of an earlier Service of the name. */
  readonly slices: readonly EndpointSlice[];
  readonly maxEndpoints: number;
  readonly triggerTime: string | null;
  /** From 0 to below 1: endpoints are dealt out in random order, as from a Go map (S6). */
  readonly random: () => number;
}

/**
 * Plans how the slices of a Service with a selector follow its pods. Source: `k8s.io/endpointslice`, `reconciler.go`:
 * endpoints stay where they are, changed slices are filled first, slices are never rebalanced, a slice that would go
 * is reused for one that would come, and a Service without endpoints keeps a placeholder for each family.
 */
export function planSlices(input: SliceInput): SliceWrite[] {
  const families = input.service.spec.ipFamilies ?? ['IPv4'];
  const isOfFamily = (family: IpFamily) => (slice: EndpointSlice) => slice.addressType === family;
  const orphans = input.slices.filter(
    ({ addressType }) => !families.some((family) => family === addressType),
  );
  return [
    ...families.flatMap((family) =>
      planFamily({ ...input, slices: input.slices.filter(isOfFamily(family)) }, family),
    ),
    ...orphans.map((slice): SliceWrite => ({ kind: 'delete', slice })),
  ];
}

/** A slice in the making: `stored` when it replaces one. */
interface Draft {
  readonly stored: EndpointSlice | null;
  readonly endpoints: readonly Endpoint[];
  readonly ports: readonly SlicePort[];
}

interface Plan {
  readonly creates: Draft[];
  readonly updates: Draft[];
  readonly deletes: EndpointSlice[];
}

function planFamily(input: SliceInput, family: IpFamily): SliceWrite[] {
  const { service, slices } = input;
  const owned = slices.filter((slice) => isOwned(slice, service));
  const stored = Map.groupBy(owned, ({ ports }) => portsKey(ports ?? []));
  const desired = desiredEndpoints(input, family);
  const plan: Plan = {
    creates: [],
    updates: [],
    deletes: slices.filter((slice) => !isOwned(slice, service)),
  };
  for (const [key, { ports, endpoints }] of desired) {
    planPorts(input, stored.get(key) ?? [], ports, endpoints, plan);
  }
  for (const [key, unwanted] of stored) {
    if (!desired.has(key)) plan.deletes.push(...unwanted);
  }
  if (plan.deletes.length === slices.length && plan.creates.length === 0) {
    const [only, ...others] = plan.deletes;
    if (only !== undefined && others.length === 0 && isPlaceholder(only, service)) plan.deletes.length = 0;
    else plan.creates.push({ stored: null, endpoints: [], ports: [] });
  }
  reuseDeleted(plan, service);
  const toSlice = (draft: Draft) => sliceOf(draft, family, input);
  return [
    ...plan.creates.map((draft): SliceWrite => ({ kind: 'create', slice: toSlice(draft) })),
    ...plan.updates.map((draft): SliceWrite => ({ kind: 'update', slice: toSlice(draft) })),
    ...plan.deletes.map((slice): SliceWrite => ({ kind: 'delete', slice })),
  ];
}

/** The endpoints that should be there, for each set of ports that the pods expose. */
function desiredEndpoints({ service, pods, nodeOf }: SliceInput, family: IpFamily) {
  const desired = new Map<string, { ports: SlicePort[]; endpoints: Map<string, Endpoint> }>();
  for (const pod of pods) {
    if (!isAddressable(pod)) continue;
    const ports = portsOf(service, pod);
    const key = portsKey(ports);
    const group = desired.get(key) ?? { ports, endpoints: new Map<string, Endpoint>() };
    desired.set(key, group);
    const node = nodeOf(pod.spec.nodeName ?? '');
    if (node === undefined && service.spec.publishNotReadyAddresses !== true) continue;
    const endpoint = endpointOf(service, pod, node, family);
    if (endpoint.addresses.length > 0) group.endpoints.set(endpointKey(endpoint), endpoint);
  }
  return desired;
}

/** Fits the desired endpoints of one set of ports into its slices; `unplaced` loses those that have a place. */
function planPorts(
  { service, maxEndpoints, random }: SliceInput,
  slices: readonly EndpointSlice[],
  ports: readonly SlicePort[],
  unplaced: Map<string, Endpoint>,
  plan: Plan,
): void {
  const changed: Draft[] = [];
  const unchanged: EndpointSlice[] = [];
  for (const slice of slices) {
    const before = slice.endpoints ?? [];
    const endpoints = before.flatMap((endpoint) => take(unplaced, endpointKey(endpoint)));
    const isSame = isDeepStrictEqual(endpoints, before);
    if (isSame && isDeepStrictEqual(slice.metadata.labels, labelsOf(service))) unchanged.push(slice);
    else if (endpoints.length > 0 || before.length === 0) changed.push({ stored: slice, endpoints, ports });
    else plan.deletes.push(slice);
  }
  const left = shuffle([...unplaced.values()], random);
  const fill = (draft: Draft): Draft => ({
    ...draft,
    endpoints: [...draft.endpoints, ...left.splice(0, Math.max(0, maxEndpoints - draft.endpoints.length))],
  });
  changed.sort((a, b) => b.endpoints.length - a.endpoints.length);
  plan.updates.push(...changed.map(fill));
  while (left.length > 0) {
    const roomy =
      left.length < maxEndpoints ? fullestWithRoom(unchanged, left.length, maxEndpoints) : undefined;
    if (roomy === undefined) {
      plan.creates.push(fill({ stored: null, endpoints: [], ports }));
    } else {
      unchanged.splice(unchanged.indexOf(roomy), 1);
      plan.updates.push(fill({ stored: roomy, endpoints: roomy.endpoints ?? [], ports }));
    }
  }
}

/** The slice that is closest to full once `count` endpoints are added. */
function fullestWithRoom(
  slices: readonly EndpointSlice[],
  count: number,
  max: number,
): EndpointSlice | undefined {
  const sizeOf = ({ endpoints }: EndpointSlice) => endpoints?.length ?? 0;
  return slices.filter((slice) => sizeOf(slice) + count <= max).toSorted((a, b) => sizeOf(b) - sizeOf(a))[0];
}

/** A create and a delete become one update, under the name of the slice that would have gone. */
function reuseDeleted(plan: Plan, service: Service): void {
  for (const slice of [...plan.deletes]) {
    if (!isOwned(slice, service)) continue;
    const draft = plan.creates.pop();
    if (draft === undefined) return;
    plan.deletes.splice(plan.deletes.indexOf(slice), 1);
    plan.updates.push({ ...draft, stored: slice });
  }
}

function sliceOf(
  { stored, endpoints, ports }: Draft,
  addressType: IpFamily,
  { service, triggerTime }: SliceInput,
): ObjectInput<'EndpointSlice'> {
  const { name, namespace = '', uid } = service.metadata;
  const owner = { apiVersion: 'v1', kind: 'Service', name, uid, controller: true, blockOwnerDeletion: true };
  return {
    kind: 'EndpointSlice',
    metadata: {
      ...(stored === null ? { generateName: `${name}-` } : { name: stored.metadata.name }),
      namespace,
      labels: labelsOf(service),
      annotations: withTriggerTime(stored?.metadata.annotations, triggerTime),
      ownerReferences: [owner],
    },
    addressType,
    endpoints: endpoints.length === 0 ? null : endpoints,
    ports: ports.length === 0 ? null : ports,
  };
}

function endpointOf(service: Service, pod: Pod, node: Node | undefined, family: IpFamily): Endpoint {
  const { namespace = '', name, uid } = pod.metadata;
  const serving = isReady(pod);
  const terminating = isTerminating(pod);
  const ready = service.spec.publishNotReadyAddresses === true || (serving && !terminating);
  const hostname = hostnameUnder(service, pod);
  const zone = node?.metadata.labels?.[ZONE];
  const ips = (pod.status?.podIPs ?? []).map(({ ip }) => ip);
  return {
    addresses: ips.filter((ip) => familyOf(ip) === family),
    conditions: { ready, serving, terminating },
    ...(hostname === undefined ? {} : { hostname }),
    targetRef: { kind: 'Pod', namespace, name, uid },
    ...(pod.spec.nodeName === undefined ? {} : { nodeName: pod.spec.nodeName }),
    ...(zone === undefined ? {} : { zone }),
  };
}

/** An unnamed port has an empty name here; a port whose named target the pod does not have is left out. */
function portsOf(service: Service, pod: Pod): SlicePort[] {
  return (service.spec.ports ?? []).flatMap((servicePort) => {
    const { name = '', protocol = 'TCP', appProtocol } = servicePort;
    const port = targetNumber(pod, servicePort);
    return port === undefined
      ? []
      : [{ name, protocol, port, ...(appProtocol === undefined ? {} : { appProtocol }) }];
  });
}

/** Those of the Service, and three that the controller sets itself. */
function labelsOf({ metadata, spec }: Service): Labels {
  const own = Object.entries(metadata.labels ?? {}).filter(([key]) => !RESERVED_LABELS.has(key));
  return {
    ...Object.fromEntries(own),
    [MANAGED_BY]: SLICE_CONTROLLER,
    [SERVICE_NAME]: metadata.name,
    ...(isHeadless(spec.clusterIP) ? { [HEADLESS]: '' } : {}),
  };
}

export function isHeadless(clusterIP: string | undefined): boolean {
  return clusterIP === undefined || clusterIP === 'None';
}

export function familyOf(ip: string): IpFamily {
  return ip.includes(':') ? 'IPv6' : 'IPv4';
}

/** Equal for equal sets of ports, in any order. */
export function portsKey(ports: readonly SlicePort[]): string {
  const texts = ports.map(({ name = '', protocol = 'TCP', port, appProtocol }) =>
    JSON.stringify([name, protocol, port, appProtocol]),
  );
  return texts.sort().join();
}

/** What makes two endpoints the same one; the rest is its state. */
export function endpointKey({ addresses, hostname, targetRef }: Endpoint): string {
  return JSON.stringify([addresses.toSorted(), hostname, targetRef?.namespace, targetRef?.name]);
}

function isOwned({ metadata }: EndpointSlice, service: Service): boolean {
  return (metadata.ownerReferences ?? []).some(
    ({ kind, uid }) => kind === 'Service' && uid === service.metadata.uid,
  );
}

function isPlaceholder(slice: EndpointSlice, service: Service): boolean {
  const isEmpty = (slice.endpoints ?? []).length === 0 && (slice.ports ?? []).length === 0;
  return isEmpty && isOwned(slice, service) && isDeepStrictEqual(slice.metadata.labels, labelsOf(service));
}

function take<K, V>(map: Map<K, V>, key: K): V[] {
  const value = map.get(key);
  if (value === undefined) return [];
  map.delete(key);
  return [value];
}

/** The same items in another order, as a Go map deals them out. */
export function shuffle<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map((item) => ({ item, rank: random() }))
    .sort((a, b) => a.rank - b.rank)
    .map(({ item }) => item);
}
