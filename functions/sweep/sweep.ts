import { randomBytes } from 'node:crypto';
import { kindOfMode } from '../../core/changes.ts';
import type { EpochMs } from '../../core/time.ts';
import { relayDetailOf } from '../../wire/delta.ts';
import type { Logger } from '../../wire/log.ts';
import { BusUnavailableError } from '../bus/bus.ts';
import { relayEntry } from '../bus/relay-events.ts';
import { changeService, type ServiceChanger } from '../services/change-service.ts';
import { updateCluster } from '../services/cluster.ts';
import { deadLetterId } from '../services/dead-letters.ts';
import { fenceFromNow } from '../services/fence.ts';
import { inParallel } from '../services/in-parallel.ts';
import { publish } from '../services/publication.ts';
import type {
  ChunkName,
  ClusterRecord,
  Head,
  ServiceKey,
  ServiceSummary,
  Subscription,
  SweepMemory,
} from '../store/store.ts';
import { advanceDeletion, emptyService, isOccupied } from './cluster-deletion.ts';

/** A relay silent for longer is lost, in milliseconds. */
const RELAY_SILENCE_MS = 60_000;
/** A sweep's lease runs out after so many milliseconds: before the next minute's sweep. */
const LEASE_MS = 55_000;
/** Services changed so long before the last good pass are visited again, in milliseconds: lists may lag, passes fail. */
const LOOK_BACK_MS = 15 * 60_000;
/** Every service is visited so often, in milliseconds, whatever the lists say. */
const VISIT_EVERY_MS = 24 * 3_600_000;
/** Replaced chunks are left to slow readers for so many milliseconds. */
const GARBAGE_REST_MS = 5 * 60_000;
/** Leftovers of a crash are only taken for such after so many milliseconds: a head that names them may be on its way. */
const ORPHAN_AGE_MS = 3_600_000;
const MAX_PARALLEL_SERVICES = 8;
/** Services of deleted clusters that a sweep empties; the next one goes on. */
const MAX_EMPTIED = 500;
/** Subscriptions that a sweep deletes; nobody counts them any more, so that what is left can wait. */
const MAX_LEASES = 1000;
const MAX_PARALLEL_LEASES = 16;
/** Dead letters that a sweep counts: as many tell no more than fewer. */
const MAX_DEAD_LETTERS = 1000;
/** Chunks that an instance remembers to have deleted; deleting one twice only costs a unit. */
const MAX_COLLECTED = 100_000;

/** What a sweep needs. */
export interface Sweeper extends ServiceChanger {
  readonly log: Logger;
  /** Chunks that this instance has deleted already, so that it does not pay for it every minute. */
  readonly collected: Set<ChunkName>;
}

/** What one sweep did. */
export interface SweepReport {
  readonly published: number;
  readonly windowsClosed: number;
  readonly chunksDeleted: number;
  readonly leasesDeleted: number;
  readonly relaysLost: number;
  readonly clustersDeleted: number;
}

interface Tally {
  published: number;
  windowsClosed: number;
  chunksDeleted: number;
  leasesDeleted: number;
  relaysLost: number;
  clustersDeleted: number;
  failures: number;
  /** Services of deleted clusters that were emptied. */
  emptied: number;
  /** Services of deleted clusters that wait for the next pass. */
  occupied: number;
}

/**
 * Runs a sweep unless another one is running; null when it left that to the other. Correctness never depends on it.
 * @param isForced takes the lease whoever holds it.
 */
export async function sweepAlone(sweeper: Sweeper, { isForced = false } = {}): Promise<SweepReport | null> {
  const { store, clock } = sweeper;
  const holder = randomBytes(8).toString('hex');
  const start = clock.now();
  const until = (start + LEASE_MS) as EpochMs;
  // At the end of a lease taken now, every lease that anybody holds has run out.
  const memory = await store.takeLease(holder, until, isForced ? until : start);
  if (memory === null) return null;
  const { report, memory: next } = await sweep(sweeper, memory);
  await store.releaseLease(holder, next);
  return report;
}

/**
 * Does what time or a failure left undone: publishes what is pending, closes rename windows, tells of silent relays,
 * deletes what nobody names any more. One bad service does not keep it from the others; then the next pass looks again.
 */
async function sweep(
  sweeper: Sweeper,
  { lastPass, lastVisit }: SweepMemory,
): Promise<{ readonly report: SweepReport; readonly memory: SweepMemory }> {
  const { store, clock, log } = sweeper;
  const start = clock.now();
  const isDaily = lastVisit === null || start - lastVisit >= VISIT_EVERY_MS;
  const tally: Tally = {
    published: 0,
    windowsClosed: 0,
    chunksDeleted: 0,
    leasesDeleted: 0,
    relaysLost: 0,
    clustersDeleted: 0,
    failures: 0,
    emptied: 0,
    occupied: 0,
  };
  const attempt = async (name: string, task: () => Promise<void>) => {
    try {
      await task();
    } catch (error) {
      tally.failures++;
      log.error('sweep failed', { of: name, error });
    }
  };
  for (const cluster of await store.listClusters()) {
    await attempt(cluster.name, () => tellLostRelay(sweeper, cluster, tally));
    const passStart = clock.now();
    const leftBefore = tally.failures + tally.occupied;
    const isWhole = isDaily || cluster.deletion === 'removing' || cluster.deletion === 'settling';
    await attempt(cluster.name, async () => {
      for await (const page of store.listServices(cluster.name, {})) {
        const due = page.filter((summary) => isWhole || isDue(summary, start, lastPass));
        await inParallel(MAX_PARALLEL_SERVICES, due, ({ key }) =>
          attempt(`${key.namespace}/${key.name}`, () => visit(sweeper, cluster, key, isDaily, tally)),
        );
      }
    });
    const isEmpty = isWhole && tally.failures + tally.occupied === leftBefore;
    if (isEmpty && cluster.deletion !== null && cluster.deletion !== 'over')
      await attempt(cluster.name, async () => {
        if (await advanceDeletion(store, cluster, passStart)) tally.clustersDeleted++;
      });
  }
  await attempt('dead letters', () => tellDeadLetters(sweeper));
  await attempt('subscriptions', () => deleteEndedLeases(sweeper, tally));
  const { failures, emptied: _emptied, occupied: _occupied, ...report } = tally;
  const memory = {
    lastPass: failures === 0 ? start : lastPass,
    lastVisit: isDaily && failures === 0 ? start : lastVisit,
  };
  return { report, memory };
}

function isDue({ changedAt, windowUntil }: ServiceSummary, now: EpochMs, lastPass: EpochMs | null): boolean {
  if (lastPass === null || changedAt >= lastPass - LOOK_BACK_MS) return true;
  return windowUntil !== null && windowUntil <= now;
}

/** Once a silence; its end is told by the heartbeat that ends it. */
async function tellLostRelay(
  { store, bus, clock, log }: Sweeper,
  cluster: ClusterRecord,
  tally: Tally,
): Promise<void> {
  const { name, lastHeartbeat, lostSince, deletion } = cluster;
  const now = clock.now();
  if (lastHeartbeat === null || lostSince !== null || now - lastHeartbeat <= RELAY_SILENCE_MS) return;
  // Its relays were told to go.
  if (deletion !== null) return;
  const [result] = await bus.publish([relayEntry('RelayLost', relayDetailOf(name, lastHeartbeat, now))]);
  if (result?.kind === 'refused' && !result.isFinal)
    throw new BusUnavailableError(`the bus refused for now: ${result.code}`);
  await updateCluster(store, name, (known) =>
    known.lastHeartbeat === lastHeartbeat ? { ...known, lostSince: lastHeartbeat } : null,
  );
  log.warn('relay is silent', { cluster: name, silent_ms: now - lastHeartbeat });
  tally.relaysLost++;
}

/** Each minute until somebody has replayed them: what they changed, no subscriber knows. */
async function tellDeadLetters({ store, log }: Sweeper): Promise<void> {
  const letters = await store.listDeadLetters(MAX_DEAD_LETTERS);
  const [first] = letters;
  if (first !== undefined)
    log.warn('dead letters wait for a replay', {
      dead_letters: letters.length,
      first: deadLetterId(first),
    });
}

/** DynamoDB deletes them too, but days later perhaps. */
async function deleteEndedLeases({ store, clock }: Sweeper, tally: Tally): Promise<void> {
  const now = clock.now();
  const ended: Subscription[] = [];
  for await (const page of store.listSubscriptions(null)) {
    ended.push(...page.filter(({ until }) => until <= now));
    if (ended.length >= MAX_LEASES) break;
  }
  await inParallel(MAX_PARALLEL_LEASES, ended.slice(0, MAX_LEASES), async ({ key, id }) => {
    if (await store.deleteSubscription(key, id, now)) tally.leasesDeleted++;
  });
}

async function visit(
  sweeper: Sweeper,
  cluster: ClusterRecord,
  key: ServiceKey,
  isDaily: boolean,
  tally: Tally,
): Promise<void> {
  const { store, repository, clock } = sweeper;
  const now = clock.now();
  let head = await store.getHead(key);
  if (head === null) return;
  if (cluster.deletion !== null && isOccupied(head)) {
    await takeAway(sweeper, key, tally);
    head = await store.getHead(key);
    if (head === null) return;
  }
  if (head.windowUntil !== null && head.windowUntil <= now) {
    const fence = fenceFromNow(clock);
    await changeService(sweeper, { key, kind: kindOfMode(cluster.mode), fence, plan: () => [] });
    tally.windowsClosed++;
    head = await store.getHead(key);
    if (head === null) return;
  }
  // Awaited before they are added: `+=` would forget what the visits beside this one have added meanwhile.
  const published = await publish(sweeper, [{ key, entries: await repository.unpublished(key, head) }]);
  tally.published += published;
  const collected = await collectGarbage(sweeper, key, head, now);
  tally.chunksDeleted += collected;
  if (isDaily) {
    // Of a deleted cluster nobody asks any more; its services stay listed only as long as leftovers may turn up.
    const listedMs = cluster.deletion === null ? sweeper.historyMs : ORPHAN_AGE_MS;
    await tidyHead(sweeper, key, now, listedMs);
    const orphans = await collectOrphans(sweeper, key, now);
    tally.chunksDeleted += orphans;
  }
}

async function takeAway(sweeper: Sweeper, key: ServiceKey, tally: Tally): Promise<void> {
  if (tally.emptied >= MAX_EMPTIED) {
    tally.occupied++;
    return;
  }
  tally.emptied++;
  if (!(await emptyService(sweeper, key))) tally.occupied++;
}

/** A name in the garbage is never named again, so nothing can point to what goes here. */
async function collectGarbage(
  { store, collected }: Sweeper,
  key: ServiceKey,
  head: Head,
  now: EpochMs,
): Promise<number> {
  const due = head.garbage.filter(({ chunk, at }) => now - at >= GARBAGE_REST_MS && !collected.has(chunk));
  if (due.length === 0) return 0;
  const names = due.map(({ chunk }) => chunk);
  const deleted = await store.deleteChunks(key, names);
  if (collected.size > MAX_COLLECTED) collected.clear();
  for (const name of names) collected.add(name);
  return deleted;
}

/** Clears published deltas and collected chunks from a head, and takes a long-deleted Service off the lists. */
async function tidyHead(
  { store, repository, clock }: Sweeper,
  key: ServiceKey,
  now: EpochMs,
  listedMs: number,
): Promise<void> {
  const head = await store.getHead(key);
  if (head === null) return;
  const pending = await repository.unpublished(key, head);
  const garbage = head.garbage.filter(({ at }) => now - at < GARBAGE_REST_MS);
  const isEmpty = head.records.service === null && head.objects.length === 0 && pending.length === 0;
  const isListed = head.isListed && !(isEmpty && now - head.changedAt > listedMs);
  const isTidy =
    pending.length === head.pending.length &&
    garbage.length === head.garbage.length &&
    isListed === head.isListed;
  if (isTidy) return;
  const fence = fenceFromNow(clock);
  // A lost race means that somebody wrote: the next visit tidies that.
  await store.commit(key, { ...head, version: head.version + 1, pending, garbage, isListed }, fence);
}

/** Leftovers of crashes: old, and not named by a head read after they were listed. */
async function collectOrphans({ store }: Sweeper, key: ServiceKey, now: EpochMs): Promise<number> {
  const { chunks, bodies } = await store.listLeftovers(key);
  const head = await store.getHead(key);
  const named = new Set(head?.objects.flatMap(({ body }) => (body.kind === 'chunks' ? body.names : [])));
  const pending = new Set(head?.pending.map(({ body }) => (body.kind === 'stored' ? body.name : '')));
  const isOld = ({ at }: { readonly at: EpochMs }) => now - at > ORPHAN_AGE_MS;
  const orphans = chunks.filter((chunk) => isOld(chunk) && !named.has(chunk.chunk));
  for (const body of bodies) if (isOld(body) && !pending.has(body.name)) await store.deleteBody(key, body);
  return orphans.length === 0
    ? 0
    : store.deleteChunks(
        key,
        orphans.map(({ chunk }) => chunk),
      );
}
