import { type EndpointObject, endpointObject } from '../../core/endpoint-object.ts';
import { readEndpoints } from '../../core/endpoints.ts';
import type {
  EndpointSlice,
  Endpoints,
  ObjectMeta,
  RawEndpoint,
  RawServicePort,
  RawSlicePort,
  RawSubset,
  Service,
} from '../../core/kubernetes.ts';
import { readSlice } from '../../core/slice.ts';

type Sent<T> = T & { readonly apiVersion: string };
type Meta = Partial<ObjectMeta>;
/** Anything that a case is about, beside what its object has anyway. */
interface Said extends Meta {
  readonly version?: number | string;
}

export const HTTP: RawServicePort = { name: 'http', port: 80, protocol: 'TCP' };
export const HTTP_8080: RawSlicePort = { name: 'http', port: 8080, protocol: 'TCP' };

function metadata({ version = 1, ...said }: Said, name: string): ObjectMeta {
  return { namespace: 'default', name, uid: `uid-${name}`, resourceVersion: `${version}`, ...said };
}

/** Service `web` with port 80, named http. */
export function service(spec: NonNullable<Service['spec']> = {}, said: Said = {}): Sent<Service> {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: metadata({ uid: 'uid-svc', ...said }, said.name ?? 'web'),
    spec: { clusterIP: '10.96.0.7', ports: [HTTP], ...spec },
  };
}

/** A slice of Service `web` with port 8080, named http. */
export function slice(
  name: string,
  endpoints: readonly (string | RawEndpoint)[] | null,
  said: Said & {
    readonly ports?: readonly RawSlicePort[] | null;
    readonly service?: string | null;
    readonly addressType?: string | null;
  } = {},
): Sent<EndpointSlice> {
  const { ports = [HTTP_8080], service: home = 'web', addressType, labels, ...rest } = said;
  const joined = home === null ? {} : { 'kubernetes.io/service-name': home };
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: metadata({ ...rest, labels: { ...joined, ...labels } }, name),
    addressType: addressType === undefined ? 'IPv4' : addressType,
    ports,
    endpoints:
      endpoints?.map((entry) => (typeof entry === 'string' ? { addresses: [entry] } : entry)) ?? null,
  };
}

/** The Endpoints of Service `web`. */
export function endpoints(subsets: readonly RawSubset[] | null, said: Said = {}): Sent<Endpoints> {
  return { apiVersion: 'v1', kind: 'Endpoints', metadata: metadata(said, said.name ?? 'web'), subsets };
}

/** An endpoint in a state, perhaps of a pod, with whatever else a case is about. */
export function endpoint(
  ip: string,
  state: 'ready' | 'draining' | 'terminating' | 'notReady',
  more: RawEndpoint & { readonly pod?: string } = {},
): RawEndpoint {
  const { pod, ...fields } = more;
  return {
    addresses: [ip],
    conditions: {
      ready: state === 'ready',
      serving: state === 'ready' || state === 'draining',
      terminating: state === 'draining' || state === 'terminating',
    },
    ...(pod !== undefined && { targetRef: { kind: 'Pod', namespace: 'default', name: pod } }),
    ...fields,
  };
}

/** A slice or Endpoints object as its service keeps it. */
export function record(raw: EndpointSlice | Endpoints): EndpointObject {
  const { name, uid, resourceVersion: version } = raw.metadata;
  const { content } = raw.kind === 'Endpoints' ? readEndpoints(raw) : readSlice(raw, 'web');
  return endpointObject({ kind: raw.kind, name, uid, version, enrichment: null }, content);
}
