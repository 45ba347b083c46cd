import { type Clock, formatInstant } from '../../core/time.ts';
import type { ClusterDeletionAnswer, ClusterSummary, ClustersAnswer } from '../../wire/api.ts';
import { isGone, updateCluster } from '../services/cluster.ts';
import { fenceFromNow } from '../services/fence.ts';
import { type ClusterRecord, FencedError, type Store } from '../store/store.ts';
import { isStale } from './freshness.ts';

/** What listing clusters needs. */
export interface ClustersDeps {
  readonly store: Store;
  readonly clock: Clock;
}

/** All clusters, by name, each with its freshness and the number of its Services. */
export async function listClusters({ store, clock }: ClustersDeps): Promise<ClustersAnswer> {
  const clusters = (await store.listClusters()).filter((cluster) => !isGone(cluster));
  const items = clusters.map(async (cluster): Promise<ClusterSummary> => {
    const { name, uid, mode, epoch, lastHeartbeat } = cluster;
    return {
      name,
      uid,
      mode,
      epoch,
      lastHeartbeat: lastHeartbeat === null ? null : formatInstant(lastHeartbeat),
      stale: isStale(cluster, clock.now()),
      services: await countServices(store, cluster),
      ...(cluster.deletion !== null && { deleting: true }),
    };
  });
  return { items: await Promise.all(items) };
}

async function countServices(store: Store, { name }: ClusterRecord): Promise<number> {
  let services = 0;
  for await (const page of store.listServices(name, {}))
    services += page.filter(({ exists }) => exists).length;
  return services;
}

export type DeletionOutcome =
  | { readonly kind: 'deleting'; readonly answer: ClusterDeletionAnswer }
  | { readonly kind: 'noCluster' };

/**
 * Shuts its relays out by raising the epoch, and leaves the rest to the sweep. Asked for again it changes nothing.
 * @throws FencedError when the request has grown so old that another cluster may have the name by now (P8): a name is
 * free GHOST_MS after its deletion was asked for at the earliest.
 */
export async function deleteCluster({ store, clock }: ClustersDeps, name: string): Promise<DeletionOutcome> {
  const { deadline } = fenceFromNow(clock);
  const cluster = await updateCluster(store, name, (known) => {
    if (clock.monotonic() >= deadline) throw new FencedError('the request is too old to delete a cluster');
    if (known.deletion !== null) return null;
    return {
      ...known,
      epoch: known.epoch + 1,
      epochRaisedAt: clock.now(),
      hadFormerEpoch: true,
      deletion: 'removing',
    };
  });
  if (cluster === null || isGone(cluster)) return { kind: 'noCluster' };
  return { kind: 'deleting', answer: { name, epoch: cluster.epoch, deleting: true } };
}
