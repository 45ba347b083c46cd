import type { Clock } from '../../core/time.ts';
import type { Mode } from '../../wire/envelope.ts';
import { blankCluster, MAX_CLUSTER_ATTEMPTS } from '../services/cluster.ts';
import { fenceFromNow, GHOST_MS } from '../services/fence.ts';
import { type ClusterRecord, type Fence, type Store, StoreUnavailableError } from '../store/store.ts';

/** Who sends, as every request's envelope says. */
export interface Sender {
  readonly cluster: string;
  readonly clusterUid: string | null;
  readonly epoch: number;
  readonly mode: Mode;
}

/** May a request be applied? */
export type Admission =
  | { readonly kind: 'admitted'; readonly cluster: ClusterRecord; readonly fence: Fence }
  /** A newer relay has written; this one must stand down (W18). */
  | { readonly kind: 'oldEpoch'; readonly current: number }
  /** Another cluster has this name. */
  | { readonly kind: 'otherCluster'; readonly uid: string }
  /** What has this name is still being taken away. */
  | { readonly kind: 'beingDeleted' };

/** Reads the cluster's epoch, raises it when the sender's is higher, and fences what the sender may still write (P8). */
export async function admit(
  deps: { readonly store: Store; readonly clock: Clock },
  sender: Sender,
): Promise<Admission> {
  const { store, clock } = deps;
  for (let attempt = 1; attempt <= MAX_CLUSTER_ATTEMPTS; attempt++) {
    // The fence counts from before the read: a newer epoch may rise right after it.
    const fence = fenceFromNow(clock);
    const known = await store.getCluster(sender.cluster);
    if (known?.deletion === 'removing' || known?.deletion === 'settling')
      return sender.epoch < known.epoch
        ? { kind: 'oldEpoch', current: known.epoch }
        : { kind: 'beingDeleted' };
    if (
      known !== null &&
      known.uid !== null &&
      sender.clusterUid !== null &&
      known.uid !== sender.clusterUid
    ) {
      return { kind: 'otherCluster', uid: known.uid };
    }
    if (known !== null && sender.epoch < known.epoch) return { kind: 'oldEpoch', current: known.epoch };
    const isNews =
      known === null ||
      known.deletion !== null ||
      sender.epoch > known.epoch ||
      (known.uid === null && sender.clusterUid !== null);
    if (!isNews) return { kind: 'admitted', cluster: known, fence };
    const cluster = known === null ? newCluster(sender, clock) : raise(known, sender, clock);
    if (await store.putCluster(cluster, known)) return { kind: 'admitted', cluster, fence };
  }
  throw new StoreUnavailableError(`too many writers of cluster ${sender.cluster}`);
}

/** How long requests of a former leader may still run, in milliseconds (W18). */
export function ghostsFor(cluster: ClusterRecord, clock: Clock): number {
  return cluster.hadFormerEpoch ? Math.max(0, cluster.epochRaisedAt + GHOST_MS - clock.now()) : 0;
}

function newCluster({ cluster, clusterUid, epoch, mode }: Sender, clock: Clock): ClusterRecord {
  const epochRaisedAt = clock.now();
  const isNew = { hadFormerEpoch: false, deletion: null };
  return blankCluster({ name: cluster, uid: clusterUid, epoch, epochRaisedAt, mode, ...isNew });
}

function raise(known: ClusterRecord, sender: Sender, clock: Clock): ClusterRecord {
  // A name that was freed: a last step of the sweep may still be under way, as if it were a former leader's.
  if (known.deletion !== null) return { ...newCluster(sender, clock), hadFormerEpoch: true };
  const { clusterUid, epoch } = sender;
  const uid = known.uid ?? clusterUid;
  if (epoch === known.epoch) return { ...known, uid };
  return { ...known, uid, epoch, epochRaisedAt: clock.now(), hadFormerEpoch: true };
}
