import * as z from 'zod';
import { parsePortId } from '../core/service-port.ts';
import { publishedAddress } from './address.ts';
import { digest, portIdentity } from './delta.ts';
import { clusterName, count, MAX_NAME_LENGTH, mode, objectName, serviceName } from './envelope.ts';
import { instantText } from './instant.ts';
import { type Parsed, parse } from './parse.ts';

/** Items of a page unless the query says otherwise; Kubernetes' own clients ask for as many. */
const DEFAULT_PAGE = 500;
const MAX_PAGE = 1000;
/** The path's namespace that means all. */
export const ALL_NAMESPACES = '_all';
const MAX_CONTINUE_LENGTH = 2048;

/** The query of a URL: the first value of each name. Names that no schema knows are not looked at. */
export type Query = Readonly<Record<string, string | undefined>>;

/** Checks a query; `invalid` is a 400. */
export function parseQuery<T>(schema: z.ZodType<T>, query: Query): Parsed<T> {
  return parse(schema, query, 'query');
}

/** An integer in a URL. */
function integerText(minimum: number, maximum: number, fallback: number) {
  return z
    .string()
    .transform((text, context) => {
      const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
      if (value >= minimum && value <= maximum) return value;
      context.addIssue({ code: 'custom', message: `must be an integer from ${minimum} to ${maximum}` });
      return z.NEVER;
    })
    .default(fallback)
    .meta({ type: 'integer', minimum, maximum, default: fallback });
}

/** A service port in a URL. */
const portText = z
  .string()
  .transform((text, context) => {
    const port = parsePortId(text);
    if (port !== null) return port;
    context.addIssue({ code: 'custom', message: 'must be a port such as 80 or 53/UDP' });
    return z.NEVER;
  })
  .describe('80, or 53/UDP; TCP unless it is named.');

const word = z.string().min(1).max(MAX_NAME_LENGTH);
const continueText = z.string().min(1).max(MAX_CONTINUE_LENGTH).describe("The former page's continue.");
const continueAnswer = z.string().nullable().describe('Asks for the next page; null = there is none.');

export const clusterPath = z.object({ cluster: clusterName });
export const servicesPath = clusterPath.extend({
  namespace: z.union(
    [objectName, z.literal(ALL_NAMESPACES)],
    `must be the name of a namespace, or ${ALL_NAMESPACES}`,
  ),
});
export const servicePath = clusterPath.extend({ namespace: objectName, service: serviceName });

/** Which tier of a set `addresses` holds (S27). */
const TIERS = ['ready', 'draining', 'effective'] as const;
/** Forms of the endpoints answer. */
const FORMATS = ['json', 'table', 'wide'] as const;
export type Format = (typeof FORMATS)[number];

export const endpointsQuery = z.object({
  port: portText.optional(),
  hostname: word.optional().describe('Only addresses of this hostname.'),
  node: word.optional().describe("The reader's node, for traffic policy and node hints."),
  zone: word.optional().describe("The reader's zone, for zone hints."),
  family: z.enum(['IPv4', 'IPv6']).optional(),
  tier: z
    .enum(TIERS)
    .default('ready')
    .describe('What addresses holds; effective = ready, or draining when ready is empty.'),
  format: z.enum(FORMATS).optional().describe('Form of the answer; the Accept header decides without it.'),
});

/** An address as the API serves it. */
export const servedAddress = publishedAddress.extend({
  dnsName: z.string().optional().describe('Name of an address with a hostname in a headless Service.'),
});

/** The current set of one service port. */
export const portSet = portIdentity.extend({
  exists: z.boolean(),
  sequence: count.describe('Of the last delta; 0 for a port number that the Service does not define.'),
  digest,
  size: count.describe('Addresses of the whole ready set, whatever the filter.'),
  asOf: instantText.describe('Up to when the set is known to be right.'),
  stale: z.boolean().describe('The relay has not been heard for 60 s.'),
  truncated: z.boolean().describe('The set is a lower bound: an Endpoints object is over capacity.'),
  addresses: z.array(servedAddress).describe('The tier asked for, filtered, sorted by key in code units.'),
  draining: z.array(servedAddress).describe('Serving, but terminating and not ready.'),
  notReady: count.describe('Addresses neither ready nor draining.'),
});
export type PortSet = z.infer<typeof portSet>;

/** All ports of a service. */
export const portSets = z.object({ ports: z.array(portSet) });

/** With `port` one set, without it all. */
export const endpointsAnswer = z.union([portSet, portSets]);

export const servicesQuery = z.object({
  namespace: servicesPath.shape.namespace.optional().describe("Instead of the path's."),
  limit: integerText(1, MAX_PAGE, DEFAULT_PAGE),
  continue: continueText.optional(),
});

/** One service in a list. */
export const serviceSummary = z.object({
  namespace: z.string(),
  name: z.string(),
  type: z.string().nullable().describe('Null where no Service is known.'),
  exists: z.boolean(),
  changedAt: instantText.nullable(),
  ports: z.array(
    portIdentity
      .pick({ port: true, portName: true, protocol: true })
      .extend({ size: count, sequence: count, digest }),
  ),
});
export type ServiceSummary = z.infer<typeof serviceSummary>;

export const servicesAnswer = z.object({ items: z.array(serviceSummary), continue: continueAnswer });
export type ServicesAnswer = z.infer<typeof servicesAnswer>;

/** One cluster, with its freshness. */
export const clusterSummary = z.object({
  name: clusterName,
  uid: z.string().nullable().describe('uid of its namespace kube-system; null = never told.'),
  mode,
  epoch: count,
  lastHeartbeat: instantText.nullable().describe('Null = there never was one.'),
  stale: z.boolean().describe('No heartbeat for 60 s.'),
  services: count,
  deleting: z.literal(true).optional().describe('Its deletion is under way.'),
});
export type ClusterSummary = z.infer<typeof clusterSummary>;

export const clustersAnswer = z.object({ items: z.array(clusterSummary) });
export type ClustersAnswer = z.infer<typeof clustersAnswer>;

/** Answer of a cluster's deletion, which goes on by itself. */
export const clusterDeletionAnswer = z.object({
  name: clusterName,
  epoch: count.describe('Higher than that of any relay until now, all of which are refused.'),
  deleting: z.literal(true),
});
export type ClusterDeletionAnswer = z.infer<typeof clusterDeletionAnswer>;

/** Longest life of a subscription that is not renewed, in seconds. */
const MAX_SUBSCRIPTION_SECONDS = 3600;
const MAX_SUBSCRIPTION_ID = 128;

export const subscriptionPath = servicePath.extend({
  id: z
    .string()
    .max(MAX_SUBSCRIPTION_ID)
    .regex(
      /^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/,
      'must be of letters, digits, "-", "_" and ".", with a letter or digit at both ends',
    ),
});

/** The port of a subscription. */
export const subscriptionQuery = z.object({ port: portText });
/** Whose port is known already; another port's is none. */
export const knownSubscriptionQuery = z.object({ port: portText.optional() });

export const subscriptionRequest = z.object({
  ttlSeconds: z
    .int()
    .min(1)
    .max(MAX_SUBSCRIPTION_SECONDS)
    .describe('It ends so many seconds from now unless it is put again.'),
});

/** A reader's lease on a service port. */
export const subscriptionAnswer = portIdentity.pick({ port: true, protocol: true }).extend({
  id: z.string(),
  cluster: clusterName,
  namespace: z.string(),
  service: z.string(),
  expiresAt: instantText,
});
export type SubscriptionAnswer = z.infer<typeof subscriptionAnswer>;

/** Answer of `/healthz` and `/readyz`. */
export const healthAnswer = z.object({
  status: z.enum(['ok', 'failing']),
  reasons: z.array(z.string()).describe('What is wrong; empty when ok.'),
});
export type HealthAnswer = z.infer<typeof healthAnswer>;
