import type { Pod, Service, ServicePort } from './resources.ts';

/** What both endpoint controllers ask about a pod. Source: `k8s.io/endpointslice`, `util/controller_utils.go`. */

export function isReady({ status }: Pod): boolean {
  return (
    status?.conditions?.some((condition) => condition.type === 'Ready' && condition.status === 'True') ??
    false
  );
}

export function isTerminating({ metadata }: Pod): boolean {
  return metadata.deletionTimestamp !== undefined;
}

/** True when a pod has an address and has not run to its end. */
export function isAddressable({ status }: Pod): boolean {
  const hasEnded = status?.phase === 'Succeeded' || status?.phase === 'Failed';
  return !hasEnded && (status?.podIPs ?? []).length > 0;
}

/** A pod answers to its hostname under the headless Service that it names as its subdomain. */
export function hostnameUnder(service: Service, { spec, metadata }: Pod): string | undefined {
  const isOfService =
    spec.subdomain === service.metadata.name && metadata.namespace === service.metadata.namespace;
  return isOfService ? spec.hostname : undefined;
}

/** The number behind a Service port on this pod; undefined when no container port has that name. */
export function targetNumber(
  { spec }: Pod,
  { targetPort, port, protocol = 'TCP' }: ServicePort,
): number | undefined {
  if (typeof targetPort !== 'string') return targetPort ?? port;
  return spec.containers
    .flatMap(({ ports }) => ports ?? [])
    .find((candidate) => candidate.name === targetPort && (candidate.protocol ?? 'TCP') === protocol)
    ?.containerPort;
}
