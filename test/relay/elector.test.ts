import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { EpochMs } from '../../core/time.ts';
import { type ApiServer, startApiServer } from '../../infra/local/cluster/api-server.ts';
import type { Fault, Verb } from '../../infra/local/cluster/misbehaviour.ts';
import { Connection } from '../../relay/connection.ts';
import { Elector } from '../../relay/elector.ts';
import type { Timers } from '../../relay/timers.ts';
import { testLog } from './builders.ts';
import { ManualTimers } from './manual-timers.ts';
import { until } from './reflector-rig.ts';

const NAME = { namespace: 'kube-system', name: 'relay' };
const LEASES = '/apis/coordination.k8s.io/v1/namespaces/kube-system/leases';
const TIMES = { leaseMs: 15_000, renewDeadlineMs: 10_000, retryMs: 2000 };
const HOUR_MS = 3_600_000;

/** One process that wants the Lease. */
class Candidate {
  readonly elector: Elector;
  readonly lines: string[] = [];
  /** Why it lost the Lease, term by term. */
  readonly losses: string[] = [];
  readonly stop = new AbortController();
  readonly connection: Connection;
  readonly done: Promise<void>;
  #rests = 0;

  constructor(server: ApiServer, clocks: Timers, name: string) {
    const log = testLog(this.lines);
    const sleep: Timers['sleep'] = async (ms, signal) => {
      const isRest = ms <= TIMES.retryMs;
      if (isRest) this.#rests++;
      await clocks.sleep(ms, signal);
      if (isRest) this.#rests--;
    };
    const timers = { ...clocks, sleep };
    this.connection = new Connection({
      timers,
      log,
      readAccess: async () => ({ server: server.url, tls: {}, proxy: null, headers: {} }),
    });
    this.elector = new Elector({
      lease: NAME,
      times: TIMES,
      candidate: name,
      connection: this.connection,
      timers,
      random: () => 0,
      log,
    });
    this.done = this.#run();
  }

  get epoch(): number | null {
    return this.elector.epoch;
  }

  /** Is it done with its last look, and waits for the next one? */
  get isAtRest(): boolean {
    return this.#rests > 0 || this.stop.signal.aborted;
  }

  async #run(): Promise<void> {
    while (await this.elector.acquire(this.stop.signal)) {
      const loss = await this.elector.keep(this.stop.signal);
      if (loss !== null) this.losses.push(loss);
    }
  }

  /** Ends as a process does that was asked to. */
  async end(): Promise<void> {
    this.stop.abort();
    await this.done;
    await this.elector.release();
  }
}

/** A demo API server and candidates on one clock, which only the test moves; HTTP is real. */
class Rig implements AsyncDisposable {
  readonly timers = new ManualTimers();
  readonly server: ApiServer;
  readonly #candidates: Candidate[] = [];

  private constructor(server: ApiServer) {
    this.server = server;
  }

  static async start(): Promise<Rig> {
    return new Rig(await startApiServer({ clock: new ManualTimers() }));
  }

  candidate(name: string, clocks: Partial<Timers> = {}): Candidate {
    const candidate = new Candidate(this.server, { ...this.timers, ...clocks }, name);
    this.#candidates.push(candidate);
    return candidate;
  }

  async leader(name: string, clocks: Partial<Timers> = {}): Promise<Candidate> {
    const candidate = this.candidate(name, clocks);
    await this.rest();
    assert.notEqual(candidate.epoch, null);
    return candidate;
  }

  async standby(name: string, clocks: Partial<Timers> = {}): Promise<Candidate> {
    const candidate = this.candidate(name, clocks);
    await this.rest();
    assert.deepEqual([candidate.epoch, candidate.elector.failure], [null, null]);
    return candidate;
  }

  get lease() {
    return this.server.objects.get({ kind: 'Lease', ...NAME });
  }

  get holder(): string | undefined {
    return this.lease?.spec?.holderIdentity?.split('_')[0];
  }

  /** Lets one retry period pass, and everybody finish the look that comes of it. */
  async round(): Promise<void> {
    await this.timers.advance(TIMES.retryMs);
    await this.rest();
  }

  rest(): Promise<void> {
    return until(() => this.#candidates.every(({ isAtRest }) => isAtRest));
  }

  async rounds(count: number): Promise<void> {
    for (let round = 0; round < count; round++) await this.round();
  }

  async send(method: 'POST' | 'PUT' | 'DELETE', body: object): Promise<void> {
    const url = `${this.server.url}${LEASES}${method === 'POST' ? '' : `/${NAME.name}`}`;
    const response = await fetch(url, { method, body: JSON.stringify(body) });
    assert.ok(response.ok, await response.text());
  }

  /** A Lease as somebody else writes it. */
  write(method: 'POST' | 'PUT', spec: object): Promise<void> {
    const { resourceVersion } = this.lease?.metadata ?? {};
    const metadata = { ...NAME, ...(method === 'PUT' && { resourceVersion }) };
    return this.send(method, { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata, spec });
  }

  misbehave(fault: Fault, verb?: Verb, times?: number) {
    const on = verb === undefined ? { resource: 'leases' } : { verb, resource: 'leases' };
    return this.server.misbehave({ fault, on, ...(times !== undefined && { times }) });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { stop, connection, done } of this.#candidates) {
      stop.abort();
      await done;
      await connection[Symbol.asyncDispose]();
    }
    await this.server[Symbol.asyncDispose]();
  }
}

suite('W17: taking the Lease', { concurrency: true }, () => {
  test('who finds none makes it, in the form that Kubernetes insists on', async () => {
    await using rig = await Rig.start();
    const one = await rig.leader('one');
    const { acquireTime, renewTime, ...spec } = rig.lease?.spec ?? {};
    assert.deepEqual(spec, {
      holderIdentity: one.elector.identity,
      leaseDurationSeconds: 15,
      leaseTransitions: 0,
    });
    assert.match(one.elector.identity, /^one_[0-9a-f-]{36}$/);
    assert.deepEqual(
      [acquireTime, renewTime],
      ['2026-01-01T00:00:00.000000Z', '2026-01-01T00:00:00.000000Z'],
    );
    assert.equal(one.epoch, 0);
  });

  test('it is renewed every retry period by one request; epoch and beginning stay', async () => {
    await using rig = await Rig.start();
    const one = await rig.leader('one');
    const before = rig.server.requests.length;
    await rig.rounds(3);
    assert.deepEqual(
      rig.server.requests.slice(before).map(({ verb }) => verb),
      ['update', 'update', 'update'],
    );
    const { acquireTime, renewTime, leaseTransitions } = rig.lease?.spec ?? {};
    assert.deepEqual(
      [acquireTime, renewTime, leaseTransitions, one.epoch],
      ['2026-01-01T00:00:00.000000Z', '2026-01-01T00:00:06.000000Z', 0, 0],
    );
  });

  test('what others wrote beside the election stays: labels, fields of the spec', async () => {
    await using rig = await Rig.start();
    const { resourceVersion: _none, ...metadata } = {
      ...NAME,
      labels: { app: 'relay' },
      resourceVersion: '',
    };
    await rig.send('POST', { metadata, spec: { strategy: 'OldestEmulationVersion' } });
    await rig.leader('one');
    assert.deepEqual(rig.lease?.metadata.labels, { app: 'relay' });
    assert.equal((rig.lease?.spec as { strategy?: string } | undefined)?.strategy, 'OldestEmulationVersion');
  });

  const SKEWS: Record<string, number> = {
    'clocks that agree': 0,
    'a wall clock hours ahead': 5 * HOUR_MS,
    'a wall clock hours behind': -5 * HOUR_MS,
  };
  for (const [name, skewMs] of Object.entries(SKEWS)) {
    test(`${name}: a Lease is taken once it did not change for its duration, not sooner`, async () => {
      await using rig = await Rig.start();
      const one = await rig.leader('one');
      const now = () => (rig.timers.now() + skewMs) as EpochMs;
      const two = await rig.standby('two', { now });
      await rig.rounds(10);
      assert.deepEqual([one.epoch, two.epoch], [0, null]);
      one.stop.abort();
      await one.done;
      await rig.rounds(7);
      assert.equal(two.epoch, null, 'after 14 s');
      await rig.round();
      assert.deepEqual([two.epoch, rig.holder, rig.lease?.spec?.leaseTransitions], [1, 'two', 1]);
    });
  }

  test('a wall clock that jumps under the leader changes nothing', async () => {
    await using rig = await Rig.start();
    let jumpMs = 0;
    const one = await rig.leader('one', { now: () => (rig.timers.now() + jumpMs) as EpochMs });
    const two = await rig.standby('two');
    jumpMs = -HOUR_MS;
    await rig.rounds(10);
    jumpMs = HOUR_MS;
    await rig.rounds(10);
    assert.deepEqual([one.epoch, one.losses, two.epoch], [0, [], null]);
  });

  test("the duration that counts is the holder's", async () => {
    await using rig = await Rig.start();
    await rig.write('POST', { holderIdentity: 'other', leaseDurationSeconds: 30, leaseTransitions: 4 });
    const one = await rig.standby('one');
    await rig.rounds(14);
    assert.equal(one.epoch, null);
    await rig.rounds(1);
    assert.equal(one.epoch, 5);
  });

  test('whoever changes it, the wait begins anew', async () => {
    await using rig = await Rig.start();
    await rig.write('POST', { holderIdentity: 'other', leaseDurationSeconds: 15 });
    const one = await rig.standby('one');
    await rig.rounds(6);
    await rig.write('PUT', { holderIdentity: 'other', leaseDurationSeconds: 15, leaseTransitions: 1 });
    await rig.rounds(7);
    assert.equal(one.epoch, null);
    await rig.rounds(2);
    assert.equal(one.epoch, 2);
  });

  test('a standby that was frozen for hours looks before it takes', async () => {
    await using rig = await Rig.start();
    let frozenMs = 0;
    const one = await rig.leader('one');
    const two = await rig.standby('two', { monotonic: () => rig.timers.monotonic() + frozenMs });
    await rig.round();
    frozenMs = HOUR_MS;
    await rig.rounds(3);
    assert.deepEqual([one.epoch, two.epoch], [0, null]);
  });

  test('of several at once one wins; the others are told 409, and stand by', async () => {
    await using rig = await Rig.start();
    const all = ['one', 'two', 'three'].map((name) => rig.candidate(name));
    await rig.rest();
    assert.deepEqual(all.map(({ epoch }) => epoch).sort(), [0, null, null]);
    await rig.write('PUT', { holderIdentity: '', leaseTransitions: 7 });
    await rig.rounds(2);
    assert.deepEqual(all.map(({ epoch }) => epoch).sort(), [8, null, null]);
  });

  test('released, it is had at the next look, under the next epoch', async () => {
    await using rig = await Rig.start();
    const one = await rig.leader('one');
    const two = await rig.standby('two');
    await one.end();
    const { holderIdentity, leaseDurationSeconds, leaseTransitions } = rig.lease?.spec ?? {};
    assert.deepEqual([holderIdentity, leaseDurationSeconds, leaseTransitions], ['', 1, 0]);
    await rig.round();
    assert.deepEqual([two.epoch, rig.holder], [1, 'two']);
  });

  test('released also when the last renewal got no answer', async () => {
    await using rig = await Rig.start();
    const one = await rig.leader('one');
    await using _cut = await rig.misbehave({ kind: 'resetMidStream' }, 'update', 1);
    await rig.round();
    await one.end();
    assert.equal(rig.holder, '');
  });

  test('a standby that ends leaves the Lease alone', async () => {
    await using rig = await Rig.start();
    await rig.leader('one');
    const two = await rig.standby('two');
    await two.end();
    assert.equal(rig.holder, 'one');
  });
});

suite('W17: keeping the Lease', { concurrency: true }, () => {
  const FAULTS: Record<string, Fault> = {
    'answers 503': { kind: 'status', code: 503 },
    'answers 429': { kind: 'status', code: 429 },
    'answers 403': { kind: 'status', code: 403 },
    'resets connections': { kind: 'resetBeforeHeaders' },
    'says nothing': { kind: 'stallBeforeHeaders' },
    'stops in the middle of an answer': { kind: 'stallMidStream' },
  };
  for (const [name, fault] of Object.entries(FAULTS)) {
    test(`the API server ${name}, shorter than the renew deadline: the term goes on`, async () => {
      await using rig = await Rig.start();
      const one = await rig.leader('one');
      const misbehaviour = await rig.misbehave(fault);
      if (fault.kind.startsWith('stall')) await rig.timers.advance(TIMES.retryMs + TIMES.renewDeadlineMs / 2);
      else await rig.rounds(2);
      await rig.rest();
      assert.notEqual(one.elector.failure, null);
      await misbehaviour[Symbol.asyncDispose]();
      await rig.rounds(6);
      assert.deepEqual([one.epoch, one.losses, one.elector.failure], [0, [], null]);
    });

    test(`the API server ${name}, longer: the term ends at the deadline, and the next has an epoch of its own`, async () => {
      await using rig = await Rig.start();
      const one = await rig.leader('one');
      const misbehaviour = await rig.misbehave(fault);
      await rig.timers.advance(9999);
      assert.equal(one.epoch, 0);
      await rig.timers.advance(1);
      await until(() => one.losses.length > 0);
      assert.deepEqual([one.epoch, one.losses], [null, ['it was not renewed in time']]);
      await misbehaviour[Symbol.asyncDispose]();
      await rig.timers.until(() => one.epoch !== null, 'the next term');
      assert.ok((one.epoch ?? 0) >= 1, `${one.epoch}`);
    });
  }

  test('a renewal whose answer was lost is nobody else: it is read, and renewed on top', async () => {
    await using rig = await Rig.start();
    const one = await rig.leader('one');
    await using _cut = await rig.misbehave({ kind: 'resetMidStream' }, 'update', 1);
    await rig.rounds(2);
    assert.deepEqual([one.epoch, one.losses, one.elector.failure], [0, [], null]);
    assert.equal(rig.lease?.spec?.renewTime, '2026-01-01T00:00:04.000000Z');
  });

  test('somebody else holds it: lost at once', async () => {
    await using rig = await Rig.start();
    const one = await rig.leader('one');
    await rig.write('PUT', { holderIdentity: 'other', leaseDurationSeconds: 15, leaseTransitions: 1 });
    await rig.round();
    assert.deepEqual([one.epoch, one.losses, rig.holder], [null, ['another relay holds it'], 'other']);
  });

  test('deleted, the holder makes it anew under the epoch that it has', async () => {
    await using rig = await Rig.start();
    await rig.write('POST', { leaseTransitions: 6 });
    const one = await rig.leader('one');
    await rig.send('DELETE', {});
    await rig.round();
    assert.deepEqual(
      [one.epoch, one.losses, rig.lease?.spec?.leaseTransitions, rig.holder],
      [7, [], 7, 'one'],
    );
  });

  test('deleted and made anew by another that has seen it: the count goes on', async () => {
    await using rig = await Rig.start();
    await rig.write('POST', { leaseTransitions: 6 });
    const one = await rig.leader('one');
    const two = await rig.standby('two');
    one.stop.abort();
    await one.done;
    await rig.send('DELETE', {});
    await rig.round();
    assert.deepEqual([two.epoch, rig.lease?.spec?.leaseTransitions], [8, 8]);
  });

  test('denied: one line says what to allow, and it is tried on', async () => {
    await using rig = await Rig.start();
    const denial = await rig.misbehave({ kind: 'status', code: 403 });
    const one = rig.candidate('one');
    await rig.rounds(4);
    const lines = one.lines.filter((line) => line.includes('"warn"'));
    assert.equal(lines.length, 1);
    assert.match(lines[0] ?? '', /403: .*; allow get, create and update of leases in coordination.k8s.io/);
    assert.equal(one.epoch, null);
    await denial[Symbol.asyncDispose]();
    await rig.round();
    assert.equal(one.epoch, 0);
  });

  test('frozen past the duration of its Lease, a process may not send, and its term is over', async () => {
    await using rig = await Rig.start();
    let frozenMs = 0;
    const one = await rig.leader('one', { monotonic: () => rig.timers.monotonic() + frozenMs });
    frozenMs = 14_999;
    assert.equal(one.elector.holds(0), true);
    frozenMs = 15_000;
    assert.equal(one.elector.holds(0), false);
    await rig.rounds(2);
    assert.deepEqual([one.losses, one.epoch], [['it was not renewed in time'], 1]);
    assert.deepEqual([one.elector.holds(0), one.elector.holds(1)], [false, true]);
  });
});

suite('W18: an epoch above the one that the receiver has', { concurrency: true }, () => {
  test('is written into the Lease that is held, and kept', async () => {
    await using rig = await Rig.start();
    const one = await rig.leader('one');
    assert.equal(await one.elector.raise(41, one.stop.signal), true);
    assert.deepEqual([one.epoch, rig.lease?.spec?.leaseTransitions], [42, 42]);
    assert.deepEqual([one.elector.holds(0), one.elector.holds(42)], [false, true]);
    await rig.rounds(2);
    assert.equal(rig.lease?.spec?.leaseTransitions, 42);
  });

  test('is written as soon as the API server answers again', async () => {
    await using rig = await Rig.start();
    const one = await rig.leader('one');
    await using _down = await rig.misbehave({ kind: 'status', code: 503 }, 'update', 2);
    const raised = one.elector.raise(41, one.stop.signal);
    await rig.rounds(3);
    assert.equal(await raised, true);
    assert.equal(rig.lease?.spec?.leaseTransitions, 42);
  });

  test('is not written over a Lease of somebody else: the term is over', async () => {
    await using rig = await Rig.start();
    const one = await rig.leader('one');
    await rig.send('DELETE', {});
    await rig.write('POST', { holderIdentity: 'other', leaseDurationSeconds: 15, leaseTransitions: 0 });
    assert.equal(await one.elector.raise(41, one.stop.signal), false);
    assert.deepEqual([one.epoch, rig.holder, rig.lease?.spec?.leaseTransitions], [null, 'other', 0]);
    assert.equal(one.elector.holds(0), false);
  });

  test('is where the next term of this process begins, if this one was lost meanwhile', async () => {
    await using rig = await Rig.start();
    const one = await rig.leader('one');
    await rig.write('PUT', { holderIdentity: 'other', leaseDurationSeconds: 1, leaseTransitions: 1 });
    assert.equal(await one.elector.raise(41, one.stop.signal), false);
    await rig.rounds(2);
    assert.equal(one.epoch, 42);
  });
});
