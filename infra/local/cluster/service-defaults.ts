import type { KubeObject, Service } from './resources.ts';

/**
 * Fills in what the API server fills in when a Service is written: type, families, a cluster IP, protocols and target
 * ports; ExternalName loses the cluster IP. Other kinds are left as they are.
 */
export function withDefaults(object: KubeObject, previous?: KubeObject): KubeObject {
  if (object.kind !== 'Service') return object;
  const { clusterIP, clusterIPs, ipFamilies, ipFamilyPolicy, type = 'ClusterIP', ...spec } = object.spec;
  const ports = spec.ports?.map(({ name, protocol = 'TCP', port, targetPort = port, ...rest }) => ({
    ...(name === undefined ? {} : { name }),
    protocol,
    port,
    targetPort,
    ...rest,
  }));
  const isExternal = type === 'ExternalName';
  const before = previous?.kind === 'Service' ? previous.spec.clusterIP : undefined;
  const ip = clusterIP ?? before ?? freeClusterIp(object.metadata.uid);
  const families = ipFamilies ?? ['IPv4'];
  const withFamilies = {
    clusterIP: ip,
    clusterIPs: clusterIPs ?? [ip],
    ipFamilies: families,
    ipFamilyPolicy: ipFamilyPolicy ?? (families.length > 1 ? 'RequireDualStack' : 'SingleStack'),
  } as const;
  const defaulted: Service = {
    ...object,
    spec: {
      ...(ports === undefined ? {} : { ports }),
      ...spec,
      ...(ports === undefined ? {} : { ports }),
      ...(isExternal ? {} : withFamilies),
      type,
      sessionAffinity: spec.sessionAffinity ?? 'None',
      internalTrafficPolicy: spec.internalTrafficPolicy ?? 'Cluster',
    },
    status: object.status ?? { loadBalancer: {} },
  };
  return defaulted;
}

/** An address of 10.96.0.0/16 that follows from the uid, so that a recreated Service gets another one. */
function freeClusterIp(uid: string): string {
  const bits = Number.parseInt(uid.slice(0, 4), 16);
  return `10.96.${bits >> 8}.${bits & 255}`;
}
