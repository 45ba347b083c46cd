import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { PortId } from '../../../core/service-port.ts';
import type { EpochMs } from '../../../core/time.ts';
import type { ServiceSummary, Store } from '../../../functions/store/store.ts';
import { serveApp } from '../http/served-app.ts';
import { CLUSTER, endpointOf, START, serviceOf, sliceOf, World } from './world.ts';

interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

interface Family {
  readonly help: string;
  readonly type: string;
  readonly samples: Sample[];
}

const SAMPLE = /^([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)$/;
const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/g;

/** Reads the text format back, and refuses what a strict reader would. */
function parseMetrics(text: string): ReadonlyMap<string, Family> {
  assert.equal(text === '' || text.endsWith('\n'), true, 'the last line ends');
  const families = new Map<string, Family>();
  const seen = new Set<string>();
  let current: [string, Family] | undefined;
  let help: string | undefined;
  for (const line of text.split('\n').slice(0, -1)) {
    const [, word, name = '', rest = ''] = /^# (HELP|TYPE) (\S+) (.*)$/.exec(line) ?? [];
    if (word === 'HELP') {
      assert.equal(families.has(name), false, `${name} is one family`);
      help = rest;
    } else if (word === 'TYPE') {
      assert.notEqual(help, undefined);
      current = [name, { help: help ?? '', type: rest, samples: [] }];
      families.set(...current);
    } else {
      const [, sampleName = '', labels = '', value = ''] =
        SAMPLE.exec(line) ?? assert.fail(`no sample: ${line}`);
      const pairs = [...labels.matchAll(LABEL)].map(([, label = '', raw = '']) => [
        label,
        raw.replace(/\\(.)/g, (_, character: string) => (character === 'n' ? '\n' : character)),
      ]);
      assert(
        current !== undefined && sampleName.startsWith(current[0]),
        `${sampleName} stands in its family`,
      );
      assert.equal(seen.has(`${sampleName}{${labels}}`), false, `${line} is there once`);
      seen.add(`${sampleName}{${labels}}`);
      current[1].samples.push({ name: sampleName, labels: Object.fromEntries(pairs), value: Number(value) });
    }
  }
  return families;
}

type App = ReturnType<World['app']>;

async function scrape(app: App): Promise<ReadonlyMap<string, Family>> {
  const response = await app.request('/metrics');
  assert.equal(response.status, 200);
  return parseMetrics(await response.text());
}

/** Values of a family by service and port. */
function valuesOf(families: ReadonlyMap<string, Family>, name: string): Record<string, number> {
  const samples = families.get(name)?.samples ?? [];
  return Object.fromEntries(samples.map(({ labels, value }) => [`${labels.service}:${labels.port}`, value]));
}

async function worldWithServices(): Promise<World> {
  const world = new World();
  await world.putCluster();
  const ports = [
    { name: 'dns-tcp', port: 53, protocol: 'TCP' },
    { name: 'dns', port: 53, protocol: 'UDP' },
  ];
  await world.put('dns', serviceOf('dns', { ports }));
  await world.put(
    'dns',
    sliceOf('d', { ports, endpoints: [endpointOf('10.1.0.1'), endpointOf('10.1.0.2')] }),
  );
  await world.put('idle', serviceOf('idle'));
  await world.put('gone', serviceOf('gone'), sliceOf('g', { endpoints: [endpointOf('10.1.0.3')] }));
  await world.deleteService('gone');
  return world;
}

describe('GET /metrics', () => {
  test('is text format 0.0.4, with HELP and TYPE of each family', async () => {
    await using server = await serveApp((await worldWithServices()).app());
    const response = await fetch(`${server.url}/metrics`);
    assert.equal(response.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
    const types = [...parseMetrics(await response.text())].map(([name, { help, type }]) => {
      assert.match(help, /\.$/);
      return `${name} ${type}`;
    });
    assert.deepEqual(types, [
      'endpoints_exists gauge',
      'endpoints_pods gauge',
      'endpoints_updates counter',
      'endpoints_watcher_dead_letters gauge',
      'endpoints_watcher_resyncs_total counter',
    ]);
  });

  test("series have Linkerd's labels, and UDP is told apart from TCP (S21)", async () => {
    const families = await scrape((await worldWithServices()).app());
    const labels = families.get('endpoints_pods')?.samples.map((sample) => sample.labels);
    const common = { cluster: CLUSTER, hostname: '', namespace: 'default' };
    assert.deepEqual(labels, [
      { ...common, port: '53', service: 'dns' },
      { ...common, port: '53/UDP', service: 'dns' },
      { ...common, port: '80', service: 'gone' },
      { ...common, port: '80', service: 'idle' },
    ]);
  });

  test('values: existence, size, changes', async () => {
    const families = await scrape((await worldWithServices()).app());
    assert.deepEqual(valuesOf(families, 'endpoints_exists'), {
      'dns:53': 1,
      'dns:53/UDP': 1,
      'gone:80': 0,
      'idle:80': 1,
    });
    assert.deepEqual(valuesOf(families, 'endpoints_pods'), {
      'dns:53': 2,
      'dns:53/UDP': 2,
      'gone:80': 0,
      'idle:80': 0,
    });
    assert.deepEqual(valuesOf(families, 'endpoints_updates'), {
      'dns:53': 2,
      'dns:53/UDP': 2,
      'gone:80': 2,
      'idle:80': 1,
    });
  });

  test('subscribers are counted by port while their leases last; then the series goes', async () => {
    const world = await worldWithServices();
    const subscribe = (id: string, port: string, minutes: number) =>
      world.store.putSubscription({
        key: { cluster: CLUSTER, namespace: 'default', name: 'dns' },
        ...{ id, port: port as PortId, until: (START + minutes * 60_000) as EpochMs },
      });
    await subscribe('a', '53', 1);
    await subscribe('b', '53', 2);
    await subscribe('c', '53/UDP', 2);
    const app = world.app();
    const values = async () => valuesOf(await scrape(app), 'endpoints_subscribers');
    assert.deepEqual(await values(), { 'dns:53': 2, 'dns:53/UDP': 1 });
    world.now = (START + 60_000) as EpochMs;
    assert.deepEqual(await values(), { 'dns:53': 1, 'dns:53/UDP': 1 });
    world.now = (START + 120_000) as EpochMs;
    assert.deepEqual(await values(), {});
  });

  test('a cluster that is gone has no series', async () => {
    const world = await worldWithServices();
    await world.putCluster({ deletion: 'settling' });
    assert.equal((await scrape(world.app())).size, 0);
  });

  test('no cluster: an empty page', async () => {
    assert.equal((await scrape(new World().app())).size, 0);
  });

  test('no head is read', async () => {
    const world = await worldWithServices();
    world.store.getHead = () => assert.fail('read a head');
    await scrape(world.app());
  });

  test('HEAD works', async () => {
    const response = await (await worldWithServices()).app().request('/metrics', { method: 'HEAD' });
    assert.equal(response.status, 200);
    assert.equal(await response.text(), '');
  });
});

describe('endpoints_updates', () => {
  /** A list that is behind, as an index that is eventually consistent may be. */
  function laggingStore(world: World, sequences: readonly number[]): Store {
    let scrapes = 0;
    const summaryOf = (sequence: number): ServiceSummary => ({
      key: { cluster: CLUSTER, namespace: 'default', name: 'web' },
      type: 'ClusterIP',
      exists: true,
      changedAt: START,
      windowUntil: null,
      ports: [{ id: '80' as PortId, name: 'http', size: 1, sequence, digest: 0n }],
    });
    world.store.listServices = async function* () {
      const sequence = sequences[scrapes++];
      yield sequence === undefined ? [] : [summaryOf(sequence)];
    };
    return world.store;
  }

  test('an instance never shows less than it showed, not even after the service was missing once', async () => {
    const world = new World();
    await world.putCluster();
    const app = world.app({ store: laggingStore(world, [5, 4, 6, 3]) });
    const shown = [];
    for (let scrapes = 0; scrapes < 4; scrapes++)
      shown.push(valuesOf(await scrape(app), 'endpoints_updates')['web:80']);
    assert.deepEqual(shown, [5, 5, 6, 6]);
  });

  test('a counter that was not listed for an hour is forgotten', async () => {
    const world = new World();
    await world.putCluster();
    const app = world.app({ store: laggingStore(world, [5]) });
    await scrape(app);
    world.now = (START + 3_600_001) as EpochMs;
    await scrape(app);
    laggingStore(world, [1]);
    assert.equal(valuesOf(await scrape(app), 'endpoints_updates')['web:80'], 1);
  });
});

describe('what relays tell', () => {
  const series = (labels: Record<string, string>, count: number) => ({
    labels,
    bounds: [0.5, 10],
    buckets: [count - 1, count - 1],
    count,
    sum: 12.25,
  });

  test('histograms of all clusters make one family each, told apart by cluster', async () => {
    const world = new World();
    const name = 'endpoints_watcher_delta_latency_seconds';
    await world.putCluster({
      histograms: { [name]: [series({ stage: 'commit' }, 3), series({ stage: 'observe' }, 4)] },
    });
    await world.putCluster({
      name: 'prod-us',
      histograms: {
        services_informer_lag_seconds: [series({}, 2)],
        [name]: [series({ stage: 'commit' }, 9)],
      },
    });
    const families = await scrape(world.app());
    const latency = families.get(name);
    assert.equal(latency?.type, 'histogram');
    assert.deepEqual(latency?.samples.slice(0, 5), [
      { name: `${name}_bucket`, labels: { stage: 'commit', cluster: CLUSTER, le: '0.5' }, value: 2 },
      { name: `${name}_bucket`, labels: { stage: 'commit', cluster: CLUSTER, le: '10' }, value: 2 },
      { name: `${name}_bucket`, labels: { stage: 'commit', cluster: CLUSTER, le: '+Inf' }, value: 3 },
      { name: `${name}_sum`, labels: { stage: 'commit', cluster: CLUSTER }, value: 12.25 },
      { name: `${name}_count`, labels: { stage: 'commit', cluster: CLUSTER }, value: 3 },
    ]);
    assert.deepEqual(
      latency?.samples.filter((sample) => sample.name === `${name}_count`).map(({ value }) => value),
      [3, 4, 9],
    );
    assert.equal(families.get('services_informer_lag_seconds')?.samples.length, 5);
  });

  test('label values are escaped', async () => {
    const world = new World();
    const stage = 'a "b" \\ c\nd';
    await world.putCluster({ histograms: { some_seconds: [series({ stage }, 1)] } });
    const [sample] = (await scrape(world.app())).get('some_seconds')?.samples ?? [];
    assert.equal(sample?.labels.stage, stage);
  });

  test('a relay cannot speak for other clusters, other buckets or our own metrics', async () => {
    const world = await worldWithServices();
    await world.putCluster({
      histograms: { endpoints_pods: [series({}, 1)], some_seconds: [series({ cluster: 'x', le: '1' }, 1)] },
    });
    const families = await scrape(world.app());
    assert.equal(families.get('endpoints_pods')?.type, 'gauge');
    assert.deepEqual(
      families.get('some_seconds')?.samples.map(({ labels }) => labels),
      [
        { cluster: CLUSTER, le: '0.5' },
        { cluster: CLUSTER, le: '10' },
        { cluster: CLUSTER, le: '+Inf' },
        { cluster: CLUSTER },
        { cluster: CLUSTER },
      ],
    );
  });

  test('the age of the last event grows while no heartbeat comes, and resyncs are counted', async () => {
    const world = new World();
    await world.putCluster({ lastEventAges: { Service: 9000, EndpointSlice: 2500, Pod: null }, resyncs: 4 });
    await world.putCluster({ name: 'new', lastHeartbeat: null });
    await world.putCluster({ name: 'quiet', lastEventAges: { Service: null } });
    world.now = (START + 10_000) as EpochMs;
    const families = await scrape(world.app());
    assert.deepEqual(families.get('endpoints_watcher_relay_last_event_age_seconds')?.samples, [
      {
        name: 'endpoints_watcher_relay_last_event_age_seconds',
        labels: { cluster: CLUSTER },
        value: 12.5,
      },
    ]);
    const resyncs = families.get('endpoints_watcher_resyncs_total')?.samples;
    assert.deepEqual(
      resyncs?.map(({ labels, value }) => [labels.cluster, value]),
      [
        ['new', 0],
        [CLUSTER, 4],
        ['quiet', 0],
      ],
    );
  });
});
