import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { equalContents } from '../../core/endpoint-object.ts';
import { readEndpoints } from '../../core/endpoints.ts';
import type { Endpoints } from '../../core/kubernetes.ts';
import { endpoints, HTTP_8080 } from './builders.ts';

describe('what an Endpoints object contributes (S40, S41)', () => {
  const conditions = (object: Endpoints) =>
    readEndpoints(object).content.groups.map((group) =>
      group.endpoints.map(({ ip, condition }) => `${ip} ${condition}`),
    );
  const cases: Readonly<Record<string, readonly [object: Endpoints, want: readonly (readonly string[])[]]>> =
    {
      'no subsets: nothing': [endpoints(null), []],
      'an empty list of subsets: nothing': [endpoints([]), []],
      'a subset that holds nothing is none': [endpoints([{ addresses: null, ports: [] }]), []],
      'a subset with ports alone still says how they are called': [endpoints([{ ports: [HTTP_8080] }]), [[]]],
      'addresses are ready, notReadyAddresses are not': [
        endpoints([
          { addresses: [{ ip: '10.0.0.2' }], notReadyAddresses: [{ ip: '10.0.0.1' }], ports: [HTTP_8080] },
        ]),
        [['10.0.0.1 notReady', '10.0.0.2 ready']],
      ],
      'in both lists means not ready': [
        endpoints([
          { addresses: [{ ip: '10.0.0.1' }], notReadyAddresses: [{ ip: '10.0.0.1' }], ports: [HTTP_8080] },
        ]),
        [['10.0.0.1 notReady']],
      ],
      'each subset keeps its own ports': [
        endpoints([
          { addresses: [{ ip: '10.0.0.1' }], ports: [HTTP_8080] },
          { addresses: [{ ip: '10.0.0.2' }], ports: null },
        ]),
        [['10.0.0.2 ready'], ['10.0.0.1 ready']],
      ],
    };
  for (const [sentence, [object, want]] of Object.entries(cases))
    test(sentence, () => assert.deepEqual(conditions(object).sort(), [...want].sort()));

  test('an address has hostname, node and target, and no zone', () => {
    const targetRef = { kind: 'Pod', name: 'web-0' };
    const address = { ip: 'FD00::1', hostname: 'web-0', nodeName: 'n1', targetRef };
    const known = { 'default/web-0': { owner: { kind: 'StatefulSet', name: 'web' }, opaqueProtocol: true } };
    const { content } = readEndpoints(endpoints([{ addresses: [address], ports: [HTTP_8080] }]), known);
    assert.deepEqual(content.groups[0]?.endpoints, [
      {
        ip: 'fd00::1',
        family: 'IPv6',
        condition: 'ready',
        hostname: 'web-0',
        node: 'n1',
        zone: null,
        hints: null,
        target: { kind: 'Pod', namespace: 'default', name: 'web-0' },
        owner: { kind: 'StatefulSet', name: 'web' },
        opaqueProtocol: true,
      },
    ]);
  });

  test('senseless IPs and ports are skipped alone and counted (S14, S20)', () => {
    const { content, skipped } = readEndpoints(
      endpoints([
        {
          addresses: [{ ip: '10.0.0.01' }, { ip: '10.0.0.1' }],
          notReadyAddresses: [{ ip: 'x' }],
          ports: [{ name: 'http' }],
        },
      ]),
    );
    assert.equal(skipped, 3);
    assert.deepEqual(
      content.groups.map((group) => group.endpoints.length),
      [1],
    );
  });

  test('over capacity: truncated (S42)', () => {
    const annotation = (value: string) => ({
      annotations: { 'endpoints.kubernetes.io/over-capacity': value },
    });
    assert(readEndpoints(endpoints([], annotation('truncated'))).content.isTruncated);
    assert(!readEndpoints(endpoints([], annotation('warning'))).content.isTruncated);
  });

  test('orders, versions and leader election are noise (S5, S6, S43)', () => {
    const subsets = [
      {
        addresses: [{ ip: '10.0.0.1' }, { ip: '10.0.0.2' }],
        ports: [HTTP_8080, { name: 'admin', port: 9000 }],
      },
      { addresses: [{ ip: '10.0.0.3' }], ports: [HTTP_8080] },
    ];
    const shuffled = subsets.toReversed().map(({ addresses, ports }) => ({
      addresses: addresses.toReversed(),
      ports: ports.toReversed(),
    }));
    const annotations = { 'control-plane.alpha.kubernetes.io/leader': '{}' };
    const a = readEndpoints(endpoints(subsets)).content;
    const b = readEndpoints(endpoints(shuffled, { version: 9, annotations })).content;
    assert(equalContents(a, b));
  });
});
