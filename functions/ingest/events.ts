import { type Change, type ChangeStatus, kindOfMode } from '../../core/changes.ts';
import { portId } from '../../core/service-port.ts';
import type { Clock } from '../../core/time.ts';
import type { EventResult, EventStatus, EventsAnswer, EventsRequest } from '../../wire/events.ts';
import type { Logger } from '../../wire/log.ts';
import { eventLine, portLine } from '../../wire/watcher-log.ts';
import { type ChangedService, changeService, type ServiceChanger } from '../services/change-service.ts';
import { inParallel } from '../services/in-parallel.ts';
import { publish } from '../services/publication.ts';
import { serviceId } from '../services/service-cache.ts';
import type { Fence, StoredObject } from '../store/store.ts';
import { type Intake, type ServiceChanges, sortEvents, type UnplacedDeletion } from './intake.ts';
import { orderMoves } from './move-order.ts';

/** Services of one batch that are changed at the same time. */
const MAX_PARALLEL_SERVICES = 8;

/** What the events of a request need. */
export interface EventsDeps extends ServiceChanger {
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Applies a batch: each service's events as one (S4), all deltas published together at the end. When a service fails,
 * those before it stay applied and published; the same batch sent again goes on.
 * @throws StoreUnavailableError, FencedError, BusUnavailableError: nothing of the failing service is half-applied.
 */
export async function applyEvents(
  deps: EventsDeps,
  request: EventsRequest,
  fence: Fence,
): Promise<EventsAnswer> {
  const { cluster, mode, epoch, events } = request;
  const intake = sortEvents(events, { mode, epoch, receivedAt: deps.clock.now() });
  const services = mergePlaces([...intake.services, ...(await findUnplaced(deps, request, intake.unplaced))]);
  const outcomes = new Outcomes(intake);
  // Moves in a circle change one service twice; then its second outcome carries what the first left to publish.
  const changed = new Map<string, ChangedService>();
  let deltas = 0;
  const changeOne = async ({ place, changes }: ServiceChanges) => {
    const due = changes.filter((change) => change.kind === 'leave' || !outcomes.isStale(change.index));
    if (due.length === 0) return;
    const key = { cluster, ...place };
    const outcome = await changeService(deps, { key, kind: kindOfMode(mode), fence, plan: () => due });
    changed.set(serviceId(key), outcome);
    deltas += outcome.deltas.length;
    outcomes.add(outcome.statuses);
    logChanged(deps.log, outcome);
  };
  try {
    for (const wave of orderMoves(services)) await inParallel(MAX_PARALLEL_SERVICES, wave, changeOne);
  } finally {
    await publish(deps, [...changed.values()]);
  }
  if (intake.skipped > 0) deps.log.warn('skipped senseless values', { cluster, values: intake.skipped });
  return { results: outcomes.results(), deltas };
}

/** One entry a service, its changes in the order of the batch: they are one difference (S4). */
function mergePlaces(services: readonly ServiceChanges[]): ServiceChanges[] {
  const merged = new Map<string, ServiceChanges>();
  for (const { place, changes } of services) {
    const id = `${place.namespace}/${place.name}`;
    merged.set(id, { place, changes: [...(merged.get(id)?.changes ?? []), ...changes] });
  }
  return [...merged.values()].map(({ place, changes }) => ({
    place,
    changes: changes.toSorted((a, b) => a.index - b.index),
  }));
}

/** Finds whose objects deletions without a label mean, among the services of their namespaces (S45). */
async function findUnplaced(
  deps: EventsDeps,
  { cluster }: EventsRequest,
  unplaced: readonly UnplacedDeletion[],
): Promise<ServiceChanges[]> {
  const found: ServiceChanges[] = [];
  for (const { namespace, change } of unplaced) {
    const name = await findHolder(deps, { cluster, namespace }, change);
    if (name !== null) found.push({ place: { namespace, name }, changes: [change] });
  }
  return found;
}

/** Reads heads one by one: only relays that make up deletions at a re-list ask for it. */
async function findHolder(
  { store }: EventsDeps,
  { cluster, namespace }: { readonly cluster: string; readonly namespace: string },
  { uid, name, objectKind }: UnplacedDeletion['change'],
): Promise<string | null> {
  for await (const page of store.listServices(cluster, { namespace })) {
    for (const { key } of page) {
      const objects = (await store.getHead(key))?.objects ?? [];
      const isMeant = (object: StoredObject) =>
        uid === null ? object.kind === objectKind && object.name === name : object.uid === uid;
      if (objects.some(isMeant)) return key.name;
    }
  }
  return null;
}

/** Says at debug what Linkerd's watcher says, in its words. */
function logChanged(log: Logger, { key, statuses, deltas }: ChangedService): void {
  for (const [{ kind, cause }, status] of statuses) {
    if (kind === 'leave') continue;
    const type = kind === 'delete' ? 'DELETED' : cause.type === 'ADDED' ? 'ADDED' : 'MODIFIED';
    const { message, fields } = eventLine(
      { type, kind: cause.kind, namespace: key.namespace, name: cause.name },
      key.name,
    );
    log.debug(message, { ...fields, cluster: key.cluster, status });
  }
  for (const delta of deltas) {
    const isGone = !delta.exists || delta.removed.some(({ reason }) => reason === 'portRemoved');
    if (delta.sequence > 1 && !isGone) continue;
    const port = { namespace: key.namespace, service: key.name, id: portId(delta) };
    const { message, fields } = portLine(!isGone, port);
    log.debug(message, { ...fields, cluster: key.cluster });
  }
}

/** What became of each event, over all services that it touches. */
class Outcomes {
  private readonly intake: Intake;
  private readonly statuses = new Map<number, ChangeStatus[]>();

  constructor(intake: Intake) {
    this.intake = intake;
  }

  add(statuses: ReadonlyMap<Change, ChangeStatus>): void {
    for (const [{ index }, status] of statuses) {
      this.statuses.set(index, [...(this.statuses.get(index) ?? []), status]);
    }
  }

  /** An event that is stale where its object comes from is stale altogether (S10). */
  isStale(index: number): boolean {
    return this.statuses.get(index)?.includes('stale') ?? false;
  }

  results(): EventResult[] {
    return this.intake.results.map((result, index) => result ?? { index, status: this.statusOf(index) });
  }

  private statusOf(index: number): EventStatus {
    const statuses = this.statuses.get(index) ?? [];
    if (statuses.includes('stale')) return 'stale';
    return statuses.includes('applied') ? 'applied' : 'unchanged';
  }
}
