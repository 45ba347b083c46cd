import type { Change } from '../../core/changes.ts';
import type { ObjectKind, ServiceState } from '../../core/service-state.ts';
import type { EpochMs } from '../../core/time.ts';

/** A stored object that is to go, although no event says so. */
export interface Removal {
  readonly kind: ObjectKind;
  readonly name: string;
  readonly uid: string;
  /** As it is stored. */
  readonly version: string;
  /** It lives, but is not watched any more: no deletion is remembered. */
  readonly isForgotten: boolean;
}

/** Removals of objects, and of the Service behind them when there is one: then it is the cause of the difference. */
export function removalsOf(
  serviceName: string,
  service: ServiceState['service'],
  objects: Iterable<Omit<Removal, 'isForgotten'>>,
  isForgotten: boolean,
): Removal[] {
  const own =
    service === null
      ? []
      : [{ kind: 'Service' as const, name: serviceName, uid: service.uid, version: service.version }];
  return [...objects, ...own].map(({ kind, name, uid, version }) => ({
    kind,
    name,
    uid,
    version,
    isForgotten,
  }));
}

/** The changes that removals are; their deltas say RESYNC. */
export function removalChanges(removals: readonly Removal[], now: EpochMs): Change[] {
  return removals.map(({ kind, name, uid, version, isForgotten }, index) => ({
    kind: 'remove',
    index,
    uid,
    isForgotten,
    cause: { kind, name, type: 'RESYNC', resourceVersion: version },
    isStateUnknown: false,
    isConfirmed: false,
    triggeredAt: null,
    observedAt: now,
  }));
}
