import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import fc from 'fast-check';
import type { EpochMs } from '../../core/time.ts';
import { noAuthorization } from '../../relay/authorization.ts';
import { Cache, objectId } from '../../relay/cache.ts';
import { compact, type Held } from '../../relay/compact.ts';
import { IngestClient } from '../../relay/ingest-client.ts';
import { Metrics } from '../../relay/metrics.ts';
import { Queue } from '../../relay/queue.ts';
import { Sender } from '../../relay/sender.ts';
import { Pulse } from '../../relay/timers.ts';
import { testLog } from './builders.ts';
import { ManualTimers } from './manual-timers.ts';
import { ScriptedIngest } from './scripted-ingest.ts';

/** How long ingest may be silent, in milliseconds of real time. */
const TIMEOUT_MS = 300;

interface RigOptions {
  readonly settleMs?: number;
  readonly random?: () => number;
  readonly timeoutMs?: number;
}

/** Cache, queue and sender on an ingest by contract. */
class Rig implements AsyncDisposable {
  readonly timers = new ManualTimers();
  readonly ingest: ScriptedIngest;
  readonly cache = new Cache();
  readonly queue: Queue;
  readonly sender: Sender;
  readonly metrics = new Metrics();
  readonly #pulse = new Pulse();
  readonly #client: IngestClient;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;
  readonly #uids = new Map<string, string>();
  readonly #parities = new Map<string, number>();
  readonly #states = new Map<string, Held>();
  #version = 100;
  overflows = 0;
  readonly lines: string[] = [];

  private constructor(
    ingest: ScriptedIngest,
    { settleMs = 0, random = () => 0, timeoutMs = TIMEOUT_MS }: RigOptions,
  ) {
    this.ingest = ingest;
    const { cache, timers, metrics } = this;
    this.queue = new Queue({ cache, settleMs, monotonic: timers.monotonic });
    this.#client = new IngestClient({ url: ingest.url, authorize: noAuthorization, timers, timeoutMs });
    this.sender = new Sender({
      queue: this.queue,
      ingest: this.#client,
      envelope: { cluster: 'test', epoch: 1, mode: 'slices' },
      mustConfirm: () => false,
      tellPods: () => null,
      onAnswered: () => {
        if (this.queue.takeOverflow()) this.overflows++;
      },
      onConflict: () => {},
      pulse: this.#pulse,
      timers,
      random,
      metrics,
      log: testLog(this.lines),
    });
    this.#running = this.sender.run(this.#stop.signal);
  }

  static async start(options: RigOptions = {}): Promise<Rig> {
    let rig: Rig | null = null;
    const ingest = await ScriptedIngest.start(() => rig?.timers.monotonic() ?? 0);
    rig = new Rig(ingest, options);
    return rig;
  }

  /** A new state of a slice. */
  put(name: string, service: string): void {
    const uid = this.#uids.get(name) ?? `uid-${++this.#version}`;
    const type = this.#uids.has(name) ? 'MODIFIED' : 'ADDED';
    this.#uids.set(name, uid);
    this.#observe(type, name, service, uid);
  }

  delete(name: string): void {
    const held = this.cache.get(objectId({ kind: 'EndpointSlice', namespace: 'default', name }));
    if (held === undefined) return;
    this.#uids.delete(name);
    this.#observe('DELETED', name, held.service ?? '', held.uid);
  }

  #observe(type: 'ADDED' | 'MODIFIED' | 'DELETED', name: string, service: string, uid: string): void {
    const resourceVersion = String(++this.#version);
    // No state is like the one before it, or it would not be told.
    const parity = 1 - (this.#parities.get(name) ?? 1);
    this.#parities.set(name, parity);
    const key = `${uid} ${service} ${parity} ${type}`;
    // Deflating thousands of contents takes seconds.
    const known = this.#states.get(key) ?? state({ name, uid, service, parity }, type === 'DELETED');
    this.#states.set(key, known);
    this.queue.observe(type, { ...known, resourceVersion, observedAt: this.timers.now() });
    this.#pulse.notify();
  }

  get live(): readonly Held[] {
    return this.cache.services().flatMap(({ objects }) => [...objects.values()]);
  }

  get truth(): string[] {
    return this.live.map((held) => `${objectId(held)} ${held.resourceVersion}`).sort();
  }

  get services(): string[][] {
    return this.ingest
      .bodies('/v1/events')
      .map(({ events }) => [
        ...new Set<string>(
          events.map((event: SentEvent) => event.object.metadata.labels[SERVICE_NAME] ?? ''),
        ),
      ]);
  }

  /** Is everything told and answered? */
  get isIdle(): boolean {
    const { waiting, inFlight } = this.queue.depth;
    return waiting + inFlight === 0;
  }

  settled(stepMs = 50): Promise<void> {
    const isSettled = () => JSON.stringify(this.ingest.objects) === JSON.stringify(this.truth);
    return this.timers.until(isSettled, 'the truth', stepMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    this.#pulse.notify();
    await this.#running;
    await this.#client[Symbol.asyncDispose]();
    await this.ingest[Symbol.asyncDispose]();
  }
}

interface StateInput {
  readonly name: string;
  readonly uid: string;
  readonly service: string;
  readonly parity: number;
}

function state({ name, uid, service, parity }: StateInput, isDeleted: boolean): Held {
  const labels = { [SERVICE_NAME]: service };
  const raw = {
    metadata: { namespace: 'default', name, uid, resourceVersion: '1', labels },
    addressType: 'IPv4',
    endpoints: [{ addresses: [`10.0.0.${parity}`] }],
  };
  const seen = compact('EndpointSlice', raw, 0 as EpochMs, isDeleted);
  assert.ok(seen);
  return seen.held;
}

const SERVICE_NAME = 'kubernetes.io/service-name';

interface SentEvent {
  readonly object: { readonly metadata: { readonly labels: Readonly<Record<string, string>> } };
}

/** Numbers in [0, 1) that are the same in each run. Source: mulberry32. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

suite('sender', { concurrency: true }, () => {
  test('20 minutes without ingest, 30 events a second: the queue stays as small as the cluster, and little is told after', async () => {
    await using rig = await Rig.start({ settleMs: 25, random: seeded(1) });
    const random = seeded(2);
    const pick = (count: number) => Math.floor(random() * count);
    for (let index = 0; index < 200; index++) rig.put(`s${index}`, `web-${index % 20}`);
    await rig.settled();
    let waiting = 0;
    const live = async (seconds: number) => {
      for (let second = 0; second < seconds; second++) {
        for (let event = 0; event < 30; event++) {
          const name = `s${pick(300)}`;
          if (pick(20) === 0) rig.delete(name);
          else rig.put(name, `web-${pick(200) === 0 ? pick(20) : Number(name.slice(1)) % 20}`);
        }
        const { waiting: now, inFlight } = rig.queue.depth;
        waiting = Math.max(waiting, now);
        assert.ok(now <= 300 && inFlight <= 300, `${now} waiting, ${inFlight} in flight`);
        await rig.timers.advance(1000);
        // Turns for real I/O.
        if (second % 10 === 0) await setTimeout(1);
      }
    };
    const admit = await rig.ingest.refuse();
    await live(400);
    await admit();
    rig.ingest.outage = 503;
    await live(400);
    rig.ingest.outage = 'hang';
    await live(400);
    assert.ok(waiting > 250, `${waiting} waiting: the outage was felt`);
    assert.ok((rig.sender.failingForMs ?? 0) > 1_190_000);
    rig.ingest.outage = null;
    rig.ingest.received.length = 0;
    rig.ingest.hangUp();
    await rig.settled(1000);
    await rig.timers.until(
      () => rig.queue.depth.waiting + rig.queue.depth.inFlight === 0,
      'all is told',
      1000,
    );
    const requests = rig.ingest.bodies('/v1/events').length;
    assert.ok(requests <= 60, `${requests} requests for 20 services`);
    assert.equal(rig.overflows, 0);
    assert.equal(rig.sender.failingForMs, null);
  });

  test('at most eight requests are under way, of different services, at most 20 services each', async () => {
    await using rig = await Rig.start({ timeoutMs: 60_000 });
    rig.ingest.outage = 'hang';
    for (let index = 0; index < 300; index++) rig.put(`s${index}`, `web-${index}`);
    await rig.timers.until(() => rig.ingest.received.length === 8, 'eight requests');
    for (let index = 0; index < 300; index++) rig.put(`s${index}`, `web-${index}`);
    await rig.timers.advance(60_000);
    await setTimeout(5);
    assert.equal(rig.ingest.received.length, 8);
    assert.equal(rig.sender.inFlight, 8);
    const services = rig.services;
    assert.ok(services.every(({ length }) => length <= 20));
    assert.equal(new Set(services.flat()).size, services.flat().length);
    rig.ingest.outage = null;
    rig.ingest.hangUp();
    await rig.settled(1000);
  });

  test('a batch has at most 1 MB of JSON', async () => {
    await using rig = await Rig.start({ settleMs: 25 });
    for (let index = 0; index < 3000; index++) rig.put(`s${index}`, `web-${index % 10}`);
    await rig.settled();
    for (const body of rig.ingest.bodies('/v1/events')) {
      assert.ok(Buffer.byteLength(JSON.stringify(body)) <= 1_050_000);
    }
    assert.ok(rig.ingest.received.every(({ headers }) => headers['content-encoding'] === 'gzip'));
  });

  test('delays double from 200 ms to 10 s, each with a jitter of 100 %', async () => {
    await using rig = await Rig.start({ random: seeded(7) });
    rig.ingest.outage = 503;
    rig.put('s', 'web');
    const delays = () => rig.lines.flatMap((line) => JSON.parse(line).retry_in_ms ?? []);
    await rig.timers.until(() => delays().length === 8, 'eight tries', 500);
    const jitter = seeded(7);
    const want = [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000].map((ms) =>
      Math.round(ms * (1 + jitter())),
    );
    assert.deepEqual(delays(), want);
  });

  test('one service that always fails does not keep the others', async () => {
    await using rig = await Rig.start({ settleMs: 25 });
    rig.ingest.failing = (body) =>
      body.events.some((event: SentEvent) => event.object.metadata.labels[SERVICE_NAME] === 'bad');
    for (let index = 0; index < 19; index++) rig.put(`s${index}`, `web-${index}`);
    rig.put('poison', 'bad');
    await rig.timers.until(() => rig.ingest.stored.size === 19, 'the others', 500);
    rig.ingest.failing = () => false;
    await rig.settled(1000);
  });

  test('an object that ingest finds too large is dropped alone, and counted', async () => {
    await using rig = await Rig.start({ settleMs: 25 });
    rig.ingest.tooLarge = (body) =>
      body.events.some(
        (event: { object: { metadata: { name: string } } }) => event.object.metadata.name === 'big',
      );
    for (const name of ['a', 'b', 'big', 'c', 'd']) rig.put(name, 'web');
    await rig.timers.until(() => rig.ingest.stored.size === 4 && rig.isIdle, 'the others');
    assert.match(rig.metrics.render(), /results_total\{status="dropped"\} 1\n/);
  });

  test('an answer without a result for each event is no answer', async () => {
    await using rig = await Rig.start();
    rig.ingest.mishaps.push({ path: '/v1/events', status: 200, body: { results: [], deltas: 0 } });
    rig.put('a', 'web');
    await rig.settled();
    assert.deepEqual(rig.ingest.events, ['ADDED a', 'ADDED a confirm']);
  });

  test('any failures, any order: one request per service at a time, and in the end ingest has the truth', async () => {
    const step = fc.oneof(
      {
        weight: 6,
        arbitrary: fc.record({ do: fc.constant('put' as const), name: fc.nat(5), service: fc.nat(3) }),
      },
      { weight: 2, arbitrary: fc.record({ do: fc.constant('delete' as const), name: fc.nat(5) }) },
      { weight: 4, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.nat(400) }) },
      {
        weight: 3,
        arbitrary: fc.record({
          do: fc.constant('mishap' as const),
          status: fc.constantFrom(429, 500, 503, 'hangUp' as const),
          isApplied: fc.boolean(),
        }),
      },
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { minLength: 5, maxLength: 40 }),
        fc.integer({ min: 8, max: 20 }),
        async (steps, maxEvents) => {
          await using rig = await Rig.start({ settleMs: 25 });
          rig.ingest.tooLarge = ({ events }) => events.length > maxEvents;
          for (const step of steps) {
            if (step.do === 'put') rig.put(`s${step.name}`, `web-${step.service}`);
            else if (step.do === 'delete') rig.delete(`s${step.name}`);
            else if (step.do === 'wait') {
              await rig.timers.advance(step.ms);
              await setTimeout(1);
            } else {
              const { status, isApplied } = step;
              // What comes too often was not looked at.
              rig.ingest.mishaps.push({
                path: '/v1/events',
                status,
                isApplied: isApplied && status !== 429,
              });
            }
          }
          rig.ingest.mishaps.length = 0;
          await rig.settled(1000);
          await rig.timers.until(
            () => rig.queue.depth.waiting + rig.queue.depth.inFlight === 0,
            'all is told',
            1000,
          );
          assert.deepEqual(rig.ingest.objects, rig.truth);
        },
      ),
      {
        numRuns: Number(process.env.RUNS ?? 25),
        seed: Number(process.env.SEED ?? Date.now() % 2 ** 31),
        endOnFailure: process.env.SHRINK === undefined,
      },
    );
  });
});
