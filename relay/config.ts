import { hostname } from 'node:os';
import * as z from 'zod';
import { clusterName, MAX_NAMESPACES, type Mode, objectName } from '../wire/envelope.ts';
import { LOG_LEVELS } from '../wire/log.ts';
import { ENRICHMENTS } from './enrichment-watch.ts';
import { isInCluster } from './in-cluster.ts';

/** Several relays of one cluster share this Lease, of which one leads. */
const DEFAULT_LEASE = 'endpoints-watcher-relay';
/** A renewal that fails must be followed by another before the deadline. Source: client-go, `JitterFactor`. */
const MIN_RETRIES = 1.2;

const isTrue = z.stringbool({ truthy: ['true', '1'], falsy: ['false', '0'], error: 'must be true or false' });
const text = z.string().min(1, 'must not be empty');

function number(min: number, max: number) {
  const error = `must be a number from ${min} to ${max}`;
  return z.coerce.number({ error }).min(min, error).max(max, error);
}

const nameList = z.string().transform((list) =>
  list
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== ''),
);

const namespaceList = nameList
  .transform((names) => (names.length === 0 ? null : names))
  .pipe(z.array(objectName).max(MAX_NAMESPACES).nullable());

/** Comma-separated names of what is watched to tell more of each address. */
export const enrichmentList = nameList
  .pipe(z.array(z.enum(ENRICHMENTS, `must be of ${ENRICHMENTS.join(', ')}`)).max(ENRICHMENTS.length))
  .refine(
    (names) => !names.includes('servers') || names.includes('pods'),
    'servers say something of pods alone: write pods,servers',
  );

const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;

/** The relay's settings, with their defaults. */
const settings = z
  .object({
    ingestUrl: z
      .url({
        protocol: /^https?$/,
        error: 'must be the URL of ingest, such as https://ID.lambda-url.REGION.on.aws',
      })
      .transform((url) => new URL(url)),
    cluster: clusterName,
    /** Linkerd's word for the mode: when false, Endpoints are watched (S12). */
    enableEndpointSlices: isTrue.default(true),
    /** Comma-separated; null is the whole cluster. */
    namespaces: namespaceList.default(null),
    /** Nothing by default: pods are many, and few readers want to know their owners. */
    enrich: enrichmentList.default([]),
    kubeconfig: text.nullable().default(null),
    context: text.nullable().default(null),
    /** Longer than the controllers take for one change, too short to be felt (W10a). */
    settleMs: number(0, 60_000).default(25),
    /** `sigv4` for a function URL with IAM, `token` for one with tokens, `none` for loopback. */
    auth: z.enum(['sigv4', 'token', 'none'], 'must be sigv4, token or none').default('sigv4'),
    tokenFile: text.nullable().default(null),
    awsRegion: text.nullable().default(null),
    /** What would take more than half of a service is looked at twice. */
    maxRemoved: number(0, 1).default(0.5),
    logLevel: z.enum(LOG_LEVELS, `must be ${LOG_LEVELS.join(', ')}`).default('info'),
    adminHost: text.default('0.0.0.0'),
    adminPort: number(0, 65_535).default(8080),
    relay: text.max(253).default(hostname),
    /** Null: no election, this relay leads. */
    lease: z
      .string()
      .transform((name) => (name === '' ? null : name))
      .pipe(objectName.nullable())
      .default(null),
    /** Null: the pod's. */
    leaseNamespace: objectName.nullable().default(null),
    /** Times of client-go's leader election. A Lease says its duration in whole seconds. */
    leaseDurationMs: number(1000, 3_600_000).default(15_000),
    renewDeadlineMs: number(100, 3_600_000).default(10_000),
    retryPeriodMs: number(50, 3_600_000).default(2000),
  })
  .superRefine(({ leaseDurationMs, renewDeadlineMs, retryPeriodMs }, context) => {
    const issue = (path: string, message: string) =>
      context.addIssue({ code: 'custom', path: [path], message });
    if (leaseDurationMs <= renewDeadlineMs)
      issue('leaseDurationMs', `must be more than --renew-deadline-ms (${renewDeadlineMs})`);
    if (renewDeadlineMs <= MIN_RETRIES * retryPeriodMs)
      issue('renewDeadlineMs', `must be more than ${MIN_RETRIES} times --retry-period-ms (${retryPeriodMs})`);
  })
  .superRefine(({ auth, ingestUrl, tokenFile, awsRegion }, context) => {
    const issue = (path: string, message: string) =>
      context.addIssue({ code: 'custom', path: [path], message });
    if (auth === 'token' && tokenFile === null) issue('tokenFile', 'required for tokens');
    if (auth === 'sigv4' && awsRegion === null) issue('awsRegion', 'required for sigv4');
    if (auth !== 'none' && ingestUrl.protocol === 'http:' && !LOOPBACK.test(ingestUrl.hostname))
      issue('ingestUrl', 'must be https: credentials go with each request');
  })
  .transform(({ enableEndpointSlices, ...rest }) => {
    const mode: Mode = enableEndpointSlices ? 'slices' : 'endpoints';
    return { ...rest, mode };
  });
export type Config = z.infer<typeof settings>;

/** Flag and variables of each setting. client-node reads KUBECONFIG itself, which may name several files. */
const NAMES: Readonly<
  Record<keyof z.input<typeof settings>, { readonly flag: string; readonly env: readonly string[] }>
> = {
  ingestUrl: { flag: 'ingest-url', env: ['INGEST_URL'] },
  cluster: { flag: 'cluster', env: ['CLUSTER'] },
  enableEndpointSlices: {
    flag: 'enable-endpoint-slices',
    env: ['ENABLE_ENDPOINT_SLICES', 'enableEndpointSlices'],
  },
  namespaces: { flag: 'namespaces', env: ['NAMESPACES'] },
  enrich: { flag: 'enrich', env: ['ENRICH'] },
  kubeconfig: { flag: 'kubeconfig', env: [] },
  context: { flag: 'context', env: ['KUBE_CONTEXT'] },
  settleMs: { flag: 'settle-ms', env: ['SETTLE_MS'] },
  auth: { flag: 'auth', env: ['AUTH'] },
  tokenFile: { flag: 'token-file', env: ['TOKEN_FILE'] },
  awsRegion: { flag: 'aws-region', env: ['AWS_REGION'] },
  maxRemoved: { flag: 'max-removed', env: ['MAX_REMOVED'] },
  logLevel: { flag: 'log-level', env: ['LOG_LEVEL'] },
  adminHost: { flag: 'admin-host', env: ['ADMIN_HOST'] },
  adminPort: { flag: 'admin-port', env: ['ADMIN_PORT'] },
  relay: { flag: 'relay', env: ['POD_NAME'] },
  lease: { flag: 'lease', env: ['LEASE'] },
  leaseNamespace: { flag: 'lease-namespace', env: ['POD_NAMESPACE'] },
  leaseDurationMs: { flag: 'lease-duration-ms', env: ['LEASE_DURATION_MS'] },
  renewDeadlineMs: { flag: 'renew-deadline-ms', env: ['RENEW_DEADLINE_MS'] },
  retryPeriodMs: { flag: 'retry-period-ms', env: ['RETRY_PERIOD_MS'] },
};

export type ParsedConfig =
  | { readonly kind: 'ok'; readonly config: Config }
  /** One line for each wrong setting. */
  | { readonly kind: 'invalid'; readonly lines: readonly string[] };

/**
 * Reads flags and, where there is none, the environment. Flags may be written as for Linkerd, `-enable-endpoint-slices=false`:
 * one dash or two, the value behind `=` or as the next argument; a flag without a value is true. In a pod several relays
 * elect one of them unless `--lease=` says otherwise; elsewhere only when a Lease is named.
 */
export function readConfig(args: readonly string[], env: NodeJS.ProcessEnv): ParsedConfig {
  const { values, lines } = readFlags(args);
  const raw: Record<string, string> = {};
  for (const [key, names] of Object.entries(NAMES)) {
    const value = values.get(names.flag) ?? names.env.map((name) => env[name]).find((found) => found);
    if (value !== undefined) raw[key] = value;
  }
  const isPod = isInCluster(raw.kubeconfig ?? null, env);
  // Elsewhere a relay is somebody's own, beside those that may run in the cluster.
  if (isPod) raw.lease ??= DEFAULT_LEASE;
  else if (raw.lease && !raw.leaseNamespace)
    lines.push('--lease-namespace (or POD_NAMESPACE): required for --lease outside a pod');
  const parsed = settings.safeParse(raw);
  for (const { path, message, code } of parsed.error?.issues ?? []) {
    const key = String(path[0]) as keyof typeof NAMES;
    const {
      flag,
      env: [variable],
    } = NAMES[key];
    const name = variable === undefined ? `--${flag}` : `--${flag} (or ${variable})`;
    const isAbsent = raw[key] === undefined && code !== 'custom';
    lines.push(`${name}: ${isAbsent ? 'required' : message}`);
  }
  return parsed.success && lines.length === 0
    ? { kind: 'ok', config: parsed.data }
    : { kind: 'invalid', lines };
}

function readFlags(args: readonly string[]): { values: Map<string, string>; lines: string[] } {
  const known = new Set(Object.values(NAMES).map(({ flag }) => flag));
  const values = new Map<string, string>();
  const lines: string[] = [];
  for (let index = 0; index < args.length; index++) {
    const argument = args[index] ?? '';
    const [, flag = '', value] = /^--?([^=]+)(?:=(.*))?$/s.exec(argument) ?? [];
    const next = args[index + 1];
    if (!known.has(flag))
      lines.push(`${argument}: not a flag; there are ${[...known].map((name) => `--${name}`).join(' ')}`);
    else if (value !== undefined) values.set(flag, value);
    else if (next === undefined || next.startsWith('-')) values.set(flag, 'true');
    else {
      values.set(flag, next);
      index++;
    }
  }
  return { values, lines };
}
