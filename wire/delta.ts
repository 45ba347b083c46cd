import * as z from 'zod';
import type { Protocol } from '../core/address.ts';
import type { PortDelta, RemovalReason } from '../core/delta.ts';
import { parsePortId, portId } from '../core/service-port.ts';
import { type EpochMs, formatInstant } from '../core/time.ts';
import { formatAddress, MAX_PORT, publishedAddress } from './address.ts';
import { clusterName, count, watchedKind } from './envelope.ts';
import { instantText } from './instant.ts';
import { formatDigest } from './key-hash.ts';

/** Source of every entry on the bus. */
export const SOURCE = 'endpoints-watcher';
/** Format of the details; a change that breaks a reader raises it. */
const DETAIL_VERSION = 1;

/** What a delta is called on the bus: `NoEndpoints` when its set is empty. */
export type DeltaType = 'EndpointsChanged' | 'NoEndpoints';
/** A relay fell silent, or is heard again. */
export type RelayType = 'RelayLost' | 'RelayRecovered';
export type DetailType = DeltaType | RelayType;

/** Entries of one PutEvents call. Source: EventBridge quotas. */
export const MAX_CALL_ENTRIES = 10;
/** Bytes of one PutEvents call by default: below the 256 KB that hold everywhere, an entry's own overhead included. */
export const DEFAULT_CALL_BYTES = 240_000;

/** Why an address went; the first that holds (S29). */
const REMOVAL_REASONS = [
  'serviceDeleted',
  'portRemoved',
  'terminating',
  'notReady',
  'sliceMoved',
  'gone',
] as const satisfies readonly RemovalReason[];

const removedAddress = z.object({
  ip: z.string().min(1),
  port: z.int().min(0).max(MAX_PORT),
  reason: z.enum(REMOVAL_REASONS).describe('Why it went: the first that holds.'),
});

/** The event behind a delta. */
const cause = z
  .object({
    kind: watchedKind,
    name: z.string(),
    type: z.enum(['ADDED', 'MODIFIED', 'DELETED', 'RESYNC']),
    resourceVersion: z.string(),
  })
  .describe('The last event that changed the port; RESYNC = found by a list rather than told by an event.');

/** A service port as it is published. */
export const portIdentity = z.object({
  cluster: clusterName,
  namespace: z.string(),
  service: z.string(),
  port: z.int().min(0).max(MAX_PORT).describe('0 for a headless Service without ports.'),
  portName: z.string().describe('Empty for an unnamed port.'),
  protocol: z.enum(['TCP', 'UDP', 'SCTP']),
});

export const digest = z
  .string()
  .regex(/^[0-9a-f]{64}$/)
  .describe(
    'Sum modulo 2^256 of SHA-256(key) over all keys of the ready set, in hex; a key is ip:port or [ipv6]:port.',
  );

/** Detail of a delta, version 1. */
export const deltaDetail = portIdentity
  .extend({
    version: z.literal(DETAIL_VERSION),
    id: z.string().describe('GROUP#SEQUENCE, of a part GROUP#SEQUENCE/INDEX: the same at every delivery.'),
    group: z.string().describe('CLUSTER/NAMESPACE/SERVICE:PORT, with /UDP or /SCTP if it is not TCP.'),
    sequence: count.describe('Rises by exactly 1 per delta of the group.'),
    exists: z.boolean().describe('False = the Service is gone.'),
    size: count.describe('Addresses in the set after this delta.'),
    digest,
    truncated: z.boolean().describe('The set is a lower bound: an Endpoints object is over capacity.'),
    added: z.array(publishedAddress).describe('Sorted by key in code units, as are the other lists.'),
    updated: z.array(publishedAddress).describe('Whole new addresses whose keys were there before.'),
    removed: z.array(removedAddress),
    cause,
    triggeredAt: instantText
      .nullable()
      .describe('When the endpoints changed in the cluster, the oldest of the batch; null = unknown.'),
    observedAt: instantText.describe('When the relay saw it.'),
    committedAt: instantText,
    part: z
      .object({ index: count, count: z.int().min(2) })
      .optional()
      .describe('Only of a delta too large for one entry: its parts have one sequence, and indices from 0.'),
  })
  .describe('A change of the address set of one service port.');
export type DeltaDetail = z.infer<typeof deltaDetail>;

/** Detail of RelayLost and RelayRecovered. */
export const relayDetail = z
  .object({
    version: z.literal(DETAIL_VERSION),
    id: z.string().describe('CLUSTER#relay#LAST: the same for a silence and its end.'),
    cluster: clusterName,
    lastHeartbeat: instantText.describe('The last one before the silence.'),
    at: instantText,
  })
  .describe('The relay of a cluster fell silent, or is heard again.');
export type RelayDetail = z.infer<typeof relayDetail>;

/** What a delta is called on the bus. */
export function deltaTypeOf({ size }: Pick<PortDelta, 'size'>): DeltaType {
  return size === 0 ? 'NoEndpoints' : 'EndpointsChanged';
}

/** The published form of a delta, in one piece. */
export function formatDelta(
  { cluster, namespace, service }: Pick<PortOf, 'cluster' | 'namespace' | 'service'>,
  delta: PortDelta,
  committedAt: EpochMs,
): DeltaDetail {
  const { port, portName, protocol, sequence, exists, size, triggeredAt } = delta;
  const { kind, name, type, resourceVersion } = delta.cause;
  const group = groupOf({ cluster, namespace, service, port, protocol });
  return {
    version: DETAIL_VERSION,
    id: deltaId(group, sequence),
    group,
    sequence,
    cluster,
    namespace,
    service,
    port,
    portName,
    protocol,
    exists,
    size,
    digest: formatDigest(delta.digest),
    truncated: delta.isTruncated,
    added: delta.added.map(formatAddress),
    updated: delta.updated.map(({ address }) => formatAddress(address)),
    removed: delta.removed.map(({ address: { ip, port }, reason }) => ({ ip, port, reason })),
    cause: { kind, name, type, resourceVersion },
    triggeredAt,
    observedAt: formatInstant(delta.observedAt),
    committedAt: formatInstant(committedAt),
  };
}

/** A service port of some cluster. */
export interface PortOf {
  readonly cluster: string;
  readonly namespace: string;
  readonly service: string;
  readonly port: number;
  readonly protocol: Protocol;
}

/** `CLUSTER/NAMESPACE/SERVICE:PORT`, with `/UDP` or `/SCTP` if it is not TCP: group of the deltas and resource on the bus. */
export function groupOf(port: PortOf): string {
  return `${port.cluster}/${port.namespace}/${port.service}:${portId(port)}`;
}

const GROUP = /^([^/#:]+)\/([^/#:]+)\/([^/#:]+):([^#]+)$/;

/** Back from `groupOf`; null for what is no group. */
export function parseGroup(group: string): PortOf | null {
  const [, cluster, namespace, service, id = ''] = GROUP.exec(group) ?? [];
  const number = parsePortId(id);
  if (cluster === undefined || namespace === undefined || service === undefined || number === null)
    return null;
  const port = { cluster, namespace, service, ...number };
  return groupOf(port) === group ? port : null;
}

/** Id of a delta, or of one part of it: deterministic, so that a duplicate is recognised (P3). */
export function deltaId(group: string, sequence: number, part?: number): string {
  return part === undefined ? `${group}#${sequence}` : `${group}#${sequence}/${part}`;
}

const DELTA_ID = /^([^#]+)#(\d{1,16})(?:\/(\d{1,9}))?$/;

/** Back from `deltaId`; null for what is no id. `part` is null for a delta in one piece. */
export function parseDeltaId(
  id: string,
): { readonly group: string; readonly sequence: number; readonly part: number | null } | null {
  const [, group, sequence, part] = DELTA_ID.exec(id) ?? [];
  if (group === undefined || parseGroup(group) === null || !Number.isSafeInteger(Number(sequence)))
    return null;
  return { group, sequence: Number(sequence), part: part === undefined ? null : Number(part) };
}

/** Detail of a silence, or of its end. */
export function relayDetailOf(cluster: string, lastHeartbeat: EpochMs, at: EpochMs): RelayDetail {
  const last = formatInstant(lastHeartbeat);
  return {
    version: DETAIL_VERSION,
    id: `${cluster}#relay#${last}`,
    cluster,
    lastHeartbeat: last,
    at: formatInstant(at),
  };
}
