import * as z from 'zod';
import type { Address } from '../core/address.ts';

/** Largest port number. */
export const MAX_PORT = 65_535;

const name = z.string();
const optional = name.nullish();

/** An address as it is published. We leave out what is null, empty or false; a reader takes either. */
export const publishedAddress = z
  .object({
    ip: z.string().min(1).describe('Canonical: IPv6 lower-case and compressed.'),
    port: z.int().min(0).max(MAX_PORT).describe('Target port; 0 for a headless Service without ports.'),
    family: z.enum(['IPv4', 'IPv6']),
    hostname: optional,
    node: optional,
    zone: optional,
    target: z
      .object({ kind: name, namespace: name, name })
      .nullish()
      .describe('The object behind the address, mostly a Pod.'),
    owner: z.object({ kind: name, name }).nullish().describe("The Pod's controller, such as a Deployment."),
    hints: z
      .object({ forZones: z.array(name).nullish(), forNodes: z.array(name).nullish() })
      .nullish()
      .describe('Zones and nodes that should prefer this address.'),
    appProtocol: optional,
    identity: optional.describe("TLS identity of a mirrored service's gateway."),
    authority: optional.describe('NAME:PORT of a mirrored service in its own cluster.'),
    labels: z
      .record(z.string(), z.string())
      .nullish()
      .describe('target_cluster, target_service and target_service_namespace of a mirrored service.'),
    opaqueProtocol: z.boolean().nullish().describe('The port is marked opaque: no protocol detection.'),
  })
  .describe('One address of a set, identified by ip and port. Null and absent mean the same.');
export type PublishedAddress = z.infer<typeof publishedAddress>;

/** The published form: fields in one order, nothing that is null, empty or false. */
export function formatAddress(address: Address): PublishedAddress {
  const { hints } = address;
  return {
    ip: address.ip,
    port: address.port,
    family: address.family,
    ...(address.hostname !== null && { hostname: address.hostname }),
    ...(address.node !== null && { node: address.node }),
    ...(address.zone !== null && { zone: address.zone }),
    ...(address.target !== null && { target: address.target }),
    ...(address.owner !== null && { owner: address.owner }),
    ...(hints !== null && {
      hints: {
        ...(hints.forZones.length > 0 && { forZones: [...hints.forZones] }),
        ...(hints.forNodes.length > 0 && { forNodes: [...hints.forNodes] }),
      },
    }),
    ...(address.appProtocol !== null && { appProtocol: address.appProtocol }),
    ...(address.identity !== null && { identity: address.identity }),
    ...(address.authority !== null && { authority: address.authority }),
    ...(Object.keys(address.labels).length > 0 && { labels: { ...address.labels } }),
    ...(address.opaqueProtocol && { opaqueProtocol: true }),
  };
}

/** Back from the published form; hints without any name are none. */
export function parseAddress(published: PublishedAddress): Address {
  const forZones = published.hints?.forZones ?? [];
  const forNodes = published.hints?.forNodes ?? [];
  return {
    ip: published.ip,
    port: published.port,
    family: published.family,
    hostname: published.hostname ?? null,
    node: published.node ?? null,
    zone: published.zone ?? null,
    target: published.target ?? null,
    owner: published.owner ?? null,
    hints: forZones.length + forNodes.length > 0 ? { forZones, forNodes } : null,
    appProtocol: published.appProtocol ?? null,
    identity: published.identity ?? null,
    authority: published.authority ?? null,
    labels: published.labels ?? {},
    opaqueProtocol: published.opaqueProtocol ?? false,
  };
}
