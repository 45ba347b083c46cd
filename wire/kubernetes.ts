import * as z from 'zod';
import type { EndpointSlice, Endpoints, PodEnrichment, Service } from '../core/kubernetes.ts';
import {
  MAX_NAME_LENGTH,
  MAX_UID_LENGTH,
  objectName,
  objectUid,
  optionalVersion,
  orNull,
  resourceVersion,
  serviceName,
} from './envelope.ts';

/**
 * Schemas of the watched objects. They check the *shape* and drop all that nothing reads; a wrong *value* (an IP, a port
 * number, a protocol) passes and is skipped alone by core (P6). Go writes `null` for empty lists (S16).
 */

/** Endpoints of one object: the API server's own limit for slices is 1,000; hand-written Endpoints may have more. */
const MAX_ENDPOINTS = 10_000;
/** Ports of one object or subset: the API server's limit for slices is 100. */
const MAX_PORTS = 1000;
/** Addresses of one endpoint, of which only the first counts (S15): the API server's limit is 100. */
const MAX_ENDPOINT_ADDRESSES = 1000;
const MAX_OWNERS = 100;
const MAX_HINTS = 1000;
/**
 * UTF-8 bytes of the names in one endpoint, and in all ports of an object: so that an item of the table holds its ports
 * and the most endpoints that are kept together, however badly they compress. Real ones have a tenth.
 */
const MAX_ENDPOINT_BYTES = 1600;
const MAX_PORTS_BYTES = 70_000;

const word = z
  .string()
  .max(MAX_NAME_LENGTH)
  .refine((value) => value.isWellFormed(), 'must be Unicode text');
/** A name that is published as it is: node, zone, hostname, target. */
const text = word.nullish();
/** Any number at all: whether it is a port number is core's to judge. */
const portNumber = z
  .custom<number>((value) => typeof value === 'number', 'must be a number')
  .meta({ type: 'number' })
  .nullish();
const flag = z.boolean().nullish();
const labels = z.record(z.string(), z.string()).nullish();
const orEmpty = z
  .string()
  .max(MAX_NAME_LENGTH)
  .nullish()
  .transform((value) => value ?? '');

/** What events tell of any object, its identity aside. */
const attributes = {
  labels,
  annotations: labels,
  ownerReferences: z
    .array(z.object({ kind: orEmpty, name: orEmpty, uid: orEmpty }))
    .max(MAX_OWNERS)
    .nullish(),
};

const metadata = z.object({
  namespace: objectName,
  name: objectName,
  uid: objectUid,
  resourceVersion,
  ...attributes,
});

/** Metadata of a deleted object; without uid it means whatever has the name (S45). */
export const deletedMetadata = z
  .object({
    namespace: objectName,
    name: objectName,
    uid: z.string().max(MAX_UID_LENGTH).nullish().transform(orNull),
    resourceVersion: optionalVersion,
    ...attributes,
  })
  .superRefine(checkServiceName);

const SERVICE_NAME = 'kubernetes.io/service-name';

/** The name by which a slice joins a service, its label's or else its owner's, becomes part of a key (S8). */
function checkServiceName({ labels, ownerReferences }: Joined, context: z.RefinementCtx): void {
  const check = (name: string, path: (string | number)[]) => {
    const [issue] = serviceName.safeParse(name).error?.issues ?? [];
    if (issue !== undefined) context.addIssue({ code: 'custom', path, message: issue.message });
  };
  const label = labels?.[SERVICE_NAME];
  if (label) {
    check(label, ['labels', SERVICE_NAME]);
    return;
  }
  ownerReferences?.forEach(({ kind, name }, index) => {
    if (kind === 'Service' && name !== '') check(name, ['ownerReferences', index, 'name']);
  });
}

interface Joined {
  readonly labels?: Readonly<Record<string, string>> | null | undefined;
  readonly ownerReferences?: readonly { readonly kind: string; readonly name: string }[] | null | undefined;
}

/** UTF-8 bytes of all texts in a value. */
function textBytes(value: unknown): number {
  if (typeof value === 'string') return Buffer.byteLength(value);
  if (typeof value !== 'object' || value === null) return 0;
  return Object.values(value).reduce((sum: number, part) => sum + textBytes(part), 0);
}

/** Keeps the names of one endpoint within bounds; those of its IPs have their own. */
function hasShortNames({ addresses: _addresses, ip: _ip, ...names }: { addresses?: unknown; ip?: unknown }) {
  return textBytes(names) <= MAX_ENDPOINT_BYTES;
}
const SHORT_NAMES = `must have names of at most ${MAX_ENDPOINT_BYTES} bytes together`;

function hasShortPorts(ports: unknown): boolean {
  return textBytes(ports) <= MAX_PORTS_BYTES;
}
const SHORT_PORTS = `must have names of at most ${MAX_PORTS_BYTES} bytes together`;

const slicePorts = z
  .array(z.object({ name: text, protocol: text, port: portNumber, appProtocol: text }))
  .max(MAX_PORTS)
  .nullish();

const targetRef = z.object({ kind: text, namespace: text, name: text }).nullish();

export const service = z.object({
  apiVersion: z.literal('v1'),
  kind: z.literal('Service'),
  metadata,
  spec: z
    .object({
      type: text,
      clusterIP: text,
      selector: labels,
      ports: z
        .array(z.object({ name: text, port: portNumber, protocol: text }))
        .max(MAX_PORTS)
        .nullish()
        .refine(hasShortPorts, SHORT_PORTS),
      internalTrafficPolicy: text,
      externalName: text,
    })
    .nullish(),
}) satisfies z.ZodType<Service>;

const hints = z
  .array(z.object({ name: word }))
  .max(MAX_HINTS)
  .nullish();

export const endpointSlice = z.object({
  apiVersion: z.enum(['discovery.k8s.io/v1', 'discovery.k8s.io/v1beta1']),
  kind: z.literal('EndpointSlice'),
  metadata: metadata.superRefine(checkServiceName),
  addressType: text,
  ports: slicePorts.refine(hasShortPorts, SHORT_PORTS),
  endpoints: z
    .array(
      z
        .object({
          addresses: z.array(z.string()).max(MAX_ENDPOINT_ADDRESSES).nullish(),
          conditions: z.object({ ready: flag, serving: flag, terminating: flag }).nullish(),
          hostname: text,
          nodeName: text,
          zone: text,
          hints: z.object({ forZones: hints, forNodes: hints }).nullish(),
          targetRef,
        })
        .refine(hasShortNames, SHORT_NAMES),
    )
    .max(MAX_ENDPOINTS)
    .nullish(),
}) satisfies z.ZodType<EndpointSlice>;

const endpointAddresses = z
  .array(
    z
      .object({ ip: z.string(), hostname: text, nodeName: text, targetRef })
      .refine(hasShortNames, SHORT_NAMES),
  )
  .max(MAX_ENDPOINTS)
  .nullish();

export const endpoints = z.object({
  apiVersion: z.literal('v1'),
  kind: z.literal('Endpoints'),
  metadata,
  subsets: z
    .array(
      z.object({ addresses: endpointAddresses, notReadyAddresses: endpointAddresses, ports: slicePorts }),
    )
    .max(MAX_ENDPOINTS)
    .nullish()
    .refine(
      (subsets) => countAddresses(subsets ?? []) <= MAX_ENDPOINTS,
      `must have at most ${MAX_ENDPOINTS} addresses`,
    )
    .refine(
      (subsets) => countPorts(subsets ?? []) <= MAX_ENDPOINTS,
      `must have at most ${MAX_ENDPOINTS} ports in all subsets together`,
    )
    .refine((subsets) => hasShortPorts((subsets ?? []).map(({ ports }) => ports)), SHORT_PORTS),
}) satisfies z.ZodType<Endpoints>;

function countAddresses(
  subsets: readonly {
    readonly addresses?: readonly unknown[] | null | undefined;
    readonly notReadyAddresses?: readonly unknown[] | null | undefined;
  }[],
): number {
  return subsets.reduce(
    (sum, subset) => sum + (subset.addresses?.length ?? 0) + (subset.notReadyAddresses?.length ?? 0),
    0,
  );
}

function countPorts(subsets: readonly { readonly ports?: readonly unknown[] | null | undefined }[]): number {
  return subsets.reduce((sum, { ports }) => sum + (ports?.length ?? 0), 0);
}

/** What the relay knows of a pod (S7). */
export const podEnrichment = z.object({
  owner: z.object({ kind: z.string().max(MAX_NAME_LENGTH), name: z.string().max(MAX_NAME_LENGTH) }).nullish(),
  node: text,
  opaqueProtocol: flag,
}) satisfies z.ZodType<PodEnrichment>;
