import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Address, addressKey } from '../../core/address.ts';
import type { RawEndpoint, Service, WatchedObject } from '../../core/kubernetes.ts';
import { type AddressFilter, type PortAnswer, queryPort, queryPorts } from '../../core/query.ts';
import { parsePortId, portId } from '../../core/service-port.ts';
import { digestOf, formatDigest, hashKey } from '../../wire/key-hash.ts';
import { endpoint, endpoints, HTTP_8080, service, slice } from './builders.ts';
import { CoreCluster } from './core-cluster.ts';

const WEB = { namespace: 'default', name: 'web' };

function stateOf(...objects: readonly WatchedObject[]) {
  const cluster = new CoreCluster(objects.some(({ kind }) => kind === 'Endpoints') ? 'endpoints' : 'slices');
  cluster.post(objects.map((object) => ({ type: 'ADDED', object })));
  return cluster.state(WEB);
}

function ask(
  objects: readonly WatchedObject[],
  port: string,
  filter: Partial<AddressFilter> = {},
): PortAnswer | null {
  const asked = parsePortId(port);
  assert(asked !== null);
  return queryPort(stateOf(...objects), asked, { tier: 'ready', ...filter }, hashKey);
}

const keys = (addresses: readonly Address[] = []) => addresses.map(addressKey);

type Filters = Readonly<Record<string, readonly [filter: Partial<AddressFilter>, want: readonly string[]]>>;

/** Which of the addresses 10.0.0.N:8080 a reader of port 80 gets, by N. */
function checkFilters(title: string, spec: Service['spec'], raws: readonly RawEndpoint[], filters: Filters) {
  describe(title, () => {
    for (const [sentence, [filter, want]] of Object.entries(filters))
      test(sentence, () => {
        const answer = ask([service(spec ?? {}), slice('a', raws)], '80', filter);
        assert.deepEqual(
          keys(answer?.addresses),
          want.map((n) => `10.0.0.${n}:8080`),
        );
      });
  });
}

describe('every defined port, by number, then protocol', () => {
  test('unlike their ids, in the order of numbers', () => {
    const ports = [
      { name: 'd', port: 9 },
      { name: 'a', port: 80 },
      { name: 'b', port: 53, protocol: 'UDP' },
      { name: 'c', port: 53 },
    ];
    const answers = queryPorts(stateOf(service({ ports })), { tier: 'ready' });
    assert.deepEqual(
      answers.map(({ port }) => portId(port)),
      ['9', '53', '53/UDP', '80'],
    );
  });
  test('none without a Service (S34), none of an ExternalName (S36)', () => {
    assert.deepEqual(queryPorts(stateOf(slice('a', ['10.0.0.1'])), { tier: 'ready' }), []);
    const external = service({ type: 'ExternalName', externalName: 'x' });
    assert.deepEqual(queryPorts(stateOf(external, slice('a', ['10.0.0.1'])), { tier: 'ready' }), []);
  });
});

describe('tiers (S27)', () => {
  const all = [
    endpoint('10.0.0.1', 'ready'),
    endpoint('10.0.0.2', 'draining', { nodeName: 'n1' }),
    endpoint('10.0.0.3', 'notReady'),
    endpoint('10.0.0.4', 'terminating'),
  ];
  const answer = ask([service(), slice('a', all)], '80');

  test('ready addresses, draining beside them, the others counted', () => {
    assert.deepEqual(keys(answer?.addresses), ['10.0.0.1:8080']);
    assert.deepEqual(keys(answer?.draining), ['10.0.0.2:8080']);
    assert.equal(answer?.notReady, 2);
  });
  test('a key counts once, however many slices say that it is not ready', () => {
    const unready = [endpoint('10.0.0.3', 'notReady')];
    assert.equal(ask([service(), slice('a', unready), slice('b', unready)], '80')?.notReady, 1);
  });
  test('and not at all while another slice says that it is ready', () => {
    const twice = ask(
      [service(), slice('a', [endpoint('10.0.0.3', 'notReady')]), slice('b', ['10.0.0.3'])],
      '80',
    );
    assert.equal(twice?.notReady, 0);
  });
  test('size, digest and sequence are those of the ready set, whatever is asked for', () => {
    for (const filter of [{}, { tier: 'draining' }, { hostname: 'nobody' }, { family: 'IPv6' }] as const) {
      const { size, digest, sequence } = ask([service(), slice('a', all)], '80', filter) ?? {};
      assert.deepEqual([size, sequence], [1, 1]);
      assert.equal(formatDigest(digest ?? -1n), digestOf(['10.0.0.1:8080']));
    }
  });

  checkFilters('some are ready', {}, all, {
    'ready is the default': [{}, ['1']],
    draining: [{ tier: 'draining' }, ['2']],
    'effective is ready': [{ tier: 'effective' }, ['1']],
  });
  checkFilters('a node is named, and any node will do', {}, all, {
    'draining ones of all nodes': [{ tier: 'draining', node: 'n9' }, ['2']],
  });
  checkFilters('none is ready', {}, all.slice(1), {
    'ready is empty': [{}, []],
    'effective falls back to draining, as kube-proxy does': [{ tier: 'effective' }, ['2']],
    'filtered alike': [{ tier: 'effective', hostname: 'nobody' }, []],
  });
  checkFilters(
    'with Local traffic policy a node falls back on its own',
    { internalTrafficPolicy: 'Local' },
    all,
    {
      'its draining ones, though other nodes have ready ones': [{ tier: 'effective', node: 'n1' }, ['2']],
      'no node, no fallback': [{ tier: 'effective' }, ['1']],
    },
  );
});

const hinted = (n: number, zones: string[], nodes: string[] = [], more: RawEndpoint = {}) =>
  endpoint(`10.0.0.${n}`, 'ready', {
    hints: { forZones: zones.map((name) => ({ name })), forNodes: nodes.map((name) => ({ name })) },
    ...more,
  });

checkFilters(
  'a reader names its place with each query (S33, L39)',
  {},
  [hinted(1, ['a'], ['n1']), hinted(2, ['a'], ['n2']), hinted(3, ['b'], ['n3'])],
  {
    'no place: all': [{}, ['1', '2', '3']],
    'zone hints': [{ zone: 'a' }, ['1', '2']],
    'a zone that no hint names: all': [{ zone: 'c' }, ['1', '2', '3']],
    'node hints go before zone hints': [{ zone: 'b', node: 'n1' }, ['1']],
    'a node that no hint names: zone hints': [{ zone: 'b', node: 'n9' }, ['3']],
    'neither matches: all': [{ zone: 'c', node: 'n9' }, ['1', '2', '3']],
  },
);

checkFilters(
  'hints count only when every ready address has one (S33)',
  {},
  [hinted(1, ['a'], ['n1']), hinted(2, [], ['n2']), hinted(3, ['b'])],
  {
    'one without zone hints: all': [{ zone: 'a' }, ['1', '2', '3']],
    'one without node hints: all': [{ node: 'n1' }, ['1', '2', '3']],
  },
);

checkFilters(
  'those that are not ready need none',
  {},
  [hinted(1, ['a']), hinted(2, ['b']), endpoint('10.0.0.3', 'notReady')],
  { 'zone hints': [{ zone: 'a' }, ['1']] },
);

checkFilters(
  'the hostname goes first: hints are looked for among what is left (S33, S39)',
  {},
  [
    hinted(1, ['a'], [], { hostname: 'h' }),
    hinted(2, ['b'], [], { hostname: 'h' }),
    hinted(3, [], [], { hostname: 'h2' }),
  ],
  {
    exact: [{ hostname: 'h' }, ['1', '2']],
    'with its hints': [{ hostname: 'h', zone: 'a' }, ['1']],
    'no such hostname: none': [{ hostname: 'H' }, []],
    'without it not every address has a hint': [{ zone: 'a' }, ['1', '2', '3']],
  },
);

checkFilters(
  'Local traffic policy (S33)',
  { internalTrafficPolicy: 'Local' },
  [
    hinted(1, ['a'], [], { nodeName: 'n1' }),
    hinted(2, ['b'], [], { nodeName: 'n1' }),
    hinted(3, ['a'], [], { nodeName: 'n2' }),
  ],
  {
    'the node’s own, hints or not': [{ node: 'n1', zone: 'a' }, ['1', '2']],
    'no fallback': [{ node: 'n9', zone: 'a' }, []],
    'counts only when a node is named': [{ zone: 'a' }, ['1', '3']],
  },
);

describe('the family comes last (S33)', () => {
  const objects = [
    service(),
    slice('a', [hinted(1, ['a']), hinted(2, ['b'])]),
    slice('b', [hinted(1, ['b'], [], { addresses: ['fd00::1'] })], { addressType: 'IPv6' }),
  ];
  const cases: Filters = {
    'one family': [{ family: 'IPv6' }, ['[fd00::1]:8080']],
    'after the hints, even if nothing is left': [{ zone: 'a', family: 'IPv6' }, []],
    'hints that leave it': [{ zone: 'b', family: 'IPv4' }, ['10.0.0.2:8080']],
  };
  for (const [sentence, [filter, want]] of Object.entries(cases))
    test(sentence, () => assert.deepEqual(keys(ask(objects, '80', filter)?.addresses), want));
});

describe('a port number that the Service does not define (S22)', () => {
  const headless = service({ clusterIP: 'None' });
  const two = slice('a', [
    endpoint('10.0.0.1', 'ready', { hostname: 'web-0' }),
    endpoint('10.0.0.2', 'notReady'),
  ]);
  const other = slice('b', ['10.0.0.3'], { ports: [{ name: 'x', port: 1 }] });

  test('of a headless Service: the raw number on every ready address, as DNS answers', () => {
    const answer = ask([headless, two, other], '9999');
    assert.deepEqual(keys(answer?.addresses), ['10.0.0.1:9999', '10.0.0.3:9999']);
    assert.deepEqual([answer?.sequence, answer?.size, answer?.notReady], [0, 2, 1]);
    assert.equal(formatDigest(answer?.digest ?? -1n), digestOf(['10.0.0.1:9999', '10.0.0.3:9999']));
    assert.deepEqual(answer?.port, { port: 9999, protocol: 'TCP', name: '' });
  });
  test('of any Service with a hostname: on that hostname’s address', () => {
    assert.deepEqual(keys(ask([service(), two], '9999', { hostname: 'web-0' })?.addresses), [
      '10.0.0.1:9999',
    ]);
  });
  test('of any other Service: undefined', () => assert.equal(ask([service(), two], '9999'), null));
  test('another protocol is another number', () => assert.equal(ask([service(), two], '80/UDP'), null));
  test('a defined port is never raw', () => {
    assert.deepEqual(keys(ask([headless, two], '80')?.addresses), ['10.0.0.1:8080']);
  });
  test('port 0 is not a number to ask for', () => {
    assert.equal(ask([headless, two], '0'), null);
    const portless = service({ clusterIP: 'None', ports: [] });
    assert.deepEqual(keys(ask([portless, two], '0')?.addresses), ['10.0.0.1:0']);
  });
  test('from Endpoints alike', () => {
    const object = endpoints([
      { addresses: [{ ip: '10.0.0.1' }], notReadyAddresses: [{ ip: '10.0.0.2' }], ports: [HTTP_8080] },
    ]);
    assert.deepEqual(keys(ask([headless, object], '9999')?.addresses), ['10.0.0.1:9999']);
  });
  test('a mirrored one speaks for the number that was asked for (S32)', () => {
    const annotations = { 'mirror.linkerd.io/remote-svc-fq-name': 'db.shop.svc.cluster.local' };
    const [address] = ask([headless, slice('a', ['203.0.113.7'], { annotations })], '9999')?.addresses ?? [];
    assert.equal(address?.authority, 'db.shop.svc.cluster.local:9999');
  });
  test('without a Service there is nothing', () => {
    assert.deepEqual(keys(ask([two], '80', { hostname: 'web-0' })?.addresses), []);
  });
});

test('over capacity is told, and that the set is a lower bound (S42)', () => {
  const annotations = { 'endpoints.kubernetes.io/over-capacity': 'truncated' };
  const object = endpoints([{ addresses: [{ ip: '10.0.0.1' }], ports: [HTTP_8080] }], { annotations });
  assert.equal(ask([service(), object], '80')?.isTruncated, true);
  assert.equal(ask([service(), slice('a', ['10.0.0.1'])], '80')?.isTruncated, false);
});

test('a first read looks no more often at each slice, however many there are (L42)', () => {
  const looksAt = (count: number) => {
    const slices = [...new Array(count).keys()].map((n) => slice(`s${n}`, [`10.0.${n}.1`, '10.1.0.1']));
    const state = stateOf(service(), ...slices);
    let looks = 0;
    const objects = new Map(
      [...state.objects].map(([uid, object]) => {
        const content = () => {
          looks++;
          return object.content();
        };
        return [uid, { ...object, content }];
      }),
    );
    const [answer] = queryPorts({ ...state, objects }, { tier: 'ready' });
    assert.equal(answer?.addresses.length, count + 1);
    return looks;
  };
  assert(looksAt(100) <= 10 * looksAt(10));
});
