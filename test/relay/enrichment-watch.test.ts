import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { suite, test } from 'node:test';
import { type ApiServer, startApiServer } from '../../infra/local/cluster/api-server.ts';
import { Connection } from '../../relay/connection.ts';
import { factResources } from '../../relay/enrichment-watch.ts';
import { Reflector } from '../../relay/reflector.ts';
import { type Relay, type RelayOptions, startRelay } from '../../relay/relay.ts';
import { createService, testLog } from './builders.ts';
import { HastyTimers, ManualTimers } from './manual-timers.ts';
import { relayOptions } from './relay-options.ts';
import { ScriptedIngest } from './scripted-ingest.ts';

/** A demo API server with Servers, an ingest by contract, and relays between them; only time is not real. */
class Rig implements AsyncDisposable {
  readonly timers = new ManualTimers();
  readonly logged: string[] = [];
  readonly server: ApiServer;
  readonly ingest: ScriptedIngest;
  readonly #stack = new AsyncDisposableStack();

  private constructor(server: ApiServer, ingest: ScriptedIngest) {
    this.server = server;
    this.ingest = ingest;
  }

  static async start(): Promise<Rig> {
    const server = await startApiServer({ clock: new ManualTimers(), linkerdPolicy: true });
    let rig: Rig | null = null;
    const ingest = await ScriptedIngest.start(() => rig?.timers.monotonic() ?? 0);
    rig = new Rig(server, ingest);
    rig.#populate();
    return rig;
  }

  /** Service web with a slice of the pods web-1 and web-2, which a Deployment owns. */
  #populate(): void {
    const { objects } = this.server;
    createService(objects, 'web');
    objects.create({
      kind: 'ReplicaSet',
      metadata: { name: 'web-5d9f', namespace: 'default', ownerReferences: [ownedBy('Deployment', 'web')] },
    });
    for (const name of ['web-1', 'web-2']) {
      objects.create({
        kind: 'Pod',
        metadata: {
          name,
          namespace: 'default',
          labels: { app: 'web' },
          ownerReferences: [ownedBy('ReplicaSet', 'web-5d9f')],
        },
        spec: { nodeName: 'n1', containers: [{ name: 'main', image: 'web' }] },
      });
    }
    objects.create({
      kind: 'EndpointSlice',
      metadata: { name: 'web-abc', namespace: 'default', labels: { 'kubernetes.io/service-name': 'web' } },
      addressType: 'IPv4',
      ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
      endpoints: ['web-1', 'web-2'].map((name, index) => ({
        addresses: [`10.0.0.${index + 1}`],
        conditions: { ready: true },
        targetRef: { kind: 'Pod', name, namespace: 'default' },
      })),
    });
  }

  relay(options: Partial<RelayOptions> = {}): Relay {
    const relay = startRelay(
      relayOptions(this.server, {
        epoch: 7,
        enrich: ['pods', 'servers'],
        ingestUrl: this.ingest.url,
        timers: this.timers,
        log: testLog(this.logged),
        ...options,
      }),
    );
    this.#stack.use(relay);
    return relay;
  }

  /** A relay whose first inventory is done, and which has told everything. */
  async synced(options: Partial<RelayOptions> = {}): Promise<Relay> {
    const relay = this.relay(options);
    await this.timers.until(() => relay.notReady().length === 0, 'ready');
    await this.timers.advance(1000);
    await this.timers.until(() => relay.notReady().length === 0, 'still ready');
    return relay;
  }

  /** Each event of the slice so far: what it said of the pods' owners and opaqueness. */
  get told(): string[] {
    return this.slices.map(({ enrich }) => {
      const known = Object.entries(enrich ?? {}) as [string, Known][];
      return known
        .map(([id, { owner, opaqueProtocol }]) => `${id} ${owner.kind}${opaqueProtocol ? ' opaque' : ''}`)
        .join(', ');
    });
  }

  // biome-ignore lint/suspicious/noExplicitAny: events are looked into
  get slices(): any[] {
    const events = this.ingest.bodies('/v1/events').flatMap((body) => body.events);
    return events.filter(({ object }) => object.kind === 'EndpointSlice');
  }

  createServer(name = 'web'): void {
    this.server.objects.create({
      kind: 'Server',
      metadata: { name, namespace: 'default' },
      spec: { podSelector: { matchLabels: { app: 'web' } }, port: 8080, proxyProtocol: 'opaque' },
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
    await this.ingest[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
  }
}

interface Known {
  readonly owner: { readonly kind: string };
  readonly opaqueProtocol: boolean;
}

function ownedBy(kind: string, name: string) {
  return { apiVersion: 'apps/v1', kind, name, uid: name };
}

const PLAIN = 'default/web-1 Deployment, default/web-2 Deployment';
const OPAQUE = 'default/web-1 Deployment opaque, default/web-2 Deployment opaque';

suite('a relay that enriches', { concurrency: true }, () => {
  test('pods are watched only when asked for', async () => {
    await using rig = await Rig.start();
    await rig.synced({ enrich: [] });
    assert.deepEqual(rig.server.watched.toSorted(), ['endpointslices', 'services']);
    assert.deepEqual(
      [rig.slices.length, 'enrich' in rig.slices[0], 'enrichVersion' in rig.slices[0]],
      [1, false, false],
    );
  });

  test('a cold start tells each slice once, with its pods', async () => {
    await using rig = await Rig.start();
    await rig.synced();
    assert.deepEqual(rig.told, [PLAIN]);
    assert.deepEqual(rig.slices[0].enrich['default/web-1'], {
      owner: { kind: 'Deployment', name: 'web' },
      node: 'n1',
      opaqueProtocol: false,
    });
    assert.deepEqual(rig.server.watched.toSorted(), [
      'endpointslices',
      'jobs',
      'pods',
      'replicasets',
      'servers',
      'services',
    ]);
  });

  test('W14: a relay for one namespace watches nothing else', async () => {
    await using rig = await Rig.start();
    await rig.synced({ namespaces: ['default'] });
    const scopes = rig.server.requests
      .filter(({ verb }) => verb === 'watch')
      .map(({ namespace }) => namespace);
    assert.deepEqual([...new Set(scopes)], ['default']);
    assert.deepEqual(rig.told, [PLAIN]);
  });

  test('a Server that appears sends the slice again, of the same version and a higher enrichVersion, and its end too', async () => {
    await using rig = await Rig.start();
    await rig.synced();
    rig.createServer();
    await rig.timers.until(() => rig.slices.length === 2, 'told again');
    rig.server.objects.delete({ kind: 'Server', namespace: 'default', name: 'web' });
    await rig.timers.until(() => rig.slices.length === 3, 'and again');
    assert.deepEqual(rig.told, [PLAIN, OPAQUE, PLAIN]);
    const [first, second, third] = rig.slices;
    const versions = rig.slices.map(({ object }) => object.metadata.resourceVersion);
    assert.deepEqual([second.type, new Set(versions).size], ['MODIFIED', 1]);
    assert.ok(first.enrichVersion < second.enrichVersion && second.enrichVersion < third.enrichVersion);
    assert.deepEqual([second.resync, second.confirm], [undefined, undefined]);
  });

  test('W10a: changes of many pods within settleMs are one event', async () => {
    await using rig = await Rig.start();
    await rig.synced();
    for (const name of ['web-1', 'web-2']) {
      const pod = rig.server.objects.get({ kind: 'Pod', namespace: 'default', name });
      assert.ok(pod);
      rig.server.objects.update({ ...pod, spec: { ...pod.spec, nodeName: 'n2' } });
    }
    await rig.timers.until(() => rig.slices.length > 1, 'told again');
    await rig.timers.advance(5000);
    assert.deepEqual(
      rig.slices.map(({ enrich }) => [enrich['default/web-1'].node, enrich['default/web-2'].node]),
      [
        ['n1', 'n1'],
        ['n2', 'n2'],
      ],
    );
  });

  test('S7: without the right to read pods every slice is told, at once and without them', async () => {
    await using rig = await Rig.start();
    await using _refusal = await rig.server.misbehave({
      fault: { kind: 'status', code: 403 },
      on: { resource: 'pods' },
    });
    rig.relay();
    await rig.timers.until(() => rig.slices.length > 0, 'told');
    assert.deepEqual(rig.told, ['']);
    assert.ok(rig.timers.monotonic() < 5000);
  });

  test('S7: slices wait five seconds for pods that do not come, and are told again when they do', async () => {
    await using rig = await Rig.start();
    const stall = await rig.server.misbehave({
      fault: { kind: 'status', code: 503 },
      on: { resource: 'pods' },
    });
    rig.relay();
    await rig.timers.until(() => rig.slices.length > 0, 'told');
    assert.deepEqual(rig.told, ['']);
    const { at = 0 } = rig.ingest.received.find(({ path }) => path === '/v1/events') ?? {};
    assert.ok(at >= 5000 && at < 7000, String(at));
    await stall[Symbol.asyncDispose]();
    await rig.timers.until(() => rig.slices.length > 1, 'told again');
    assert.deepEqual(rig.told, ['', PLAIN]);
  });

  test('Servers that the cluster does not know are no error, and are asked for again every minute', async () => {
    await using rig = await Rig.start();
    const absence = await rig.server.misbehave({
      fault: { kind: 'status', code: 404 },
      on: { resource: 'servers' },
    });
    rig.createServer();
    await rig.synced();
    assert.deepEqual(rig.told, [PLAIN]);
    const loud = rig.logged
      .map((line) => JSON.parse(line))
      .filter(({ level }) => level === 'warn' || level === 'error');
    assert.deepEqual(loud, []);
    await absence[Symbol.asyncDispose]();
    await rig.timers.advance(70_000);
    await rig.timers.until(() => rig.slices.length > 1, 'told again');
    assert.deepEqual(rig.told, [PLAIN, OPAQUE]);
  });

  test('L23: a Server whose end was missed is found gone by a list', async () => {
    await using rig = await Rig.start();
    rig.createServer();
    await rig.synced();
    const away = await rig.server.misbehave({ fault: { kind: 'refuse' } });
    rig.server.objects.delete({ kind: 'Server', namespace: 'default', name: 'web' });
    rig.server.compact();
    await away[Symbol.asyncDispose]();
    await rig.timers.until(() => rig.slices.length > 1, 'told again');
    assert.deepEqual(rig.told, [OPAQUE, PLAIN]);
  });

  test('a restart tells of all pods once more, behind an inventory that finds nothing missing, and asks for no write', async () => {
    await using rig = await Rig.start();
    await (await rig.synced())[Symbol.asyncDispose]();
    rig.createServer();
    rig.ingest.received.length = 0;
    await rig.synced({ epoch: 8 });
    await rig.timers.until(() => rig.slices.length > 0, 'told');
    assert.deepEqual(rig.ingest.events, ['MODIFIED web-abc enrichVersion enrich resync']);
    assert.deepEqual(rig.told, [OPAQUE]);
    const paths = rig.ingest.received.map(({ path }) => path).filter((path) => path !== '/v1/heartbeat');
    assert.deepEqual(paths, ['/v1/inventory', '/v1/events']);
  });

  test('an event without an answer is told again with what is then known, and a higher number', async () => {
    await using rig = await Rig.start();
    await rig.synced();
    rig.ingest.mishaps.push({ path: '/v1/events', status: 'hangUp', isApplied: true });
    rig.createServer();
    await rig.timers.until(() => rig.slices.length > 1, 'told again');
    rig.server.objects.delete({ kind: 'Server', namespace: 'default', name: 'web' });
    await rig.timers.until(() => rig.slices.length > 2, 'and again');
    await rig.timers.advance(5000);
    assert.equal(rig.told.at(-1), PLAIN);
    const numbers = rig.slices.map(({ enrichVersion }) => enrichVersion);
    assert.ok(numbers.at(-1) > numbers[1], String(numbers));
    assert.equal(rig.slices.at(-1).confirm, true);
  });

  test('what is kept of pods is measured', async () => {
    await using rig = await Rig.start();
    const relay = await rig.synced();
    const lines = relay.metrics
      .render()
      .split('\n')
      .filter((line) => line.startsWith('endpoints_watcher_relay_enrichment_kept{'));
    assert.deepEqual(lines, [
      'endpoints_watcher_relay_enrichment_kept{kind="pods"} 2',
      'endpoints_watcher_relay_enrichment_kept{kind="owners"} 1',
      'endpoints_watcher_relay_enrichment_kept{kind="traits"} 1',
      'endpoints_watcher_relay_enrichment_kept{kind="servers"} 0',
    ]);
  });
});

suite('what is asked of the API server', () => {
  const metadata = {
    name: 'web-5d9f',
    namespace: 'default',
    resourceVersion: '7',
    ownerReferences: [ownedBy('Deployment', 'web')],
  };
  const servers: Record<string, object> = {
    'one that leaves all but metadata out': { kind: 'PartialObjectMetadata', metadata },
    'one that ignores the wish': { kind: 'ReplicaSet', metadata, spec: { replicas: 3 } },
  };
  for (const [name, object] of Object.entries(servers)) {
    test(`ReplicaSets by their metadata: ${name}`, async () => {
      const accepted = new Map<string, string | undefined>();
      const server = createServer((request, response) => {
        const isWatch = request.url?.includes('watch=1') ?? false;
        accepted.set(isWatch ? 'watch' : 'list', request.headers.accept);
        if (isWatch) response.writeHead(422).end('{}');
        else response.end(JSON.stringify({ metadata: { resourceVersion: '9' }, items: [object] }));
      }).listen(0, '127.0.0.1');
      await once(server, 'listening');
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      const timers = new HastyTimers();
      const readAccess = async () => ({ server: url, tls: {}, proxy: null, headers: {} });
      await using connection = new Connection({ readAccess, timers, log: testLog() });
      const [, replicaSets] = factResources(['pods']);
      assert.ok(replicaSets);
      const reflector = new Reflector(replicaSets, null, {
        connection,
        timers,
        random: () => 0,
        log: testLog(),
        onEnding: () => {},
      });
      const stop = new AbortController();
      const observations = reflector.observations(stop.signal);
      const { value } = await observations.next();
      stop.abort();
      await observations.return();
      server.closeAllConnections();
      server.close();
      assert.ok(value?.kind === 'listed');
      const [facts] = value.objects;
      assert.ok(facts?.kind === 'ReplicaSet');
      assert.deepEqual(facts.owner, { kind: 'Deployment', name: 'web' });
      assert.deepEqual(Object.fromEntries(accepted), {
        watch: 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json',
        list: 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json',
      });
    });
  }
});
