import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { type Bus, type BusEntry, BusUnavailableError } from '../../../functions/bus/bus.ts';

/** A bus, and what it is not. */
export interface BusFixture extends AsyncDisposable {
  readonly bus: Bus;
  /** One that does not exist. */
  readonly missing: Bus;
  /** One that cannot be reached. */
  readonly away: Bus;
  /** Details of what the bus accepted, in order. */
  published(): Promise<readonly unknown[]>;
}

/** An entry about one port; a case names only what it is about. */
export function busEntry(part: Partial<BusEntry> = {}): BusEntry {
  return { detailType: 'EndpointsChanged', resources: ['prod/default/web:80'], detail: '{}', ...part };
}

/** What every bus promises. */
export function describeBus(name: string, open: () => Promise<BusFixture>): void {
  describe(name, () => {
    let fixture: BusFixture;
    before(async () => {
      fixture = await open();
    });
    after(() => fixture[Symbol.asyncDispose]());

    it('nothing to publish needs no bus', async () => {
      assert.deepEqual(await fixture.away.publish([]), []);
    });

    it('any number of entries is accepted, each once', async () => {
      const entries = Array.from({ length: 37 }, (_, index) =>
        busEntry({ detail: JSON.stringify({ index }) }),
      );
      const results = await fixture.bus.publish(entries);
      assert.deepEqual(
        results,
        entries.map(() => ({ kind: 'accepted' })),
      );
      assert.deepEqual(
        await fixture.published(),
        entries.map((_, index) => ({ index })),
      );
    });

    it('a bad entry is refused for good, alone', async () => {
      const results = await fixture.bus.publish([
        busEntry({ detail: '{"good":1}' }),
        busEntry({ detail: 'no JSON' }),
        busEntry({ detail: JSON.stringify('x'.repeat(2_000_000)) }),
        busEntry({ detail: '{"good":2}' }),
      ]);
      assert.deepEqual(results, [
        { kind: 'accepted' },
        { kind: 'refused', code: 'MalformedDetail', isFinal: true },
        { kind: 'refused', code: 'EntryTooLarge', isFinal: true },
        { kind: 'accepted' },
      ]);
      assert.deepEqual((await fixture.published()).slice(-2), [{ good: 1 }, { good: 2 }]);
    });

    it('a missing bus is told, and refuses for now', async () => {
      assert.equal(await fixture.bus.describe(), true);
      assert.equal(await fixture.missing.describe(), false);
      const [result] = await fixture.missing.publish([busEntry()]);
      assert.equal(result?.kind === 'refused' && !result.isFinal, true);
    });

    it('a bus out of reach is unavailable', async () => {
      await assert.rejects(fixture.away.publish([busEntry()]), BusUnavailableError);
      await assert.rejects(fixture.away.describe(), BusUnavailableError);
    });
  });
}
