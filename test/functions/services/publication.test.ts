import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { PortId } from '../../../core/service-port.ts';
import type { EpochMs } from '../../../core/time.ts';
import { type Bus, BusUnavailableError, type PublishResult } from '../../../functions/bus/bus.ts';
import { type Publisher, publish } from '../../../functions/services/publication.ts';
import { ServiceRepository } from '../../../functions/services/repository.ts';
import { packDelta } from '../../../functions/store/delta-entry.ts';
import type { DeltaEntry } from '../../../functions/store/store.ts';
import { type Sweeper, sweepAlone } from '../../../functions/sweep/sweep.ts';
import { createLogger } from '../../../wire/log.ts';
import { address, clusterRecord, HTTP, head, portDelta, portState, serviceKey } from '../store/builders.ts';
import { FakeClock, START } from '../store/fake-clock.ts';
import { MemoryStore } from '../store/memory-store.ts';

const KEY = serviceKey('prod-eu');
const GROUP = 'prod-eu/default/web:80';
const DAY_MS = 24 * 3_600_000;
const HISTORY_MS = 7 * DAY_MS;
const NO_FENCE = { deadline: Number.POSITIVE_INFINITY };

const FINAL: PublishResult = { kind: 'refused', code: 'InvalidArgument', isFinal: true };
const FOR_NOW: PublishResult = { kind: 'refused', code: 'ThrottlingException', isFinal: false };

/** A store, and a bus that refuses some ids; null: it is away. */
class World {
  readonly clock = new FakeClock();
  readonly store = new MemoryStore(this.clock);
  refusals: ReadonlyMap<string, PublishResult> | null = new Map();
  /** Ids that the bus took, in order. */
  readonly taken: string[] = [];

  readonly bus: Bus = {
    publish: async (entries) => {
      const { refusals } = this;
      if (refusals === null) throw new BusUnavailableError('away');
      return entries.map(({ detail }) => {
        const { id } = JSON.parse(detail) as { readonly id: string };
        const refusal = refusals.get(id);
        if (refusal === undefined) this.taken.push(id);
        return refusal ?? { kind: 'accepted' };
      });
    },
    describe: async () => true,
  };

  /** A function instance that knows nothing yet. */
  instance(maxEntryBytes = 240_000): Sweeper {
    const { clock, store, bus } = this;
    const log = createLogger({ level: 'error', clock, write: (line) => assert.fail(line) });
    const repository = new ServiceRepository(store);
    const pause = async () => {};
    return {
      store,
      bus,
      repository,
      clock,
      historyMs: HISTORY_MS,
      maxEntryBytes,
      pause,
      log,
      collected: new Set(),
    };
  }

  /** Sequences of a port that have a receipt, the dead ones marked. */
  async receipts(port = HTTP): Promise<string[]> {
    const receipts = await this.store.listReceipts(KEY, port, 0, 100);
    return receipts.map(({ entry, isDead }) => `${entry.sequence}${isDead ? ' dead' : ''}`);
  }

  /** Deletes what has expired, as DynamoDB does in the end. */
  expire(): void {
    const snapshot = this.store.snapshot();
    const isOver = (at: EpochMs | null) => at !== null && at <= this.clock.now();
    this.store.restore({
      ...snapshot,
      receipts: new Map([...snapshot.receipts].filter(([, { receipt }]) => !isOver(receipt.expiresAt))),
      bodies: new Map([...snapshot.bodies].filter(([, { expiresAt }]) => !isOver(expiresAt))),
    });
  }
}

function entry(sequence: number, port = 80): DeltaEntry {
  const bytes = packDelta({ delta: portDelta({ port, sequence, added: addresses(1) }), committedAt: START });
  return { port: `${port}` as PortId, sequence, body: { kind: 'inline', bytes } };
}

function addresses(count: number) {
  return Array.from({ length: count }, (_, index) => address({ ip: `10.0.0.${index + 1}` }));
}

const publishAll = (publisher: Publisher, ...entries: readonly DeltaEntry[]) =>
  publish(publisher, [{ key: KEY, entries }]);

describe('publishing', () => {
  it('puts a receipt for each delta that the bus took, in one call', async () => {
    const world = new World();
    assert.equal(await publishAll(world.instance(), entry(1), entry(2), entry(1, 81)), 3);
    assert.deepEqual(world.taken, [`${GROUP}#1`, `${GROUP}#2`, 'prod-eu/default/web:81#1']);
    assert.deepEqual(await world.receipts(), ['1', '2']);
  });

  it('puts no receipt behind one that waits in its port; other ports go on (P1)', async () => {
    const world = new World();
    world.refusals = new Map([[`${GROUP}#2`, FOR_NOW]]);
    const entries = [entry(1), entry(2), entry(3), entry(1, 81)];
    await assert.rejects(publishAll(world.instance(), ...entries), BusUnavailableError);
    assert.deepEqual(await world.receipts(), ['1']);
    assert.deepEqual(await world.receipts('81' as PortId), ['1']);
  });

  it('puts a dead receipt for what is refused for good, and goes on behind it', async () => {
    const world = new World();
    world.refusals = new Map([[`${GROUP}#2`, FINAL]]);
    assert.equal(await publishAll(world.instance(), entry(1), entry(2), entry(3)), 3);
    assert.deepEqual(await world.receipts(), ['1', '2 dead', '3']);
    assert.deepEqual(await world.store.listDeadLetters(9), [{ key: KEY, port: HTTP, sequence: 2 }]);
  });

  it('puts no dead receipt behind one that waits', async () => {
    const world = new World();
    world.refusals = new Map([
      [`${GROUP}#1`, FOR_NOW],
      [`${GROUP}#2`, FINAL],
    ]);
    await assert.rejects(publishAll(world.instance(), entry(1), entry(2)), BusUnavailableError);
    assert.deepEqual(await world.receipts(), []);
    assert.deepEqual(await world.store.listDeadLetters(9), []);
  });

  const split: Readonly<Record<string, readonly [refusals: readonly PublishResult[], want: string[]]>> = {
    'of a split delta one part is refused for good: it is dead': [[FINAL], ['1 dead']],
    'one part is refused for good and another for now: it waits': [[FINAL, FOR_NOW], []],
    'one part waits: it waits, whatever was taken': [[FOR_NOW], []],
  };
  for (const [sentence, [refusals, want]] of Object.entries(split))
    it(sentence, async () => {
      const world = new World();
      const delta = portDelta({ sequence: 1, added: addresses(40) });
      const bytes = packDelta({ delta, committedAt: START });
      world.refusals = new Map(refusals.map((refusal, index) => [`${GROUP}#1/${index + 1}`, refusal]));
      const whole: DeltaEntry = { port: HTTP, sequence: 1, body: { kind: 'inline', bytes } };
      await publishAll(world.instance(2000), whole).catch((error) =>
        assert(error instanceof BusUnavailableError),
      );
      assert.deepEqual(await world.receipts(), want);
      assert.ok(world.taken.includes(`${GROUP}#1/0`));
    });

  it('puts no receipt when nothing is known of what was sent', async () => {
    const world = new World();
    world.refusals = null;
    await assert.rejects(publishAll(world.instance(), entry(1)), BusUnavailableError);
    assert.deepEqual(await world.receipts(), []);
  });

  it('knows that a body which has expired was published: it leaves the head, though its receipt is gone too', async () => {
    const world = new World();
    const { store, clock } = world;
    const bytes = packDelta({ delta: portDelta({ sequence: 1, added: addresses(3) }), committedAt: START });
    await store.putBody(KEY, 'b1', 0, bytes);
    const pending: DeltaEntry[] = [
      { port: HTTP, sequence: 1, body: { kind: 'stored', name: 'b1', parts: 1 } },
    ];
    const ports = new Map([[HTTP, portState({ sequence: 1 })]]);
    await store.putCluster(clusterRecord(KEY.cluster), null);
    await store.commit(KEY, head({ pending, records: { ports } }), NO_FENCE);
    assert.equal(await publishAll(world.instance(), ...pending), 1);

    // No sweep for longer than the history is kept.
    clock.advance(HISTORY_MS + DAY_MS);
    world.expire();
    const sweeper = world.instance();
    assert.equal((await sweepAlone(sweeper))?.published, 0);
    assert.deepEqual((await store.getHead(KEY))?.pending, []);
    assert.deepEqual(world.taken, [`${GROUP}#1`]);
  });
});
