import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { BusCopy, type BusEntry, busFile } from '../../cli/bus-copy.ts';
import { digestOf } from '../../wire/key-hash.ts';

const GROUP = 'prod-eu/default/web:80';
const AT = '2026-11-30T10:00:00.000Z';

interface Told {
  readonly sequence: number;
  readonly keys: readonly string[];
  readonly added?: readonly string[];
  readonly updated?: readonly string[];
  readonly removed?: readonly string[];
  readonly part?: { readonly index: number; readonly count: number };
  readonly cluster?: string;
}

const address = (ip: string) => ({ ip, port: 8080, family: 'IPv4' as const });

/** A delta after which the set holds the IPs `keys`. */
function entry({
  sequence,
  keys,
  added = [],
  updated = [],
  removed = [],
  part,
  cluster = 'prod-eu',
}: Told): BusEntry {
  const id = `${GROUP}#${sequence}${part === undefined ? '' : `/${part.index}`}`;
  const detail = {
    version: 1,
    ...{ id, group: GROUP, sequence, cluster, namespace: 'default', service: 'web' },
    ...{ port: 80, portName: 'http', protocol: 'TCP', exists: true, size: keys.length, truncated: false },
    digest: digestOf(keys.map((ip) => `${ip}:8080`)),
    added: added.map(address),
    updated: updated.map((ip) => ({ ...address(ip), zone: 'b' })),
    removed: removed.map((ip) => ({ ip, port: 8080, reason: 'gone' })),
    cause: { kind: 'EndpointSlice', name: 'web-a', type: 'MODIFIED', resourceVersion: '1' },
    ...{ triggeredAt: null, observedAt: AT, committedAt: AT },
    ...(part !== undefined && { part }),
  };
  return { n: 0, type: keys.length === 0 ? 'NoEndpoints' : 'EndpointsChanged', detail };
}

const ONE = entry({ sequence: 1, keys: ['10.0.0.1'], added: ['10.0.0.1'] });
const TWO = entry({ sequence: 2, keys: ['10.0.0.1', '10.0.0.2'], added: ['10.0.0.2'] });
const THREE = entry({ sequence: 3, keys: ['10.0.0.2'], removed: ['10.0.0.1'] });
const FOUR = ['10.0.0.3', '10.0.0.4'].map((ip, index) =>
  entry({ sequence: 4, keys: ['10.0.0.2', '10.0.0.3', '10.0.0.4'], added: [ip], part: { index, count: 2 } }),
);
const [FIRST_PART, SECOND_PART] = FOUR as [BusEntry, BusEntry];

const CASES: Readonly<
  Record<
    string,
    {
      readonly entries: readonly BusEntry[];
      readonly newest?: number;
      readonly ips: readonly string[];
      readonly missing?: { readonly from: number; readonly to: number };
      readonly contradictions?: readonly string[];
    }
  >
> = {
  'in order': { entries: [ONE, TWO, THREE], ips: ['10.0.0.2'] },
  'in another order, and twice (P3)': { entries: [THREE, TWO, TWO, ONE, THREE, ONE], ips: ['10.0.0.2'] },
  'a gap (P2)': { entries: [ONE, THREE], ips: ['10.0.0.1'], missing: { from: 2, to: 2 } },
  'no beginning': { entries: [THREE], ips: [], missing: { from: 1, to: 2 } },
  'no end': { entries: [ONE], newest: 3, ips: ['10.0.0.1'], missing: { from: 2, to: 3 } },
  'a delta in parts, in any order': {
    entries: [ONE, TWO, SECOND_PART, THREE, FIRST_PART],
    ips: ['10.0.0.2', '10.0.0.3', '10.0.0.4'],
  },
  'a part is missing': {
    entries: [ONE, TWO, THREE, SECOND_PART],
    ips: ['10.0.0.2'],
    missing: { from: 4, to: 4 },
  },
  'a delta of another cluster': { entries: [entry({ sequence: 1, keys: [], cluster: 'prod-us' })], ips: [] },
  'a relay that fell silent': {
    entries: [{ n: 1, type: 'RelayLost', detail: { cluster: 'prod-eu' } }],
    ips: [],
  },
  'what was not there': {
    entries: [ONE, entry({ sequence: 2, keys: ['10.0.0.1'], updated: ['10.0.0.8'], removed: ['10.0.0.9'] })],
    ips: ['10.0.0.1', '10.0.0.8'],
    contradictions: [
      '#2 removes 10.0.0.9:8080, which was not there',
      '#2 updates 10.0.0.8:8080, which was not there',
      '#2 size 1, the copy has 2',
      "#2 digest is not the copy's",
    ],
  },
};

describe('the copy of a bus', () => {
  for (const [title, { entries, newest = 0, ips, missing = null, contradictions = [] }] of Object.entries(
    CASES,
  )) {
    test(title, () => {
      const copy = new BusCopy('prod-eu');
      for (const one of entries) copy.take(one);
      const port = copy.port(GROUP);
      assert.deepEqual([...port.addresses.values()].map(({ ip }) => ip).sort(), ips);
      assert.deepEqual(port.missing(newest), missing);
      assert.deepEqual(port.contradictions, contradictions);
    });
  }

  test('a delta that is none is named by its place', () => {
    assert.throws(
      () => new BusCopy('prod-eu').take({ n: 7, type: 'NoEndpoints', detail: { cluster: 'prod-eu' } }),
      {
        message: /^entry 7 of the bus: /,
      },
    );
  });

  test('a file that is not there', async () => {
    await assert.rejects(
      busFile('/nowhere/bus.ndjson')()(new AbortController().signal)[Symbol.asyncIterator]().next(),
      {
        code: 'ENOENT',
      },
    );
  });
});
