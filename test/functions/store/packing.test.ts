import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { compareText } from '../../../core/address.ts';
import { type EndpointContent, equalContents } from '../../../core/endpoint-object.ts';
import {
  ipsOfParts,
  packParts,
  partCountFor,
  splitContent,
  unpackParts,
} from '../../../functions/store/packing.ts';
import { UnknownFormatError } from '../../../functions/store/store.ts';
import { content } from './arbitraries.ts';
import { endpoint, sliceContent } from './builders.ts';
import { randomFrom } from './seeded-random.ts';

describe('packing', () => {
  it('any content comes back to the letter, in any number of parts', () => {
    fc.assert(
      fc.property(content, fc.integer({ min: 1, max: 5 }), (packed, partCount) => {
        const parts = packParts(packed, partCount);
        assert.equal(parts.length, partCount);
        assert.equal(JSON.stringify(unpackParts(parts)), JSON.stringify(packed));
        const ips = packed.groups.flatMap(({ endpoints }) => endpoints.map(({ ip }) => ip));
        assert.deepEqual(ipsOfParts(parts).sort(), ips.sort());
      }),
      { numRuns: 300 },
    );
  });

  it('a content is whole when only the parts whose share changed are packed anew', () => {
    fc.assert(
      fc.property(content, content, fc.integer({ min: 1, max: 4 }), (before, after, partCount) => {
        const mixed = mix(before, after);
        const former = packParts(before, partCount);
        const formerShares = splitContent(before, partCount);
        const packed = packParts(mixed, partCount);
        const parts = splitContent(mixed, partCount).map((share, index) => {
          const formerShare = formerShares[index];
          const isKept = formerShare !== undefined && equalContents(share, formerShare);
          return (isKept ? former : packed)[index] ?? new Uint8Array();
        });
        assert.equal(JSON.stringify(unpackParts(parts)), JSON.stringify(mixed));
      }),
      { numRuns: 300 },
    );
  });

  it('a change of one endpoint changes one part', () => {
    const before = sliceContent(endpoints(1000));
    const [first, ...others] = before.groups[0]?.endpoints ?? [];
    assert.ok(first !== undefined);
    for (const after of [
      sliceContent(others),
      sliceContent([{ ...first, condition: 'notReady' }, ...others]),
      sliceContent([endpoint({ ip: '10.0.0.0' }), first, ...others].sort((a, b) => compareText(a.ip, b.ip))),
    ]) {
      const shares = splitContent(after, 10);
      const changed = splitContent(before, 10).filter(
        (share, index) => !equalContents(share, shares[index] ?? before),
      );
      assert.equal(changed.length, 1);
    }
  });

  it('parts are of much the same size', () => {
    const sizes = splitContent(sliceContent(endpoints(5000)), 50).map(
      ({ groups }) => groups[0]?.endpoints.length ?? 0,
    );
    assert.ok(Math.min(...sizes) > 60 && Math.max(...sizes) < 145, `${sizes}`);
  });

  it('an endpoint of a slice of 100 takes 16 bytes, with long names of nodes and owners', () => {
    const [bytes] = packParts(sliceContent(endpoints(100)), 1);
    assert.ok((bytes?.byteLength ?? 0) <= 1600, `${bytes?.byteLength} bytes`);
  });

  it('what a later release packed is not read', () => {
    const [bytes = new Uint8Array()] = packParts(sliceContent([]), 1);
    const later = Uint8Array.from(bytes, (byte, index) => (index === 0 ? 2 : byte));
    assert.throws(() => unpackParts([later]), UnknownFormatError);
    assert.throws(() => ipsOfParts([later]), UnknownFormatError);
  });
});

describe('number of parts', () => {
  const cases: Record<string, { count: number; former: number | null; want: number }> = {
    'nothing is one part': { count: 0, former: null, want: 1 },
    'a slice of 100 is one part': { count: 100, former: null, want: 1 },
    'a slice of 1,000 is ten': { count: 1000, former: null, want: 10 },
    'one endpoint more than 100 adds no part': { count: 101, former: 1, want: 1 },
    'parts stay up to 160 endpoints each': { count: 1600, former: 10, want: 10 },
    'and are more beyond': { count: 1601, former: 10, want: 16 },
    'parts stay down to 40 endpoints each': { count: 400, former: 10, want: 10 },
    'and are fewer below': { count: 399, former: 10, want: 4 },
    'an object that shrinks to nothing is one part': { count: 0, former: 10, want: 1 },
  };
  for (const [sentence, { count, former, want }] of Object.entries(cases)) {
    it(sentence, () => assert.equal(partCountFor(count, former), want));
  }

  it('a number that was just chosen withstands the next 20 endpoints, coming or going', () => {
    for (let count = 0; count <= 10_000; count++) {
      const chosen = partCountFor(count, null);
      const isSteady = (other: number) => partCountFor(Math.max(0, other), chosen) === chosen;
      assert.ok(isSteady(count - 10) && isSteady(count + 10), `${count}`);
    }
  });
});

/** Endpoints as a large cluster has them: 60 nodes in 3 zones, one Deployment. */
function endpoints(count: number) {
  const random = randomFrom(1);
  const nodes = Array.from({ length: 60 }, () => ({
    node: `ip-10-${random(4)}-${random(256)}-${random(256)}.eu-central-1.compute.internal`,
    zone: `eu-central-1${'abc'[random(3)]}`,
  }));
  const ips = new Set<string>();
  while (ips.size < count) ips.add(`10.${random(4)}.${random(256)}.${1 + random(255)}`);
  return [...ips].sort(compareText).map((ip) =>
    endpoint({
      ip,
      ...nodes[random(nodes.length)],
      target: {
        kind: 'Pod',
        namespace: 'checkout-production',
        name: `checkout-service-backend-7d9f8b6c5d-${podSuffix(random)}`,
      },
      owner: { kind: 'Deployment', name: 'checkout-service-backend' },
    }),
  );
}

/** As the API server makes them. Source: k8s.io/apimachinery/pkg/util/rand. */
function podSuffix(random: (bound: number) => number): string {
  const alphabet = 'bcdfghjklmnpqrstvwxz2456789';
  return Array.from({ length: 5 }, () => alphabet[random(alphabet.length)]).join('');
}

/** The second content with some groups of the first in place of its own. */
function mix(before: EndpointContent, after: EndpointContent): EndpointContent {
  const groups = after.groups.map((group, index) =>
    index % 2 === 0 ? (before.groups[index] ?? group) : group,
  );
  return { ...before, groups };
}
