import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { type ApiReader, apiReader } from '../../cli/api-reader.ts';
import { busFile, busLog } from '../../cli/bus-copy.ts';
import { clusterList, type ListObjects } from '../../cli/cluster-list.ts';
import { describeDifference } from '../../cli/difference.ts';
import { run, type VerifyOptions, verify } from '../../cli/verify.ts';
import type { Mode } from '../../wire/envelope.ts';
import { CLUSTER } from '../system/small-cluster.ts';
import { type CliWorld, createNode, createPod, createService, EPOCH, startCliWorld } from './world.ts';

const MAIN = new URL('../../cli/main.ts', import.meta.url).pathname;
/** Between two looks at what is to become equal; so many in all. */
const LOOK_MS = 20;
const MAX_LOOKS = 500;

let folder = '';
before(() => {
  folder = mkdtempSync(join(tmpdir(), 'verify-'));
});
after(() => rmSync(folder, { recursive: true }));

function kubeconfigOf({ apiServer }: CliWorld): string {
  const file = join(folder, 'kubeconfig');
  writeFileSync(file, apiServer.kubeconfig);
  return file;
}

async function optionsOf(
  world: CliWorld,
  mode: Mode,
  more: Partial<VerifyOptions> = {},
): Promise<VerifyOptions> {
  const api = apiReader(new URL(world.stack.url), CLUSTER);
  return {
    cluster: CLUSTER,
    namespaces: null,
    list: await clusterList({ kubeconfig: kubeconfigOf(world) }, mode, null),
    api,
    bus: busLog((query, signal) => api.read(`/local/bus?${query}`, signal)),
    settle: 0,
    pause: () => wait(LOOK_MS),
    signal: new AbortController().signal,
    ...more,
  };
}

const linesOf = async (options: VerifyOptions) => (await verify(options)).differences.map(describeDifference);

/** Services of every kind, and what becomes of them while the relay looks on. */
async function live(world: CliWorld): Promise<void> {
  const { objects } = world.apiServer;
  createNode(world);
  for (const name of ['web', 'shop', 'empty', 'gone']) {
    createService(world, name);
    if (name !== 'empty') for (let pod = 0; pod < 4; pod++) createPod(world, name);
  }
  objects.create({
    kind: 'Service',
    metadata: { name: 'elsewhere', namespace: 'default' },
    spec: { type: 'ExternalName', externalName: 'example.org' },
  });
  objects.create({
    kind: 'Service',
    metadata: { name: 'stateful', namespace: 'default' },
    spec: { selector: { app: 'stateful' }, clusterIP: 'None' },
  });
  createPod(world, 'stateful');
  await world.quiet();
  objects.delete({ kind: 'Service', namespace: 'default', name: 'gone' });
  objects.patchStatus(
    { kind: 'Pod', namespace: 'default', name: podOf(world, 'shop') },
    { conditions: [{ type: 'Ready', status: 'False' }] },
  );
  await world.quiet();
}

const podOf = ({ apiServer }: CliWorld, app: string) =>
  apiServer.objects.list('Pod').find(({ metadata }) => metadata.labels?.app === app)?.metadata.name ?? '';

const equal = async (world: CliWorld, mode: Mode) =>
  verify(await optionsOf(world, mode, { settle: MAX_LOOKS }));

/** What an intruder tells ingest with the relay's epoch. */
async function intrude({ stack }: CliWorld, mode: Mode, ...events: readonly object[]): Promise<void> {
  const response = await fetch(`${stack.url}/v1/events`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ cluster: CLUSTER, epoch: EPOCH, mode, events }),
  });
  const { results } = (await response.json()) as { results: { status: string }[] };
  assert.deepEqual(new Set(results.map(({ status }) => status)), new Set(['applied']));
}

const later = (object: { readonly metadata: object }) => ({
  ...object,
  metadata: { ...object.metadata, resourceVersion: '1000000' },
});

describe('verify', () => {
  for (const mode of ['slices', 'endpoints'] as const) {
    test(`${mode}: all copies of a living cluster are equal`, async () => {
      await using world = await startCliWorld(mode);
      await live(world);
      const verdict = await equal(world, mode);
      assert.deepEqual(verdict.differences.map(describeDifference), []);
      assert.deepEqual([verdict.services, verdict.ports, verdict.staleSince], [5, 4, null]);
      assert.equal(verdict.addresses, 4 + 4 + 1 - 1);
    });
  }

  test('each kind of drift is named, and nothing else', async () => {
    await using world = await startCliWorld('slices');
    const { objects } = world.apiServer;
    createNode(world);
    const names = ['deleted', 'extra', 'zone', 'draining', 'unready', 'portless', 'renamed', 'fine', 'away'];
    const ips = new Map<string, string>();
    for (const name of names) {
      createService(world, name);
      ips.set(name, createPod(world, name));
    }
    await world.quiet();
    await equal(world, 'slices');
    const sliceOf = (name: string) => {
      const slice = objects
        .list('EndpointSlice')
        .find(({ metadata }) => metadata.labels?.['kubernetes.io/service-name'] === name);
      assert(slice !== undefined);
      return slice;
    };
    const serviceOf = (name: string) => {
      const service = objects.get({ kind: 'Service', namespace: 'default', name });
      assert(service !== undefined);
      return service;
    };
    const changed = (name: string, change: object) => {
      const slice = later(sliceOf(name)) as ReturnType<typeof sliceOf>;
      return { ...slice, endpoints: slice.endpoints?.map((endpoint) => ({ ...endpoint, ...change })) };
    };
    const modified = (object: object) => ({ type: 'MODIFIED', object });
    const deleted = (object: { readonly metadata: object }) => ({ type: 'DELETED', object: later(object) });
    const [spare] = sliceOf('fine').endpoints ?? [];
    const stranger = {
      ...later(serviceOf('fine')),
      metadata: { ...later(serviceOf('fine')).metadata, name: 'nobody', uid: 'u' },
    };
    const extra = {
      ...sliceOf('extra'),
      metadata: { ...sliceOf('extra').metadata, name: 'extra-2', uid: 'extra-2' },
      endpoints: [{ ...spare, addresses: ['10.9.9.9'] }],
    };
    const withPort = (name: string, ports: readonly object[]) => ({
      ...later(serviceOf(name)),
      spec: { ...serviceOf(name).spec, ports },
    });
    await intrude(
      world,
      'slices',
      deleted(sliceOf('deleted')),
      { type: 'ADDED', object: extra },
      modified(changed('zone', { zone: 'b' })),
      modified(changed('draining', { conditions: { ready: false, serving: true, terminating: true } })),
      modified(changed('unready', { conditions: { ready: false } })),
      modified(withPort('portless', [{ name: 'other', port: 81 }])),
      modified(withPort('renamed', [{ name: 'https', port: 80 }])),
      deleted(serviceOf('away')),
      { type: 'ADDED', object: stranger },
    );
    const lines = await linesOf(await optionsOf(world, 'slices'));
    const ip = (name: string) => `${ips.get(name)}:8080`;
    assert.deepEqual(lines, [
      'api  default/away  the Service is missing',
      'bus  default/away:80  exists: true is right, false is told',
      `bus  default/away:80  ${ip('away')} is missing, ready in the cluster`,
      `api  default/deleted:80  ${ip('deleted')} is missing, ready in the cluster`,
      `bus  default/deleted:80  ${ip('deleted')} is missing, ready in the cluster`,
      `api  default/draining:80  ${ip('draining')} is ready in the cluster, draining here`,
      `bus  default/draining:80  ${ip('draining')} is missing, ready in the cluster`,
      'api  default/extra:80  10.9.9.9:8080 is not in the cluster, ready here',
      'bus  default/extra:80  10.9.9.9:8080 is not in the cluster, ready here',
      'api  default/nobody  the cluster has no such Service',
      'bus  default/nobody:80  exists: false is right, true is told',
      'api  default/portless:80  the port is missing',
      'api  default/portless:81  the Service has no such port',
      `bus  default/portless:80  ${ip('portless')} is missing, ready in the cluster`,
      'api  default/renamed:80  portName: "http" is right, "https" is told',
      `api  default/unready:80  ${ip('unready')} is missing, ready in the cluster`,
      'api  default/unready:80  notReady: 0 is right, 1 is told',
      `bus  default/unready:80  ${ip('unready')} is missing, ready in the cluster`,
      `api  default/zone:80  ${ip('zone')} zone: "a" is right, "b" is told`,
      `bus  default/zone:80  ${ip('zone')} zone: "a" is right, "b" is told`,
    ]);
    const within = {
      list: await clusterList({ kubeconfig: kubeconfigOf(world) }, 'slices', ['kube-system']),
    };
    const none = await verify(await optionsOf(world, 'slices', { ...within, namespaces: ['kube-system'] }));
    assert.deepEqual([none.services, none.differences], [0, []]);
    await byProcess(world);
  });

  test('a hole in the copy of the bus is named with its sequences, also at the end (P2)', async () => {
    await using world = await startCliWorld('slices');
    createNode(world);
    for (const name of ['hole', 'tail', 'start', 'wrong', 'whole']) createService(world, name);
    for (const name of ['hole', 'tail', 'start', 'wrong', 'whole'])
      for (let pod = 0; pod < 3; pod++) {
        createPod(world, name);
        await world.quiet();
        await equal(world, 'slices');
      }
    const { entries } = await world.stack.bus.read({ after: 0, limit: 10_000, wait: 0 });
    const lost = ['default/hole:80#2', 'default/hole:80#3', 'default/tail:80#4', 'default/start:80#1'];
    const kept = entries.filter(({ detail }) => !lost.some((id) => detail.id === `${CLUSTER}/${id}`));
    assert.equal(kept.length, entries.length - lost.length);
    const file = join(folder, 'bus.ndjson');
    // In any order, and some of them twice (P3).
    const wrong = kept.map((entry) =>
      entry.detail.id === `${CLUSTER}/default/wrong:80#2`
        ? { ...entry, detail: { ...entry.detail, digest: '0'.repeat(64) } }
        : entry,
    );
    const lines = [...wrong.toReversed(), ...wrong.slice(0, 5)].map((entry) => JSON.stringify(entry));
    writeFileSync(file, `${lines.join('\n')}\n`);
    assert.deepEqual(await linesOf(await optionsOf(world, 'slices', { bus: busFile(file) })), [
      'bus  default/hole:80  the deltas from sequence 2 to 3 are missing',
      'bus  default/start:80  the deltas from sequence 1 to 1 are missing',
      'bus  default/tail:80  the deltas from sequence 4 to 4 are missing',
      "bus  default/wrong:80  #2 digest is not the copy's",
    ]);
    writeFileSync(file, `${lines.join('\n')}\nnot JSON\n`);
    await assert.rejects(linesOf(await optionsOf(world, 'slices', { bus: busFile(file) })), {
      message: `${file}, line ${lines.length + 1}: is no entry of a bus, in JSON`,
    });
  });

  test('what changes between the list and the read is no drift: it is looked at again', async () => {
    await using world = await startCliWorld('slices');
    createNode(world);
    createService(world, 'web');
    createPod(world, 'web');
    await world.quiet();
    await equal(world, 'slices');
    const options = await optionsOf(world, 'slices');
    let lists = 0;
    const former = await options.list(options.signal);
    const late: ListObjects = (signal) => (++lists <= 2 ? Promise.resolve(former) : options.list(signal));
    createPod(world, 'web');
    await world.quiet();
    await equal(world, 'slices');
    assert.equal((await verify({ ...options, list: late })).differences.length, 2);
    lists = 0;
    const pauses: number[] = [];
    const pause = async () => void pauses.push(lists);
    assert.deepEqual((await verify({ ...options, list: late, settle: 3, pause })).differences, []);
    assert.deepEqual(pauses, [1, 2], 'no further look once all is equal');
  });

  test('of a key in several slices any ready one may tell the metadata: an unchanged newer version is not recorded (P5, S11)', async () => {
    await using world = await startCliWorld('slices');
    const { objects } = world.apiServer;
    const slice = (name: string, zone: string, note: string) => ({
      kind: 'EndpointSlice' as const,
      metadata: {
        name,
        namespace: 'default',
        labels: { 'kubernetes.io/service-name': 'web' },
        annotations: { note },
      },
      addressType: 'IPv4' as const,
      ports: [{ name: 'http', port: 8080 }],
      endpoints: [{ addresses: ['10.0.0.1'], zone }],
    });
    objects.create({
      kind: 'Service',
      metadata: { name: 'web', namespace: 'default' },
      spec: { ports: [{ name: 'http', port: 80 }] },
    });
    objects.create(slice('web-a', 'a', 'first'));
    objects.create(slice('web-b', 'b', 'first'));
    await equal(world, 'slices');
    objects.update(slice('web-a', 'a', 'second'));
    createService(world, 'marker');
    assert.deepEqual((await equal(world, 'slices')).differences, []);
  });

  test('of what is refused by its form, and of a relay that is not heard, the verdict tells beside the differences (P6)', async () => {
    await using world = await startCliWorld('slices');
    createService(world, 'web');
    const owner = { apiVersion: 'v1', kind: 'Service', name: 'we/b', uid: 's1' };
    world.apiServer.objects.create({
      kind: 'EndpointSlice',
      metadata: { name: 'bad', namespace: 'default', ownerReferences: [owner] },
      addressType: 'IPv4',
      ports: null,
      endpoints: [],
    });
    const { differences, rejected, staleSince } = await equal(world, 'slices');
    assert.deepEqual([differences, staleSince], [[], null]);
    assert.match(
      rejected.join(),
      /^EndpointSlice default\/bad: metadata\.ownerReferences\.0\.name: must be the name of a Service/,
    );
    const options = await optionsOf(world, 'slices');
    const stale: ApiReader['endpoints'] = async (...asked) => {
      const reading = await options.api.endpoints(...asked);
      if (reading.kind !== 'ports') return reading;
      return { kind: 'ports', ports: reading.ports.map((set) => ({ ...set, stale: true, asOf: 'then' })) };
    };
    const verdict = await verify({ ...options, api: { ...options.api, endpoints: stale } });
    assert.deepEqual([verdict.differences, verdict.staleSince], [[], 'then']);
  });

  const usage: Readonly<Record<string, { readonly args: readonly string[]; readonly said: RegExp }>> = {
    'an unknown flag': {
      args: ['--all'],
      said: /^Unknown option '--all'; --help lists the flags$/,
    },
    'a wrong value': {
      args: ['--url', 'http://127.0.0.1:1', '--cluster', 'a', '--settle', '1e9'],
      said: /^--settle: must be a whole number from 0 to 100$/,
    },
    'a token over http': {
      args: ['--url', 'http://example.org', '--cluster', 'a', '--token-file', 'f'],
      said: /^--url: must be https: credentials go with each request$/,
    },
    'a kubeconfig that is not there': {
      args: ['--url', 'http://127.0.0.1:1', '--cluster', 'a', '--kubeconfig', '/nowhere'],
      said: /^kubeconfig \/nowhere: ENOENT/,
    },
  };
  for (const [title, { args, said }] of Object.entries(usage)) {
    test(`${title}: one clear line`, async () => {
      await assert.rejects(runVerify(...args), { message: said });
    });
  }

  test('main: one line, and status 2', async () => {
    for (const [args, said] of [
      [[], /^usage: endpoints-watcher COMMAND/],
      [['verfy'], /^no command "verfy"; there are verify, replay\n$/],
      [['verify', '--url', 'http://127.0.0.1:1'], /^verify: --cluster: required\n$/],
    ] as const) {
      const { status, stdout, stderr } = await cli(...args);
      assert.match(stderr, said);
      assert.deepEqual([status, stdout], [2, '']);
    }
  });

  test('--help of the command line and of the command', async () => {
    assert.match((await cli('--help')).stdout, /^usage: endpoints-watcher COMMAND \[flags\]\n\n {2}verify /);
    const { status, stdout } = await cli('verify', '--help');
    assert.match(stdout, /^usage: endpoints-watcher verify --url URL/);
    assert.equal(status, 0);
  });
});

/** The command itself: equal in one namespace, drift in the other, and what cannot be reached. */
async function byProcess(world: CliWorld): Promise<void> {
  const { url } = world.stack;
  const kubeconfig = kubeconfigOf(world);
  const flags = ['--url', url, '--cluster', CLUSTER, '--kubeconfig', kubeconfig, '--settle', '0'];
  const same = await cli('verify', ...flags, '--namespaces', 'kube-system');
  assert.deepEqual(same, {
    status: 0,
    stdout: 'equal: 0 services, 0 ports, 0 addresses compared\n',
    stderr: '',
  });
  const drift = await cli('verify', ...flags, '--bus', `${url}/local/bus`);
  assert.equal(drift.status, 1);
  assert.match(drift.stdout, /^api {2}default\/away {2}the Service is missing\n/);
  assert.match(drift.stdout, /\n20 differences: 9 services, 9 ports, 9 addresses compared\n$/);
  const json = await cli('verify', ...flags, '--json');
  const lines = json.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  assert.deepEqual(lines.at(0), { in: 'api', kind: 'missingService', namespace: 'default', service: 'away' });
  assert.deepEqual(lines.at(-1), {
    kind: 'summary',
    differences: lines.length - 1,
    services: 9,
    ports: 9,
    addresses: 9,
    stale: false,
  });
  await assert.rejects(runVerify(...flags.with(3, 'other')), {
    message: /^the api answers 404 to GET .*: cluster: no relay of other was ever heard, or it was deleted$/,
  });
  await assert.rejects(runVerify(...flags.with(1, 'http://127.0.0.1:1')), {
    message: /^the api http:\/\/127.0.0.1:1 cannot be reached: /,
  });
}

/** The command in this process; main makes a line and status 2 of what it throws. */
const runVerify = (...args: readonly string[]) =>
  run(args, { out: () => {}, err: () => {}, env: {}, signal: new AbortController().signal });

async function cli(...args: readonly string[]) {
  const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (text) => {
    stdout += text;
  });
  child.stderr.on('data', (text) => {
    stderr += text;
  });
  const [status] = await once(child, 'close');
  return { status: status as number, stdout, stderr };
}
