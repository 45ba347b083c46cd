import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import type { EpochMs } from '../../core/time.ts';
import { compareVersions } from '../../core/version.ts';
import { Cache, objectId } from '../../relay/cache.ts';
import type { Held } from '../../relay/compact.ts';
import { type Batch, Queue } from '../../relay/queue.ts';

const SETTLE_MS = 25;

/** A queue with a clock, and short words for its events: `web/a` is slice a of service web. */
class Rig {
  readonly cache = new Cache();
  readonly queue: Queue;
  now = 0;
  #version = 100;

  constructor(settleMs = SETTLE_MS) {
    this.queue = new Queue({ cache: this.cache, settleMs, monotonic: () => this.now });
  }

  /** A state of a slice, or with `Service` of the Service; its content is its version unless it is given. */
  held(name: string, more: Partial<Held> = {}): Held {
    const [service = '', object = ''] = name.split('/');
    const resourceVersion = String(++this.#version);
    return {
      kind: object === '' ? 'Service' : 'EndpointSlice',
      namespace: 'ns',
      name: object || service,
      uid: `uid-${object || service}`,
      resourceVersion,
      service: service || null,
      observedAt: this.now as EpochMs,
      content: Buffer.from(resourceVersion),
      size: 100,
      ...more,
    };
  }

  add(name: string, more: Partial<Held> = {}): Held {
    const held = this.held(name, more);
    this.queue.observe(this.cache.get(objectId(held)) ? 'MODIFIED' : 'ADDED', held);
    return held;
  }

  delete(name: string, more: Partial<Held> = {}): Held {
    const held = this.held(name, more);
    this.queue.observe('DELETED', held);
    return held;
  }

  /** The next batch once everything has settled. */
  take(): Batch {
    this.now += SETTLE_MS;
    const batch = this.queue.take();
    assert.ok(batch);
    return batch;
  }

  answer(batch: Batch, status: 'applied' | 'unchanged' | 'stale' | 'rejected' = 'applied'): void {
    this.queue.settle(batch, { kind: 'answered', statuses: batch.events.map(() => status) });
  }

  fail(batch: Batch, mayHaveRun = true): void {
    this.queue.settle(batch, { kind: 'failed', mayHaveRun, retryAt: this.now });
  }

  /** Takes and answers what there is, in the form of `told`. */
  drain(): string[] {
    const lines: string[] = [];
    for (this.now += 10_000; ; ) {
      const batch = this.queue.take();
      if (batch === null) return lines;
      lines.push(...told(batch));
      this.answer(batch);
    }
  }
}

function told({ events }: Batch): string[] {
  return events.map(({ type, held, former, isConfirmed, isResync, isStateUnknown }) => {
    const marks = [
      ...(former.length > 0 ? [`former ${former}`] : []),
      ...(isConfirmed ? ['confirm'] : []),
      ...(isResync ? ['resync'] : []),
      ...(isStateUnknown ? ['stateUnknown'] : []),
    ];
    return [type, held.name, ...marks].join(' ');
  });
}

suite('queue', () => {
  test('W10: the newest state of an object is told, the ones before it are counted', () => {
    const rig = new Rig();
    rig.add('web/a');
    rig.add('web/a');
    const newest = rig.add('web/a');
    const batch = rig.take();
    assert.deepEqual(told(batch), ['ADDED a']);
    assert.equal(batch.events[0]?.held, newest);
    assert.deepEqual(rig.queue.coalesced, { merged: 2, unchanged: 0 });
  });

  test('W10: a changed uid keeps the deletion of the old before the new', () => {
    const rig = new Rig();
    rig.add('web/a');
    rig.delete('web/a');
    rig.add('web/a', { uid: 'second' });
    rig.delete('web/a', { uid: 'second' });
    rig.add('web/a', { uid: 'third' });
    const { events } = rig.take();
    assert.deepEqual(
      events.map(({ type, held }) => `${type} ${held.uid}`),
      ['DELETED uid-a', 'DELETED second', 'ADDED third'],
    );
  });

  test('W10: a deletion is told, even of what was never told', () => {
    const rig = new Rig();
    rig.add('web/a');
    rig.delete('web/a');
    assert.deepEqual(told(rig.take()), ['DELETED a']);
  });

  test('W10a: what comes within settleMs leaves together', () => {
    const rig = new Rig();
    rig.add('web/a');
    rig.now += SETTLE_MS - 1;
    rig.add('web/b');
    rig.now += SETTLE_MS - 1;
    assert.equal(rig.queue.take(), null);
    assert.equal(rig.queue.nextAt, rig.now + 1);
    rig.now += 1;
    assert.deepEqual(told(rig.take()), ['ADDED a', 'ADDED b']);
  });

  test('W10a: a service that never settles leaves ten times settleMs after its first change', () => {
    const rig = new Rig();
    rig.add('web/a');
    for (let passed = 0; passed < 10 * SETTLE_MS; passed += 10) {
      assert.equal(rig.queue.take(), null);
      rig.now += 10;
      rig.add('web/a');
    }
    assert.ok(rig.queue.take());
  });

  test('W10a: a service waits for the answer of its former batch, other services do not', () => {
    const rig = new Rig(0);
    rig.add('web/a');
    const first = rig.take();
    rig.add('web/b');
    rig.add('db/c');
    assert.deepEqual(told(rig.take()), ['ADDED c']);
    assert.equal(rig.queue.take(), null);
    rig.answer(first);
    assert.deepEqual(told(rig.take()), ['ADDED b']);
  });

  test('W10a: an object that moved waits for its answer in the former service', () => {
    const rig = new Rig(0);
    rig.add('web/a');
    const first = rig.take();
    rig.add('db/a');
    assert.equal(rig.queue.take(), null);
    rig.answer(first);
    assert.deepEqual(told(rig.take()), ['MODIFIED a former web']);
  });

  test('S10: two services that exchange objects leave in one batch', () => {
    const rig = new Rig();
    rig.add('web/a');
    rig.add('db/b');
    rig.answer(rig.take());
    rig.add('db/a');
    rig.now += SETTLE_MS;
    rig.add('web/b');
    const batch = rig.queue.take();
    assert.ok(batch, 'a has settled, and b goes along');
    assert.deepEqual(told(batch).sort(), ['MODIFIED a former web', 'MODIFIED b former db']);
  });

  test('S10: a stale answer leaves the former service to be told again', () => {
    const rig = new Rig();
    rig.add('web/a');
    rig.answer(rig.take());
    rig.add('db/a');
    rig.answer(rig.take(), 'stale');
    rig.add('db/a');
    assert.deepEqual(told(rig.take()), ['MODIFIED a former web']);
  });

  test('W10: a deletion whose request failed is told before those that came later', () => {
    const rig = new Rig();
    rig.add('web/a');
    rig.delete('web/a');
    const batch = rig.take();
    rig.add('web/a', { uid: 'second' });
    rig.delete('web/a', { uid: 'second' });
    rig.fail(batch);
    assert.deepEqual(
      rig.take().events.map(({ held }) => held.uid),
      ['uid-a', 'second'],
    );
  });

  test("S8: a slice that is nobody's is not told, unless it leaves a service", () => {
    const rig = new Rig();
    rig.add('/a');
    rig.delete('/a');
    assert.equal(rig.queue.nextAt, null);
    rig.add('web/b');
    rig.answer(rig.take());
    rig.add('/b');
    assert.deepEqual(told(rig.take()), ['MODIFIED b former web']);
  });

  test('P5: what may have run is confirmed until an answer that is not stale', () => {
    const rig = new Rig();
    rig.add('web/a');
    rig.fail(rig.take());
    const second = rig.take();
    assert.deepEqual(told(second), ['ADDED a confirm']);
    rig.fail(second, false);
    const third = rig.take();
    assert.deepEqual(told(third), ['ADDED a confirm']);
    rig.answer(third, 'stale');
    rig.add('web/a');
    const fourth = rig.take();
    assert.deepEqual(told(fourth), ['MODIFIED a confirm']);
    rig.answer(fourth);
    rig.add('web/a');
    assert.deepEqual(told(rig.take()), ['MODIFIED a']);
  });

  test('P5: what was throttled did not run and is not confirmed', () => {
    const rig = new Rig();
    rig.add('web/a');
    rig.fail(rig.take(), false);
    assert.deepEqual(told(rig.take()), ['ADDED a']);
  });

  test('a state that differs in its version alone is not told', () => {
    const rig = new Rig();
    rig.add('web/a', { content: Buffer.from('same') });
    rig.answer(rig.take());
    rig.add('web/a', { content: Buffer.from('same') });
    assert.equal(rig.queue.nextAt, null);
    assert.deepEqual(rig.queue.coalesced, { merged: 0, unchanged: 1 });
    rig.add('web/a', { content: Buffer.from('other') });
    assert.deepEqual(told(rig.take()), ['MODIFIED a']);
  });

  for (const status of ['stale', 'rejected'] as const) {
    test(`a state is told again after an answer that was ${status}`, () => {
      const rig = new Rig();
      rig.add('web/a', { content: Buffer.from('same') });
      rig.answer(rig.take(), status);
      rig.add('web/a', { content: Buffer.from('same') });
      assert.deepEqual(told(rig.take()), ['MODIFIED a']);
    });
  }

  test('a Service never leaves without the slices that an inventory has yet to find missing', () => {
    const rig = new Rig();
    rig.cache.replace('EndpointSlice', null, [rig.held('web/a'), rig.held('db/b')]);
    rig.cache.replace('Service', null, [rig.held('web')]);
    rig.add('web');
    assert.deepEqual(told(rig.take()), ['MODIFIED web', 'ADDED a resync']);
  });

  test('a service too large for one batch: slices first, the Service last, one batch at a time', () => {
    const rig = new Rig();
    rig.add('web');
    for (let index = 0; index < 5; index++) rig.add(`web/s${index}`, { size: 400_000 });
    const batches: string[][] = [];
    for (let left = 6; left > 0; left -= batches.at(-1)?.length ?? 0) {
      const batch = rig.take();
      assert.equal(rig.queue.take(), null);
      batches.push(told(batch));
      rig.answer(batch);
    }
    assert.deepEqual(batches.slice(0, 2), [
      ['ADDED s0', 'ADDED s1'],
      ['ADDED s2', 'ADDED s3'],
    ]);
    assert.deepEqual(batches.at(-1)?.sort(), ['ADDED s4', 'ADDED web']);
  });

  test('a batch has at most 20 services', () => {
    const rig = new Rig();
    for (let index = 0; index < 25; index++) rig.add(`s${index}/a${index}`);
    assert.equal(rig.take().services.size, 20);
    assert.equal(rig.take().services.size, 5);
  });

  test('a service that makes its batch fail is alone after five failures', () => {
    const rig = new Rig();
    for (let index = 0; index < 16; index++) rig.add(`s${index}/a${index}`);
    const sizes: number[] = [];
    for (let failures = 0; failures < 6; failures++) {
      rig.now += 10_000;
      for (let batch = rig.queue.take(); batch !== null; batch = rig.queue.take()) {
        if (!batch.services.has('ns/s0' as never)) rig.answer(batch);
        else {
          sizes.push(batch.services.size);
          rig.queue.settle(batch, { kind: 'failed', mayHaveRun: true, retryAt: rig.now + 1 });
        }
      }
    }
    assert.deepEqual([sizes[0], sizes.at(-1)], [16, 1]);
  });

  test('a batch that is too large is halved until it fits', () => {
    const rig = new Rig();
    for (let index = 0; index < 4; index++) rig.add(`web/s${index}`, { size: 200_000 });
    const whole = rig.take();
    assert.equal(whole.events.length, 4);
    rig.queue.settle(whole, { kind: 'tooLarge' });
    assert.deepEqual(told(rig.take()), ['ADDED s0', 'ADDED s1']);
  });

  test('W11: a list takes away what was to be told of an object that is gone', () => {
    const rig = new Rig();
    rig.add('web/a');
    rig.cache.replace('EndpointSlice', null, []);
    rig.now += SETTLE_MS;
    assert.equal(rig.queue.take(), null);
    assert.deepEqual(rig.queue.depth, { waiting: 0, inFlight: 0 });
    assert.equal(rig.queue.oldestAt, null);
  });

  test('P8: a list that takes away an object whose request may still run is quiet only ten seconds later', () => {
    const rig = new Rig();
    rig.add('web/a');
    rig.fail(rig.take());
    rig.cache.replace('EndpointSlice', null, []);
    assert.equal(
      rig.queue.isQuiet(({ name }) => name === 'web'),
      false,
    );
    assert.equal(
      rig.queue.isQuiet(({ name }) => name === 'db'),
      true,
    );
    rig.now += 10_000;
    assert.equal(
      rig.queue.isQuiet(({ name }) => name === 'web'),
      true,
    );
  });

  test('what is held back waits, unless a request with it failed', () => {
    const rig = new Rig();
    rig.add('web/a');
    rig.add('db/b');
    const both = rig.take();
    rig.queue.holdBack(() => true);
    rig.fail(both);
    rig.add('new/c');
    assert.deepEqual(told(rig.take()), ['ADDED a confirm', 'ADDED b confirm']);
    rig.queue.holdBack(null);
    assert.deepEqual(told(rig.take()), ['ADDED c']);
  });

  test('what failed goes on while services are held back, together with those that it is linked with by a move (S10)', () => {
    const rig = new Rig();
    rig.add('web/a');
    rig.answer(rig.take());
    rig.add('db/a');
    const move = rig.take();
    assert.deepEqual(told(move), ['MODIFIED a former web']);
    const all = () => true;
    rig.queue.holdBack(all);
    rig.add('web/b');
    rig.add('new/c');
    rig.fail(move);
    assert.equal(rig.queue.isQuiet(all), false);
    const again = rig.take();
    assert.deepEqual(told(again), ['MODIFIED a former web confirm', 'ADDED b']);
    rig.answer(again);
    assert.equal(rig.queue.isQuiet(all), true);
    assert.equal(rig.queue.take(), null);
  });

  test('memory: nothing is kept of what a deleted object was before, whatever its deletion is answered', () => {
    for (const status of ['applied', 'stale', 'rejected'] as const) {
      const rig = new Rig();
      rig.add('web/a');
      rig.add('db/a');
      const deleted = rig.delete('db/a');
      assert.deepEqual(rig.cache.former(deleted), ['web']);
      rig.answer(rig.take(), status);
      assert.deepEqual(rig.cache.former(deleted), [], status);
    }
  });

  test('memory: nor of one whose deletion is left to a new list', () => {
    const rig = new Rig();
    for (let index = 0; index < 5000; index++) rig.delete(`web/a${index}`);
    rig.add('web/b');
    rig.add('db/b');
    const deleted = rig.delete('db/b');
    assert.equal(rig.queue.takeOverflow(), true);
    assert.deepEqual(rig.cache.former(deleted), []);
  });

  test('memory: deletions beyond the bound are left to a new list', () => {
    const rig = new Rig();
    for (let index = 0; index < 5001; index++) {
      rig.add(`web/a${index}`);
      rig.delete(`web/a${index}`);
    }
    assert.equal(rig.queue.depth.waiting, 5000);
    assert.deepEqual([rig.queue.takeOverflow(), rig.queue.takeOverflow()], [true, false]);
  });
});

/** The cloud as far as membership goes: per service the uids it has, and what it remembers as gone (S45, S10). */
class ModelCloud {
  readonly #services = new Map<
    string,
    Map<string, { readonly version: string; readonly isThere: boolean }>
  >();

  apply({ events }: Batch): void {
    for (const { type, held, former } of events) {
      for (const name of former) this.#record(name, held, false);
      if (held.service !== null) this.#record(held.service, held, type !== 'DELETED');
    }
  }

  members(): string[] {
    return [...this.#services].flatMap(([name, uids]) =>
      [...uids].filter(([, { isThere }]) => isThere).map(([uid, { version }]) => `${name} ${uid} ${version}`),
    );
  }

  #record(name: string, { uid, resourceVersion: version }: Held, isThere: boolean): void {
    const service = this.#services.get(name) ?? new Map();
    this.#services.set(name, service);
    const known = service.get(uid);
    if (known === undefined || compareVersions(known.version, version) <= 0)
      service.set(uid, { version, isThere });
  }
}

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant('put' as const), name: fc.nat(3), service: fc.nat(3) }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('delete' as const), name: fc.nat(3) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('take' as const) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('settle' as const),
      index: fc.nat(3),
      outcome: fc.constantFrom('answered' as const, 'lost' as const, 'ran' as const, 'tooLarge' as const),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.nat(60) }) },
);

test('any history: one batch per service and object, in order, and in the end the cloud has the truth', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const rig = new Rig();
      const cloud = new ModelCloud();
      const inFlight: Batch[] = [];
      const live = new Map<number, Held>();
      const deletedUids = new Set<string>();
      const toldDeletions = new Set<string>();
      /** Newest versions that were answered: what was not is told again from its first event on. */
      const answered = new Map<string, string>();
      let uids = 0;
      const take = () => {
        const batch = rig.queue.take();
        if (batch === null) return null;
        for (const other of inFlight) {
          assert.ok(batch.services.isDisjointFrom(other.services), 'a service is in two batches');
          const others = new Set(other.events.map(({ held }) => objectId(held)));
          assert.ok(
            !batch.events.some(({ held }) => others.has(objectId(held))),
            'an object is in two batches',
          );
        }
        const told = new Map(answered);
        for (const { held } of batch.events) {
          const key = objectId(held);
          assert.ok(compareVersions(told.get(key) ?? '0', held.resourceVersion) <= 0, 'out of order');
          told.set(key, held.resourceVersion);
        }
        inFlight.push(batch);
        return batch;
      };
      const settle = (batch: Batch, outcome: 'answered' | 'lost' | 'ran' | 'tooLarge') => {
        inFlight.splice(inFlight.indexOf(batch), 1);
        if (outcome === 'answered' || outcome === 'ran') cloud.apply(batch);
        if (outcome === 'answered') {
          rig.answer(batch);
          for (const { held } of batch.events) answered.set(objectId(held), held.resourceVersion);
          for (const { type, held } of batch.events) if (type === 'DELETED') toldDeletions.add(held.uid);
        } else if (outcome === 'tooLarge') rig.queue.settle(batch, { kind: 'tooLarge' });
        else rig.fail(batch);
      };
      for (const step of steps) {
        switch (step.do) {
          case 'put': {
            const service = ['', 'web', 'db', 'mq'][step.service] ?? '';
            const uid = live.get(step.name)?.uid ?? `uid-${++uids}`;
            live.set(step.name, rig.add(`${service}/o${step.name}`, { uid }));
            break;
          }
          case 'delete': {
            const held = live.get(step.name);
            if (held === undefined) break;
            live.delete(step.name);
            rig.delete(`${held.service ?? ''}/${held.name}`, { uid: held.uid });
            if (held.service !== null) deletedUids.add(held.uid);
            break;
          }
          case 'take':
            take();
            break;
          case 'settle': {
            const batch = inFlight[step.index];
            if (batch !== undefined) settle(batch, step.outcome);
            break;
          }
          case 'wait':
            rig.now += step.ms;
            break;
          default:
            step satisfies never;
        }
      }
      for (const batch of [...inFlight]) settle(batch, 'lost');
      for (let rounds = 0; rounds < 100; rounds++) {
        rig.now += 1000;
        for (let batch = take(); batch !== null; batch = take()) settle(batch, 'answered');
      }
      const truth = [...live.values()]
        .filter(({ service }) => service !== null)
        .map(({ service, uid, resourceVersion }) => `${service} ${uid} ${resourceVersion}`);
      assert.deepEqual(cloud.members().sort(), truth.sort());
      assert.ok(deletedUids.isSubsetOf(toldDeletions), 'a deletion was not told');
      assert.deepEqual(rig.queue.depth, { waiting: 0, inFlight: 0 });
    }),
    { numRuns: 400 },
  );
});
