import { deflateRawSync, inflateRawSync } from 'node:zlib';
import type { Address, Protocol } from '../../core/address.ts';
import type { PortDelta, RemovalReason } from '../../core/delta.ts';
import type { Cause, ObjectKind } from '../../core/service-state.ts';
import type { EpochMs } from '../../core/time.ts';
import { formatDigest } from '../../wire/key-hash.ts';
import { UnknownFormatError } from './store.ts';

/** First byte of a packed delta. */
const FORMAT = 1;

/** A packed delta of more bytes gets a body of its own: every change rewrites HEAD, and pays for all that is in it. */
export const INLINE_DELTA_BYTES = 1024;
/** Bytes of one piece of a body: an item ends at 400 KB, its keys and the names of its attributes included. */
export const BODY_PART_BYTES = 350_000;

/** A delta and when its head was written: what is published and kept of it. */
export interface StoredDelta {
  readonly delta: PortDelta;
  readonly committedAt: EpochMs;
}

type PackedAddress = readonly [
  ip: string,
  port: number,
  node: string | null,
  zone: string | null,
  target: readonly [kind: string, namespace: string, name: string] | null,
  owner: readonly [kind: string, name: string] | null,
  hostname: string | null,
  hints: readonly [forZones: readonly string[], forNodes: readonly string[]] | null,
  appProtocol: string | null,
  identity: string | null,
  authority: string | null,
  labels: Readonly<Record<string, string>>,
  opaqueProtocol: boolean,
];

type PackedDelta = readonly [
  port: number,
  protocol: Protocol,
  portName: string,
  sequence: number,
  exists: boolean,
  size: number,
  digest: string,
  isTruncated: boolean,
  added: readonly PackedAddress[],
  updated: readonly (readonly [address: PackedAddress, former: PackedAddress])[],
  removed: readonly (readonly [address: PackedAddress, reason: RemovalReason])[],
  cause: readonly [kind: ObjectKind, name: string, type: Cause['type'], resourceVersion: string],
  triggeredAt: string | null,
  observedAt: EpochMs,
  committedAt: EpochMs,
];

/** Packs all of a delta: removed addresses and former ones are whole, so that a reader of the history can walk backwards. */
export function packDelta({ delta, committedAt }: StoredDelta): Uint8Array {
  const { kind, name, type, resourceVersion } = delta.cause;
  const packed: PackedDelta = [
    delta.port,
    delta.protocol,
    delta.portName,
    delta.sequence,
    delta.exists,
    delta.size,
    formatDigest(delta.digest),
    delta.isTruncated,
    delta.added.map(packAddress),
    delta.updated.map(({ address, former }) => [packAddress(address), packAddress(former)]),
    delta.removed.map(({ address, reason }) => [packAddress(address), reason]),
    [kind, name, type, resourceVersion],
    delta.triggeredAt,
    delta.observedAt,
    committedAt,
  ];
  return Buffer.concat([Buffer.of(FORMAT), deflateRawSync(JSON.stringify(packed))]);
}

/** @throws UnknownFormatError when a later release packed it. */
export function unpackDelta(bytes: Uint8Array): StoredDelta {
  if (bytes[0] !== FORMAT) throw new UnknownFormatError(`packed delta of format ${bytes[0]}`);
  const [
    port,
    protocol,
    portName,
    sequence,
    exists,
    size,
    digest,
    isTruncated,
    added,
    updated,
    removed,
    [kind, name, type, resourceVersion],
    triggeredAt,
    observedAt,
    committedAt,
  ] = JSON.parse(inflateRawSync(bytes.subarray(1)).toString()) as PackedDelta;
  const delta: PortDelta = {
    port,
    protocol,
    portName,
    sequence,
    exists,
    size,
    digest: BigInt(`0x${digest}`),
    isTruncated,
    added: added.map(unpackAddress),
    updated: updated.map(([address, former]) => ({
      address: unpackAddress(address),
      former: unpackAddress(former),
    })),
    removed: removed.map(([address, reason]) => ({ address: unpackAddress(address), reason })),
    cause: { kind, name, type, resourceVersion },
    triggeredAt,
    observedAt,
  };
  return { delta, committedAt };
}

function packAddress(address: Address): PackedAddress {
  const { ip, port, node, zone, target, owner, hostname, hints } = address;
  return [
    ip,
    port,
    node,
    zone,
    target && [target.kind, target.namespace, target.name],
    owner && [owner.kind, owner.name],
    hostname,
    hints && [hints.forZones, hints.forNodes],
    address.appProtocol,
    address.identity,
    address.authority,
    address.labels,
    address.opaqueProtocol,
  ];
}

function unpackAddress(packed: PackedAddress): Address {
  const [ip, port, node, zone, target, owner, hostname, hints, ...rest] = packed;
  const [appProtocol, identity, authority, labels, opaqueProtocol] = rest;
  return {
    ip,
    port,
    family: ip.includes(':') ? 'IPv6' : 'IPv4',
    hostname,
    node,
    zone,
    target: target && { kind: target[0], namespace: target[1], name: target[2] },
    owner: owner && { kind: owner[0], name: owner[1] },
    hints: hints && { forZones: hints[0], forNodes: hints[1] },
    appProtocol,
    identity,
    authority,
    labels,
    opaqueProtocol,
  };
}
