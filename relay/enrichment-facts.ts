import { type NamedPort, OPAQUE_PORTS } from './enrichment-ports.ts';
import { type Labels, readSelector, type Selects } from './enrichment-selector.ts';

/** The kinds of objects that tell about pods. */
export type FactKind = 'Pod' | 'ReplicaSet' | 'Job' | 'Server';

interface Identity {
  readonly namespace: string;
  readonly name: string;
  readonly resourceVersion: string;
}

/** Kind and name, in Kubernetes' spelling, of an object in the namespace of what it owns. */
export interface Owner {
  readonly kind: string;
  readonly name: string;
}

/** What Servers and the annotation depend on; the pods of one workload mostly share it. */
export interface PodTraits {
  readonly labels: Labels;
  /** Of containers and init containers. */
  readonly ports: readonly NamedPort[];
  /** The pod's annotation; null when it has none, which is not an empty one. */
  readonly opaquePorts: string | null;
}

export interface PodFacts extends Identity {
  readonly kind: 'Pod';
  /** The only ownerReference; null when there are none or several. */
  readonly owner: Owner | null;
  /** Null until it is scheduled. */
  readonly node: string | null;
  readonly traits: PodTraits;
}

/** What stands between a pod and its workload. */
export interface ParentFacts extends Identity {
  readonly kind: 'ReplicaSet' | 'Job';
  /** The only ownerReference; null when there are none or several. */
  readonly owner: Owner | null;
}

/** Which pods' port a Server makes opaque. */
export interface ServerRule {
  readonly selects: Selects;
  /** A number, or the name of a container port. */
  readonly port: number | string;
  /** Equal texts are equal rules. */
  readonly text: string;
}

/** A Server of policy.linkerd.io. */
export interface ServerFacts extends Identity {
  readonly kind: 'Server';
  /** Null when it makes nothing opaque. */
  readonly rule: ServerRule | null;
  /** Why it can make nothing opaque, although it would; null when there is nothing wrong with it. */
  readonly fault: string | null;
}

export type Facts = PodFacts | ParentFacts | ServerFacts;

interface RawMetadata {
  readonly name?: string;
  readonly namespace?: string;
  readonly resourceVersion?: string;
  readonly labels?: Labels | null;
  readonly annotations?: Readonly<Record<string, string>> | null;
  readonly ownerReferences?: readonly { readonly kind?: string; readonly name?: string }[] | null;
}

interface RawContainer {
  readonly ports?:
    | readonly { readonly name?: string; readonly containerPort?: number; readonly hostPort?: number }[]
    | null;
}

interface RawPod {
  readonly metadata?: RawMetadata;
  readonly spec?: {
    readonly nodeName?: string;
    readonly containers?: readonly RawContainer[] | null;
    readonly initContainers?: readonly RawContainer[] | null;
  };
}

interface RawServer {
  readonly metadata?: RawMetadata;
  readonly spec?: {
    readonly podSelector?: unknown;
    readonly port?: unknown;
    readonly proxyProtocol?: unknown;
  };
}

/**
 * Labels are kept for Servers alone.
 * @returns null for what has no identity, which no API server sends; so do the other readers.
 */
export function readPod(raw: unknown, keepsLabels: boolean): PodFacts | null {
  const { metadata, spec } = raw as RawPod;
  const identity = readIdentity(metadata);
  if (identity === null) return null;
  const containers = [...(spec?.initContainers ?? []), ...(spec?.containers ?? [])];
  return {
    kind: 'Pod',
    ...identity,
    owner: readOwner(metadata),
    node: spec?.nodeName || null,
    traits: {
      labels: (keepsLabels && metadata?.labels) || {},
      ports: containers.flatMap(readNamedPorts),
      opaquePorts: metadata?.annotations?.[OPAQUE_PORTS] ?? null,
    },
  };
}

/** Reads a ReplicaSet or Job, of which the metadata is enough. */
export function readParent(kind: ParentFacts['kind'], raw: unknown): ParentFacts | null {
  const { metadata } = raw as { readonly metadata?: RawMetadata };
  const identity = readIdentity(metadata);
  return identity === null ? null : { kind, ...identity, owner: readOwner(metadata) };
}

/** A Server that makes nothing opaque is read too: it may once have. */
export function readServer(raw: unknown): ServerFacts | null {
  const { metadata, spec } = raw as RawServer;
  const identity = readIdentity(metadata);
  if (identity === null) return null;
  const { podSelector, port, proxyProtocol } = spec ?? {};
  const facts = { kind: 'Server', ...identity, rule: null, fault: null } as const;
  if (proxyProtocol !== 'opaque') return facts;
  if (typeof port !== 'number' && typeof port !== 'string')
    return { ...facts, fault: 'port: must be a number or a name' };
  const selector = readSelector(podSelector);
  if (selector.kind === 'invalid') return { ...facts, fault: `podSelector.${selector.reason}` };
  const text = JSON.stringify([port, podSelector]);
  return { ...facts, rule: { selects: selector.selects, port, text } };
}

function readIdentity(metadata: RawMetadata | undefined): Identity | null {
  const { namespace, name, resourceVersion } = metadata ?? {};
  return namespace && name && resourceVersion ? { namespace, name, resourceVersion } : null;
}

function readOwner(metadata: RawMetadata | undefined): Owner | null {
  const [first, ...others] = metadata?.ownerReferences ?? [];
  return first?.kind && first.name && others.length === 0 ? { kind: first.kind, name: first.name } : null;
}

function readNamedPorts({ ports }: RawContainer): NamedPort[] {
  return (ports ?? []).flatMap(({ name, containerPort, hostPort }) =>
    name && containerPort ? [{ name, port: containerPort, hostPort: hostPort || null }] : [],
  );
}
