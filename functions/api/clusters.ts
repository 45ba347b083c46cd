import { type Clock, formatInstant } from '../../core/time.ts';
import type { ClusterSummary, ClustersAnswer } from '../../wire/api.ts';
import type { ClusterRecord, Store } from '../store/store.ts';
import { isStale } from './freshness.ts';

/** What listing clusters needs. */
export interface ClustersDeps {
  readonly store: Store;
  readonly clock: Clock;
}

/** All clusters, by name, each with its freshness and the number of its Services. */
export async function listClusters({ store, clock }: ClustersDeps): Promise<ClustersAnswer> {
  const clusters = await store.listClusters();
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
