import { isIP } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import type {
  Endpoint,
  EndpointAddress,
  EndpointSlice,
  Endpoints,
  IpFamily,
  Labels,
  ObjectInput,
  SlicePort,
} from './resources.ts';
import {
  endpointKey,
  familyOf,
  MANAGED_BY,
  portsKey,
  SERVICE_NAME,
  type SliceWrite,
  shuffle,
} from './slice-controller.ts';
import { withTriggerTime } from './trigger-time.ts';

export const MIRRORING_CONTROLLER = 'endpointslicemirroring-controller.k8s.io';
/** Endpoints with this label, such as `default/kubernetes`, keep slices of their own. */
export const SKIP_MIRROR = 'endpointslice.kubernetes.io/skip-mirror';
const LEADER = 'control-plane.alpha.kubernetes.io/leader';
/** Addresses of one subset that are mirrored; the rest is left out. */
const MAX_ENDPOINTS = 1_000;

/** True when the Endpoints of a Service without selector are to be mirrored. */
export function isMirrored({ metadata }: Endpoints): boolean {
  return metadata.labels?.[SKIP_MIRROR] !== 'true' && metadata.annotations?.[LEADER] === undefined;
}

/**
 * Plans the slices that mirror hand-written Endpoints: one for each subset and family, with nothing but `ready` known.
 * Source: `pkg/controller/endpointslicemirroring`.
 */
export function planMirror(
  endpoints: Endpoints,
  slices: readonly EndpointSlice[],
  random: () => number,
): SliceWrite[] {
  const creates: SliceWrite[] = [];
  const updates: SliceWrite[] = [];
  const deletes: EndpointSlice[] = [];
  const desired = desiredSlices(endpoints);
  const stored = Map.groupBy(slices, ({ ports, addressType }) => `${addressType} ${portsKey(ports ?? [])}`);
  const missing: DesiredSlice[] = [];
  for (const [key, wanted] of desired) {
    const [first, ...others] = stored.get(key) ?? [];
    deletes.push(...others);
    if (first === undefined) missing.push(wanted);
    else if (!isSame(first, wanted, endpoints)) {
      updates.push({ kind: 'update', slice: sliceOf(wanted, first, endpoints, random) });
    }
  }
  for (const [key, unwanted] of stored) {
    if (!desired.has(key)) deletes.push(...unwanted);
  }
  for (const wanted of missing) {
    const index = deletes.findIndex(({ addressType }) => addressType === wanted.addressType);
    const [reused = null] = index < 0 ? [] : deletes.splice(index, 1);
    const slice = sliceOf(wanted, reused, endpoints, random);
    if (reused === null) creates.push({ kind: 'create', slice });
    else updates.push({ kind: 'update', slice });
  }
  return [...creates, ...updates, ...deletes.map((slice): SliceWrite => ({ kind: 'delete', slice }))];
}

interface DesiredSlice {
  readonly addressType: IpFamily;
  readonly ports: readonly SlicePort[];
  readonly endpoints: ReadonlyMap<string, Endpoint>;
}

function desiredSlices({ subsets = [] }: Endpoints): Map<string, DesiredSlice> {
  const desired = new Map<
    string,
    { addressType: IpFamily; ports: SlicePort[]; endpoints: Map<string, Endpoint> }
  >();
  for (const { addresses = [], notReadyAddresses = [], ports: subsetPorts = [] } of subsets) {
    const ports = subsetPorts.map(({ name = '', protocol = 'TCP', port, ...rest }) => ({
      name,
      protocol,
      port,
      ...rest,
    }));
    const all = [
      ...addresses.map((address) => ({ address, ready: true })),
      ...notReadyAddresses.map((address) => ({ address, ready: false })),
    ];
    for (const { address, ready } of all
      .filter(({ address: { ip } }) => isIP(ip) !== 0)
      .slice(0, MAX_ENDPOINTS)) {
      const addressType = familyOf(address.ip);
      const key = `${addressType} ${portsKey(ports)}`;
      const slice = desired.get(key) ?? { addressType, ports, endpoints: new Map<string, Endpoint>() };
      desired.set(key, slice);
      const endpoint = endpointOf(address, ready);
      slice.endpoints.set(endpointKey(endpoint), endpoint);
    }
  }
  return desired;
}

function endpointOf({ ip, hostname, targetRef, nodeName }: EndpointAddress, ready: boolean): Endpoint {
  return {
    addresses: [ip],
    conditions: { ready },
    ...(hostname === undefined ? {} : { hostname }),
    ...(targetRef === undefined ? {} : { targetRef }),
    ...(nodeName === undefined ? {} : { nodeName }),
  };
}

function isSame(slice: EndpointSlice, wanted: DesiredSlice, endpoints: Endpoints): boolean {
  const stored = new Map((slice.endpoints ?? []).map((endpoint) => [endpointKey(endpoint), endpoint]));
  return (
    isDeepStrictEqual(stored, wanted.endpoints) &&
    isDeepStrictEqual(slice.metadata.labels, labelsOf(endpoints)) &&
    isDeepStrictEqual(slice.metadata.annotations ?? {}, annotationsOf(endpoints))
  );
}

function sliceOf(
  { addressType, ports, endpoints: wanted }: DesiredSlice,
  stored: EndpointSlice | null,
  endpoints: Endpoints,
  random: () => number,
): ObjectInput<'EndpointSlice'> {
  const { name, namespace = '', uid } = endpoints.metadata;
  const owner = {
    apiVersion: 'v1',
    kind: 'Endpoints',
    name,
    uid,
    controller: true,
    blockOwnerDeletion: true,
  };
  return {
    kind: 'EndpointSlice',
    metadata: {
      ...(stored === null ? { generateName: `${name}-` } : { name: stored.metadata.name }),
      namespace,
      labels: labelsOf(endpoints),
      annotations: annotationsOf(endpoints),
      ownerReferences: [owner],
    },
    addressType,
    endpoints: shuffle([...wanted.values()], random),
    ports: ports.length === 0 ? null : ports,
  };
}

function labelsOf({ metadata }: Endpoints): Labels {
  return { ...metadata.labels, [MANAGED_BY]: MIRRORING_CONTROLLER, [SERVICE_NAME]: metadata.name };
}

function annotationsOf({ metadata }: Endpoints): Labels {
  return withTriggerTime(metadata.annotations, null);
}
