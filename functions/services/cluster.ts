import { compareVersions } from '../../core/version.ts';
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

/** A cluster of which nothing was told yet, or all was forgotten. */
export function blankCluster(
  known: Pick<
    ClusterRecord,
    'name' | 'uid' | 'epoch' | 'epochRaisedAt' | 'hadFormerEpoch' | 'mode' | 'deletion'
  >,
): ClusterRecord {
  return {
    ...known,
    namespaces: null,
    versions: {},
    lastHeartbeat: null,
    lastSynced: null,
    lostSince: null,
    histograms: {},
    lastEventAges: {},
    resyncs: 0,
  };
}

/** Was all that is stored of it taken away? Then nobody is told of it any more. */
export function isGone({ deletion }: Pick<ClusterRecord, 'deletion'>): boolean {
  return deletion === 'settling' || deletion === 'over';
}

/** Has a newer relay taken over, or somebody deleted the cluster, since a request was let in? Then it tells of the past. */
export function isOvertaken(cluster: Pick<ClusterRecord, 'epoch' | 'deletion'>, epoch: number): boolean {
  return cluster.epoch > epoch || cluster.deletion !== null;
}

/** The higher of two versions of each kind. */
export function mergeVersions(
  known: Readonly<Record<string, string>>,
  told: Readonly<Record<string, string | null>>,
): Record<string, string> {
  const merged = new Map(Object.entries(known));
  for (const [kind, version] of Object.entries(told)) {
    if (!version) continue;
    const former = merged.get(kind);
    if (former === undefined || compareVersions(version, former) > 0) merged.set(kind, version);
  }
  return Object.fromEntries(merged);
}
