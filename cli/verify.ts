import { readFile } from 'node:fs/promises';
import { setTimeout as wait } from 'node:timers/promises';
import * as z from 'zod';
import { portId } from '../core/service-port.ts';
import type { ServiceSummary } from '../wire/api.ts';
import { parseGroup } from '../wire/delta.ts';
import { clusterName, mode, objectName } from '../wire/envelope.ts';
import { type ApiReader, type Authorize, apiReader } from './api-reader.ts';
import { BusCopy, busFile, busLog, type OpenBus } from './bus-copy.ts';
import { clusterList, type ListObjects } from './cluster-list.ts';
import { type CommandIo, parseFlags, UsageError } from './command.ts';
import { compareCopy, compareService, type Difference, describeDifference } from './difference.ts';
import { type ListedService, readListed, type ServiceId } from './listed-services.ts';

export const USAGE = `usage: endpoints-watcher verify --url URL --cluster NAME [flags]

Compares one LIST of a cluster's Services and slices with what the api serves. What differs is looked at again, with
a fresh LIST: a change on its way is no drift. Exit status: 0 equal, 1 drift, 2 nothing could be compared.

  --url URL                  the api, such as https://ID.lambda-url.REGION.on.aws
  --cluster NAME             name of the cluster in keys and deltas
  --kubeconfig FILE          kubeconfig of the cluster (default: as kubectl finds it)
  --context NAME             context in it (default: the current one)
  --mode slices|endpoints    compare EndpointSlices (default) or Endpoints: what the relay watches
  --namespaces a,b           compare these namespaces alone
  --bus FILE|URL             compare what the bus's deltas add up to as well: entries one a line, or URL/local/bus
  --token-file FILE          read with the token in this file
  --aws-region REGION        read with a signature (SigV4) for a function URL in this region
  --settle N                 look again at what differs up to N times (default 3), 2 s apart; a port renamed within
                             the last 70 s may still be served under its former name
  --json                     one JSON object a line: each difference, then a summary`;

const FLAGS = {
  url: { type: 'string' },
  cluster: { type: 'string' },
  kubeconfig: { type: 'string' },
  context: { type: 'string' },
  mode: { type: 'string' },
  namespaces: { type: 'string' },
  bus: { type: 'string' },
  'token-file': { type: 'string' },
  'aws-region': { type: 'string' },
  settle: { type: 'string' },
  json: { type: 'boolean' },
} as const;

const MAX_SETTLE = 100;
/** Between two looks at what differs: longer than the way from the cluster to the store, in milliseconds. */
const SETTLE_WAIT_MS = 2_000;
/** Services that are read at a time. */
const CONCURRENCY = 8;

const settle = `must be a whole number from 0 to ${MAX_SETTLE}`;
const httpUrl = z
  .url({ protocol: /^https?$/, error: 'must be an http or https URL' })
  .transform((text) => new URL(text));

const flagValues = z
  .object({
    url: httpUrl,
    cluster: clusterName,
    kubeconfig: z.string().min(1, 'must name a file').optional(),
    context: z.string().min(1, 'must name a context').optional(),
    mode: mode.default('slices'),
    namespaces: z
      .string()
      .transform((list) => list.split(',').map((name) => name.trim()))
      .pipe(z.array(objectName).min(1))
      .optional(),
    bus: z.string().min(1, 'must name a file or a URL').optional(),
    'token-file': z.string().min(1, 'must name a file').optional(),
    'aws-region': z.string().min(1, 'must name a region').optional(),
    settle: z
      .string()
      .regex(/^\d{1,3}$/, settle)
      .transform(Number)
      .refine((value) => value <= MAX_SETTLE, settle)
      .default(3),
    json: z.boolean().default(false),
  })
  .superRefine((values, context) => {
    const isSecret = values['token-file'] !== undefined || values['aws-region'] !== undefined;
    const issue = (flag: string, message: string) =>
      context.addIssue({ code: 'custom', path: [flag], message });
    if (values['token-file'] !== undefined && values['aws-region'] !== undefined)
      issue('aws-region', 'not together with --token-file');
    if (isSecret && values.url.protocol === 'http:' && !LOOPBACK.test(values.url.hostname))
      issue('url', 'must be https: credentials go with each request');
  });
const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;

export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  const flags = parseFlags(args, FLAGS, flagValues);
  const authorize = await authorizationOf(flags['token-file'], flags['aws-region']);
  const namespaces = flags.namespaces ?? null;
  const verdict = await verify({
    cluster: flags.cluster,
    namespaces,
    list: await clusterList(flags, flags.mode, namespaces),
    api: apiReader(flags.url, flags.cluster, { authorize }),
    bus: flags.bus === undefined ? null : busOf(flags.bus, flags.cluster),
    settle: flags.settle,
    pause: () => wait(SETTLE_WAIT_MS, undefined, { signal: io.signal }),
    signal: io.signal,
  });
  for (const line of verdict.rejected) io.err(`refused by its form, so compared with nothing: ${line}`);
  if (verdict.staleSince !== null)
    io.err(`stale: the relay has not been heard for a minute, the api answers as of ${verdict.staleSince}`);
  const { differences, services, ports, addresses, staleSince } = verdict;
  if (flags.json) {
    for (const difference of differences) io.out(JSON.stringify(difference));
    const stale = staleSince !== null;
    io.out(
      JSON.stringify({ kind: 'summary', differences: differences.length, services, ports, addresses, stale }),
    );
  } else {
    for (const difference of differences) io.out(describeDifference(difference));
    const outcome = differences.length === 0 ? 'equal' : `${differences.length} differences`;
    io.out(`${outcome}: ${services} services, ${ports} ports, ${addresses} addresses compared`);
  }
  return differences.length === 0 ? 0 : 1;
}

/** What is compared with what. */
export interface VerifyOptions {
  readonly cluster: string;
  /** Those which `list` lists; null is the whole cluster. */
  readonly namespaces: readonly string[] | null;
  readonly list: ListObjects;
  readonly api: ApiReader;
  /** Null: the deltas are not compared. */
  readonly bus: OpenBus | null;
  /** Further looks at what differs. */
  readonly settle: number;
  /** Between two looks. */
  readonly pause: () => Promise<void>;
  readonly signal: AbortSignal;
}

/** What the last look found. */
export interface Verdict {
  /** By namespace, service and port; empty: all copies are what the cluster's objects say. */
  readonly differences: readonly Difference[];
  /** Services, ports and ready addresses of the cluster. */
  readonly services: number;
  readonly ports: number;
  readonly addresses: number;
  /** Objects that say nothing for their form (P6), with the reason. */
  readonly rejected: readonly string[];
  /** As of when the api answers, where it says that it has not heard of the relay for a minute; null when it has. */
  readonly staleSince: string | null;
}

/**
 * Compares a cluster with what is served of it. A service that differs is compared again, up to `settle` times; only what
 * differed at every look is told.
 * @throws an Error with one line when the cluster, the api or the bus cannot be read.
 */
export async function verify(options: VerifyOptions): Promise<Verdict> {
  const bus = options.bus === null ? null : followBus(options.bus(), options);
  let look = await compareAll(options, bus, null);
  for (let again = 0; again < options.settle && look.differing.size > 0; again++) {
    await options.pause();
    look = await compareAll(options, bus, new Set(look.differing.keys()));
  }
  const ids = [...look.differing.keys()].sort();
  return { ...look.verdict, differences: ids.flatMap((id) => look.differing.get(id) ?? []) };
}

function followBus(
  read: ReturnType<OpenBus>,
  { cluster, signal }: Pick<VerifyOptions, 'cluster' | 'signal'>,
): FollowedBus {
  const copy = new BusCopy(cluster);
  const catchUp = async () => {
    for await (const entry of read(signal)) copy.take(entry);
  };
  return { copy, catchUp };
}

/** The copy of a bus, and what brings it up to date. */
interface FollowedBus {
  readonly copy: BusCopy;
  readonly catchUp: () => Promise<void>;
}

interface Look {
  readonly verdict: Omit<Verdict, 'differences'>;
  readonly differing: ReadonlyMap<ServiceId, readonly Difference[]>;
}

/** @param only the services to look at; null: all. */
async function compareAll(
  { cluster, namespaces, list, api, signal }: VerifyOptions,
  bus: FollowedBus | null,
  only: ReadonlySet<ServiceId> | null,
): Promise<Look> {
  const objects = await list(signal);
  const listed = readListed(objects);
  const summaries = await readSummaries(api, namespaces, signal);
  const ids = new Set([...listed.keys(), ...summaries.keys()]);
  const differing = new Map<ServiceId, Difference[]>();
  /** Of each port that the api serves, by group. */
  const sequences = new Map<string, number>();
  let staleSince: string | null = null;
  await inParallel([...(only === null ? ids : ids.intersection(only))], async (id) => {
    const [namespace = '', service = ''] = id.split('/');
    const reading = await api.endpoints(namespace, service, signal);
    for (const set of reading.kind === 'ports' ? reading.ports : []) {
      sequences.set(`${cluster}/${id}:${portId(set)}`, set.sequence);
      if (set.stale) staleSince = set.asOf;
    }
    const found = compareService({ namespace, service }, listed.get(id) ?? null, summaries.get(id), reading);
    if (found.length > 0) differing.set(id, found);
  });
  if (bus !== null) {
    // Behind the api, since a delta is published after it is served.
    await bus.catchUp();
    for (const group of new Set([...bus.copy.groups(), ...sequences.keys()])) {
      const of = parseGroup(group);
      if (of === null || !(namespaces?.includes(of.namespace) ?? true)) continue;
      const { namespace, service } = of;
      const id = `${namespace}/${service}`;
      if (only !== null && !only.has(id)) continue;
      const port = { namespace, service, port: portId(of) };
      const found = compareCopy(
        port,
        listed.get(id) ?? null,
        sequences.get(group) ?? null,
        bus.copy.port(group),
      );
      if (found.length > 0) differing.set(id, [...(differing.get(id) ?? []), ...found]);
    }
  }
  return { differing, verdict: { ...countListed(listed), rejected: objects.rejected, staleSince } };
}

async function readSummaries(
  api: ApiReader,
  namespaces: readonly string[] | null,
  signal: AbortSignal,
): Promise<ReadonlyMap<ServiceId, ServiceSummary>> {
  const summaries = new Map<ServiceId, ServiceSummary>();
  for (const namespace of namespaces ?? [null])
    for await (const summary of api.services(namespace, signal))
      summaries.set(`${summary.namespace}/${summary.name}`, summary);
  return summaries;
}

function countListed(listed: ReadonlyMap<ServiceId, ListedService>) {
  const ports = [...listed.values()].flatMap((service) => [...service.ports.values()]);
  const occurrences = ports.flatMap((port) => [...port.occurrences.values()]);
  return {
    services: listed.size,
    ports: ports.length,
    addresses: occurrences.filter(({ condition }) => condition === 'ready').length,
  };
}

/** Works on a few items at a time; the first failure ends it. */
async function inParallel<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const rest = items.values();
  await Promise.all(
    Array.from({ length: CONCURRENCY }, async () => {
      for (const item of rest) await work(item);
    }),
  );
}

async function authorizationOf(
  tokenFile: string | undefined,
  region: string | undefined,
): Promise<Authorize> {
  if (region !== undefined) return (await import('./signing.ts')).awsAuthorization(region);
  if (tokenFile === undefined) return async () => ({});
  const token = await readFile(tokenFile, 'utf8').catch((error: Error) => {
    throw new UsageError(`--token-file: ${error.message}`);
  });
  return async () => ({ authorization: `Bearer ${token.trim()}` });
}

/** A URL is read as a laptop stack's log, anything else is a file. */
function busOf(bus: string, cluster: string): OpenBus {
  const url = /^https?:/.test(bus) ? URL.parse(bus) : null;
  if (url === null) return busFile(bus);
  const { read } = apiReader(new URL(url.origin), cluster);
  return busLog((query, signal) => read(`${url.pathname}?${query}`, signal));
}
