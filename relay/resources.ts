import type { EpochMs } from '../core/time.ts';
import type { Mode, WatchedKind } from '../wire/envelope.ts';
import { type Compacted, compact } from './compact.ts';

/** What is kept of an object, and whatever else its state tells. */
export interface Seen {
  readonly held: { readonly namespace: string; readonly name: string; readonly resourceVersion: string };
}

/** A watched resource as the API server serves it, and what is read of it. */
export interface Resource<T extends Seen = Compacted, K extends string = WatchedKind> {
  readonly kind: K;
  /** Path of its group and version. */
  readonly root: string;
  readonly plural: string;
  /** Its objects' metadata is enough; a server that does not know how to leave the rest out sends it all. */
  readonly isMetadataOnly?: boolean;
  /** The server may not have it at all, and nothing is wrong. */
  readonly isOptional?: boolean;
  /** @returns null for what has no identity, which no API server sends. */
  readonly read: (raw: unknown, observedAt: EpochMs, isDeleted: boolean) => T | null;
}

function watched(kind: WatchedKind, root: string, plural: string): Resource {
  return { kind, root, plural, read: (...seen) => compact(kind, ...seen) };
}

const SERVICES = watched('Service', '/api/v1', 'services');
const SLICES = watched('EndpointSlice', '/apis/discovery.k8s.io/v1', 'endpointslices');
const ENDPOINTS = watched('Endpoints', '/api/v1', 'endpoints');

/** What is watched in a mode: Services, and one kind of objects that carry endpoints (S12). */
export function watchedResources(mode: Mode): readonly [Resource, Resource] {
  return [SERVICES, mode === 'slices' ? SLICES : ENDPOINTS];
}

/** Path of a resource's collection; `namespace` null is the whole cluster. */
export function collectionPath(
  { root, plural }: Pick<Resource, 'root' | 'plural'>,
  namespace: string | null,
): string {
  return namespace === null ? `${root}/${plural}` : `${root}/namespaces/${namespace}/${plural}`;
}
