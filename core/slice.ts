import { compareText, type Family, type Hints } from './address.ts';
import {
  type Condition,
  type EndpointContent,
  type EndpointEntry,
  type Enrichments,
  endpointEntry,
  foldByIp,
  readMirror,
  readOwnerUids,
  readPorts,
  readTarget,
} from './endpoint-object.ts';
import { canonicalIp } from './ip.ts';
import type { EndpointSlice, ObjectMeta, RawEndpoint } from './kubernetes.ts';

const SERVICE_NAME = 'kubernetes.io/service-name';

/**
 * The name of the service, in the slice's own namespace, that a slice belongs to (S8): its label, else the Service that
 * owns it.
 * @returns null when the slice is nobody's.
 */
export function serviceNameOf(metadata: Pick<ObjectMeta, 'labels' | 'ownerReferences'>): string | null {
  const label = metadata.labels?.[SERVICE_NAME];
  if (label) return label;
  return metadata.ownerReferences?.find((owner) => owner.kind === 'Service' && owner.name)?.name ?? null;
}

/** Does a slice hold IPs? FQDN slices have no semantics (S13); an absent type follows the IPs (S14). */
export function isIpSlice(slice: EndpointSlice): boolean {
  return !slice.addressType || slice.addressType === 'IPv4' || slice.addressType === 'IPv6';
}

/** What a slice contributes to `service`, and how many senseless values in it were skipped (P6). */
export function readSlice(
  slice: EndpointSlice,
  service: string,
  enrichments: Enrichments = {},
): { readonly content: EndpointContent; readonly skipped: number } {
  const { ports, skipped: skippedPorts } = readPorts(slice.ports ?? []);
  const endpoints: EndpointEntry[] = [];
  let skipped = skippedPorts;
  for (const raw of slice.endpoints ?? []) {
    const entry = readEndpoint(raw, slice, enrichments);
    if (entry === null) skipped++;
    else endpoints.push(entry);
  }
  const content: EndpointContent = {
    ownerUids: readOwnerUids(slice.metadata, service),
    mirror: readMirror(slice.metadata),
    isTruncated: false,
    groups: ports.length === 0 && endpoints.length === 0 ? [] : [{ ports, endpoints: foldByIp(endpoints) }],
  };
  return { content, skipped };
}

/** Only the first address has meaning (S15). */
function readEndpoint(
  raw: RawEndpoint,
  slice: EndpointSlice,
  enrichments: Enrichments,
): EndpointEntry | null {
  const address = canonicalIp(raw.addresses?.[0] ?? '');
  if (address === null || !fitsType(address.family, slice.addressType)) return null;
  return endpointEntry(
    {
      ...address,
      condition: conditionOf(raw.conditions),
      hostname: raw.hostname || null,
      node: raw.nodeName || null,
      zone: raw.zone || null,
      hints: readHints(raw.hints),
      target: readTarget(raw.targetRef, slice.metadata.namespace),
    },
    enrichments,
  );
}

function fitsType(family: Family, addressType: string | null | undefined): boolean {
  return !addressType || addressType === family;
}

/** Nil conditions resolved (S25); `ready` alone decides (S26). */
function conditionOf(conditions: RawEndpoint['conditions']): Condition {
  const isReady = conditions?.ready ?? true;
  const isServing = conditions?.serving ?? true;
  const isTerminating = conditions?.terminating ?? false;
  if (isReady) return 'ready';
  if (!isTerminating) return 'notReady';
  return isServing ? 'draining' : 'terminating';
}

/** Empty hints are no hints. */
function readHints(raw: RawEndpoint['hints']): Hints | null {
  const forZones = names(raw?.forZones);
  const forNodes = names(raw?.forNodes);
  return forZones.length === 0 && forNodes.length === 0 ? null : { forZones, forNodes };
}

function names(list: readonly { readonly name: string }[] | null | undefined): string[] {
  return [...new Set((list ?? []).map((item) => item.name))].sort(compareText);
}
