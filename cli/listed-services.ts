import { compareText } from '../core/address.ts';
import { type Occurrences, resolvePort } from '../core/address-set.ts';
import { endpointObject } from '../core/endpoint-object.ts';
import { readEndpoints } from '../core/endpoints.ts';
import type { EndpointSlice, Endpoints } from '../core/kubernetes.ts';
import { readService } from '../core/service.ts';
import type { PortId, ServicePort } from '../core/service-port.ts';
import {
  countedObjects,
  definedPorts,
  emptyState,
  isTruncated,
  lookupOf,
  type ServiceState,
} from '../core/service-state.ts';
import { isIpSlice, readSlice, serviceNameOf } from '../core/slice.ts';
import type { ListedObjects } from './cluster-list.ts';

/** `NAMESPACE/NAME`. */
export type ServiceId = string;

/** A Service of a list, and what the rules make of the objects listed with it. */
export interface ListedService {
  readonly namespace: string;
  readonly name: string;
  readonly type: string;
  /** A name instead of addresses (S36). */
  readonly isExternalName: boolean;
  /** Endpoints over capacity (S42). */
  readonly isTruncated: boolean;
  readonly ports: ReadonlyMap<PortId, ListedPort>;
}

/** A service port of a list. */
export interface ListedPort {
  readonly port: ServicePort;
  /** What the objects say of each key, ready or not. */
  readonly occurrences: Occurrences;
  /**
   * What each object by itself says of the addresses with this IP. A key that several hold is told by the one whose
   * *recorded* version is the newest (S11), which may be an older one than the list's (P5).
   */
  readonly tellings: (ip: string) => readonly Occurrences[];
}

/** Computes, from nothing but a list, the sets of every Service in it; slices of no Service say nothing (S34). */
export function readListed({ services, objects }: ListedObjects): ReadonlyMap<ServiceId, ListedService> {
  const byService = Map.groupBy(objects, serviceIdOf);
  const listed = services.map((service): [ServiceId, ListedService] => {
    const { namespace, name } = service.metadata;
    const id = `${namespace}/${name}`;
    const { service: record } = readService(service);
    const state: ServiceState = {
      ...emptyState('EndpointSlice'),
      service: record,
      objects: new Map(
        (byService.get(id) ?? []).map((object) => [object.metadata.uid, readObject(object, name)]),
      ),
    };
    return [
      id,
      {
        namespace,
        name,
        type: record.type,
        isExternalName: record.externalName !== null,
        isTruncated: isTruncated(state),
        ports: new Map([...definedPorts(state)].map(([portId, port]) => [portId, readPort(state, port)])),
      },
    ];
  });
  return new Map(listed.sort(([a], [b]) => compareText(a, b)));
}

function readPort(state: ServiceState, port: ServicePort): ListedPort {
  const counted = countedObjects(state);
  return {
    port,
    occurrences: resolvePort(counted, lookupOf(state, port)),
    tellings: (ip) =>
      [...counted.objects].map((object) =>
        resolvePort({ ...counted, objects: [object] }, lookupOf(state, port), new Set([ip])),
      ),
  };
}

/** S8; null for what is nobody's, or has no semantics (S13). */
function serviceIdOf(object: EndpointSlice | Endpoints): ServiceId | null {
  const { namespace, name } = object.metadata;
  if (object.kind === 'Endpoints') return `${namespace}/${name}`;
  const service = isIpSlice(object) ? serviceNameOf(object.metadata) : null;
  return service === null ? null : `${namespace}/${service}`;
}

function readObject(object: EndpointSlice | Endpoints, service: string) {
  const { name, uid, resourceVersion: version } = object.metadata;
  const { content } = object.kind === 'Endpoints' ? readEndpoints(object) : readSlice(object, service);
  return endpointObject({ kind: object.kind, name, uid, version, enrichment: null }, content);
}
