import { isDeepStrictEqual } from 'node:util';
import { hostnameUnder, isAddressable, isReady, isTerminating, targetNumber } from './pod-facts.ts';
import type {
  EndpointAddress,
  EndpointSubset,
  Endpoints,
  ObjectInput,
  Pod,
  Service,
  SubsetPort,
} from './resources.ts';
import { familyOf, HEADLESS, isHeadless } from './slice-controller.ts';
import { withTriggerTime } from './trigger-time.ts';

/** More addresses than this in one Endpoints object are left out, and the object says so (S42). */
const MAX_ADDRESSES = 1_000;
const OVER_CAPACITY = 'endpoints.kubernetes.io/over-capacity';
const MANAGED_BY = 'endpoints.kubernetes.io/managed-by';

/**
 * Plans the Endpoints object of a Service with a selector: the object to write, or null when it is as it should be.
 * Source: `pkg/controller/endpoint`. Terminating pods are left out, unready ones are `notReadyAddresses`.
 */
export function planEndpoints(
  service: Service,
  pods: readonly Pod[],
  current: Endpoints | undefined,
  triggerTime: string | null,
): ObjectInput<'Endpoints'> | null {
  const { subsets, isTruncated } = truncate(repack(service, pods));
  const { name, namespace = '' } = service.metadata;
  const labels = {
    ...service.metadata.labels,
    [MANAGED_BY]: 'endpoint-controller',
    ...(isHeadless(service.spec.clusterIP) ? { [HEADLESS]: '' } : {}),
  };
  const { [OVER_CAPACITY]: capacity, ...annotations } = current?.metadata.annotations ?? {};
  const isCurrent =
    isDeepStrictEqual(current?.subsets ?? [], subsets) &&
    isDeepStrictEqual(current?.metadata.labels, labels) &&
    (capacity !== undefined) === isTruncated;
  if (current !== undefined && isCurrent) return null;
  return {
    kind: 'Endpoints',
    metadata: {
      name,
      namespace,
      labels,
      annotations: {
        ...withTriggerTime(annotations, triggerTime),
        ...(isTruncated ? { [OVER_CAPACITY]: 'truncated' } : {}),
      },
    },
    ...(subsets.length === 0 ? {} : { subsets }),
  };
}

interface Group {
  readonly ports: SubsetPort[];
  readonly ready: Map<string, EndpointAddress>;
  readonly notReady: Map<string, EndpointAddress>;
}

/** Addresses by port, and ports that have the same addresses in one subset; everything sorted, as `RepackSubsets`. */
function repack(service: Service, pods: readonly Pod[]): EndpointSubset[] {
  const byPort = new Map<string, Group>();
  for (const pod of pods) {
    const tolerates = service.spec.publishNotReadyAddresses === true;
    if (!isAddressable(pod) || (isTerminating(pod) && !tolerates)) continue;
    const address = addressOf(service, pod);
    if (address === undefined) continue;
    for (const ports of portChoices(service, pod)) {
      const key = JSON.stringify(ports);
      const group = byPort.get(key) ?? { ports, ready: new Map(), notReady: new Map() };
      byPort.set(key, group);
      (tolerates || isReady(pod) ? group.ready : group.notReady).set(address.ip, address);
    }
  }
  const byAddresses = Map.groupBy(byPort.values(), ({ ready, notReady }) =>
    JSON.stringify([[...ready.keys()].sort(), [...notReady.keys()].sort()]),
  );
  return [...byAddresses.values()].flatMap((groups) => {
    const [first] = groups;
    if (first === undefined) return [];
    const ports = groups.flatMap((group) => group.ports).sort((a, b) => compare(portText(a), portText(b)));
    const addresses = sorted(first.ready);
    const notReadyAddresses = sorted(first.notReady);
    return [
      {
        ...(addresses.length === 0 ? {} : { addresses }),
        ...(notReadyAddresses.length === 0 ? {} : { notReadyAddresses }),
        ...(ports.length === 0 ? {} : { ports }),
      },
    ];
  });
}

/** Each Service port by itself; a headless Service without ports has addresses without any. */
function portChoices(service: Service, pod: Pod): SubsetPort[][] {
  const ports = service.spec.ports ?? [];
  if (ports.length === 0) return isHeadless(service.spec.clusterIP) ? [[]] : [];
  return ports.flatMap((servicePort) => {
    const { name, protocol = 'TCP', appProtocol } = servicePort;
    const port = targetNumber(pod, servicePort);
    if (port === undefined) return [];
    return [
      [
        {
          ...(name === undefined || name === '' ? {} : { name }),
          port,
          protocol,
          ...(appProtocol === undefined ? {} : { appProtocol }),
        },
      ],
    ];
  });
}

/** An Endpoints object has addresses of the first family of its Service only. */
function addressOf(service: Service, pod: Pod): EndpointAddress | undefined {
  const [family = 'IPv4'] = service.spec.ipFamilies ?? [];
  const ip = (pod.status?.podIPs ?? []).map((podIP) => podIP.ip).find((text) => familyOf(text) === family);
  if (ip === undefined) return undefined;
  const { namespace = '', name, uid } = pod.metadata;
  const hostname = hostnameUnder(service, pod);
  return {
    ip,
    ...(hostname === undefined ? {} : { hostname }),
    ...(pod.spec.nodeName === undefined ? {} : { nodeName: pod.spec.nodeName }),
    targetRef: { kind: 'Pod', namespace, name, uid },
  };
}

/** Keeps 1,000 addresses over all subsets, ready ones first. */
function truncate(subsets: readonly EndpointSubset[]): {
  readonly subsets: readonly EndpointSubset[];
  readonly isTruncated: boolean;
} {
  const ready = subsets.flatMap(({ addresses = [] }) => addresses).length;
  const notReady = subsets.flatMap(({ notReadyAddresses = [] }) => notReadyAddresses).length;
  if (ready + notReady <= MAX_ADDRESSES) return { subsets, isTruncated: false };
  let readyLeft = Math.min(ready, MAX_ADDRESSES);
  let notReadyLeft = MAX_ADDRESSES - readyLeft;
  const kept = subsets.map(({ addresses = [], notReadyAddresses = [], ports }) => {
    const keptReady = addresses.slice(0, readyLeft);
    const keptNotReady = notReadyAddresses.slice(0, notReadyLeft);
    readyLeft -= keptReady.length;
    notReadyLeft -= keptNotReady.length;
    return {
      ...(keptReady.length === 0 ? {} : { addresses: keptReady }),
      ...(keptNotReady.length === 0 ? {} : { notReadyAddresses: keptNotReady }),
      ...(ports === undefined ? {} : { ports }),
    };
  });
  return { subsets: kept, isTruncated: true };
}

function sorted(addresses: ReadonlyMap<string, EndpointAddress>): EndpointAddress[] {
  return [...addresses.values()].sort((a, b) => compare(a.ip, b.ip));
}

function portText({ name = '', port, protocol = 'TCP' }: SubsetPort): string {
  return `${name}/${protocol}/${port}`;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : 1;
}
