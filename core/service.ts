import { compareText } from './address.ts';
import type { Service } from './kubernetes.ts';
import { isPortNumber, PORTLESS, portId, protocolOf, type ServicePort } from './service-port.ts';

/** What the address sets and their readers need of a Service; everything else of it is noise (S5). */
export interface ServiceRecord {
  readonly uid: string;
  readonly version: string;
  /** Source: Service spec.type; ClusterIP when absent. */
  readonly type: string;
  readonly isHeadless: boolean;
  /** False for manual Endpoints, external addresses and other clusters (S37). */
  readonly hasSelector: boolean;
  /** internalTrafficPolicy Local: a query from a node gets that node's addresses only (S33). */
  readonly isLocal: boolean;
  /** Target of an ExternalName Service; null for the others. */
  readonly externalName: string | null;
  /** Sorted by port id; empty for an ExternalName Service, which has no addresses (S36). */
  readonly ports: readonly ServicePort[];
}

/** A Service as the sets need it, and how many of its ports had to be skipped for a senseless value (P6). */
export function readService(object: Service): { readonly service: ServiceRecord; readonly skipped: number } {
  const { metadata, spec } = object;
  const type = spec?.type || 'ClusterIP';
  const isExternalName = type === 'ExternalName';
  const isHeadless = !isExternalName && spec?.clusterIP === 'None';
  const { ports, skipped } = isExternalName ? { ports: [], skipped: 0 } : readPorts(spec?.ports ?? []);
  return {
    service: {
      uid: metadata.uid,
      version: metadata.resourceVersion,
      type,
      isHeadless,
      hasSelector: Object.keys(spec?.selector ?? {}).length > 0,
      isLocal: spec?.internalTrafficPolicy === 'Local',
      externalName: isExternalName ? (spec?.externalName ?? '') : null,
      ports: isHeadless && (spec?.ports ?? []).length === 0 ? [PORTLESS] : ports,
    },
    skipped,
  };
}

/** Of two ports with one number and protocol the first counts, as for Linkerd. */
function readPorts(raw: NonNullable<NonNullable<Service['spec']>['ports']>) {
  const ports = new Map<string, ServicePort>();
  let skipped = 0;
  for (const { name, port, protocol: rawProtocol } of raw) {
    const protocol = protocolOf(rawProtocol);
    if (!isPortNumber(port) || protocol === null) {
      skipped++;
      continue;
    }
    const id = portId({ port, protocol });
    if (!ports.has(id)) ports.set(id, { port, protocol, name: name ?? '' });
  }
  return { ports: [...ports.values()].sort((a, b) => compareText(portId(a), portId(b))), skipped };
}
