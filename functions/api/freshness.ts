import type { EpochMs } from '../../core/time.ts';
import type { ClusterRecord } from '../store/store.ts';

/** A cluster whose relay has not been heard for longer is stale, in milliseconds: four heartbeats. */
const STALE_AFTER_MS = 60_000;

/** How far what is served can be trusted. */
export interface Freshness {
  /** Up to when it is known to be right. */
  readonly asOf: EpochMs;
  readonly isStale: boolean;
}

/** Has the relay fallen silent, or never spoken? The data is served all the same. */
export function isStale(cluster: Pick<ClusterRecord, 'lastHeartbeat'> | null, now: EpochMs): boolean {
  const last = cluster?.lastHeartbeat ?? null;
  return last === null || now - last > STALE_AFTER_MS;
}

/**
 * Freshness of a service.
 * @param cluster as read *before* the service, so that nothing which its relay had delivered by `asOf` is missing.
 * @param changedAt the service's last commit, which counts while no relay has said that it is in step.
 */
export function freshnessOf(cluster: ClusterRecord | null, changedAt: EpochMs, now: EpochMs): Freshness {
  return { asOf: cluster?.lastSynced ?? changedAt, isStale: isStale(cluster, now) };
}
