import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { Address } from '../../core/address.ts';
import { formatAddress, parseAddress, publishedAddress } from '../../wire/address.ts';
import { bareAddress } from '../bare-address.ts';

const bare = bareAddress();

const name = fc.string({ unit: 'grapheme', maxLength: 12 });
const optional = fc.option(name);
const names = fc.array(name, { maxLength: 3 });
const address: fc.Arbitrary<Address> = fc.record({
  ip: fc.oneof(fc.ipV4(), fc.ipV6()),
  port: fc.integer({ min: 0, max: 65_535 }),
  family: fc.constantFrom('IPv4', 'IPv6'),
  hostname: optional,
  node: optional,
  zone: optional,
  target: fc.option(fc.record({ kind: name, namespace: name, name }, { noNullPrototype: true })),
  owner: fc.option(fc.record({ kind: name, name }, { noNullPrototype: true })),
  hints: fc.option(
    fc
      .record({ forZones: names, forNodes: names }, { noNullPrototype: true })
      .filter(({ forZones, forNodes }) => forZones.length + forNodes.length > 0),
  ),
  appProtocol: optional,
  identity: optional,
  authority: optional,
  labels: fc.dictionary(
    name.filter((key) => key !== '__proto__'),
    name,
    { maxKeys: 3, noNullPrototype: true },
  ),
  opaqueProtocol: fc.boolean(),
});

describe('a published address', () => {
  test('leaves out what is null, empty or false', () => {
    assert.deepEqual(formatAddress(bare), { ip: '10.1.0.5', port: 8080, family: 'IPv4' });
  });

  test('null and absent mean the same to a reader', () => {
    const nulls = { ...bare, labels: null, opaqueProtocol: null, hints: { forZones: [], forNodes: null } };
    assert.deepEqual(parseAddress(publishedAddress.parse(nulls)), bare);
  });

  test('any address comes back from JSON as it was', () => {
    fc.assert(
      fc.property(address, (was) => {
        const text = JSON.stringify(formatAddress(was));
        assert.deepEqual(parseAddress(publishedAddress.parse(JSON.parse(text))), { ...was });
      }),
    );
  });

  test('equal addresses have equal bytes, whatever the order of their fields', () => {
    fc.assert(
      fc.property(address, (was) => {
        const turned = Object.fromEntries(Object.entries(was).reverse()) as unknown as Address;
        assert.equal(JSON.stringify(formatAddress(turned)), JSON.stringify(formatAddress(was)));
      }),
    );
  });
});
