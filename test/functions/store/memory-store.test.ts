import assert from 'node:assert/strict';
import { it } from 'node:test';
import { head, serviceKey } from './builders.ts';
import { FakeClock } from './fake-clock.ts';
import { MemoryStore } from './memory-store.ts';
import { describeStore } from './store-contract.ts';

describeStore('MemoryStore', async () => {
  const clock = new FakeClock();
  return { store: new MemoryStore(clock), clock, [Symbol.asyncDispose]: async () => {} };
});

it('a snapshot is not touched by later writes, and can be restored more than once', async () => {
  const store = new MemoryStore(new FakeClock());
  const key = serviceKey('prod');
  const fence = { deadline: Number.POSITIVE_INFINITY };
  await store.commit(key, head(), fence);
  const snapshot = store.snapshot();
  for (let round = 0; round < 2; round++) {
    assert.deepEqual(await store.commit(key, head({ version: 2 }), fence), { kind: 'committed' });
    store.restore(snapshot);
    assert.equal((await store.getHead(key))?.version, 1);
  }
});
