import { type ClusterRecord, type Store, StoreUnavailableError } from '../store/store.ts';

/** Writers of one cluster's item that may get in between before the sender is asked to come again. */
export const MAX_CLUSTER_ATTEMPTS = 8;

/**
 * Changes a cluster's item under a condition, over and over until nobody gets in between.
 * @param update gets the item as it stands; null leaves it alone.
 * @returns the item as it is now; null when there is none.
 */
export async function updateCluster(
  store: Store,
  name: string,
  update: (cluster: ClusterRecord) => ClusterRecord | null,
): Promise<ClusterRecord | null> {
  for (let attempt = 1; attempt <= MAX_CLUSTER_ATTEMPTS; attempt++) {
    const known = await store.getCluster(name);
    const updated = known === null ? null : update(known);
    if (updated === null || (await store.putCluster(updated, known))) return updated ?? known;
  }
  throw new StoreUnavailableError(`too many writers of cluster ${name}`);
}
