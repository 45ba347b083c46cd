import { readPorts, readTarget } from '../core/endpoint-object.ts';
import type { RawSlicePort, RawTargetRef } from '../core/kubernetes.ts';
import { type Held, objectJson } from './compact.ts';
import { OPAQUE_PORTS, type OpaquePorts, parseOpaquePorts } from './enrichment-ports.ts';

/** A port that pods are reached at: its number, and its name, which is the Service port's. */
export interface TargetPort {
  readonly name: string;
  readonly port: number;
}

export interface PodName {
  readonly namespace: string;
  readonly name: string;
}

/** Pods that share their ports: those of a slice, or of one subset of an Endpoints object. */
export interface PodGroup {
  readonly ports: readonly TargetPort[];
  /** Each once. */
  readonly pods: readonly PodName[];
}

/** What a Service says of the pods behind it. */
export interface ServiceTraits {
  readonly opaquePorts: OpaquePorts;
  /** Its own port numbers, by the port's name. */
  readonly numbers: ReadonlyMap<string, number>;
}

interface Addresses {
  readonly targetRef?: RawTargetRef | null;
}

/** Which pods an EndpointSlice or Endpoints object names, and at which ports. */
export function readPodGroups(held: Held): PodGroup[] {
  const object = JSON.parse(objectJson(held));
  const subsets = held.kind === 'EndpointSlice' ? [object] : list<Record<string, unknown>>(object.subsets);
  return subsets.map(({ ports, endpoints, addresses, notReadyAddresses }) => {
    const pods = new Map<string, PodName>();
    for (const { targetRef } of [endpoints, addresses, notReadyAddresses].flatMap(list<Addresses>)) {
      const target = readTarget(targetRef, held.namespace);
      if (target?.kind === 'Pod') pods.set(`${target.namespace}/${target.name}`, target);
    }
    return { ports: readPorts(list<RawSlicePort>(ports)).ports, pods: [...pods.values()] };
  });
}

/** @returns null for a Service without the annotation. */
export function readServiceTraits(held: Held): ServiceTraits | null {
  const { metadata, spec } = JSON.parse(objectJson(held));
  const annotation: unknown = metadata.annotations?.[OPAQUE_PORTS];
  if (typeof annotation !== 'string') return null;
  const ports = list<{ readonly name?: string; readonly port?: number }>(spec?.ports);
  return {
    opaquePorts: parseOpaquePorts(annotation),
    numbers: new Map(ports.map(({ name, port }) => [name ?? '', port ?? 0])),
  };
}

/** The objects of a list; what is neither is left to ingest to refuse. */
function list<T>(value: unknown): T[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === 'object' && item !== null) : [];
}
