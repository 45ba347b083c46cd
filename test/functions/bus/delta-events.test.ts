import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Address } from '../../../core/address.ts';
import type { PortDelta } from '../../../core/delta.ts';
import { type BusEntry, entryBytes } from '../../../functions/bus/bus.ts';
import { toBusEntries } from '../../../functions/bus/delta-events.ts';
import { formatAddress } from '../../../wire/address.ts';
import { DEFAULT_CALL_BYTES, type DeltaDetail, deltaDetail } from '../../../wire/delta.ts';
import { address, portDelta, serviceKey } from '../store/builders.ts';
import { START } from '../store/fake-clock.ts';

const KEY = serviceKey('prod-eu');
const GROUP = 'prod-eu/default/web:80';

describe('bus entries of a delta', () => {
  it('a small one is one entry, as the contract has it', () => {
    const added = [address({ ip: '10.0.0.1' })];
    const [entry, ...others] = entriesOf(portDelta({ added }));
    assert.equal(others.length, 0);
    assert.deepEqual([entry?.detailType, entry?.resources], ['EndpointsChanged', [GROUP]]);
    const detail = detailOf(entry);
    assert.deepEqual(detail.added, added.map(formatAddress));
    assert.deepEqual([detail.id, detail.group, detail.part], [`${GROUP}#42`, GROUP, undefined]);
    assert.equal(detail.committedAt, '2026-11-30T10:00:00.000Z');
  });

  it('an empty set makes a NoEndpoints, another protocol shows in the resource', () => {
    const [entry] = entriesOf(portDelta({ size: 0, protocol: 'UDP' }));
    assert.deepEqual([entry?.detailType, entry?.resources], ['NoEndpoints', [`${GROUP}/UDP`]]);
  });

  it('a large one is cut into parts that lose nothing', () => {
    const delta = portDelta({
      added: addresses(1900, 0),
      updated: addresses(400, 1).map((it) => ({ address: it, former: { ...it, zone: 'b' } })),
      removed: addresses(700, 2).map((it) => ({ address: it, reason: 'gone' as const })),
    });
    for (const maxEntryBytes of [5_000, 50_000, DEFAULT_CALL_BYTES]) {
      const entries = entriesOf(delta, maxEntryBytes);
      const details = entries.map(detailOf);
      assert.ok(entries.length > 1);
      assert.ok(entries.every((entry) => entryBytes(entry) <= maxEntryBytes));
      assert.deepEqual(
        details.map(({ id, part, sequence }) => ({ id, part, sequence })),
        details.map((_, index) => ({
          id: `${GROUP}#42/${index}`,
          part: { index, count: details.length },
          sequence: 42,
        })),
      );
      const all = <K extends 'added' | 'updated' | 'removed'>(list: K) =>
        details.flatMap((it) => [...it[list]]);
      assert.deepEqual(all('added'), delta.added.map(formatAddress));
      assert.deepEqual(
        all('updated'),
        delta.updated.map((it) => formatAddress(it.address)),
      );
      assert.deepEqual(
        all('removed'),
        delta.removed.map(({ address: { ip, port }, reason }) => ({ ip, port, reason })),
      );
      assert.deepEqual(entriesOf(delta, maxEntryBytes), entries);
    }
  });

  it('an entry of exactly the largest size stays whole; one byte less cuts it', () => {
    const delta = portDelta({ added: addresses(3, 0) });
    const [whole] = entriesOf(delta);
    assert.ok(whole !== undefined);
    assert.equal(entriesOf(delta, entryBytes(whole)).length, 1);
    assert.equal(entriesOf(delta, entryBytes(whole) - 1).length, 2);
  });

  it('an address that no entry can hold gets one of its own', () => {
    const giant = address({ ip: '10.9.9.9', node: 'n'.repeat(5000) });
    const small = addresses(2, 0);
    const entries = entriesOf(portDelta({ added: [small[0] ?? giant, giant, small[1] ?? giant] }), 2000);
    assert.deepEqual(
      entries.map((entry) => detailOf(entry).added.length),
      [1, 1, 1],
    );
    assert.equal(entriesOf(portDelta({ added: [giant] }), 2000).length, 1);
  });
});

function entriesOf(delta: PortDelta, maxEntryBytes = DEFAULT_CALL_BYTES): BusEntry[] {
  return toBusEntries({ key: KEY, delta, committedAt: START }, maxEntryBytes);
}

/** The detail, which must be as the contract says. */
function detailOf(entry: BusEntry | undefined): DeltaDetail {
  return deltaDetail.parse(JSON.parse(entry?.detail ?? ''));
}

function addresses(count: number, net: number): Address[] {
  return Array.from({ length: count }, (_, index) =>
    address({
      ip: `10.${net}.${index >> 8}.${index & 255}`,
      node: `knoten-ä-${index}.example.com`,
      target: { kind: 'Pod', namespace: 'default', name: `web-${index}` },
    }),
  );
}
