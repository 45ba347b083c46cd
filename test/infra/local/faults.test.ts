import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createFaults, withFaults } from '../../../infra/local/faults.ts';
import { startChild } from './child.ts';

/** A port with private state, as a class has it. */
class Store {
  #rows: string[] = [];
  readonly name = 'store';

  async commit(row: string): Promise<number> {
    return this.#rows.push(row);
  }

  async putChunk(row: string): Promise<void> {
    await this.commit(row);
  }

  rows(): readonly string[] {
    return this.#rows;
  }
}

class ThrottledError extends Error {}
const effects = { throttled: () => new ThrottledError('throttled') };
const points = { 'store.commit': 'commit', 'store.putChunk': 'putChunk' } as const;

function faultyStore(...faults: object[]) {
  const state = createFaults();
  assert.deepEqual(state.put({ faults }), { kind: 'ok' });
  return { state, store: withFaults(new Store(), state, points, effects) };
}

/** What each of some calls in a row came to. */
async function outcomes(store: Store, calls: number): Promise<string[]> {
  const found: string[] = [];
  for (let i = 0; i < calls; i++)
    found.push(
      await store.commit(`row ${i}`).then(
        () => 'done',
        (error: Error) => (error instanceof ThrottledError ? 'throttled' : error.message),
      ),
    );
  return found;
}

describe('faults', () => {
  it('leave a port as it is while there are none', async () => {
    const { store } = faultyStore();
    assert.equal(await store.commit('a'), 1);
    assert.deepEqual([store.name, store.rows(), store instanceof Store], ['store', ['a'], true]);
  });

  it('before a call keep it from happening', async () => {
    const { store } = faultyStore({ on: 'store.commit', when: 'before', do: 'error', skip: 0, times: 1 });
    assert.deepEqual(await outcomes(store, 2), ['fault before store.commit', 'done']);
    assert.deepEqual(store.rows(), ['row 1']);
  });

  it('after a call lose its answer, not its effect', async () => {
    const { store } = faultyStore({ on: 'store.commit', when: 'after', do: 'error' });
    assert.deepEqual(await outcomes(store, 2), ['fault after store.commit', 'done']);
    assert.deepEqual(store.rows(), ['row 0', 'row 1']);
  });

  it('throttle with the error that the port throws when it is throttled', async () => {
    const { store } = faultyStore({ on: 'store.commit', when: 'before', do: 'throttle' });
    assert.deepEqual(await outcomes(store, 2), ['throttled', 'done']);
  });

  it('let skip calls through, then fail times calls', async () => {
    const { store } = faultyStore({ on: 'store.commit', when: 'before', do: 'throttle', skip: 2, times: 2 });
    assert.deepEqual(await outcomes(store, 6), ['done', 'done', 'throttled', 'throttled', 'done', 'done']);
  });

  it('of one point each count all its calls; the first that is due wins', async () => {
    const { store } = faultyStore(
      { on: 'store.commit', when: 'before', do: 'throttle', times: 2 },
      { on: 'store.commit', when: 'before', do: 'error', skip: 1, times: 2 },
      { on: 'store.putChunk', when: 'before', do: 'error', times: 100 },
    );
    assert.deepEqual(await outcomes(store, 4), [
      'throttled',
      'throttled',
      'fault before store.commit',
      'done',
    ]);
  });

  it('do not touch calls that a port makes of its own methods', async () => {
    const { store } = faultyStore({ on: 'store.commit', when: 'before', do: 'error', times: 100 });
    await store.putChunk('chunk');
    assert.deepEqual(store.rows(), ['chunk']);
  });

  it('are replaced by those put later, and count anew', async () => {
    const { state, store } = faultyStore({ on: 'store.commit', when: 'before', do: 'error', times: 100 });
    assert.deepEqual(await outcomes(store, 1), ['fault before store.commit']);
    state.put({ faults: [{ on: 'store.commit', when: 'before', do: 'throttle', skip: 1 }] });
    assert.deepEqual(await outcomes(store, 3), ['done', 'throttled', 'done']);
    state.put({ faults: [] });
    assert.deepEqual(await outcomes(store, 1), ['done']);
  });

  it('that are wrong leave those in force', async () => {
    const { state, store } = faultyStore({ on: 'store.commit', when: 'before', do: 'throttle' });
    assert.equal(state.put({ faults: [{ on: 'nowhere', do: 'error' }] }).kind, 'invalid');
    assert.deepEqual(await outcomes(store, 1), ['throttled']);
  });

  it('partial hands over the call and what it was called with', async () => {
    const sent: string[][] = [];
    const bus = {
      async publish(entries: string[]): Promise<boolean[]> {
        sent.push(entries);
        return entries.map(() => true);
      },
    };
    const state = createFaults();
    state.put({ faults: [{ on: 'bus.publish', when: 'after', do: 'partial' }] });
    const faulty = withFaults(
      bus,
      state,
      { 'bus.publish': 'publish' },
      {
        ...effects,
        async partial(call, [entries]) {
          const list = entries as string[];
          const half = Math.ceil(list.length / 2);
          const answers = (await call(list.slice(0, half))) as boolean[];
          return [...answers, ...list.slice(half).map(() => false)];
        },
      },
    );
    assert.deepEqual(await faulty.publish(['a', 'b', 'c']), [true, true, false]);
    assert.deepEqual(await faulty.publish(['c']), [true]);
    assert.deepEqual(sent, [['a', 'b'], ['c']]);
  });

  for (const [when, rows] of [
    ['before', '0'],
    ['after', '1'],
  ] as const)
    it(`exit ${when} a call ends the process at once, as a kill does`, async () => {
      await using child = await startChild(
        `import { createFaults, withFaults } from '${import.meta.resolve('../../../infra/local/faults.ts')}';
         import { writeSync } from 'node:fs';
         const rows = [];
         const port = { async commit() { rows.push(1); } };
         const faults = createFaults();
         faults.put({ faults: [{ on: 'store.commit', when: process.argv[1], do: 'exit' }] });
         const store = withFaults(port, faults, { 'store.commit': 'commit' }, { throttled: Error });
         process.on('exit', () => writeSync(1, rows.length + '\\n'));
         try { await store.commit(); } finally { writeSync(1, 'went on\\n'); }`,
        when,
      );
      assert.deepEqual([child.line, await child.ended], [rows, 137]);
    });

  const refused: Readonly<Record<string, readonly [body: unknown, message: RegExp]>> = {
    'no body': [undefined, /^body: required/],
    'no list': [{}, /^faults: required/],
    'an unknown point': [
      { faults: [{ on: 'store.get', do: 'error' }] },
      /^faults\[0\]\.on: must be "store\.putChunk" or/,
    ],
    'an unknown action': [
      { faults: [{ on: 'store.commit', do: 'explode' }] },
      /^faults\[0\]\.do: must be "exit" or/,
    ],
    'no action': [{ faults: [{ on: 'store.commit' }] }, /^faults\[0\]\.do: /],
    'an unknown when': [
      { faults: [{ on: 'store.commit', do: 'error', when: 'during' }] },
      /^faults\[0\]\.when: must be/,
    ],
    'a negative skip': [
      { faults: [{ on: 'store.commit', do: 'error', skip: -1 }] },
      /^faults\[0\]\.skip: .*at least 0/,
    ],
    'times of none': [
      { faults: [{ on: 'store.commit', do: 'error', times: 0 }] },
      /^faults\[0\]\.times: .*at least 1/,
    ],
    'half a time': [
      { faults: [{ on: 'store.commit', do: 'error', times: 1.5 }] },
      /^faults\[0\]\.times: must be an integer/,
    ],
    'a partial write': [
      {
        faults: [
          { on: 'bus.publish', do: 'error' },
          { on: 'store.commit', do: 'partial' },
        ],
      },
      /^faults\[1\]\.do: may be "partial" on "bus\.publish" only/,
    ],
    'a misspelt field': [
      { faults: [{ on: 'store.commit', do: 'error', time: 3 }] },
      /^faults\[0\]: has no field time$/,
    ],
    'more than a hundred': [
      { faults: Array.from({ length: 101 }, () => ({ on: 'store.commit', do: 'error' })) },
      /^faults: must have at most 100/,
    ],
  };
  for (const [name, [body, message]] of Object.entries(refused))
    it(`${name} is invalid, and the field is named`, () => {
      const result = createFaults().put(body);
      assert.equal(result.kind, 'invalid');
      if (result.kind === 'invalid') assert.match(result.message, message);
    });
});
