import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Protocol } from '../../core/address.ts';
import { isPortNumber, parsePortId, portId, protocolOf } from '../../core/service-port.ts';

describe('a service port is a number and a protocol (S1, S21)', () => {
  const ids: Readonly<Record<string, readonly [port: number, protocol: Protocol]>> = {
    '80': [80, 'TCP'],
    '53/UDP': [53, 'UDP'],
    '132/SCTP': [132, 'SCTP'],
    '0': [0, 'TCP'],
    '65535': [65_535, 'TCP'],
  };
  for (const [id, [port, protocol]] of Object.entries(ids))
    test(id, () => {
      assert.equal(portId({ port, protocol }), id);
      assert.deepEqual(parsePortId(id), { port, protocol });
    });

  test('TCP may be named', () => assert.deepEqual(parsePortId('80/TCP'), { port: 80, protocol: 'TCP' }));

  for (const text of [
    '',
    '65536',
    '100000',
    '-1',
    '80/',
    '80/udp',
    '80/HTTP',
    'http',
    '8 0',
    '80/UDP/1',
    '1e3',
  ])
    test(`${JSON.stringify(text)} is none`, () => assert.equal(parsePortId(text), null));
});

describe('a port number can be connected to (S20)', () => {
  for (const value of [1, 80, 65_535]) test(`${value} is one`, () => assert(isPortNumber(value)));
  for (const value of [0, -1, 65_536, 1.5, Number.NaN, Number.POSITIVE_INFINITY, '80', null, undefined])
    test(`${value} is none`, () => assert(!isPortNumber(value)));
});

describe('an absent protocol is TCP (S17)', () => {
  for (const raw of [null, undefined, '', 'TCP']) test(`${raw}`, () => assert.equal(protocolOf(raw), 'TCP'));
  test('UDP and SCTP are themselves', () => {
    assert.equal(protocolOf('UDP'), 'UDP');
    assert.equal(protocolOf('SCTP'), 'SCTP');
  });
  test('any other is none', () => assert.equal(protocolOf('tcp'), null));
});
