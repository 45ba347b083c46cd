import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Address, AddressKey } from '../../core/address.ts';
import { equalAddresses, nameInUse, resolvePort } from '../../core/address-set.ts';
import type { EndpointKind } from '../../core/endpoint-object.ts';
import type { EndpointSlice, Endpoints, RawEndpoint, RawSlicePort } from '../../core/kubernetes.ts';
import { PORTLESS, type ServicePort } from '../../core/service-port.ts';
import { endpoint, endpoints, HTTP_8080, record, slice } from './builders.ts';

const WEB: ServicePort = { port: 80, protocol: 'TCP', name: 'http' };

type Raw = EndpointSlice | Endpoints;

interface Question {
  readonly port?: ServicePort;
  readonly formerNames?: readonly string[];
  readonly preferredKind?: EndpointKind;
}

function resolve(
  objects: readonly Raw[],
  { port = WEB, formerNames = [], preferredKind = 'EndpointSlice' }: Question = {},
) {
  const lookup = { servicePort: port, formerNames };
  return resolvePort({ objects: objects.map(record), preferredKind }, lookup);
}

/** `key condition` of everything that the objects say, sorted. */
function said(objects: readonly Raw[], question: Question = {}): string[] {
  return [...resolve(objects, question)].map(([key, { condition }]) => `${key} ${condition}`).sort();
}

describe('one key in several slices is one address (S2, S11)', () => {
  const in1 = (state: Parameters<typeof endpoint>[1], zone: string) => [
    endpoint('10.0.0.1', state, { zone }),
  ];
  const cases: Readonly<Record<string, readonly [slices: Raw[], condition: string, zone: string]>> = {
    'ready in any is ready, however old': [
      [slice('a', in1('ready', 'a'), { version: 1 }), slice('b', in1('notReady', 'b'), { version: 2 })],
      'ready',
      'a',
    ],
    'the newest of the ready tells the rest': [
      [
        slice('a', in1('ready', 'a'), { version: 9 }),
        slice('b', in1('ready', 'b'), { version: 10 }),
        slice('c', in1('draining', 'c'), { version: 11 }),
      ],
      'ready',
      'b',
    ],
    'with none ready the newest tells tier and rest': [
      [slice('a', in1('draining', 'a'), { version: 1 }), slice('b', in1('notReady', 'b'), { version: 2 })],
      'notReady',
      'b',
    ],
    'of one version the larger uid': [
      [slice('b', in1('ready', 'b'), { version: 1 }), slice('a', in1('ready', 'a'), { version: 1 })],
      'ready',
      'b',
    ],
    'a slice is as ready as the best of its endpoints': [
      [
        slice('a', [...in1('notReady', 'x'), ...in1('ready', 'a')], { version: 1 }),
        slice('b', in1('draining', 'b'), { version: 2 }),
      ],
      'ready',
      'a',
    ],
  };
  for (const [sentence, [slices, condition, zone]] of Object.entries(cases))
    test(sentence, () => {
      for (const order of [slices, slices.toReversed()]) {
        const found = resolve(order).get('10.0.0.1:8080' as AddressKey);
        assert.deepEqual([found?.condition, found?.address.zone], [condition, zone]);
      }
    });
});

describe('a service port finds its slice ports by name and protocol (S17-S21)', () => {
  const at = (ports: readonly RawSlicePort[] | null, ip = '10.0.0.1', name = 'a') =>
    slice(name, [ip], { ports });
  const cases: Readonly<Record<string, { slices: Raw[]; port?: ServicePort; want: readonly string[] }>> = {
    "the number is the slice port's": {
      slices: [at([{ name: 'http', port: 9999 }])],
      want: ['10.0.0.1:9999 ready'],
    },
    'a nil protocol is TCP': {
      slices: [at([{ name: 'http', protocol: null, port: 1 }])],
      want: ['10.0.0.1:1 ready'],
    },
    'another protocol is another port': { slices: [at([{ ...HTTP_8080, protocol: 'UDP' }])], want: [] },
    'another name is another port': { slices: [at([{ ...HTTP_8080, name: 'web' }])], want: [] },
    'an unnamed port finds unnamed ports alone': {
      slices: [
        at([{ port: 8080 }, { name: 'http', port: 1 }]),
        at([{ name: '', port: 8081 }], '10.0.0.2', 'b'),
        at([{ name: null, port: 8082 }], '10.0.0.3', 'c'),
      ],
      port: { ...WEB, name: '' },
      want: ['10.0.0.1:8080 ready', '10.0.0.2:8081 ready', '10.0.0.3:8082 ready'],
    },
    'a name may stand for other numbers in other slices (S18)': {
      slices: [at([HTTP_8080]), at([{ ...HTTP_8080, port: 8081 }], '10.0.0.2', 'b')],
      want: ['10.0.0.1:8080 ready', '10.0.0.2:8081 ready'],
    },
    'an IP with two numbers is two addresses': {
      slices: [at([HTTP_8080]), at([{ ...HTTP_8080, port: 8081 }], '10.0.0.1', 'b')],
      want: ['10.0.0.1:8080 ready', '10.0.0.1:8081 ready'],
    },
    'empty ports expose nothing (S19)': { slices: [at(null), at([], '10.0.0.2', 'b')], want: [] },
    'a headless Service without ports takes all endpoints, on port 0 (S19)': {
      slices: [
        at(null),
        at([HTTP_8080], '10.0.0.2', 'b'),
        at([{ name: 'x', port: 1, protocol: 'UDP' }], '10.0.0.1', 'c'),
      ],
      port: PORTLESS,
      want: ['10.0.0.1:0 ready', '10.0.0.2:0 ready'],
    },
    'a slice port without a number is skipped (S20)': {
      slices: [at([{ name: 'http', port: null }])],
      want: [],
    },
    'UDP beside TCP on one number (S21)': {
      slices: [
        at([
          { name: 'http', port: 1 },
          { name: 'http', port: 2, protocol: 'UDP' },
        ]),
      ],
      port: { ...WEB, protocol: 'UDP' },
      want: ['10.0.0.1:2 ready'],
    },
    'IPv6 keys have brackets (S1)': {
      slices: [slice('a', ['fd00::1'], { addressType: 'IPv6' })],
      want: ['[fd00::1]:8080 ready'],
    },
  };
  for (const [sentence, { slices, port = WEB, want }] of Object.entries(cases))
    test(sentence, () => assert.deepEqual(said(slices, { port }), want));

  test("the slice port's appProtocol is published (S24)", () => {
    const found = resolve([at([{ ...HTTP_8080, appProtocol: 'kubernetes.io/h2c' }])]);
    assert.equal([...found.values()][0]?.address.appProtocol, 'kubernetes.io/h2c');
  });
});

describe('in a rename window former names count where the new one is missing (S23)', () => {
  const named = (...names: string[]) =>
    record(slice('a', ['10.0.0.1'], { ports: names.map((name, at) => ({ name, port: 8080 + at })) }));
  const cases: Readonly<Record<string, readonly [slice: string[], former: string[], name: string | null]>> = {
    'the new name, where a slice has it': [['old', 'http'], ['old'], 'http'],
    'the former one, where it has that': [['old'], ['old'], 'old'],
    'the latest former one of two': [['older', 'old'], ['older', 'old'], 'old'],
    'the oldest, when nothing else is there': [['older'], ['older', 'old'], 'older'],
    'none, when it has none of them': [['other'], ['older', 'old'], null],
    'without a window the name alone': [['old'], [], null],
  };
  for (const [sentence, [names, formerNames, want]] of Object.entries(cases))
    test(sentence, () => assert.equal(nameInUse(named(...names), { servicePort: WEB, formerNames }), want));

  test('a name of another protocol is another name', () => {
    const udp = record(slice('a', ['10.0.0.1'], { ports: [{ ...HTTP_8080, protocol: 'UDP' }] }));
    assert.equal(nameInUse(udp, { servicePort: WEB, formerNames: ['http'] }), null);
  });
});

describe('Endpoints resolve ports subset by subset (S40, S41)', () => {
  const ADMIN = { name: 'admin', port: 9000 };
  const ip = (...ips: string[]) => ips.map((one) => ({ ip: one }));
  const cases: Readonly<
    Record<string, readonly [object: Endpoints, port: ServicePort, want: readonly string[]]>
  > = {
    'the union over subsets': [
      endpoints([
        { addresses: ip('10.0.0.1'), ports: [HTTP_8080] },
        { addresses: ip('10.0.0.2'), ports: [{ ...HTTP_8080, port: 8081 }] },
        { addresses: ip('10.0.0.3'), ports: [ADMIN] },
      ]),
      WEB,
      ['10.0.0.1:8080 ready', '10.0.0.2:8081 ready'],
    ],
    'one IP, ready on one port and not on another': [
      endpoints([
        { addresses: ip('10.0.0.1'), ports: [HTTP_8080] },
        { notReadyAddresses: ip('10.0.0.1'), ports: [ADMIN] },
      ]),
      WEB,
      ['10.0.0.1:8080 ready'],
    ],
    'in both lists of two subsets: not ready': [
      endpoints([
        { addresses: ip('10.0.0.1', '10.0.0.2'), ports: [HTTP_8080] },
        { notReadyAddresses: ip('10.0.0.1'), ports: [HTTP_8080, ADMIN] },
      ]),
      WEB,
      ['10.0.0.1:8080 notReady', '10.0.0.2:8080 ready'],
    ],
    'the same number under another name counts as the same ip:port': [
      endpoints([
        { addresses: ip('10.0.0.1'), ports: [HTTP_8080] },
        { notReadyAddresses: ip('10.0.0.1'), ports: [{ name: 'admin', port: 8080 }] },
      ]),
      WEB,
      ['10.0.0.1:8080 notReady'],
    ],
    'but not of another protocol': [
      endpoints([
        { addresses: ip('10.0.0.1'), ports: [HTTP_8080] },
        { notReadyAddresses: ip('10.0.0.1'), ports: [{ name: 'dns', port: 8080, protocol: 'UDP' }] },
      ]),
      WEB,
      ['10.0.0.1:8080 ready'],
    ],
    'a subset without ports exposes nothing': [endpoints([{ addresses: ip('10.0.0.1') }]), WEB, []],
    'unless the Service is headless without ports': [
      endpoints([{ addresses: ip('10.0.0.1') }, { addresses: ip('10.0.0.2'), ports: [ADMIN] }]),
      PORTLESS,
      ['10.0.0.1:0 ready', '10.0.0.2:0 ready'],
    ],
  };
  for (const [sentence, [object, port, want]] of Object.entries(cases))
    test(sentence, () => assert.deepEqual(said([object], { port }), want));

  test('of one ip:port in two subsets the smallest target counts, whichever comes first (S11)', () => {
    const subset = (pod: string, ...ports: RawSlicePort[]) => ({
      addresses: [{ ip: '10.0.0.1', targetRef: { kind: 'Pod', name: pod } }],
      ports,
    });
    for (const [one, other] of [
      ['a', 'b'],
      ['b', 'a'],
    ] as const) {
      const found = resolve([endpoints([subset(one, HTTP_8080), subset(other, HTTP_8080, ADMIN)])]);
      assert.deepEqual(
        [...found.values()].map(({ address }) => address.target?.name),
        ['a'],
      );
    }
  });
});

describe('while a cluster changes its mode, both kinds count and the stored one prevails (S12)', () => {
  const old = slice('a', [endpoint('10.0.0.1', 'ready', { zone: 'a' })], { version: 1 });
  const made = endpoints([{ addresses: [{ ip: '10.0.0.1' }, { ip: '10.0.0.2' }], ports: [HTTP_8080] }], {
    version: 2,
  });
  test('the same keys', () =>
    assert.deepEqual(said([old, made]), ['10.0.0.1:8080 ready', '10.0.0.2:8080 ready']));
  for (const [preferredKind, zone] of [
    ['EndpointSlice', 'a'],
    ['Endpoints', null],
  ] as const)
    test(`${preferredKind} prevails, whatever the versions, which do not compare (S44)`, () => {
      for (const order of [
        [old, made],
        [made, old],
      ])
        assert.equal(
          resolve(order, { preferredKind }).get('10.0.0.1:8080' as AddressKey)?.address.zone,
          zone,
        );
    });
  test('but ready goes before that', () => {
    const unready = slice('a', [endpoint('10.0.0.1', 'notReady')]);
    assert.deepEqual(said([unready, made]), ['10.0.0.1:8080 ready', '10.0.0.2:8080 ready']);
  });
});

describe('a mirrored service speaks for its bare addresses (S32)', () => {
  const MIRROR = {
    annotations: {
      'mirror.linkerd.io/remote-gateway-identity': 'gateway.east',
      'mirror.linkerd.io/remote-svc-fq-name': 'web.shop.svc.cluster.local',
    },
    labels: { 'mirror.linkerd.io/cluster-name': 'east' },
  };
  const first = (raw: Raw, port = WEB): Partial<Address> =>
    [...resolve([raw], { port }).values()][0]?.address ?? {};

  test('identity, the remote name with the Service port, and the cluster', () => {
    const { identity, authority, labels } = first(slice('a', ['203.0.113.7'], MIRROR), {
      ...WEB,
      port: 8443,
    });
    assert.deepEqual(
      { identity, authority, labels },
      {
        identity: 'gateway.east',
        authority: 'web.shop.svc.cluster.local:8443',
        labels: { target_cluster: 'east', target_service: 'web', target_service_namespace: 'shop' },
      },
    );
  });
  test('the same from Endpoints', () => {
    const object = endpoints([{ addresses: [{ ip: '203.0.113.7' }], ports: [HTTP_8080] }], MIRROR);
    assert.equal(first(object).identity, 'gateway.east');
  });
  test('an address with a target speaks for itself', () => {
    const { identity, authority, labels } = first(
      slice('a', [endpoint('10.0.0.1', 'ready', { pod: 'p' })], MIRROR),
    );
    assert.deepEqual({ identity, authority, labels }, { identity: null, authority: null, labels: {} });
  });
  for (const [annotation, want] of [
    ['remote-gateway-identity', { identity: 'x', authority: null, labels: {} }],
    ['remote-svc-fq-name', { identity: null, authority: 'x:80', labels: {} }],
  ] as const)
    test(`${annotation} alone`, () => {
      const { identity, authority, labels } = first(
        slice('a', ['203.0.113.7'], { annotations: { [`mirror.linkerd.io/${annotation}`]: 'x' } }),
      );
      assert.deepEqual({ identity, authority, labels }, want);
    });
  test('the cluster alone', () => {
    const { labels } = first(slice('a', ['203.0.113.7'], { labels: MIRROR.labels }));
    assert.deepEqual(labels, { target_cluster: 'east' });
  });
  test('empty annotations are absent ones', () => {
    const annotations = {
      'mirror.linkerd.io/remote-gateway-identity': '',
      'mirror.linkerd.io/remote-svc-fq-name': '',
    };
    const { identity, authority, labels } = first(slice('a', ['203.0.113.7'], { annotations }));
    assert.deepEqual({ identity, authority, labels }, { identity: null, authority: null, labels: {} });
  });
});

describe('which addresses publish the same (S5)', () => {
  const [one] = [...resolve([slice('a', [endpoint('10.0.0.1', 'ready', { pod: 'p', zone: 'a' })])]).values()];
  assert(one !== undefined);
  const changes: Readonly<Record<string, Partial<Address>>> = {
    hostname: { hostname: 'h' },
    node: { node: 'n' },
    zone: { zone: null },
    target: { target: { kind: 'Pod', namespace: 'default', name: 'q' } },
    'no target': { target: null },
    'another namespace': { target: { kind: 'Pod', namespace: 'other', name: 'p' } },
    owner: { owner: { kind: 'Deployment', name: 'web' } },
    hints: { hints: { forZones: ['a'], forNodes: [] } },
    appProtocol: { appProtocol: 'h2c' },
    identity: { identity: 'gw' },
    authority: { authority: 'a:80' },
    labels: { labels: { target_cluster: 'east' } },
    opaqueProtocol: { opaqueProtocol: true },
  };
  test('an address is like itself', () => assert(equalAddresses(one.address, structuredClone(one.address))));
  for (const [sentence, change] of Object.entries(changes))
    test(`not with another ${sentence}`, () =>
      assert(!equalAddresses(one.address, { ...one.address, ...change })));
});

describe('some IPs alone', () => {
  const raws: RawEndpoint[] = [{ addresses: ['10.0.0.1'] }, { addresses: ['10.0.0.2'] }];
  const objects = [slice('a', raws), slice('b', raws.slice(1))].map(record);
  const lookup = { servicePort: WEB, formerNames: [] };
  test('are what they are among all', () => {
    const all = resolvePort({ objects, preferredKind: 'EndpointSlice' }, lookup);
    const some = resolvePort(
      { objects, preferredKind: 'EndpointSlice' },
      lookup,
      new Set(['10.0.0.2', '10.0.0.9']),
    );
    assert.deepEqual(
      [...some],
      [...all].filter(([key]) => key === '10.0.0.2:8080'),
    );
  });
});
