import type { Change } from '../../core/changes.ts';
import { type EndpointContent, type EnrichmentVersion, endpointObject } from '../../core/endpoint-object.ts';
import { readEndpoints } from '../../core/endpoints.ts';
import type { EndpointSlice, WatchedObject } from '../../core/kubernetes.ts';
import { readService } from '../../core/service.ts';
import type { Cause } from '../../core/service-state.ts';
import { isIpSlice, readSlice, serviceNameOf } from '../../core/slice.ts';
import type { EpochMs } from '../../core/time.ts';
import type { Mode } from '../../wire/envelope.ts';
import {
  type DeletedEvent,
  type EventResult,
  type LiveEvent,
  parseWatchEvent,
  type WatchEvent,
} from '../../wire/events.ts';
import { instantText } from '../../wire/instant.ts';

/** Where in a cluster a service is. */
export interface ServicePlace {
  readonly namespace: string;
  readonly name: string;
}

/** What a batch means to one service, in the order of the batch (S4). */
export interface ServiceChanges {
  readonly place: ServicePlace;
  readonly changes: readonly Change[];
}

/** An object that is gone and does not say whose it was: its service must be looked for (S45). */
export interface UnplacedDeletion {
  readonly namespace: string;
  readonly change: Change & { readonly kind: 'delete' };
}

/** A batch of events, sorted out. */
export interface Intake {
  /** One an event; null where the outcome depends on the state. */
  readonly results: readonly (EventResult | null)[];
  readonly services: readonly ServiceChanges[];
  readonly unplaced: readonly UnplacedDeletion[];
  /** Senseless values that were skipped inside good objects (P6). */
  readonly skipped: number;
}

/** What all events of a batch share. */
export interface IntakeContext {
  readonly mode: Mode;
  readonly epoch: number;
  readonly receivedAt: EpochMs;
}

/** Sorts a batch by service; an event that is no business of a service gets its result at once (P6). */
export function sortEvents(events: readonly unknown[], context: IntakeContext): Intake {
  const results: (EventResult | null)[] = [];
  const services = new Map<string, { place: ServicePlace; changes: Change[] }>();
  const unplaced: UnplacedDeletion[] = [];
  let skipped = 0;
  for (const [index, value] of events.entries()) {
    const parsed = parseWatchEvent(value);
    if (parsed.kind !== 'ok') {
      results.push({ index, status: parsed.kind, reason: parsed.reason });
      continue;
    }
    const placement = place(parsed.event, index, context);
    skipped += placement.skipped;
    results.push(placement.ignored === null ? null : { index, status: 'ignored', reason: placement.ignored });
    if (placement.unplaced !== null) unplaced.push(placement.unplaced);
    for (const { place: where, change } of placement.changes) {
      const id = `${where.namespace}/${where.name}`;
      const service = services.get(id) ?? { place: where, changes: [] };
      service.changes.push(change);
      services.set(id, service);
    }
  }
  return { results, services: [...services.values()], unplaced, skipped };
}

interface Placement {
  readonly changes: readonly { readonly place: ServicePlace; readonly change: Change }[];
  readonly unplaced: UnplacedDeletion | null;
  /** Why the event counts for no service of its own; it may still leave others. */
  readonly ignored: string | null;
  readonly skipped: number;
}

function ignored(reason: string, changes: Placement['changes'] = []): Placement {
  return { changes, unplaced: null, ignored: reason, skipped: 0 };
}

/** Which services an event concerns: the one it is about, and those that it leaves (S8, S10). */
function place(event: WatchEvent, index: number, context: IntakeContext): Placement {
  const { kind, metadata } = event.object;
  const isOtherMode = kind !== 'Service' && (kind === 'EndpointSlice') !== (context.mode === 'slices');
  if (isOtherMode) return ignored(`the sets of this cluster are made of ${context.mode} (S12)`);
  const origin = originOf(event, index, context);
  const name = kind === 'EndpointSlice' ? serviceNameOf(metadata) : metadata.name;
  const leaves = leavesOf(event, name, origin);
  if (event.type === 'DELETED') return placeDeletion(event, name, leaves, origin);
  if (kind === 'EndpointSlice' && !isIpSlice(event.object as EndpointSlice)) {
    return ignored('a slice of this addressType has no addresses (S13)', leaves);
  }
  if (name === null) return ignored('the slice names no Service: neither label nor owner (S8)', leaves);
  const { change, skipped } = putOf(event, name, origin, context);
  const own = { place: { namespace: metadata.namespace, name }, change };
  return { changes: [...leaves, own], unplaced: null, ignored: null, skipped };
}

function placeDeletion(
  event: DeletedEvent,
  name: string | null,
  leaves: Placement['changes'],
  origin: Origin,
): Placement {
  const { kind, metadata } = event.object;
  const change: Change = {
    ...origin,
    kind: 'delete',
    objectKind: kind,
    name: metadata.name,
    uid: metadata.uid,
    version: metadata.resourceVersion,
  };
  if (name !== null) {
    const own = { place: { namespace: metadata.namespace, name }, change };
    return { changes: [...leaves, own], unplaced: null, ignored: null, skipped: 0 };
  }
  if (!event.stateUnknown) return ignored('the slice names no Service: neither label nor owner (S8)', leaves);
  const unplaced = { namespace: metadata.namespace, change };
  return { changes: leaves, unplaced, ignored: null, skipped: 0 };
}

type Origin = Pick<
  Change,
  'index' | 'cause' | 'isStateUnknown' | 'isConfirmed' | 'triggeredAt' | 'observedAt'
>;

const TRIGGER_TIME = 'endpoints.kubernetes.io/last-change-trigger-time';

function originOf(event: WatchEvent, index: number, context: IntakeContext): Origin {
  const { kind, metadata } = event.object;
  const cause: Cause = {
    kind,
    name: metadata.name,
    type: event.stateUnknown || event.resync ? 'RESYNC' : event.type,
    resourceVersion: metadata.resourceVersion ?? '',
  };
  return {
    index,
    cause,
    isStateUnknown: event.stateUnknown,
    isConfirmed: event.confirm,
    triggeredAt: event.type === 'DELETED' ? null : triggerTimeOf(metadata),
    observedAt: event.observedAt ?? context.receivedAt,
  };
}

/** Anybody may write the annotation: what is no instant is unknown (S47). */
function triggerTimeOf({ annotations }: WatchEvent['object']['metadata']): string | null {
  const parsed = instantText.safeParse(annotations?.[TRIGGER_TIME]);
  return parsed.success ? parsed.data : null;
}

function leavesOf(event: WatchEvent, name: string | null, origin: Origin): Placement['changes'] {
  const { namespace, uid, resourceVersion } = event.object.metadata;
  if (uid === null) return [];
  const former = new Set(event.former.filter((service) => service !== name));
  return [...former].map((service) => ({
    place: { namespace, name: service },
    change: { ...origin, kind: 'leave', uid, version: resourceVersion ?? '0' },
  }));
}

function putOf(
  event: LiveEvent,
  service: string,
  origin: Origin,
  context: IntakeContext,
): { readonly change: Change; readonly skipped: number } {
  const { object } = event;
  if (object.kind === 'Service') {
    const { service: record, skipped } = readService(object);
    return { change: { ...origin, kind: 'putService', service: record }, skipped };
  }
  const enrichments = event.enrich ?? {};
  const { content, skipped } =
    object.kind === 'EndpointSlice'
      ? readSlice(object, service, enrichments)
      : readEndpoints(object, enrichments);
  return {
    change: { ...origin, kind: 'putObject', object: recordOf(object, content, event, context) },
    skipped,
  };
}

function recordOf(
  { kind, metadata }: Exclude<WatchedObject, { kind: 'Service' }>,
  content: EndpointContent,
  { enrichVersion }: LiveEvent,
  { epoch }: IntakeContext,
) {
  const enrichment: EnrichmentVersion | null =
    enrichVersion === null ? null : { epoch, number: enrichVersion };
  const { name, uid, resourceVersion: version } = metadata;
  return endpointObject({ kind, name, uid, version, enrichment }, content);
}
