import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { INLINE_DELTA_BYTES, packDelta, unpackDelta } from '../../../functions/store/delta-entry.ts';
import { UnknownFormatError } from '../../../functions/store/store.ts';
import { hashKey } from '../../../wire/key-hash.ts';
import { delta } from './arbitraries.ts';
import { address, portDelta } from './builders.ts';
import { START } from './fake-clock.ts';

describe('packed delta', () => {
  it('any delta comes back as it was, former addresses too', () => {
    fc.assert(
      fc.property(delta, (packed) => {
        const unpacked = unpackDelta(packDelta({ delta: packed, committedAt: START }));
        assert.deepEqual(unpacked, { delta: packed, committedAt: START });
      }),
      { numRuns: 300 },
    );
  });

  it('the change of one pod takes some 425 bytes at most, so it stays in the head', () => {
    const pod = (number: number) =>
      address({
        ip: `10.244.17.${number}`,
        node: `ip-10-${number}-3-77.eu-central-1.compute.internal`,
        zone: 'eu-central-1a',
        target: { kind: 'Pod', namespace: 'checkout-production', name: `checkout-7d9f8b6c5d-x2x4${number}` },
        owner: { kind: 'Deployment', name: 'checkout' },
      });
    const removed = [{ address: pod(8), reason: 'terminating' } as const];
    const rolled = portDelta({ added: [pod(7)], removed, digest: hashKey('any') });
    const bytes = packDelta({ delta: rolled, committedAt: START }).byteLength;
    assert.ok(bytes <= 425 && bytes <= INLINE_DELTA_BYTES, `${bytes} bytes`);
  });

  it('what a later release packed is not read', () => {
    const packed = packDelta({ delta: portDelta(), committedAt: START });
    packed[0] = 2;
    assert.throws(() => unpackDelta(packed), UnknownFormatError);
  });
});
