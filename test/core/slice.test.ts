import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { EndpointContent, EndpointEntry } from '../../core/endpoint-object.ts';
import { equalContents } from '../../core/endpoint-object.ts';
import type { EndpointSlice, ObjectMeta, RawEndpoint } from '../../core/kubernetes.ts';
import { isIpSlice, readSlice, serviceNameOf } from '../../core/slice.ts';
import { endpoint, HTTP_8080, slice } from './builders.ts';

describe('whose a slice is (S8)', () => {
  const LABEL = 'kubernetes.io/service-name';
  const owner = (name: string, kind = 'Service') => ({ kind, name, uid: 'u' });
  const cases: Readonly<Record<string, readonly [metadata: Partial<ObjectMeta>, name: string | null]>> = {
    'the label says it': [{ labels: { [LABEL]: 'web' } }, 'web'],
    'the label goes before the owner': [
      { labels: { [LABEL]: 'web' }, ownerReferences: [owner('api')] },
      'web',
    ],
    'without a label the owning Service': [
      { ownerReferences: [owner('x', 'Endpoints'), owner('web')] },
      'web',
    ],
    'an empty label is none': [{ labels: { [LABEL]: '' }, ownerReferences: [owner('web')] }, 'web'],
    'an owner without a name is none': [{ ownerReferences: [owner(''), owner('web')] }, 'web'],
    'an owner of another kind is none': [{ ownerReferences: [owner('web', 'Endpoints')] }, null],
    'neither label nor owner: nobody': [{ labels: null, ownerReferences: null }, null],
  };
  for (const [sentence, [metadata, name]] of Object.entries(cases))
    test(sentence, () => assert.equal(serviceNameOf(metadata), name));
});

describe('which slices hold IPs (S13, S14)', () => {
  for (const addressType of ['IPv4', 'IPv6', null])
    test(`${addressType}`, () => assert(isIpSlice(slice('a', [], { addressType }))));
  for (const addressType of ['FQDN', 'DNS'])
    test(`not ${addressType}`, () => assert(!isIpSlice(slice('a', [], { addressType }))));
});

describe('what a slice says of an endpoint', () => {
  const cases: Readonly<Record<string, readonly [raw: RawEndpoint, want: Partial<EndpointEntry>]>> = {
    'no conditions at all: ready (S25)': [{}, { condition: 'ready' }],
    'conditions null: ready': [{ conditions: null }, { condition: 'ready' }],
    'nil conditions: ready': [{ conditions: { ready: null, serving: null } }, { condition: 'ready' }],
    'ready alone decides, terminating or not (S26)': [
      { conditions: { ready: true, serving: false, terminating: true } },
      { condition: 'ready' },
    ],
    'not ready, nil terminating: not ready': [{ conditions: { ready: false } }, { condition: 'notReady' }],
    'serving and terminating: draining (S27)': [
      { conditions: { ready: false, serving: true, terminating: true } },
      { condition: 'draining' },
    ],
    'nil serving and terminating: draining': [
      { conditions: { ready: false, terminating: true } },
      { condition: 'draining' },
    ],
    'terminating and no longer serving: terminating': [
      { conditions: { ready: false, serving: false, terminating: true } },
      { condition: 'terminating' },
    ],
    'hostname, node and zone (S30)': [
      { hostname: 'web-0', nodeName: 'n1', zone: 'a' },
      { hostname: 'web-0', node: 'n1', zone: 'a' },
    ],
    'empty ones are none': [
      { hostname: '', nodeName: '', zone: '' },
      { hostname: null, node: null, zone: null },
    ],
    'hints, each once and sorted (S6)': [
      { hints: { forZones: [{ name: 'b' }, { name: 'a' }, { name: 'b' }], forNodes: [{ name: 'n1' }] } },
      { hints: { forZones: ['a', 'b'], forNodes: ['n1'] } },
    ],
    'empty hints are no hints': [{ hints: {} }, { hints: null }],
    'hints of empty lists too': [{ hints: { forZones: [], forNodes: null } }, { hints: null }],
    "a target's namespace defaults to the slice's (S30, L35)": [
      { targetRef: { kind: 'Pod', name: 'web-1' } },
      { target: { kind: 'Pod', namespace: 'default', name: 'web-1' } },
    ],
    'a target of any kind, in any namespace (S31, L35)': [
      { targetRef: { kind: 'VirtualMachine', namespace: 'other', name: 'vm' } },
      { target: { kind: 'VirtualMachine', namespace: 'other', name: 'vm' } },
    ],
    'no target': [{ targetRef: null }, { target: null }],
    'a target without a name is none': [{ targetRef: { kind: 'Pod' } }, { target: null }],
  };
  for (const [sentence, [raw, want]] of Object.entries(cases))
    test(sentence, () => {
      const [entry] = entriesOf(slice('a', [{ addresses: ['10.0.0.1'], ...raw }]));
      assert.deepEqual({ ...entry, ...want }, entry);
    });
});

describe('what the relay knows of a pod enriches its address (S7)', () => {
  const web1 = {
    'default/web-1': { owner: { kind: 'Deployment', name: 'web' }, node: 'n9', opaqueProtocol: true },
  };
  const [known] = entriesOf(slice('a', [endpoint('10.0.0.1', 'ready', { pod: 'web-1' })]), web1);
  test('owner, node and protocol', () => {
    const { owner, node, opaqueProtocol } = known ?? {};
    assert.deepEqual({ owner, node, opaqueProtocol }, { ...web1['default/web-1'] });
  });
  test("the slice's node goes before the pod's", () => {
    const [entry] = entriesOf(
      slice('a', [endpoint('10.0.0.1', 'ready', { pod: 'web-1', nodeName: 'n1' })]),
      web1,
    );
    assert.equal(entry?.node, 'n1');
  });
  test('an unknown pod is published all the same', () => {
    const [entry] = entriesOf(slice('a', [endpoint('10.0.0.1', 'ready', { pod: 'web-2' })]), web1);
    assert.deepEqual([entry?.owner, entry?.node, entry?.opaqueProtocol], [null, null, false]);
  });
  test('another kind of that name is no pod', () => {
    const targetRef = { kind: 'Node', namespace: 'default', name: 'web-1' };
    const [entry] = entriesOf(slice('a', [{ addresses: ['10.0.0.1'], targetRef }]), web1);
    assert.equal(entry?.owner, null);
  });
});

describe('senseless values are skipped alone and counted', () => {
  const cases: Readonly<
    Record<string, readonly [object: EndpointSlice, ips: readonly string[], skipped: number]>
  > = {
    'an IP that is none (S14)': [slice('a', ['10.0.0.1', '10.0.0.999', '10.0.0.01']), ['10.0.0.1'], 2],
    'the other family': [slice('a', ['10.0.0.1', 'fd00::1']), ['10.0.0.1'], 1],
    'the other family, the other way': [
      slice('a', ['10.0.0.1', 'fd00::1'], { addressType: 'IPv6' }),
      ['fd00::1'],
      1,
    ],
    'without an addressType both count': [
      slice('a', ['10.0.0.1', 'fd00::1'], { addressType: null }),
      ['10.0.0.1', 'fd00::1'],
      0,
    ],
    'only the first address of an endpoint counts (S15)': [
      slice('a', [{ addresses: ['10.0.0.1', '10.0.0.2'] }, { addresses: ['no-ip', '10.0.0.3'] }]),
      ['10.0.0.1'],
      1,
    ],
    'an endpoint without addresses': [
      slice('a', [{ addresses: null }, { addresses: [] }, '10.0.0.1']),
      ['10.0.0.1'],
      2,
    ],
    'a port without a number (S20)': [
      slice('a', ['10.0.0.1'], { ports: [{ name: 'http', port: null }, { name: 'x', port: 0 }, HTTP_8080] }),
      ['10.0.0.1'],
      2,
    ],
    'a port of an unknown protocol': [
      slice('a', ['10.0.0.1'], { ports: [{ ...HTTP_8080, protocol: 'QUIC' }, HTTP_8080] }),
      ['10.0.0.1'],
      1,
    ],
    'a placeholder holds nothing, and that is no error (S16)': [slice('a', null, { ports: null }), [], 0],
  };
  for (const [sentence, [object, ips, skipped]] of Object.entries(cases))
    test(sentence, () => {
      assert.deepEqual(
        entriesOf(object).map(({ ip }) => ip),
        ips,
      );
      assert.equal(readSlice(object, 'web').skipped, skipped);
    });
});

describe('what a slice without endpoints is', () => {
  test('a placeholder is nothing (S16)', () => {
    assert.deepEqual(contentOf(slice('a', null, { ports: null })).groups, []);
  });
  test('one with ports still says how they are called, for a rename (S23)', () => {
    assert.deepEqual(
      contentOf(slice('a', [])).groups.map(({ ports }) => ports.map(({ name }) => name)),
      [['http']],
    );
  });
});

describe('one IP in two endpoints of a slice is one (S11)', () => {
  const cases: Readonly<Record<string, readonly [endpoints: RawEndpoint[], pod: string, condition: string]>> =
    {
      'the better tier counts': [
        [endpoint('10.0.0.1', 'terminating', { pod: 'a' }), endpoint('10.0.0.1', 'ready', { pod: 'b' })],
        'b',
        'ready',
      ],
      'draining before terminating': [
        [endpoint('10.0.0.1', 'terminating', { pod: 'a' }), endpoint('10.0.0.1', 'draining', { pod: 'b' })],
        'b',
        'draining',
      ],
      'of one tier the smallest target': [
        [endpoint('10.0.0.1', 'ready', { pod: 'b' }), endpoint('10.0.0.1', 'ready', { pod: 'a' })],
        'a',
        'ready',
      ],
      'a terminating one is no better than one not ready': [
        [endpoint('10.0.0.1', 'terminating', { pod: 'b' }), endpoint('10.0.0.1', 'notReady', { pod: 'a' })],
        'a',
        'notReady',
      ],
    };
  for (const [sentence, [entries, pod, condition]] of Object.entries(cases))
    test(sentence, () => {
      for (const order of [entries, entries.toReversed()]) {
        const [entry, ...others] = entriesOf(slice('a', order));
        assert.deepEqual([entry?.target?.name, entry?.condition, others.length], [pod, condition, 0]);
      }
    });
});

describe('noise changes nothing, everything published does (S5)', () => {
  const raw = endpoint('10.0.0.1', 'ready', { pod: 'web-1', nodeName: 'n1', zone: 'a', hostname: 'h' });
  const base = slice('a', [raw, '10.0.0.2'], {
    version: 5,
    ownerReferences: [
      { kind: 'Service', name: 'web', uid: 'u' },
      { kind: 'Service', name: 'web', uid: 't' },
    ],
  });
  const noise: Readonly<Record<string, EndpointSlice>> = {
    'another order of endpoints (S6)': { ...base, endpoints: (base.endpoints ?? []).toReversed() },
    'another order of ports, or one twice': { ...base, ports: [HTTP_8080, { ...HTTP_8080, protocol: null }] },
    'another version, labels and annotations': {
      ...base,
      metadata: { ...base.metadata, resourceVersion: '6', annotations: { a: 'b' }, labels: { x: 'y' } },
    },
    'owners of other kinds': {
      ...base,
      metadata: {
        ...base.metadata,
        ownerReferences: [
          ...(base.metadata.ownerReferences ?? []),
          { kind: 'Endpoints', name: 'web', uid: 'e' },
        ],
      },
    },
    'another order of owners': {
      ...base,
      metadata: { ...base.metadata, ownerReferences: (base.metadata.ownerReferences ?? []).toReversed() },
    },
    'nil conditions that mean the same': {
      ...base,
      endpoints: [{ ...raw, conditions: null }, { addresses: ['10.0.0.2'] }],
    },
    'addresses behind the first': { ...base, endpoints: [raw, { addresses: ['10.0.0.2', '10.0.0.3'] }] },
  };
  for (const [sentence, object] of Object.entries(noise))
    test(`${sentence} is noise`, () => assert(equalContents(contentOf(object), contentOf(base))));

  const news: Readonly<Record<string, EndpointSlice>> = {
    'an IP': slice('a', [{ ...raw, addresses: ['10.0.0.9'] }]),
    'a zone': slice('a', [{ ...raw, zone: 'b' }]),
    'a node': slice('a', [{ ...raw, nodeName: 'n2' }]),
    'a hostname': slice('a', [{ ...raw, hostname: 'g' }]),
    'a hint': slice('a', [{ ...raw, hints: { forZones: [{ name: 'a' }] } }]),
    'a target': slice('a', [{ ...raw, targetRef: { kind: 'Pod', name: 'web-2' } }]),
    'a condition (S28)': slice('a', [{ ...raw, conditions: { ready: false } }]),
    "a port's number": slice('a', [raw], { ports: [{ ...HTTP_8080, port: 9090 }] }),
    "a port's name": slice('a', [raw], { ports: [{ ...HTTP_8080, name: 'web' }] }),
    "a port's appProtocol (S24)": slice('a', [raw], { ports: [{ ...HTTP_8080, appProtocol: 'h2c' }] }),
    'the Service that owns it (S35)': slice('a', [raw], {
      ownerReferences: [{ kind: 'Service', name: 'web', uid: 'u' }],
    }),
    'a mirrored identity (S32)': slice('a', [raw], {
      annotations: { 'mirror.linkerd.io/remote-gateway-identity': 'gw' },
    }),
  };
  for (const [sentence, object] of Object.entries(news))
    test(`${sentence} is news`, () =>
      assert(!equalContents(contentOf(object), contentOf(slice('a', [raw])))));
});

function contentOf(object: EndpointSlice, enrichments = {}): EndpointContent {
  return readSlice(object, 'web', enrichments).content;
}

function entriesOf(object: EndpointSlice, enrichments = {}): readonly EndpointEntry[] {
  return contentOf(object, enrichments).groups.flatMap((group) => group.endpoints);
}
