import type { EndpointSlice, RawEndpoint, RawSlicePort } from '../../core/kubernetes.ts';
import type { HistoryEvent } from '../core/history.ts';

/** What a relay tells in one request. */
export type Batch = readonly HistoryEvent[];

const NAMESPACE = 'default';
const HTTP = { name: 'http', port: 8080, protocol: 'TCP' };
/** Endpoints of one slice at most. Source: kube-controller-manager, --max-endpoints-per-slice. */
const MAX_SLICE = 1000;

/** Slices that change their service: alone, in a circle, and one that goes while it moves (S10). */
export function movingSlices(): Batch[] {
  const a = (version: number, home: string, type: HistoryEvent['type'] = 'MODIFIED') =>
    slice('a', version, home, ips(version % 2, 3), type);
  const b = (version: number, home: string) => slice('b', version, home, ips(0, 2));
  return [
    [service('web', 1), service('api', 2), a(3, 'web', 'ADDED'), b(4, 'web')],
    [a(5, 'api')],
    [a(6, 'api')],
    [a(7, 'web'), b(8, 'api')],
    [b(9, 'web'), a(10, 'web', 'DELETED')],
  ];
}

/** Deltas that no head has room for, several of them at a time: 1,500 addresses on each of six ports. */
export function manyPorts(): Batch[] {
  const names = Array.from({ length: 6 }, (_, index) => `a-long-name-${index}`);
  const ports = names.map((name, index) => ({ name, port: 8080 + index, protocol: 'TCP' }));
  const put = (version: number, zone: string) =>
    Array.from({ length: 15 }, (_, index) =>
      slice(`s${index}`, version + index, 'web', longEndpoints(index, 100, zone), 'MODIFIED', ports),
    );
  return [
    [
      service(
        'web',
        1,
        names.map((name, index) => ({ name, port: 80 + index })),
      ),
      ...put(10, 'a'),
    ],
    put(100, 'b'),
    [service('web', 200, [], 'DELETED')],
  ];
}

/** A service of 50,000 addresses: too big for one request, so its slices come first, and itself last. */
export function fiftyThousand(): Batch[] {
  const slices = Array.from({ length: 50 }, (_, index) =>
    slice(`s${index}`, 10 + index, 'web', longEndpoints(index, MAX_SLICE, 'a')),
  );
  return [slices.slice(0, 17), slices.slice(17, 34), slices.slice(34), [service('web', 100)]];
}

function service(
  name: string,
  version: number,
  ports: readonly { readonly name: string; readonly port: number }[] = [{ name: 'http', port: 80 }],
  type: HistoryEvent['type'] = 'ADDED',
): HistoryEvent {
  const metadata = { namespace: NAMESPACE, name, uid: `uid-${name}`, resourceVersion: `${version}` };
  return event(type, {
    apiVersion: 'v1',
    kind: 'Service',
    metadata,
    spec: { clusterIP: '10.96.0.1', ports },
  });
}

function slice(
  name: string,
  version: number,
  home: string,
  endpoints: readonly RawEndpoint[],
  type: HistoryEvent['type'] = 'MODIFIED',
  ports: readonly RawSlicePort[] = [HTTP],
): HistoryEvent {
  const metadata = {
    ...{ namespace: NAMESPACE, name, uid: `uid-${name}`, resourceVersion: `${version}` },
    labels: { 'kubernetes.io/service-name': home },
  };
  const object: EndpointSlice = { kind: 'EndpointSlice', metadata, addressType: 'IPv4', ports, endpoints };
  return event(type, { ...object, apiVersion: 'discovery.k8s.io/v1' });
}

function event(type: HistoryEvent['type'], object: HistoryEvent['object']): HistoryEvent {
  return { type, object, enrichVersion: 0, enrich: {} };
}

function ips(net: number, count: number): RawEndpoint[] {
  return Array.from({ length: count }, (_, index) => ({ addresses: [`10.0.${net}.${index + 1}`] }));
}

function longEndpoints(net: number, count: number, zone: string): RawEndpoint[] {
  return Array.from({ length: count }, (_, index) => ({
    addresses: [`10.${net}.${index >> 8}.${index & 255}`],
    conditions: { ready: true },
    nodeName: `ip-10-0-${index % 60}-${(index * 37) % 250}.eu-west-1.compute.internal`,
    zone: `eu-west-1${zone}`,
    targetRef: { kind: 'Pod', namespace: NAMESPACE, name: `web-7d4b9c6f5-${net}-${index}` },
  }));
}
