import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { EpochMs } from '../../../core/time.ts';
import { type ServiceChanges, sortEvents } from '../../../functions/ingest/intake.ts';
import { orderMoves } from '../../../functions/ingest/move-order.ts';
import { service, slice } from '../../core/builders.ts';

/** A slice that is now in one service and was in others. */
const move = (name: string, to: string | null, ...former: string[]) => ({
  type: 'MODIFIED',
  object: slice(name, [], { service: to }),
  former,
});

function sort(events: readonly unknown[]): readonly ServiceChanges[] {
  return sortEvents(events, { mode: 'slices', epoch: 1, receivedAt: 0 as EpochMs }).services;
}

/** Each wave's services with the events that they have a part in: `-` leaves, `+` joins. */
function waves(...events: readonly unknown[]): string[] {
  return orderMoves(sort(events)).map((wave) =>
    wave
      .map(({ place, changes }) => {
        const each = changes.map(({ kind, index }) => `${kind === 'leave' ? '-' : '+'}${index}`);
        return `${place.name}(${each.join(' ')})`;
      })
      .sort()
      .join(' '),
  );
}

describe('a slice leaves before it joins (S10)', () => {
  const cases: Readonly<Record<string, readonly [came: string[], want: string[]]>> = {
    'nothing is nothing': [waves(), []],
    'without moves all services go together': [
      waves(move('a', 'web'), move('b', 'api'), { type: 'ADDED', object: service() }),
      ['api(+1) web(+0 +2)'],
    ],
    'the former service first': [waves(move('a', 'web', 'api')), ['api(-0)', 'web(+0)']],
    'all former services together': [waves(move('a', 'web', 'api', 'old')), ['api(-0) old(-0)', 'web(+0)']],
    'services that have no part in it do not wait': [
      waves(move('a', 'web', 'api'), move('b', 'db')),
      ['api(-0) db(+1)', 'web(+0)'],
    ],
    'a chain goes from its end': [
      waves(move('a', 'one', 'two'), move('b', 'two', 'three'), move('c', 'three', 'four')),
      ['four(-2)', 'three(-1 +2)', 'two(-0 +1)', 'one(+0)'],
    ],
    'a circle is opened by one leave on its own': [
      waves(move('a', 'one', 'two'), move('b', 'two', 'one')),
      ['two(-0)', 'one(+0 -1)', 'two(+1)'],
    ],
    'so is a circle of three': [
      waves(move('a', 'one', 'two'), move('b', 'two', 'three'), move('c', 'three', 'one')),
      ['two(-0)', 'one(+0 -2)', 'three(-1 +2)', 'two(+1)'],
    ],
    'what stands before a circle goes first': [
      waves(move('a', 'one', 'two'), move('b', 'two', 'one'), move('c', null, 'db')),
      ['db(-2)', 'two(-0)', 'one(+0 -1)', 'two(+1)'],
    ],
    'who waits for a circle does not open it': [
      waves(move('p', 'db'), move('x', 'db', 'one'), move('a', 'one', 'two'), move('b', 'two', 'one')),
      ['one(-1 -3)', 'db(+0 +1) two(-2 +3)', 'one(+2)'],
    ],
    "a slice that is nobody's only leaves": [waves(move('a', null, 'web')), ['web(-0)']],
  };
  for (const [sentence, [came, want]] of Object.entries(cases))
    test(sentence, () => assert.deepEqual(came, want));
});

test('whatever moves, nothing is lost, and no join comes before a leave of its event', () => {
  const name = fc.constantFrom('one', 'two', 'three', 'four');
  const event = fc
    .tuple(name, fc.array(name, { maxLength: 2 }))
    .map(([to, former]) => move('a', to, ...former));
  fc.assert(
    fc.property(fc.array(event, { maxLength: 8 }), (events) => {
      const services = sort(events);
      const order = orderMoves(services);
      const flat = (list: readonly ServiceChanges[]) => list.flatMap(({ changes }) => changes);
      assert.deepEqual(new Set(flat(order.flat())), new Set(flat(services)));
      assert.equal(flat(order.flat()).length, flat(services).length);
      const joined = new Set<number>();
      for (const wave of order) {
        const kinds = flat(wave);
        for (const { kind, index } of kinds)
          assert(kind !== 'leave' || !joined.has(index), `event ${index} leaves after it joined`);
        for (const { kind, index } of kinds) if (kind !== 'leave') joined.add(index);
        for (const { changes } of wave)
          for (const { kind, index } of changes)
            if (kind !== 'leave')
              assert(
                wave.every(
                  (other) =>
                    other.changes === changes ||
                    !other.changes.some((one) => one.kind === 'leave' && one.index === index),
                ),
                `event ${index} leaves while it joins`,
              );
      }
    }),
  );
});
