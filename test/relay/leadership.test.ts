import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { type ApiServer, startApiServer } from '../../infra/local/cluster/api-server.ts';
import { type ElectedRelayOptions, startElectedRelay } from '../../relay/leadership.ts';
import type { Relay } from '../../relay/relay.ts';
import { createService, createSlice, deleteSlice, testLog, updateSlice } from './builders.ts';
import { ManualTimers } from './manual-timers.ts';
import { until } from './reflector-rig.ts';
import { relayOptions } from './relay-options.ts';
import { ScriptedIngest } from './scripted-ingest.ts';

const LEASE = { kind: 'Lease', namespace: 'default', name: 'relay' } as const;

/** A demo API server, an ingest by contract, and relays that elect one of them; only time is not real. */
class Rig implements AsyncDisposable {
  readonly timers = new ManualTimers();
  readonly server: ApiServer;
  readonly ingest: ScriptedIngest;
  readonly lines: string[] = [];
  readonly #stack = new AsyncDisposableStack();

  private constructor(server: ApiServer, ingest: ScriptedIngest) {
    this.server = server;
    this.ingest = ingest;
  }

  static async start(): Promise<Rig> {
    const server = await startApiServer({ clock: new ManualTimers() });
    createService(server.objects, 'web');
    createSlice(server.objects, { name: 'web-1', service: 'web' });
    createSlice(server.objects, { name: 'web-2', service: 'web' });
    return new Rig(server, await ScriptedIngest.start(() => 0));
  }

  relay(name: string, options: Partial<ElectedRelayOptions> = {}): Relay {
    const relay = startElectedRelay(
      relayOptions(this.server, {
        relay: name,
        settleMs: 0,
        ingestUrl: this.ingest.url,
        timers: this.timers,
        log: testLog(this.lines),
        lease: { namespace: LEASE.namespace, name: LEASE.name },
        times: { leaseMs: 15_000, renewDeadlineMs: 10_000, retryMs: 2000 },
        ...options,
      }),
    );
    this.#stack.use(relay);
    return relay;
  }

  /** A relay that leads, and has told everything. */
  async leader(name: string, options: Partial<ElectedRelayOptions> = {}): Promise<Relay> {
    const relay = this.relay(name, options);
    await this.leads(relay);
    return relay;
  }

  async standby(name: string): Promise<Relay> {
    const relay = this.relay(name);
    await this.timers.until(() => relay.notReady().length === 0, 'the Lease is read');
    assert.equal(isLeading(relay), false);
    return relay;
  }

  async leads(relay: Relay): Promise<void> {
    await this.timers.until(() => isLeading(relay) && relay.notReady().length === 0, 'the leader is ready');
    await this.told();
  }

  told(): Promise<void> {
    return this.timers.until(
      () => JSON.stringify(this.ingest.objects) === JSON.stringify(this.truth),
      'the truth',
    );
  }

  get truth(): string[] {
    const { objects } = this.server;
    return [...objects.list('Service'), ...objects.list('EndpointSlice')]
      .map(
        ({ kind, metadata }) => `${kind}/${metadata.namespace}/${metadata.name} ${metadata.resourceVersion}`,
      )
      .sort();
  }

  get holder(): string | undefined {
    return this.server.objects.get(LEASE)?.spec?.holderIdentity?.split('_')[0];
  }

  get transitions(): number | undefined {
    return this.server.objects.get(LEASE)?.spec?.leaseTransitions;
  }

  /** Another process takes the Lease, whoever has it. */
  take(holderIdentity: string, leaseTransitions: number): void {
    const { objects } = this.server;
    const lease = {
      kind: 'Lease',
      metadata: { namespace: LEASE.namespace, name: LEASE.name },
      spec: { holderIdentity, leaseDurationSeconds: 15, leaseTransitions },
    } as const;
    if (objects.get(LEASE) === undefined) objects.create(lease);
    else objects.update(lease);
  }

  saidAt(level: string, message: string): boolean {
    return this.lines.some(
      (line) => line.includes(`"level":"${level}"`) && line.includes(`"message":"${message}"`),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
    await this.ingest[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
  }
}

const isLeading = ({ metrics }: Relay) => /^endpoints_watcher_relay_leader 1$/m.test(metrics.render());
const epochOf = ({ metrics }: Relay) => /^endpoints_watcher_relay_epoch (\d+)$/m.exec(metrics.render())?.[1];

suite('a relay among several', { concurrency: true }, () => {
  test('W16: a standby lists and watches nothing, and is ready while it can read the Lease', async () => {
    await using rig = await Rig.start();
    rig.take('other', 3);
    const standby = await rig.standby('two');
    assert.deepEqual([...new Set(rig.server.requests.map(({ resource }) => resource))], ['leases']);
    assert.equal(rig.ingest.received.length, 0);
    assert.match(standby.metrics.render(), /^endpoints_watcher_relay_leader 0$/m);
    const denial = await rig.server.misbehave({
      fault: { kind: 'status', code: 403 },
      on: { resource: 'leases' },
    });
    await rig.timers.until(() => standby.notReady().length > 0, 'not ready');
    assert.match(standby.notReady()[0] ?? '', /^Lease default\/relay: 403: .* allow get, create and update/);
    await denial[Symbol.asyncDispose]();
    await rig.timers.until(() => standby.notReady().length === 0, 'ready again');
  });

  test("W18: each request carries the Lease's transitions as its epoch", async () => {
    await using rig = await Rig.start();
    rig.take('', 11);
    const leader = await rig.leader('one');
    assert.equal(epochOf(leader), '12');
    assert.deepEqual([...new Set(rig.ingest.received.map(({ body }) => body.epoch))], [12]);
  });

  test('W19: one that ends gives the Lease away when it has stopped sending; the next finds what changed between them', async () => {
    await using rig = await Rig.start();
    const one = await rig.leader('one');
    await one[Symbol.asyncDispose]();
    assert.deepEqual(await one.done, { kind: 'stopped' });
    assert.equal(rig.holder, '');
    const sent = rig.ingest.received.length;
    deleteSlice(rig.server.objects, 'web-1');
    createSlice(rig.server.objects, { name: 'web-3', service: 'web' });
    updateSlice(rig.server.objects, { name: 'web-2', service: 'web', ips: ['10.0.0.9'] });
    const two = await rig.leader('two');
    assert.equal(epochOf(two), '1');
    assert.deepEqual([...new Set(rig.ingest.received.slice(sent).map(({ body }) => body.relay))], ['two']);
  });

  test('a leader that loses the Lease stands by, says so, and leads again under a higher epoch', async () => {
    await using rig = await Rig.start();
    const one = await rig.leader('one');
    rig.take('other', 1);
    await rig.timers.until(() => !isLeading(one), 'stands by');
    assert.ok(rig.saidAt('warn', 'no longer leads, stands by'));
    assert.deepEqual(one.notReady(), []);
    createSlice(rig.server.objects, { name: 'web-3', service: 'web' });
    await rig.leads(one);
    assert.equal(epochOf(one), '2');
  });

  test('an API server that is away longer than the renew deadline: it stops, and goes on by itself', async () => {
    await using rig = await Rig.start();
    const one = await rig.leader('one');
    const outage = await rig.server.misbehave({ fault: { kind: 'refuse' } });
    await rig.timers.until(() => !isLeading(one), 'stands by');
    await rig.timers.until(() => one.notReady().length > 0, 'not ready');
    await outage[Symbol.asyncDispose]();
    createSlice(rig.server.objects, { name: 'web-3', service: 'web' });
    await rig.leads(one);
    assert.equal(epochOf(one), '1');
  });

  test('W17: frozen past its Lease, it starts no request, not even for what it sees before its timers run', async () => {
    await using rig = await Rig.start();
    let frozenMs = 0;
    const { timers } = rig;
    const one = await rig.leader('one', {
      timers: { now: timers.now, sleep: timers.sleep, monotonic: () => timers.monotonic() + frozenMs },
    });
    await timers.advance(1000);
    const sent = rig.ingest.received.length;
    frozenMs = 15_000;
    createSlice(rig.server.objects, { name: 'web-3', service: 'web' });
    await until(() => rig.lines.some((line) => line.includes('not sent: the Lease was not renewed in time')));
    assert.equal(rig.ingest.received.length, sent);
    await rig.leads(one);
    assert.deepEqual([...new Set(rig.ingest.received.slice(sent).map(({ body }) => body.epoch))], [1]);
  });

  test('W18: refused by a higher epoch with the Lease in its hand (made anew, a cluster rebuilt), it raises its own', async () => {
    await using rig = await Rig.start();
    rig.ingest.epoch = 50;
    const one = await rig.leader('one');
    assert.deepEqual([epochOf(one), rig.transitions, rig.ingest.epoch], ['51', 51, 51]);
    rig.ingest.epoch = 70;
    createSlice(rig.server.objects, { name: 'web-3', service: 'web' });
    await rig.told();
    assert.deepEqual([rig.transitions, rig.ingest.epoch], [71, 71]);
    assert.ok(rig.saidAt('warn', 'ingest has heard a higher epoch'));
  });

  test('W18: refused by a higher epoch without the Lease, it stands by', async () => {
    await using rig = await Rig.start();
    const one = await rig.leader('one');
    await rig.timers.advance(0);
    rig.take('other', 1);
    rig.ingest.epoch = 1;
    createSlice(rig.server.objects, { name: 'web-3', service: 'web' });
    await rig.timers.until(() => !isLeading(one), 'stands by');
    assert.deepEqual([rig.holder, rig.transitions, rig.ingest.epoch], ['other', 1, 1]);
  });

  test('W18: the first inventory under each epoch waits as its first heartbeat was told', async () => {
    await using rig = await Rig.start();
    rig.ingest.epoch = 50;
    rig.ingest.waitMs = 10_000;
    const at: Record<string, number> = {};
    rig.ingest.onReceived = ({ path }) => {
      at[path] ??= rig.timers.monotonic();
      if (path === '/v1/heartbeat' && rig.ingest.epoch === 50) delete at[path];
    };
    await rig.leader('one');
    assert.ok((at['/v1/inventory'] ?? 0) - (at['/v1/heartbeat'] ?? 0) >= 10_000, JSON.stringify(at));
  });

  test("a name that is another cluster's ends it, with the Lease given away", async () => {
    await using rig = await Rig.start();
    rig.ingest.mishaps.push({ path: '/v1/heartbeat', status: 409, body: { error: 'clusterUid' } });
    const one = rig.relay('one');
    assert.deepEqual(await one.done, { kind: 'otherCluster' });
    assert.equal(rig.holder, '');
  });
});
