import { type Address, type AddressKey, addressKey, type Target } from './address.ts';
import {
  type Condition,
  compareWithinObject,
  type EndpointEntry,
  type EndpointKind,
  type EndpointObject,
  type PortEntry,
} from './endpoint-object.ts';
import type { ServicePort } from './service-port.ts';
import { compareVersions } from './version.ts';

/** An address of a service port and the state in which its objects say it is. */
export interface Occurrence {
  readonly address: Address;
  readonly condition: Condition;
  /** uid of the object that tells the metadata. */
  readonly uid: string;
}

/** Everything the objects say of one service port, ready or not; only the ready ones are its published set (S26). */
export type Occurrences = ReadonlyMap<AddressKey, Occurrence>;

/** How a service port finds its slice ports. */
export interface PortLookup {
  readonly servicePort: ServicePort;
  /** Names under which objects that lack the port's name still count, oldest first: an open rename window (S23). */
  readonly formerNames: readonly string[];
}

/** The objects that count for a set, and whose word prevails where both kinds are there (S12). */
export interface CountedObjects {
  readonly objects: Iterable<EndpointObject>;
  readonly preferredKind: EndpointKind;
}

interface Candidate {
  readonly entry: EndpointEntry;
  readonly port: number;
  readonly appProtocol: string | null;
  readonly object: EndpointObject;
}

/**
 * The union of what objects contribute to a service port (S2), each key once (S11).
 * @param ips only these IPs; all when absent. The cost is that of the objects given.
 */
export function resolvePort(
  counted: CountedObjects,
  lookup: PortLookup,
  ips?: ReadonlySet<string>,
): Occurrences {
  const union = new Map<AddressKey, Candidate>();
  for (const object of counted.objects) {
    for (const [key, candidate] of candidatesOf(object, lookup, ips)) {
      const other = union.get(key);
      if (other === undefined || prevails(candidate, other, counted.preferredKind)) union.set(key, candidate);
    }
  }
  const occurrences = new Map<AddressKey, Occurrence>();
  for (const [key, candidate] of union) {
    occurrences.set(key, {
      address: toAddress(candidate, lookup.servicePort),
      condition: candidate.entry.condition,
      uid: candidate.object.uid,
    });
  }
  return occurrences;
}

/** The name under which an object's ports count for a service port; null when it carries none of the names (S17, S23). */
export function nameInUse(object: EndpointObject, lookup: PortLookup): string | null {
  const { groups } = object.content();
  const carries = (name: string) =>
    groups.some(({ ports }) =>
      ports.some((port) => port.name === name && port.protocol === lookup.servicePort.protocol),
    );
  const { name } = lookup.servicePort;
  return carries(name) ? name : (lookup.formerNames.findLast(carries) ?? null);
}

/** Does an object have a port of this name and protocol? */
export function carriesPort(object: EndpointObject, port: Pick<ServicePort, 'name' | 'protocol'>): boolean {
  const { groups } = object.content();
  return groups.some(({ ports }) =>
    ports.some((entry) => entry.name === port.name && entry.protocol === port.protocol),
  );
}

function candidatesOf(
  object: EndpointObject,
  lookup: PortLookup,
  ips: ReadonlySet<string> | undefined,
): Map<AddressKey, Candidate> {
  const byKey = new Map<AddressKey, Candidate>();
  const portsOf = portMatcher(object, lookup);
  for (const { ports, endpoints } of object.content().groups) {
    for (const { port, appProtocol } of portsOf(ports)) {
      for (const entry of endpoints) {
        if (ips !== undefined && !ips.has(entry.ip)) continue;
        const key = addressKey({ ip: entry.ip, port });
        const other = byKey.get(key);
        if (other === undefined || compareWithinObject(entry, other.entry) < 0) {
          byKey.set(key, { entry, port, appProtocol, object });
        }
      }
    }
  }
  return object.kind === 'Endpoints' ? demote(object, lookup, byKey) : byKey;
}

/** Which of a group's ports serve a service port; a Service without ports takes every endpoint, on port 0 (S19). */
function portMatcher(object: EndpointObject, lookup: PortLookup) {
  const { port: number, protocol } = lookup.servicePort;
  if (number === 0) return () => [{ port: 0, appProtocol: null }];
  const name = nameInUse(object, lookup);
  return (ports: readonly PortEntry[]) =>
    name === null ? [] : ports.filter((port) => port.name === name && port.protocol === protocol);
}

/** An ip:port that any subset lists as not ready is not ready, whatever the ports are called (S40). */
function demote(
  object: EndpointObject,
  lookup: PortLookup,
  byKey: Map<AddressKey, Candidate>,
): Map<AddressKey, Candidate> {
  const { port: number, protocol } = lookup.servicePort;
  for (const { ports, endpoints } of object.content().groups) {
    const numbers =
      number === 0 ? [0] : ports.filter((port) => port.protocol === protocol).map(({ port }) => port);
    for (const entry of endpoints) {
      if (entry.condition === 'ready') continue;
      for (const port of numbers) {
        const candidate = byKey.get(addressKey({ ip: entry.ip, port }));
        if (candidate?.entry.condition === 'ready') {
          byKey.set(addressKey({ ip: entry.ip, port }), {
            ...candidate,
            entry: { ...candidate.entry, condition: 'notReady' },
          });
        }
      }
    }
  }
  return byKey;
}

/**
 * Of one key in two objects: a ready one, then the preferred kind's, then the newest, then the larger uid (S11).
 * Versions of different kinds do not compare (S44), so the kind comes before them.
 */
function prevails(a: Candidate, b: Candidate, preferredKind: EndpointKind): boolean {
  const isReady = a.entry.condition === 'ready';
  if (isReady !== (b.entry.condition === 'ready')) return isReady;
  if (a.object.kind !== b.object.kind) return a.object.kind === preferredKind;
  return (compareVersions(a.object.version, b.object.version) || (a.object.uid < b.object.uid ? -1 : 1)) > 0;
}

function toAddress({ entry, port, appProtocol, object }: Candidate, servicePort: ServicePort): Address {
  const { ip, family, hostname, node, zone, target, owner, hints, opaqueProtocol } = entry;
  // Pods carry their own identity; only a gateway's bare address speaks for a service elsewhere.
  const mirror = target === null ? object.content().mirror : null;
  return {
    ip,
    port,
    family,
    hostname,
    node,
    zone,
    target,
    owner,
    hints,
    appProtocol,
    identity: mirror?.identity ?? null,
    authority: mirror?.remoteName ? `${mirror.remoteName}:${servicePort.port}` : null,
    labels: mirror?.cluster ? mirrorLabels(mirror.cluster, mirror.remoteName) : {},
    opaqueProtocol,
  };
}

function mirrorLabels(cluster: string, remoteName: string | null): Record<string, string> {
  const [service, namespace] = remoteName?.split('.') ?? [];
  return {
    target_cluster: cluster,
    ...(service ? { target_service: service } : {}),
    ...(namespace ? { target_service_namespace: namespace } : {}),
  };
}

/** Is the published content of two addresses of one key the same (S5)? */
export function equalAddresses(a: Address, b: Address): boolean {
  return (
    a.hostname === b.hostname &&
    a.node === b.node &&
    a.zone === b.zone &&
    equalTargets(a.target, b.target) &&
    a.appProtocol === b.appProtocol &&
    a.identity === b.identity &&
    a.authority === b.authority &&
    a.opaqueProtocol === b.opaqueProtocol &&
    a.owner?.kind === b.owner?.kind &&
    a.owner?.name === b.owner?.name &&
    JSON.stringify(a.hints) === JSON.stringify(b.hints) &&
    JSON.stringify(a.labels) === JSON.stringify(b.labels)
  );
}

function equalTargets(a: Target | null, b: Target | null): boolean {
  return a?.kind === b?.kind && a?.namespace === b?.namespace && a?.name === b?.name;
}
