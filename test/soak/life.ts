import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { apiReader } from '../../cli/api-reader.ts';
import { busLog } from '../../cli/bus-copy.ts';
import { clusterList } from '../../cli/cluster-list.ts';
import { describeDifference } from '../../cli/difference.ts';
import { type Verdict, verify } from '../../cli/verify.ts';
import { addressKey, compareText } from '../../core/address.ts';
import type {
  Endpoints as RawEndpoints,
  Service as RawService,
  EndpointSlice as RawSlice,
} from '../../core/kubernetes.ts';
import { type ApiServer, startApiServer } from '../../infra/local/cluster/api-server.ts';
import { startControllers } from '../../infra/local/cluster/controllers.ts';
import { StackClock } from '../../infra/local/stack-clock.ts';
import type { PortSet } from '../../wire/api.ts';
import { type Mode, mode as modeSchema } from '../../wire/envelope.ts';
import { type NaiveSet, naiveSets, type RecordedObject } from '../core/naive-model.ts';
import { randomFrom } from '../functions/store/seeded-random.ts';
import type { Replica } from '../replica.ts';
import { type LoggedEntry, Subscriber } from '../system/subscriber.ts';
import { ClusterLife } from './cluster-life.ts';
import { FaultSchedule } from './faults.ts';
import { KeptProcess, memorySlope } from './kept-process.ts';

/*
 * A long random life of a cluster with its relay and its cloud half, with faults all along. In the end every copy must be what the
 * cluster's objects say. Settings are variables of the environment: SOAK_MINUTES, SOAK_SERVICES, SOAK_ACTIONS (a second),
 * SOAK_RELAYS, SOAK_MODE, SEED.
 */

const CLUSTER = 'soak';
const MINUTES = setting('SOAK_MINUTES', 10, 0.1, 24 * 60);
const SERVICES = setting('SOAK_SERVICES', 200, 1, 5_000);
const ACTIONS_A_SECOND = setting('SOAK_ACTIONS', 15, 0.1, 1_000);
const SEED = setting('SEED', Date.now() % 1_000_000, 0, Number.MAX_SAFE_INTEGER);
const RELAYS = setting('SOAK_RELAYS', 2, 1, 9);
const MODE: Mode = modeSchema.parse(process.env.SOAK_MODE ?? 'slices');

/** Several relays elect one: short terms, so that each fault may end one. */
const LEASE = [
  ...['--lease', 'soak', '--lease-namespace', 'default', '--lease-duration-ms', '4000'],
  ...['--renew-deadline-ms', '3000', '--retry-period-ms', '500'],
];
/** Share of the time in which processes are killed; those that live then are those whose memory is measured. */
const KILLING_SHARE = 0.5;
/** Before a process's memory counts: it has warmed up. */
const WARM_UP_MS = MINUTES >= 10 ? 60_000 : 15_000;
/**
 * With more room V8 leaves garbage lie for minutes; with little, memory is what is held, and a leak soon ends its process.
 * It fills what it has before it collects all of it: in minutes a slope says less than the bound does.
 */
const HEAP_MIB = 64 + Math.ceil(SERVICES / 4);
const HEAP_LIMITS = [`--max-old-space-size=${HEAP_MIB}`, '--max-semi-space-size=4'];
/** What a process has beside its heap: code, buffers, LevelDB's tables in memory. */
const OUTSIDE_HEAP_MIB = 100;
const SAMPLE_EVERY_MS = 2_000;
/** How long copies may take to be right once nothing is wrong: a half-open watch is noticed after 90 s. */
const QUIET_MS = 240_000;
/** A renamed port that no slice follows keeps its former name for so long (S23). */
const RENAME_WINDOW_MS = 10_000;
const LOOK_EVERY_MS = 3_000;
/** Between two looks at whether the stack is there. */
const START_LOOK_MS = 200;
/** Differences that are printed. */
const MAX_PRINTED = 20;

const print = (line: string) => void process.stdout.write(`${line}\n`);

function setting(name: string, fallback: number, from: number, to: number): number {
  const value = Number(process.env[name] ?? fallback);
  if (value >= from && value <= to) return value;
  process.stderr.write(`${name}: must be a number from ${from} to ${to}\n`);
  process.exit(2);
}

/** A port that was free a moment ago: the stack's must be the same in each of its lives. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === 'object' && address !== null ? address.port : 0;
}

const path = (relative: string) => new URL(relative, import.meta.url).pathname;

async function startWorld(directory: string) {
  await using opened = new AsyncDisposableStack();
  const clock = new StackClock();
  const apiServer = opened.use(await startApiServer({ clock, historySize: 2_000 }));
  const random = randomFrom(SEED);
  const controllers = opened.use(
    startControllers({
      objects: apiServer.objects,
      maxEndpointsPerSlice: 5,
      writeGapMs: 2,
      random: () => random(1_000_000) / 1_000_000,
    }),
  );
  const kubeconfig = join(directory, 'kubeconfig');
  writeFileSync(kubeconfig, apiServer.kubeconfig);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const stack = opened.use(
    new KeptProcess(
      'stack',
      ...HEAP_LIMITS,
      ...[path('../../infra/local/main.ts'), '--cluster', 'none', '--json', '--quiet', '--port', `${port}`],
      // Some services in their heads, some in chunks.
      ...['--data', join(directory, 'data'), '--inline-bytes', '300'],
    ),
  );
  const relays = Array.from({ length: RELAYS }, (_, index) =>
    opened.use(
      new KeptProcess(
        `relay ${index + 1}`,
        ...HEAP_LIMITS,
        ...[
          path('../../relay/main.ts'),
          '--ingest-url',
          url,
          '--cluster',
          CLUSTER,
          '--kubeconfig',
          kubeconfig,
        ],
        ...['--auth', 'none', '--admin-host', '127.0.0.1', '--admin-port', '0', '--relay', `soak-${index}`],
        ...['--log-level', 'error', `--enable-endpoint-slices=${MODE === 'slices'}`],
        ...(RELAYS > 1 ? LEASE : []),
      ),
    ),
  );
  const running = opened.move();
  return {
    ...{ apiServer, controllers, stack, relays, url, kubeconfig },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

type World = Awaited<ReturnType<typeof startWorld>>;

/** Sends JSON to the stack; null when nobody answered. */
function asker(url: string) {
  return async (method: string, route: string, body?: unknown): Promise<unknown> => {
    try {
      const response = await fetch(`${url}${route}`, {
        method,
        headers: { 'content-type': 'application/json' },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      const text = await response.text();
      return response.ok && text !== '' ? JSON.parse(text) : null;
    } catch {
      return null;
    }
  };
}

/** Takes what the bus has accepted so far. */
async function follow(ask: ReturnType<typeof asker>, subscriber: Subscriber, after: number): Promise<number> {
  for (let last = after; ; ) {
    const page = (await ask('GET', `/local/bus?after=${last}&limit=1000`)) as {
      readonly entries: readonly LoggedEntry[];
      readonly last: number;
    } | null;
    if (page === null || page.entries.length === 0) return last;
    subscriber.take(page.entries);
    last = page.last;
  }
}

/** What the objects of the API server say, by the plain model. */
function naiveTruth({ objects }: ApiServer) {
  const listed = MODE === 'slices' ? objects.list('EndpointSlice') : objects.list('Endpoints');
  const recorded = listed.map(
    (object): RecordedObject => ({
      object: object as unknown as RawSlice | RawEndpoints,
      version: object.metadata.resourceVersion,
    }),
  );
  const services = objects.list('Service') as unknown as RawService[];
  return { services, recorded, sets: naiveSets(services, recorded) };
}

/** Compares copies with the plain model; each line names what is wrong. */
async function compareNaively(world: World, replica: Replica): Promise<string[]> {
  const { services, recorded, sets } = naiveTruth(world.apiServer);
  const wrong: string[] = [];
  const reader = apiReader(new URL(world.url), CLUSTER);
  const served = new Map<string, PortSet>();
  for (const { metadata } of services) {
    const { namespace, name } = metadata;
    const reading = await reader.endpoints(namespace, name, AbortSignal.timeout(60_000));
    for (const set of reading.kind === 'ports' ? reading.ports : [])
      served.set(`${namespace}/${name}:${portText(set)}`, set);
  }
  /** What single objects say of a port: a key that several share may be told by any of them (S11, P5). */
  const tellings = (id: string): NaiveSet[] => {
    const [owner = ''] = id.split(':');
    const service = services.filter(({ metadata }) => `${metadata.namespace}/${metadata.name}` === owner);
    return recorded.flatMap((one) => naiveSets(service, [one])[id] ?? []);
  };
  for (const [id, truth] of Object.entries(sets)) {
    const set = served.get(id);
    const copy = replica.port(`${CLUSTER}/${id}`);
    if (!isDeepStrictEqual([...copy.addresses.keys()].sort(compareText), Object.keys(truth.ready)))
      wrong.push(`${id}: the bus's keys`);
    if (set === undefined) {
      wrong.push(`${id}: not served`);
      continue;
    }
    if (!isDeepStrictEqual(set.addresses.map(addressKey), Object.keys(truth.ready)))
      wrong.push(`${id}: the api's keys`);
    if (!isDeepStrictEqual(set.draining.map(addressKey), [...truth.draining])) wrong.push(`${id}: draining`);
    if (set.notReady !== truth.notReady) wrong.push(`${id}: notReady`);
    if (set.sequence !== copy.sequence) wrong.push(`${id}: sequence ${set.sequence}, bus ${copy.sequence}`);
    for (const { dnsName: _name, ...address } of set.addresses) {
      const key = addressKey(address);
      if (!isDeepStrictEqual(address, copy.addresses.get(key)))
        wrong.push(`${id}: ${key}: bus and api differ`);
      if (isDeepStrictEqual(address, truth.ready[key])) continue;
      if (!tellings(id).some(({ ready }) => isDeepStrictEqual(address, ready[key])))
        wrong.push(`${id}: ${key}: ${JSON.stringify(address)}, not ${JSON.stringify(truth.ready[key])}`);
    }
  }
  for (const id of served.keys()) if (sets[id] === undefined) wrong.push(`${id}: served, and not there`);
  for (const group of replica.groups()) {
    const id = group.slice(CLUSTER.length + 1);
    if (sets[id] === undefined && replica.port(group).addresses.size > 0)
      wrong.push(`${id}: on the bus, and not there`);
  }
  return wrong;
}

function portText({ port, protocol }: Pick<PortSet, 'port' | 'protocol'>): string {
  return protocol === 'TCP' ? `${port}` : `${port}/${protocol}`;
}

/** Looks until all copies are equal, or the time is over. */
async function untilEqual(world: World, ask: ReturnType<typeof asker>): Promise<Verdict | string> {
  const deadline = performance.now() + QUIET_MS;
  const api = apiReader(new URL(world.url), CLUSTER);
  for (;;) {
    await ask('POST', '/local/sweep', {});
    const look = await verify({
      cluster: CLUSTER,
      namespaces: null,
      list: await clusterList({ kubeconfig: world.kubeconfig }, MODE, null),
      api,
      bus: busLog((query, signal) => api.read(`/local/bus?${query}`, signal)),
      settle: 0,
      pause: () => wait(LOOK_EVERY_MS),
      signal: AbortSignal.timeout(QUIET_MS),
    }).catch((error: Error) => error.message);
    const isEqual = typeof look === 'object' && look.differences.length === 0;
    if (isEqual || performance.now() > deadline) return look;
    await wait(LOOK_EVERY_MS);
  }
}

async function main(directory: string): Promise<boolean> {
  print(`seed ${SEED}, ${MINUTES} minutes, ${SERVICES} services, mode ${MODE}`);
  await using world = await startWorld(directory);
  const { apiServer, controllers, stack, relays } = world;
  const ask = asker(world.url);
  let changes = 0;
  apiServer.objects.subscribe((change) => {
    const kind = (change?.object ?? change?.previous)?.kind;
    if (kind === 'Service' || kind === (MODE === 'slices' ? 'EndpointSlice' : 'Endpoints')) changes++;
  });
  const life = new ClusterLife(apiServer.objects, randomFrom(SEED + 1), SERVICES);
  life.populate();

  const subscriber = new Subscriber(CLUSTER);
  let position = 0;
  const end = AbortSignal.timeout(MINUTES * 60_000);
  const faults = new FaultSchedule({ apiServer, stack, relays, ask }, randomFrom(SEED + 2));
  const every = async (ms: number, act: () => Promise<void> | void) => {
    for (; !end.aborted; await wait(ms, undefined, { signal: end }).catch(() => {})) await act();
  };
  await Promise.all([
    faults.run(end, AbortSignal.timeout(MINUTES * 60_000 * KILLING_SHARE)),
    every(1000 / ACTIONS_A_SECOND, () => life.act()),
    every(500, async () => {
      position = await follow(ask, subscriber, position);
    }),
    every(SAMPLE_EVERY_MS, async () => {
      await Promise.all([stack, ...relays].map((kept) => kept.sample()));
    }),
  ]);

  await life.settle();
  await controllers.idle();
  // The stack may just be starting; faults are forgotten with a process.
  while ((await ask('GET', '/local/usage')) === null) await wait(START_LOOK_MS);
  await ask('PUT', '/local/faults', { faults: [] });
  const quietAt = performance.now();
  await wait(RENAME_WINDOW_MS);
  const verdict = await untilEqual(world, ask);
  const quietMs = Math.round(performance.now() - quietAt);
  await ask('POST', '/local/sweep', {});
  const sweep = (await ask('POST', '/local/sweep', {})) as { readonly published?: number } | null;
  await follow(ask, subscriber, position);

  const checks = new Checks();
  checks.add('the list, the api and the bus say the same', differencesOf(verdict));
  const replayed = attempt(() => subscriber.replay());
  checks.add('every sequence on the bus is without a gap, and every delta right', replayed.wrong);
  const { value: replica } = replayed;
  checks.add(
    'a plain model says the same',
    replica === null ? ['not compared'] : await compareNaively(world, replica),
  );
  checks.add(
    'nothing is left to publish',
    sweep?.published === 0 ? [] : [`a sweep says ${JSON.stringify(sweep)}`],
  );
  checks.add(
    'no process ended unasked',
    [stack, ...relays].flatMap(({ unaskedEnds }) => unaskedEnds),
  );
  const duplicates = [...subscriber.duplicates().values()];
  print('');
  print(`changes of watched objects  ${changes}`);
  print(`deltas                      ${duplicates.length}`);
  print(`delivered again             ${duplicates.reduce((sum, again) => sum + again, 0)}`);
  print(`lost                        ${replayed.wrong.length}`);
  print(`wrong                       ${differencesOf(verdict).length}`);
  print(`all equal after             ${quietMs} ms of quiet`);
  if (typeof verdict === 'object')
    print(
      `compared                    ${verdict.services} services, ${verdict.ports} ports, ${verdict.addresses} addresses`,
    );
  for (const { name, memory, restarts } of [...relays, stack]) {
    const slope = (of: 'residentKib' | 'heldKib') => {
      const kib = memorySlope(memory, of, WARM_UP_MS);
      return kib === null ? 'too short to tell' : `${Math.round(kib)} KiB a minute`;
    };
    const most = Math.max(...memory.map(({ residentKib }) => residentKib)) / 1024;
    const held = memory.findLast(({ heldKib }) => heldKib !== null)?.heldKib ?? 0;
    print(`memory of the ${name.padEnd(14)}held ${Math.round(held / 1024)} MiB, ${slope('heldKib')}`);
    print(
      `  resident                  ${Math.round(most)} MiB at most, ${slope('residentKib')}, ${restarts} restarts`,
    );
    const isBounded = most <= HEAP_MIB + OUTSIDE_HEAP_MIB;
    checks.add(`the ${name}'s memory is bounded`, isBounded ? [] : [`${Math.round(most)} MiB`]);
  }
  print('faults');
  for (const [name, count] of [...faults.counts].sort(([a], [b]) => compareText(a, b)))
    print(`  ${String(count).padStart(5)}  ${name}`);
  print('');
  return checks.report();
}

/** An array of what is wrong; or the result. */
function attempt<T>(act: () => T): { readonly value: T | null; readonly wrong: string[] } {
  try {
    return { value: act(), wrong: [] };
  } catch (error) {
    return { value: null, wrong: [error instanceof Error ? error.message : String(error)] };
  }
}

function differencesOf(verdict: Verdict | string): string[] {
  return typeof verdict === 'string' ? [verdict] : verdict.differences.map(describeDifference);
}

/** What must be so in the end. */
class Checks {
  readonly #wrong = new Map<string, readonly string[]>();

  add(name: string, wrong: readonly string[]): void {
    this.#wrong.set(name, wrong);
  }

  /** Prints each, and `N passed, N failed` last. */
  report(): boolean {
    for (const [name, wrong] of this.#wrong) {
      print(`${wrong.length === 0 ? 'ok    ' : 'not ok'}  ${name}`);
      for (const line of wrong.slice(0, MAX_PRINTED)) print(`          ${line}`);
      if (wrong.length > MAX_PRINTED) print(`          and ${wrong.length - MAX_PRINTED} more`);
    }
    const failed = [...this.#wrong.values()].filter((wrong) => wrong.length > 0).length;
    print(`${this.#wrong.size - failed} passed, ${failed} failed`);
    return failed === 0;
  }
}

const directory = mkdtempSync(join(tmpdir(), 'soak-'));
const remove = () => rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => {
    // Behind the ends of the processes that write there.
    process.once('exit', remove);
    process.exit(1);
  });
try {
  process.exitCode = (await main(directory)) ? 0 : 1;
} finally {
  remove();
}
