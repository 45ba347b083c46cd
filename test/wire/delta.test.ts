import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Address } from '../../core/address.ts';
import type { PortDelta } from '../../core/delta.ts';
import type { EpochMs } from '../../core/time.ts';
import {
  deltaDetail,
  deltaId,
  deltaTypeOf,
  formatDelta,
  groupOf,
  parseDeltaId,
  parseGroup,
  relayDetail,
  relayDetailOf,
} from '../../wire/delta.ts';
import { bareAddress } from '../bare-address.ts';

const web = { cluster: 'prod-eu', namespace: 'default', service: 'web' };
const at = Date.parse('2026-11-30T10:00:00Z') as EpochMs;

describe('names on the bus', () => {
  const groups = {
    'prod-eu/default/web:80': { ...web, port: 80, protocol: 'TCP' },
    'prod-eu/default/web:53/UDP': { ...web, port: 53, protocol: 'UDP' },
    'prod-eu/default/web:53/SCTP': { ...web, port: 53, protocol: 'SCTP' },
    'prod-eu/default/web:0': { ...web, port: 0, protocol: 'TCP' },
  } as const;
  for (const [group, port] of Object.entries(groups))
    test(`${group} is a group, and reads back`, () => {
      assert.equal(groupOf(port), group);
      assert.deepEqual(parseGroup(group), port);
    });

  const noGroups = [
    '',
    'web:80',
    'prod-eu/default/web',
    'prod-eu/default/web:http',
    'prod-eu/default/web:80/TCP',
    'prod-eu/default/web:080',
    'prod-eu/default/web:70000',
    'a/prod-eu/default/web:80',
    'prod-eu/default/web:80#1',
  ];
  for (const text of noGroups) test(`"${text}" is no group`, () => assert.equal(parseGroup(text), null));

  test('an id names group, sequence and, of a part, its index', () => {
    const group = 'prod-eu/default/web:53/UDP';
    assert.equal(deltaId(group, 42), 'prod-eu/default/web:53/UDP#42');
    assert.equal(deltaId(group, 42, 0), 'prod-eu/default/web:53/UDP#42/0');
    assert.deepEqual(parseDeltaId(deltaId(group, 42)), { group, sequence: 42, part: null });
    assert.deepEqual(parseDeltaId(deltaId(group, 42, 7)), { group, sequence: 42, part: 7 });
  });

  for (const text of [
    '',
    'prod-eu/default/web:80',
    'prod-eu/default/web:80#',
    'web#1',
    'prod-eu/default/web:80#1/x',
  ])
    test(`"${text}" is no id`, () => assert.equal(parseDeltaId(text), null));
});

const address = (ip: string, over: Partial<Address> = {}) => bareAddress({ ip, ...over });

const delta: PortDelta = {
  port: 80,
  protocol: 'TCP',
  portName: 'http',
  sequence: 42,
  exists: true,
  size: 2,
  digest: 255n,
  isTruncated: false,
  added: [address('10.1.0.5', { node: 'n1' })],
  updated: [{ address: address('10.1.0.6', { zone: 'b' }), former: address('10.1.0.6', { zone: 'a' }) }],
  removed: [{ address: address('10.1.0.9', { node: 'n2' }), reason: 'terminating' }],
  cause: { kind: 'EndpointSlice', name: 'web-abc', type: 'MODIFIED', resourceVersion: '123' },
  triggeredAt: '2026-11-30T09:59:59.123456789Z',
  observedAt: at,
};

describe('a delta as published', () => {
  const detail = formatDelta(web, delta, (at + 250) as EpochMs);

  test('has the shape of version 1', () => {
    assert.deepEqual(detail, {
      version: 1,
      id: 'prod-eu/default/web:80#42',
      group: 'prod-eu/default/web:80',
      sequence: 42,
      cluster: 'prod-eu',
      namespace: 'default',
      service: 'web',
      port: 80,
      portName: 'http',
      protocol: 'TCP',
      exists: true,
      size: 2,
      digest: `${'0'.repeat(62)}ff`,
      truncated: false,
      added: [{ ip: '10.1.0.5', port: 8080, family: 'IPv4', node: 'n1' }],
      updated: [{ ip: '10.1.0.6', port: 8080, family: 'IPv4', zone: 'b' }],
      removed: [{ ip: '10.1.0.9', port: 8080, reason: 'terminating' }],
      cause: { kind: 'EndpointSlice', name: 'web-abc', type: 'MODIFIED', resourceVersion: '123' },
      triggeredAt: '2026-11-30T09:59:59.123456789Z',
      observedAt: '2026-11-30T10:00:00.000Z',
      committedAt: '2026-11-30T10:00:00.250Z',
    });
  });

  test('passes the schema, whole and as a part, with members of a later version', () => {
    const part = { ...detail, id: deltaId(detail.group, 42, 1), part: { index: 1, count: 3 }, future: 1 };
    assert.equal(deltaDetail.safeParse(detail).success, true);
    assert.equal(deltaDetail.safeParse(part).success, true);
  });

  test('S38: an empty set makes it a NoEndpoints', () => {
    assert.equal(deltaTypeOf({ size: 0 }), 'NoEndpoints');
    assert.equal(deltaTypeOf({ size: 1 }), 'EndpointsChanged');
  });
});

test('a silence and its end have one id', () => {
  const lost = relayDetailOf('prod-eu', at, (at + 60_000) as EpochMs);
  assert.deepEqual(lost, {
    version: 1,
    id: 'prod-eu#relay#2026-11-30T10:00:00.000Z',
    cluster: 'prod-eu',
    lastHeartbeat: '2026-11-30T10:00:00.000Z',
    at: '2026-11-30T10:01:00.000Z',
  });
  assert.equal(relayDetail.safeParse(lost).success, true);
  assert.equal(relayDetailOf('prod-eu', at, (at + 90_000) as EpochMs).id, lost.id);
});
