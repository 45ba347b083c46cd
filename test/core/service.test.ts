import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Service } from '../../core/kubernetes.ts';
import { readService, type ServiceRecord } from '../../core/service.ts';
import { PORTLESS } from '../../core/service-port.ts';
import { service } from './builders.ts';

describe('what the sets need of a Service', () => {
  const cases: Readonly<
    Record<string, { spec: NonNullable<Service['spec']>; want: Partial<ServiceRecord>; skipped?: number }>
  > = {
    'a port without a protocol is TCP, without a name unnamed (S17)': {
      spec: { ports: [{ port: 80 }] },
      want: { ports: [{ port: 80, protocol: 'TCP', name: '' }], type: 'ClusterIP' },
    },
    'TCP and UDP on one number are two ports (S21)': {
      spec: {
        ports: [
          { name: 'dns', port: 53, protocol: 'UDP' },
          { name: 'dns-tcp', port: 53 },
        ],
      },
      want: {
        ports: [
          { port: 53, protocol: 'TCP', name: 'dns-tcp' },
          { port: 53, protocol: 'UDP', name: 'dns' },
        ],
      },
    },
    'of two ports with one number and protocol the first counts': {
      spec: {
        ports: [
          { name: 'a', port: 80 },
          { name: 'b', port: 80 },
        ],
      },
      want: { ports: [{ port: 80, protocol: 'TCP', name: 'a' }] },
    },
    'a port without a number, or with an unknown protocol, is skipped and counted (P6)': {
      spec: { ports: [{ name: 'a' }, { name: 'b', port: 80, protocol: 'QUIC' }, { name: 'c', port: 81 }] },
      want: { ports: [{ port: 81, protocol: 'TCP', name: 'c' }] },
      skipped: 2,
    },
    'a headless Service without ports has the port 0 (S19)': {
      spec: { clusterIP: 'None', ports: null },
      want: { ports: [PORTLESS], isHeadless: true },
    },
    'a Service that is not headless and has no ports has none': {
      spec: { ports: [] },
      want: { ports: [], isHeadless: false },
    },
    'an ExternalName has no ports, whatever it lists (S36)': {
      spec: { type: 'ExternalName', externalName: 'db.example.com', clusterIP: 'None' },
      want: { ports: [], externalName: 'db.example.com', isHeadless: false, type: 'ExternalName' },
    },
    'a Service without a selector is one like any other (S37)': {
      spec: { selector: null },
      want: { hasSelector: false, ports: [{ port: 80, protocol: 'TCP', name: 'http' }] },
    },
    'a selector': { spec: { selector: { app: 'web' } }, want: { hasSelector: true } },
    'internalTrafficPolicy Local (S33)': {
      spec: { internalTrafficPolicy: 'Local' },
      want: { isLocal: true },
    },
    'internalTrafficPolicy Cluster': { spec: { internalTrafficPolicy: 'Cluster' }, want: { isLocal: false } },
  };
  for (const [sentence, { spec, want, skipped = 0 }] of Object.entries(cases))
    test(sentence, () => {
      const read = readService(service(spec));
      assert.deepEqual({ ...read.service, ...want }, read.service);
      assert.equal(read.skipped, skipped);
    });

  test('without a spec there are no ports', () => {
    assert.deepEqual(readService({ ...service(), spec: null }).service.ports, []);
  });
});
