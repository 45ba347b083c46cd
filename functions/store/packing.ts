import { compareText, type Hints, type Protocol } from '../../core/address.ts';
import {
  type Condition,
  countEndpoints,
  type EndpointContent,
  type EndpointEntry,
  type EndpointGroup,
  type Mirror,
  type PortEntry,
} from '../../core/endpoint-object.ts';
import { type Cell, ColumnReader, packLines, writeColumn } from './columns.ts';
import { UnknownFormatError } from './store.ts';

/** First byte of a packed part. */
const FORMAT = 1;

/** Endpoints of one part, so that a change of one endpoint rewrites about 1.6 KB, whatever the size of its object. */
const PART_ENDPOINTS = 100;
/** The number of parts stays while they have so many endpoints on average: else one endpoint could rewrite them all, again and again. */
const MIN_PART_ENDPOINTS = 40;
const MAX_PART_ENDPOINTS = 160;

/**
 * Into how many parts an object of `count` endpoints is cut.
 * @param former the present number of its parts, null for a new object.
 */
export function partCountFor(count: number, former: number | null): number {
  const isFitting =
    former !== null && count >= former * MIN_PART_ENDPOINTS && count <= former * MAX_PART_ENDPOINTS;
  return isFitting ? former : Math.max(1, Math.round(count / PART_ENDPOINTS));
}

/**
 * Cuts a content by IP. A part must be written again only if its content here differs from its former one. Part 0 keeps
 * every group, so that it knows their order; the others keep those of which they have endpoints, unless two groups have
 * the same ports and only their position tells them apart.
 */
export function splitContent(content: EndpointContent, partCount: number): EndpointContent[] {
  if (partCount === 1) return [content];
  const isPositional = !hasDistinctPorts(content.groups);
  const parts = Array.from({ length: partCount }, (): EndpointGroup[] => []);
  for (const { ports, endpoints } of content.groups) {
    const shares = Array.from({ length: partCount }, (): EndpointEntry[] => []);
    for (const entry of endpoints) shares[partOf(entry.ip, partCount)]?.push(entry);
    for (const [index, share] of shares.entries()) {
      if (index === 0 || share.length > 0 || isPositional) parts[index]?.push({ ports, endpoints: share });
    }
  }
  return parts.map((groups) => ({ ...content, groups }));
}

/** Packs a content, part by part. Never compare the bytes: another zlib may make others of the same content. */
export function packParts(content: EndpointContent, partCount: number): Uint8Array[] {
  return splitContent(content, partCount).map(pack);
}

/**
 * The very content that was packed, to the order of its properties.
 * @throws UnknownFormatError when a later release packed it.
 */
export function unpackParts(parts: readonly Uint8Array[]): EndpointContent {
  const [first, ...others] = parts.map(unpack);
  if (first === undefined) throw new Error('an object has at least one part');
  if (others.length === 0) return first;
  const isPositional = !hasDistinctPorts(first.groups);
  const nameOf = ({ ports }: EndpointGroup, index: number) =>
    isPositional ? `${index}` : JSON.stringify(ports);
  const groups = new Map(
    first.groups.map((group, index) => [nameOf(group, index), { ...group, endpoints: [...group.endpoints] }]),
  );
  for (const part of others) {
    for (const [index, group] of part.groups.entries()) {
      groups.get(nameOf(group, index))?.endpoints.push(...group.endpoints);
    }
  }
  for (const { endpoints } of groups.values()) endpoints.sort((a, b) => compareText(a.ip, b.ip));
  return { ...first, groups: [...groups.values()] };
}

/**
 * The IPs of a packed content, once for each endpoint; the other columns are not looked at.
 * @throws UnknownFormatError when a later release packed it.
 */
export function ipsOfParts(parts: readonly Uint8Array[]): string[] {
  return parts.flatMap((part) => {
    const reader = open(part);
    return reader.texts(Number(reader.line()));
  });
}

function hasDistinctPorts(groups: readonly EndpointGroup[]): boolean {
  return new Set(groups.map(({ ports }) => JSON.stringify(ports))).size === groups.length;
}

/** FNV-1a, which spreads neighbouring IPs well. */
function partOf(ip: string, partCount: number): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < ip.length; index++) {
    hash = Math.imul(hash ^ ip.charCodeAt(index), 0x01000193);
  }
  return (hash >>> 0) % partCount;
}

/** Cells of an endpoint, field by field. The IP comes first: `ipsOfParts` stops behind it. */
const FIELDS: readonly ((entry: EndpointEntry) => Cell)[] = [
  (entry) => entry.ip,
  (entry) => entry.condition,
  (entry) => entry.hostname,
  (entry) => entry.node,
  (entry) => entry.zone,
  ({ hints }) => (hints === null ? null : JSON.stringify([hints.forZones, hints.forNodes])),
  (entry) => entry.target?.kind ?? null,
  (entry) => entry.target?.namespace ?? null,
  (entry) => entry.target?.name ?? null,
  (entry) => entry.owner?.kind ?? null,
  (entry) => entry.owner?.name ?? null,
  (entry) => (entry.opaqueProtocol ? '1' : '0'),
];

type PackedPort = readonly [name: string, protocol: Protocol, port: number, appProtocol: string | null];

/** What is not in columns. */
type Rest = readonly [
  ownerUids: readonly string[],
  mirror: readonly [identity: string | null, remoteName: string | null, cluster: string | null] | null,
  isTruncated: boolean,
  groups: readonly (readonly [endpoints: number, ports: readonly PackedPort[]])[],
];

function pack(content: EndpointContent): Uint8Array {
  const endpoints = content.groups.flatMap((group) => group.endpoints);
  const { ownerUids, mirror, isTruncated, groups } = content;
  const rest: Rest = [
    ownerUids,
    mirror && [mirror.identity, mirror.remoteName, mirror.cluster],
    isTruncated,
    groups.map((group) => [
      group.endpoints.length,
      group.ports.map(({ name, protocol, port, appProtocol }) => [name, protocol, port, appProtocol]),
    ]),
  ];
  const lines = [
    `${countEndpoints(content)}`,
    ...FIELDS.flatMap((cellOf) => writeColumn(endpoints.map(cellOf))),
    JSON.stringify(rest),
  ];
  return Buffer.concat([Buffer.of(FORMAT), packLines(lines)]);
}

function open(bytes: Uint8Array): ColumnReader {
  if (bytes[0] !== FORMAT) throw new UnknownFormatError(`packed endpoints of format ${bytes[0]}`);
  return new ColumnReader(bytes.subarray(1));
}

function unpack(bytes: Uint8Array): EndpointContent {
  const reader = open(bytes);
  const rows = Number(reader.line());
  const ips = reader.texts(rows);
  const conditions = reader.texts(rows);
  const hostnames = reader.column(rows);
  const nodes = reader.column(rows);
  const zones = reader.column(rows);
  const hints = reader.column(rows);
  const targetKinds = reader.column(rows);
  const targetNamespaces = reader.texts(rows);
  const targetNames = reader.texts(rows);
  const ownerKinds = reader.column(rows);
  const ownerNames = reader.texts(rows);
  const opaqueFlags = reader.texts(rows);
  // Properties come in the order in which core makes them, since equal contents are recognised by their JSON.
  const endpoints = ips.map((ip, row): EndpointEntry => {
    const targetKind = targetKinds[row] ?? null;
    const ownerKind = ownerKinds[row] ?? null;
    return {
      ip,
      family: ip.includes(':') ? 'IPv6' : 'IPv4',
      condition: conditions[row] as Condition,
      hostname: hostnames[row] ?? null,
      node: nodes[row] ?? null,
      zone: zones[row] ?? null,
      hints: unpackHints(hints[row] ?? null),
      target:
        targetKind === null
          ? null
          : { kind: targetKind, namespace: targetNamespaces[row] ?? '', name: targetNames[row] ?? '' },
      owner: ownerKind === null ? null : { kind: ownerKind, name: ownerNames[row] ?? '' },
      opaqueProtocol: opaqueFlags[row] === '1',
    };
  });
  const [ownerUids, mirror, isTruncated, groups] = JSON.parse(reader.line()) as Rest;
  let start = 0;
  return {
    ownerUids,
    mirror: mirror && unpackMirror(mirror),
    isTruncated,
    groups: groups.map(([count, ports]) => {
      const end = start + count;
      const group = { ports: ports.map(unpackPort), endpoints: endpoints.slice(start, end) };
      start = end;
      return group;
    }),
  };
}

function unpackHints(text: Cell): Hints | null {
  if (text === null) return null;
  const [forZones, forNodes] = JSON.parse(text) as [string[], string[]];
  return { forZones, forNodes };
}

function unpackMirror([identity, remoteName, cluster]: NonNullable<Rest[1]>): Mirror {
  return { identity, remoteName, cluster };
}

function unpackPort([name, protocol, port, appProtocol]: PackedPort): PortEntry {
  return { name, protocol, port, appProtocol };
}
