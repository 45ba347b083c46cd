import { compareText } from './address.ts';
import {
  type Condition,
  type EndpointContent,
  type EndpointEntry,
  type EndpointGroup,
  type Enrichments,
  endpointEntry,
  foldByIp,
  readMirror,
  readPorts,
  readTarget,
} from './endpoint-object.ts';
import { canonicalIp } from './ip.ts';
import type { Endpoints, RawEndpointAddress, RawSubset } from './kubernetes.ts';

const OVER_CAPACITY = 'endpoints.kubernetes.io/over-capacity';

/** What an Endpoints object contributes to the service of its name, and how many senseless values were skipped (P6). */
export function readEndpoints(
  object: Endpoints,
  enrichments: Enrichments = {},
): { readonly content: EndpointContent; readonly skipped: number } {
  let skipped = 0;
  const groups: EndpointGroup[] = [];
  for (const subset of object.subsets ?? []) {
    const group = readSubset(subset, object.metadata.namespace, enrichments);
    skipped += group.skipped;
    if (group.ports.length > 0 || group.endpoints.length > 0) {
      groups.push({ ports: group.ports, endpoints: group.endpoints });
    }
  }
  const content: EndpointContent = {
    ownerUids: [],
    mirror: readMirror(object.metadata),
    isTruncated: object.metadata.annotations?.[OVER_CAPACITY] === 'truncated',
    groups: groups
      .map((group) => [JSON.stringify(group), group] as const)
      .sort(([a], [b]) => compareText(a, b))
      .map(([, group]) => group),
  };
  return { content, skipped };
}

function readSubset(subset: RawSubset, namespace: string, enrichments: Enrichments) {
  const { ports, skipped } = readPorts(subset.ports ?? []);
  const notReady = readAddresses(subset.notReadyAddresses ?? [], 'notReady', namespace, enrichments);
  const demoted = new Set(notReady.map((entry) => entry.ip));
  const ready = readAddresses(subset.addresses ?? [], 'ready', namespace, enrichments);
  const count = (subset.addresses?.length ?? 0) + (subset.notReadyAddresses?.length ?? 0);
  return {
    ports,
    // In both lists means not ready (S40); across subsets that is settled per port, where the numbers are known.
    endpoints: foldByIp([...ready.filter((entry) => !demoted.has(entry.ip)), ...notReady]),
    skipped: skipped + count - ready.length - notReady.length,
  };
}

function readAddresses(
  raw: readonly RawEndpointAddress[],
  condition: Condition,
  namespace: string,
  enrichments: Enrichments,
): EndpointEntry[] {
  const entries: EndpointEntry[] = [];
  for (const { ip, hostname, nodeName, targetRef } of raw) {
    const address = canonicalIp(ip);
    if (address === null) continue;
    const target = readTarget(targetRef, namespace);
    const known = {
      ...address,
      condition,
      hostname: hostname || null,
      node: nodeName || null,
      zone: null,
      hints: null,
      target,
    };
    entries.push(endpointEntry(known, enrichments));
  }
  return entries;
}
