import type { Mode, WatchedKind } from '../wire/envelope.ts';

/** A watched resource as the API server serves it. */
export interface Resource {
  readonly kind: WatchedKind;
  readonly apiVersion: string;
  /** Path of its group and version. */
  readonly root: string;
  readonly plural: string;
}

const RESOURCES: Readonly<Record<WatchedKind, Resource>> = {
  Service: { kind: 'Service', apiVersion: 'v1', root: '/api/v1', plural: 'services' },
  EndpointSlice: {
    kind: 'EndpointSlice',
    apiVersion: 'discovery.k8s.io/v1',
    root: '/apis/discovery.k8s.io/v1',
    plural: 'endpointslices',
  },
  Endpoints: { kind: 'Endpoints', apiVersion: 'v1', root: '/api/v1', plural: 'endpoints' },
};

/** What is watched in a mode: Services, and one kind of objects that carry endpoints (S12). */
export function watchedResources(mode: Mode): readonly [Resource, Resource] {
  return [RESOURCES.Service, mode === 'slices' ? RESOURCES.EndpointSlice : RESOURCES.Endpoints];
}

/** apiVersion of a watched kind. */
export function apiVersionOf(kind: WatchedKind): string {
  return RESOURCES[kind].apiVersion;
}

/** Path of a resource's collection; `namespace` null is the whole cluster. */
export function collectionPath({ root, plural }: Resource, namespace: string | null): string {
  return namespace === null ? `${root}/${plural}` : `${root}/namespaces/${namespace}/${plural}`;
}
