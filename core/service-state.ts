import type { Protocol } from './address.ts';
import type { CountedObjects, PortLookup } from './address-set.ts';
import type { EndpointKind, EndpointObject } from './endpoint-object.ts';
import type { ServiceRecord } from './service.ts';
import { type PortId, portId, type ServicePort } from './service-port.ts';
import type { EpochMs } from './time.ts';

/** Kinds of objects that change a service's sets. */
export type ObjectKind = 'Service' | EndpointKind;

/** The event that made a change, as the delta names it. */
export interface Cause {
  readonly kind: ObjectKind;
  readonly name: string;
  /** RESYNC: found by a list rather than told by an event. */
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'RESYNC';
  readonly resourceVersion: string;
}

/** What the last delta of a service port said; it outlives the port, so that sequences never restart (S38). */
export interface PortState {
  readonly port: number;
  readonly protocol: Protocol;
  readonly name: string;
  /** Number of deltas so far (P2). */
  readonly sequence: number;
  /** Did the Service exist? */
  readonly exists: boolean;
  readonly size: number;
  /** Sum modulo 2^256 of the hashes of all keys in the set. */
  readonly digest: bigint;
}

/** A renamed service port whose slices have yet to follow (S23). */
export interface RenameWindow {
  /** Oldest first, without the port's present name. */
  readonly formerNames: readonly string[];
  readonly until: EpochMs;
  /** After a second rename only time closes it. */
  readonly isRepeated: boolean;
  /** The Service event that renamed the port. */
  readonly cause: Cause;
}

/** A deletion, remembered so that a late replay does not revive the object (S45). */
export interface Deletion {
  readonly version: string;
  readonly at: EpochMs;
}

/** Everything that is known of one service. */
export interface ServiceState {
  /** Whose metadata prevails while a cluster changes its mode (S12). */
  readonly preferredKind: EndpointKind;
  /** Null while no Service is known: then nothing is published (S34). */
  readonly service: ServiceRecord | null;
  /** Slices or Endpoints by uid. */
  readonly objects: ReadonlyMap<string, EndpointObject>;
  /** Remembered deletions by uid. */
  readonly deletions: ReadonlyMap<string, Deletion>;
  /** Every service port that ever spoke. */
  readonly ports: ReadonlyMap<PortId, PortState>;
  readonly windows: ReadonlyMap<PortId, RenameWindow>;
}

/** A service of which nothing is known. */
export function emptyState(preferredKind: EndpointKind): ServiceState {
  return {
    preferredKind,
    service: null,
    objects: new Map(),
    deletions: new Map(),
    ports: new Map(),
    windows: new Map(),
  };
}

/** The ports that the Service defines now, by id; none without a Service, nor for an ExternalName (S34, S36). */
export function definedPorts(state: ServiceState): Map<PortId, ServicePort> {
  return new Map((state.service?.ports ?? []).map((port) => [portId(port), port]));
}

/** How a defined port finds its addresses in this state. */
export function lookupOf(state: ServiceState, servicePort: ServicePort): PortLookup {
  return { servicePort, formerNames: state.windows.get(portId(servicePort))?.formerNames ?? [] };
}

/** The objects that count for the Service: all but left-overs of a former Service of its name (S35). */
export function countedObjects(
  state: ServiceState,
  among: Iterable<EndpointObject> = state.objects.values(),
): CountedObjects {
  const { service } = state;
  const objects = service === null ? [] : [...among].filter((object) => !isLeftOver(object, service));
  return { objects, preferredKind: state.preferredKind };
}

function isLeftOver(object: EndpointObject, service: ServiceRecord): boolean {
  const { ownerUids } = object.content();
  return ownerUids.length > 0 && !ownerUids.includes(service.uid);
}

/** Is the set only a lower bound, since an Endpoints object is over capacity (S42)? */
export function isTruncated(state: ServiceState): boolean {
  if (state.service === null) return false;
  for (const object of state.objects.values()) if (object.isTruncated) return true;
  return false;
}
