import { kindOfMode } from '../../core/changes.ts';
import type { ServiceState } from '../../core/service-state.ts';
import type { EpochMs } from '../../core/time.ts';
import { changeService, type ServiceChanger } from '../services/change-service.ts';
import { blankCluster, updateCluster } from '../services/cluster.ts';
import { fenceFromNow, GHOST_MS } from '../services/fence.ts';
import { inParallel } from '../services/in-parallel.ts';
import { removalChanges, removalsOf } from '../services/removals.ts';
import type { ClusterDeletion, ClusterRecord, Head, ServiceKey, Store } from '../store/store.ts';

/** Dead letters that are looked through for those of a deleted cluster. */
const MAX_DEAD_LETTERS = 10_000;
const MAX_PARALLEL_DELETIONS = 16;

/** Is something left of a service that a deletion of its cluster takes away? */
export function isOccupied({ records, objects }: Head): boolean {
  return records.service !== null || objects.length > 0;
}

/**
 * Takes away everything of one service of a deleted cluster; its sequences stay. The cluster is read anew behind the
 * fence, as a relay's request reads its epoch: whoever takes the name waits until what was let in here has landed.
 * @returns false when the name is taken again, or when somebody else wrote in between: the next pass looks again.
 */
export async function emptyService(deps: ServiceChanger, key: ServiceKey): Promise<boolean> {
  const { store, clock } = deps;
  const fence = fenceFromNow(clock);
  const cluster = await store.getCluster(key.cluster);
  if (cluster === null || cluster.deletion === null) return false;
  let isDecided = false;
  const plan = (state: ServiceState) => {
    // Asked again, a race was lost: perhaps to the first event of the name's new owner.
    if (isDecided) return [];
    isDecided = true;
    return removalChanges(removalsOf(key.name, state.service, state.objects.values(), true), clock.now());
  };
  const { statuses } = await changeService(deps, { key, kind: kindOfMode(cluster.mode), fence, plan });
  return statuses.size > 0;
}

/**
 * Moves a deletion on after a pass that left nothing behind. Requests from before it was asked for may have landed until
 * GHOST_MS behind that, so only a pass which began later frees the name.
 * @returns whether this pass was the one that took the last away.
 */
export async function advanceDeletion(
  store: Store,
  { name, epoch, deletion }: ClusterRecord,
  passStart: EpochMs,
): Promise<boolean> {
  if (!(await forgetDeadLetters(store, name))) return false;
  let isFirst = false;
  await updateCluster(store, name, (known) => {
    isFirst = false;
    if (known.epoch !== epoch || known.deletion !== deletion) return null;
    const isSettled = passStart - known.epochRaisedAt >= GHOST_MS;
    if (deletion === 'settling' && !isSettled) return null;
    isFirst = deletion === 'removing';
    return forget(known, isSettled ? 'over' : 'settling');
  });
  return isFirst;
}

/**
 * Nobody is to replay what a deleted cluster's subscribers missed: it would not become true any more.
 * @returns false when there may be more of them.
 */
async function forgetDeadLetters(store: Store, cluster: string): Promise<boolean> {
  const letters = await store.listDeadLetters(MAX_DEAD_LETTERS);
  const own = letters.filter(({ key }) => key.cluster === cluster);
  await inParallel(MAX_PARALLEL_DELETIONS, own, (letter) => store.deleteDeadLetter(letter));
  return own.length === 0 || letters.length < MAX_DEAD_LETTERS;
}

/** What stays of a cluster: its name, and the epoch below which everybody is refused. */
function forget(
  { name, epoch, epochRaisedAt, mode }: ClusterRecord,
  deletion: ClusterDeletion,
): ClusterRecord {
  return blankCluster({ name, uid: null, epoch, epochRaisedAt, hadFormerEpoch: true, mode, deletion });
}
