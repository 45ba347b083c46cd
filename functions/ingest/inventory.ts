import { kindOfMode } from '../../core/changes.ts';
import type { EndpointKind } from '../../core/endpoint-object.ts';
import type { ObjectKind, ServiceState } from '../../core/service-state.ts';
import { transit } from '../../core/transition.ts';
import { compareVersions } from '../../core/version.ts';
import type { InventoryAnswer, InventoryRequest, InventoryService } from '../../wire/inventory.ts';
import { hashKey } from '../../wire/key-hash.ts';
import { type ChangedService, changeService, type ServiceChanger } from '../services/change-service.ts';
import { isOvertaken, mergeVersions, updateCluster } from '../services/cluster.ts';
import { inParallel } from '../services/in-parallel.ts';
import { publish } from '../services/publication.ts';
import { type Removal, removalChanges, removalsOf } from '../services/removals.ts';
import { serviceId } from '../services/service-cache.ts';
import type { Fence, ServiceKey, ServiceRange } from '../store/store.ts';

/** Services of one page that are looked at at the same time. */
const MAX_PARALLEL_SERVICES = 8;
/** A removal of so many addresses is never held to be a mistake. */
const UNGUARDED_REMOVALS = 10;

/** What a page came to. */
export type InventoryOutcome =
  | { readonly kind: 'reconciled'; readonly answer: InventoryAnswer }
  /** Too much of these services would go: nothing was changed. */
  | { readonly kind: 'guarded'; readonly services: readonly string[] };

/** A service that a page speaks for. */
interface Audited {
  readonly key: ServiceKey;
  /** What the relay holds of it; null when nothing. */
  readonly named: InventoryService | null;
  readonly isInScope: boolean;
}

/** What an inventory finds in one service. */
interface Finding {
  readonly missing: InventoryAnswer['missing'];
  readonly removals: readonly Removal[];
  /** Something must stay until what is missing has come. */
  readonly isHeld: boolean;
}

/** The parts of a service that an audit reads: a state, or a head whose contents were not loaded. */
interface AuditedRecords {
  readonly service: ServiceState['service'];
  readonly objects: Iterable<{
    readonly kind: EndpointKind;
    readonly name: string;
    readonly uid: string;
    readonly version: string;
  }>;
}

/**
 * Reconciles one page of a list with what is stored: says what the relay must send, and removes what is gone; a service
 * in one write. A cluster that did not change costs reads alone.
 * @throws StoreUnavailableError, FencedError, BusUnavailableError: services before the failure stay reconciled.
 */
export async function reconcile(
  deps: ServiceChanger,
  request: InventoryRequest,
  fence: Fence,
): Promise<InventoryOutcome> {
  const audited = await auditedServices(deps, request);
  const findings = new Map<Audited, Finding>();
  await inParallel(MAX_PARALLEL_SERVICES, audited, async (service) => {
    const head = await deps.store.getHead(service.key);
    const records = { service: head?.records.service ?? null, objects: head?.objects ?? [] };
    findings.set(service, audit(service, records, request));
  });
  const due = audited.filter((service) => (findings.get(service)?.removals.length ?? 0) > 0);
  const guarded = request.maxRemoved === null ? [] : await overGuard(deps, due, request, request.maxRemoved);
  if (guarded.length > 0) return { kind: 'guarded', services: guarded };
  const deleted = await removeGone(deps, due, findings, request, fence);
  const all = audited.flatMap((service) => findings.get(service) ?? []);
  const answer = {
    missing: all.flatMap(({ missing }) => missing),
    deleted,
    again: all.some(({ isHeld }) => isHeld),
  };
  await recordResync(deps, request, answer);
  return { kind: 'reconciled', answer };
}

/** What the page names, and what is stored in its range; on the last page also what left the scope. */
async function auditedServices({ store }: ServiceChanger, request: InventoryRequest): Promise<Audited[]> {
  const { cluster, after, last, namespaces, services } = request;
  const audited = new Map<string, Audited>();
  const isInScope = (namespace: string) => namespaces === null || namespaces.includes(namespace);
  for (const named of services) {
    const key = { cluster, namespace: named.namespace, name: named.name };
    audited.set(serviceId(key), { key, named, isInScope: true });
  }
  const end = services.at(-1);
  const range: ServiceRange = {
    ...(after === null ? {} : { after }),
    ...(last || end === undefined ? {} : { upTo: { namespace: end.namespace, name: end.name } }),
  };
  const addStored = async (within: ServiceRange, isWanted: (key: ServiceKey) => boolean) => {
    for await (const page of store.listServices(cluster, within)) {
      for (const { key } of page) {
        if (audited.has(serviceId(key)) || !isWanted(key)) continue;
        audited.set(serviceId(key), { key, named: null, isInScope: isInScope(key.namespace) });
      }
    }
  };
  if (last || end !== undefined) await addStored(range, (key) => isInScope(key.namespace));
  if (last && namespaces !== null) await addStored({}, (key) => !isInScope(key.namespace));
  return [...audited.values()];
}

function audit(
  { key, named, isInScope }: Audited,
  stored: AuditedRecords,
  request: InventoryRequest,
): Finding {
  const kind = kindOfMode(request.mode);
  const objects = [...stored.objects];
  if (!isInScope)
    return { missing: [], removals: removalsOf(key.name, stored.service, objects, true), isHeld: false };
  const { missing, isAbsent } = compareNamed(named, stored.service, objects, key, request);
  const namedUids = new Set([named?.uid, ...(named?.objects ?? []).map(({ uid }) => uid)]);
  const isGone = (objectKind: ObjectKind, uid: string, version: string) =>
    !namedUids.has(uid) && isCovered(objectKind, key.namespace, version, request);
  const service =
    stored.service !== null && isGone('Service', stored.service.uid, stored.service.version)
      ? stored.service
      : null;
  const unnamed = objects.filter(
    (object) => object.kind === kind && isGone(object.kind, object.uid, object.version),
  );
  const others = objects.filter((object) => object.kind !== kind);
  const gone = removalsOf(key.name, service, unnamed, false);
  const switched = removalsOf(key.name, null, others, true);
  return {
    missing,
    removals: isAbsent ? [] : missing.length > 0 ? gone : [...gone, ...switched],
    isHeld: (isAbsent && gone.length > 0) || (missing.length > 0 && switched.length > 0),
  };
}

/** What is named and not stored as named; `isAbsent` when some of it is not stored at all. */
function compareNamed(
  named: InventoryService | null,
  service: AuditedRecords['service'],
  objects: readonly { readonly uid: string; readonly version: string }[],
  { namespace, name }: ServiceKey,
  { mode, restored }: InventoryRequest,
): { readonly missing: InventoryAnswer['missing']; readonly isAbsent: boolean } {
  const missing: InventoryAnswer['missing'] = [];
  const versions = new Map(objects.map(({ uid, version }) => [uid, version]));
  let isAbsent = false;
  if (named !== null && named.uid !== null) {
    const isThere = service?.uid === named.uid;
    isAbsent ||= !isThere;
    if (restored || !isThere || service.version !== named.resourceVersion)
      missing.push({ kind: 'Service', namespace, name });
  }
  for (const object of named?.objects ?? []) {
    const version = versions.get(object.uid);
    isAbsent ||= version === undefined;
    if (restored || version !== object.resourceVersion) {
      missing.push({ kind: kindOfMode(mode), namespace, name: object.name });
    }
  }
  return { missing, isAbsent };
}

/** Was an object of this version there to be listed? One born after the list is not gone. */
function isCovered(
  kind: ObjectKind,
  namespace: string,
  version: string,
  { resourceVersions, restored }: InventoryRequest,
): boolean {
  const listed = resourceVersions[kind];
  const limit = typeof listed === 'object' ? versionIn(listed, namespace) : listed;
  return limit !== undefined && (restored || compareVersions(version, limit) <= 0);
}

/** A namespace may have any name, `constructor` too. */
function versionIn(listed: Readonly<Record<string, string>>, namespace: string): string | undefined {
  return Object.hasOwn(listed, namespace) ? listed[namespace] : undefined;
}

function auditState(service: Audited, state: ServiceState, request: InventoryRequest): Finding {
  return audit(service, { service: state.service, objects: state.objects.values() }, request);
}

/** Services that would lose more than the guard's share of their addresses, and more than a few. */
async function overGuard(
  { repository, clock }: ServiceChanger,
  due: readonly Audited[],
  request: InventoryRequest,
  maxRemoved: number,
): Promise<string[]> {
  const kind = kindOfMode(request.mode);
  const now = clock.now();
  const over: string[] = [];
  await inParallel(MAX_PARALLEL_SERVICES, due, async (service) => {
    const { state, holders } = await repository.load(service.key, kind);
    const { removals } = auditState(service, state, request);
    const { deltas } = transit(state, removalChanges(removals, now), { now, hash: hashKey, kind, holders });
    const removed = deltas.reduce((sum, delta) => sum + delta.removed.length, 0);
    const size = [...state.ports.values()].reduce((sum, port) => sum + port.size, 0);
    if (removed > UNGUARDED_REMOVALS && removed > maxRemoved * size)
      over.push(`${service.key.namespace}/${service.key.name}`);
  });
  return over.sort();
}

/** Removes what is gone; `findings` then tell what was found by the audits behind the writes. */
async function removeGone(
  deps: ServiceChanger,
  due: readonly Audited[],
  findings: Map<Audited, Finding>,
  request: InventoryRequest,
  fence: Fence,
): Promise<number> {
  const kind = kindOfMode(request.mode);
  const changed: ChangedService[] = [];
  try {
    await inParallel(MAX_PARALLEL_SERVICES, due, async (service) => {
      const plan = (state: ServiceState) => {
        // An event may have come in between: then this audit counts, and what it holds back.
        const finding = auditState(service, state, request);
        findings.set(service, finding);
        return removalChanges(finding.removals, deps.clock.now());
      };
      changed.push(await changeService(deps, { key: service.key, kind, fence, plan }));
    });
  } finally {
    await publish(deps, changed);
  }
  return changed.reduce(
    (sum, { statuses }) => sum + [...statuses.values()].filter((status) => status === 'applied').length,
    0,
  );
}

/** Only a page that found something leaves a trace: an unchanged cluster costs no write. */
async function recordResync(
  { store }: ServiceChanger,
  request: InventoryRequest,
  answer: InventoryAnswer,
): Promise<void> {
  const { cluster: name, epoch, restored } = request;
  if (!restored && answer.deleted === 0 && answer.missing.length === 0) return;
  const listed = highestListed(request);
  await updateCluster(store, name, (cluster) => {
    if (isOvertaken(cluster, epoch)) return null;
    // Known before the next heartbeat: storage that goes back to a backup until then is noticed too.
    const versions = restored ? { ...cluster.versions, ...listed } : mergeVersions(cluster.versions, listed);
    return { ...cluster, resyncs: cluster.resyncs + 1, versions };
  });
}

function highestListed({ resourceVersions }: InventoryRequest): Record<string, string> {
  const highest: Record<string, string> = {};
  for (const [kind, listed] of Object.entries(resourceVersions)) {
    const versions = typeof listed === 'string' ? [listed] : Object.values(listed ?? {});
    const last = [...versions].sort(compareVersions).at(-1);
    if (last !== undefined) highest[kind] = last;
  }
  return highest;
}
