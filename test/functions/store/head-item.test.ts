import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import type { AttributeValue } from '@aws-sdk/client-dynamodb';
import fc from 'fast-check';
import type { EpochMs } from '../../../core/time.ts';
import { fromHeadItem, HEAD, type Item, toHeadItem } from '../../../functions/store/head-item.ts';
import { anyHead } from './arbitraries.ts';
import { chunkName, HTTP, head, inlineEntry, portState, serviceKey, storedObject } from './builders.ts';
import { START } from './fake-clock.ts';
import { randomFrom } from './seeded-random.ts';

const KEY = serviceKey('prod-eu');
const BY = new Uint8Array(8);

describe('head item', () => {
  it('any head comes back as it was', () => {
    fc.assert(
      fc.property(anyHead, (written) => {
        assert.deepEqual(fromHeadItem(KEY, toHeadItem(KEY, written, BY)), written);
      }),
      { numRuns: 300 },
    );
  });

  it('garbage becomes older by no more than a second, never younger than it is', () => {
    const garbage = [{ chunk: chunkName('u', 1), at: 1001 as EpochMs }];
    assert.equal(fromHeadItem(KEY, toHeadItem(KEY, head({ garbage }), BY)).garbage[0]?.at, 2000);
  });

  it('it shares no memory with the item it came from', () => {
    const body = { kind: 'inline', parts: [Uint8Array.of(1)] } as const;
    const written = head({ objects: [storedObject({ body })], pending: [inlineEntry(1)] });
    const item = toHeadItem(KEY, written, BY);
    const read = fromHeadItem(KEY, item);
    for (const attribute of [item[HEAD.inlineBodies], item[HEAD.pending]?.L?.[0]?.L?.[2]])
      attribute?.B?.fill(9);
    assert.deepEqual(read.objects[0]?.body, { kind: 'inline', parts: [Uint8Array.of(1)] });
    assert.notDeepEqual(read.pending[0]?.body, { kind: 'inline', bytes: Uint8Array.of(9, 9, 9) });
  });

  it('only a listed service has the keys of the index', () => {
    const keysOf = (isListed: boolean) => {
      const item = toHeadItem(KEY, head({ isListed }), BY);
      return [item[HEAD.cluster]?.S, item[HEAD.name]?.S];
    };
    assert.deepEqual(keysOf(true), ['prod-eu', 'default#web']);
    assert.deepEqual(keysOf(false), [undefined, undefined]);
  });

  it('500 objects in chunks take 14.5 KB', () => {
    const random = randomFrom(1);
    const alphabet = 'bcdfghjklmnpqrstvwxz2456789';
    const suffix = () => Array.from({ length: 5 }, () => alphabet[random(alphabet.length)]).join('');
    const objects = Array.from({ length: 500 }, () => {
      const uid = randomUUID();
      return storedObject({
        uid,
        name: `web-${suffix()}`,
        version: `${184_000_000 + random(1_000_000)}`,
        count: 80 + random(21),
        body: { kind: 'chunks', names: [chunkName(uid, randomBytes(4).readUInt32BE())] },
      });
    });
    const bytes = toHeadItem(KEY, head({ objects }), BY)[HEAD.objects]?.B?.byteLength ?? 0;
    assert.ok(bytes <= 14.5 * 1024, `${bytes} bytes`);
  });

  it('a service of one chunk with a pending delta fits into one write unit', () => {
    const pending = [{ ...inlineEntry(1), body: { kind: 'inline', bytes: new Uint8Array(425) } } as const];
    const garbage = [{ chunk: chunkName(randomUUID(), 7), at: START }];
    const ports = new Map([[HTTP, portState({ sequence: 4211, size: 100, digest: 2n ** 255n })]]);
    const records = { ports };
    const item = toHeadItem(KEY, head({ objects: [storedObject()], pending, garbage, records }), BY);
    const size = itemBytes({ pk: { S: 'prod-eu/default/web' }, sk: { S: 'HEAD' }, ...item });
    assert.ok(size <= 1024, `${size} bytes`);
  });
});

/** Size of an item. Source: DynamoDB, item sizes and formats. */
function itemBytes(item: Item): number {
  const attributes = Object.entries(item);
  return attributes.reduce((sum, [name, value]) => sum + Buffer.byteLength(name) + valueBytes(value), 0);
}

function valueBytes({ S, N, B, L }: AttributeValue): number {
  if (S !== undefined) return Buffer.byteLength(S);
  if (N !== undefined) return Math.ceil(N.length / 2) + 1;
  if (B !== undefined) return B.byteLength;
  return (L ?? []).reduce((sum, value) => sum + 1 + valueBytes(value), 3);
}
