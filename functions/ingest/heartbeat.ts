import type { Clock, EpochMs } from '../../core/time.ts';
import { relayDetailOf } from '../../wire/delta.ts';
import type { HeartbeatAnswer, HeartbeatRequest } from '../../wire/heartbeat.ts';
import { type Bus, BusUnavailableError } from '../bus/bus.ts';
import { relayEntry } from '../bus/relay-events.ts';
import { isOvertaken, mergeVersions, updateCluster } from '../services/cluster.ts';
import type { ClusterRecord, Store } from '../store/store.ts';
import { ghostsFor } from './admission.ts';

/** What heartbeats need. */
export interface HeartbeatDeps {
  readonly store: Store;
  readonly bus: Bus;
  readonly clock: Clock;
}

/**
 * Records that a relay lives and what it has seen: freshness, versions, lag. A relay that was lost is announced as
 * recovered first, so that a crash in between only says it twice.
 * @throws StoreUnavailableError, BusUnavailableError.
 */
export async function recordHeartbeat(
  deps: HeartbeatDeps,
  request: HeartbeatRequest,
  cluster: ClusterRecord,
): Promise<HeartbeatAnswer> {
  const { store, clock } = deps;
  const now = clock.now();
  if (cluster.lostSince !== null) await announceRecovery(deps, cluster.name, cluster.lostSince, now);
  const updated = await updateCluster(store, cluster.name, (known) =>
    isOvertaken(known, request.epoch)
      ? null
      : {
          ...known,
          mode: request.mode,
          namespaces: request.namespaces,
          versions: mergeVersions(
            known.versions,
            Object.fromEntries(request.kinds.map(({ kind, resourceVersion }) => [kind, resourceVersion])),
          ),
          lastHeartbeat: now,
          lastSynced: request.synced ? now : known.lastSynced,
          lostSince: null,
          histograms: request.histograms,
          lastEventAges: Object.fromEntries(
            request.kinds.map(({ kind, lastEventAgeMs }) => [kind, lastEventAgeMs]),
          ),
        },
  );
  const { epoch, versions } = updated ?? cluster;
  return { epoch, waitMs: ghostsFor(updated ?? cluster, clock), versions };
}

async function announceRecovery(
  { bus }: HeartbeatDeps,
  cluster: string,
  lostSince: EpochMs,
  at: EpochMs,
): Promise<void> {
  const [result] = await bus.publish([relayEntry('RelayRecovered', relayDetailOf(cluster, lostSince, at))]);
  if (result?.kind === 'refused' && !result.isFinal)
    throw new BusUnavailableError(`the bus refused for now: ${result.code}`);
}
