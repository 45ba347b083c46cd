import { compareText, type Family, type Hints, type Protocol, type Target } from './address.ts';
import type { ObjectMeta, PodEnrichment, RawSlicePort, RawTargetRef } from './kubernetes.ts';
import { isPortNumber, protocolOf } from './service-port.ts';

/** The two kinds of objects that carry endpoints; a cluster is watched for one of them (S12). */
export type EndpointKind = 'EndpointSlice' | 'Endpoints';

/** Effective state of one endpoint, nil conditions resolved (S25–S27). Only `ready` is published. */
export type Condition = 'ready' | 'draining' | 'terminating' | 'notReady';

/** One endpoint of an object, whatever its ports. */
export interface EndpointEntry {
  readonly ip: string;
  readonly family: Family;
  readonly condition: Condition;
  readonly hostname: string | null;
  readonly node: string | null;
  readonly zone: string | null;
  readonly hints: Hints | null;
  readonly target: Target | null;
  readonly owner: { readonly kind: string; readonly name: string } | null;
  readonly opaqueProtocol: boolean;
}

/** One port that the endpoints of a group expose. */
export interface PortEntry {
  readonly name: string;
  readonly protocol: Protocol;
  readonly port: number;
  readonly appProtocol: string | null;
}

/** Endpoints that share their ports: a whole slice, or one subset of an Endpoints object (S40). */
export interface EndpointGroup {
  readonly ports: readonly PortEntry[];
  /** Sorted by IP, each IP once. */
  readonly endpoints: readonly EndpointEntry[];
}

/** What a mirrored service's object says of its addresses without targetRef (S32). */
export interface Mirror {
  readonly identity: string | null;
  /** `NAME.NAMESPACE.svc.DOMAIN` of the service in the other cluster. */
  readonly remoteName: string | null;
  readonly cluster: string | null;
}

/** Everything an object contributes to its service (S2), with all noise gone (S5): equal contents publish the same. */
export interface EndpointContent {
  /** uids of the ownerReferences that name this service; another uid than the Service's makes a left-over (S35). */
  readonly ownerUids: readonly string[];
  readonly mirror: Mirror | null;
  /** Endpoints over capacity: the set is a lower bound (S42). */
  readonly isTruncated: boolean;
  readonly groups: readonly EndpointGroup[];
}

/** Orders changes of enrichment at one resourceVersion: a newer epoch, else a higher number, is the newer. */
export interface EnrichmentVersion {
  readonly epoch: number;
  readonly number: number;
}

/** An EndpointSlice or Endpoints object as its service keeps it. */
export interface EndpointObject {
  readonly kind: EndpointKind;
  readonly name: string;
  readonly uid: string;
  readonly version: string;
  readonly enrichment: EnrichmentVersion | null;
  /** Number of endpoints, the groups' lengths added up. */
  readonly count: number;
  readonly isTruncated: boolean;
  /** Pure; a function, so that a large service is decoded only where it is looked at. */
  readonly content: () => EndpointContent;
}

/** Wraps a content whose values are in memory already. */
export function endpointObject(
  identity: Pick<EndpointObject, 'kind' | 'name' | 'uid' | 'version' | 'enrichment'>,
  content: EndpointContent,
): EndpointObject {
  return {
    ...identity,
    count: countEndpoints(content),
    isTruncated: content.isTruncated,
    content: () => content,
  };
}

/** Number of endpoints in all groups. */
export function countEndpoints(content: EndpointContent): number {
  return content.groups.reduce((sum, group) => sum + group.endpoints.length, 0);
}

/** Do two contents publish the same under any Service? */
export function equalContents(a: EndpointContent, b: EndpointContent): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

const MIRROR_IDENTITY = 'mirror.linkerd.io/remote-gateway-identity';
const MIRROR_NAME = 'mirror.linkerd.io/remote-svc-fq-name';
const MIRROR_CLUSTER = 'mirror.linkerd.io/cluster-name';
/** Longer than any DNS name with a port: an annotation may have 256 KB, and each address carries it. */
const MAX_MIRROR_LENGTH = 512;

/** Reads Linkerd's mirror annotations and label; an empty value is an absent one (S32), and so is a senseless one (P6). */
export function readMirror(metadata: ObjectMeta): Mirror | null {
  const identity = mirrorValue(metadata.annotations?.[MIRROR_IDENTITY]);
  const remoteName = mirrorValue(metadata.annotations?.[MIRROR_NAME]);
  const cluster = mirrorValue(metadata.labels?.[MIRROR_CLUSTER]);
  return identity === null && remoteName === null && cluster === null
    ? null
    : { identity, remoteName, cluster };
}

function mirrorValue(value: string | undefined): string | null {
  return value === undefined || value === '' || value.length > MAX_MIRROR_LENGTH ? null : value;
}

/** The uids under which an object names `service` as its owner (S35), sorted. */
export function readOwnerUids(metadata: ObjectMeta, service: string): string[] {
  const owners = metadata.ownerReferences ?? [];
  return owners
    .filter((owner) => owner.kind === 'Service' && owner.name === service)
    .map((owner) => owner.uid)
    .sort(compareText);
}

/** Ports that can be published, sorted; one without a number is skipped and counted (S20). */
export function readPorts(raw: readonly RawSlicePort[]): {
  readonly ports: PortEntry[];
  readonly skipped: number;
} {
  const ports = new Map<string, PortEntry>();
  let skipped = 0;
  for (const { name, protocol: rawProtocol, port, appProtocol } of raw) {
    const protocol = protocolOf(rawProtocol);
    if (!isPortNumber(port) || protocol === null) {
      skipped++;
      continue;
    }
    const entry: PortEntry = { name: name ?? '', protocol, port, appProtocol: appProtocol || null };
    ports.set(JSON.stringify(entry), entry);
  }
  const sorted = [...ports].sort(([a], [b]) => compareText(a, b));
  return { ports: sorted.map(([, entry]) => entry), skipped };
}

/** The object behind an endpoint; its namespace defaults to the slice's (S30). A reference without a name is none. */
export function readTarget(ref: RawTargetRef | null | undefined, namespace: string): Target | null {
  if (!ref?.name) return null;
  return { kind: ref.kind ?? '', namespace: ref.namespace || namespace, name: ref.name };
}

/** What the relay told about the pod behind an endpoint (S7). */
export type Enrichments = Readonly<Record<string, PodEnrichment>>;

/** The entry of an endpoint, from the parts that both kinds of objects have. */
export function endpointEntry(
  known: Omit<EndpointEntry, 'owner' | 'opaqueProtocol'>,
  enrichments: Enrichments,
): EndpointEntry {
  const pod =
    known.target?.kind === 'Pod' ? enrichments[`${known.target.namespace}/${known.target.name}`] : undefined;
  const owner = pod?.owner;
  return {
    ...known,
    node: known.node ?? pod?.node ?? null,
    owner: owner ? { kind: owner.kind, name: owner.name } : null,
    opaqueProtocol: pod?.opaqueProtocol ?? false,
  };
}

/** Sorts endpoints by IP and keeps one of each: the better tier, then the smallest target (S11). */
export function foldByIp(entries: readonly EndpointEntry[]): EndpointEntry[] {
  const byIp = new Map<string, EndpointEntry>();
  for (const entry of entries) {
    const other = byIp.get(entry.ip);
    if (other === undefined || compareWithinObject(entry, other) < 0) byIp.set(entry.ip, entry);
  }
  return [...byIp.values()].sort((a, b) => compareText(a.ip, b.ip));
}

const TIER_RANKS: Readonly<Record<Condition, number>> = {
  ready: 0,
  draining: 1,
  terminating: 2,
  notReady: 2,
};

/** Orders two endpoints of one object under one key: the one that counts comes first (S11). */
export function compareWithinObject(a: EndpointEntry, b: EndpointEntry): number {
  return (
    TIER_RANKS[a.condition] - TIER_RANKS[b.condition] ||
    compareText(targetText(a.target), targetText(b.target)) ||
    compareText(JSON.stringify(a), JSON.stringify(b))
  );
}

function targetText(target: Target | null): string {
  return target === null ? '' : `${target.kind}/${target.namespace}/${target.name}`;
}
