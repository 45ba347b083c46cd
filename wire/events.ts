import * as z from 'zod';
import type { PodEnrichment, WatchedObject } from '../core/kubernetes.ts';
import type { EpochMs } from '../core/time.ts';
import { count, envelope, orNull, serviceName, type WatchedKind, watchedKind } from './envelope.ts';
import { instant } from './instant.ts';
import { deletedMetadata, endpointSlice, endpoints, podEnrichment, service } from './kubernetes.ts';
import { type Invalid, invalid, parse } from './parse.ts';

/** Events of one request. */
export const MAX_EVENTS = 10_000;
/** Bytes of one request, decoded. */
export const MAX_REQUEST_BYTES = 5_000_000;
/** Other services that one slice may leave in one event. */
export const MAX_FORMER = 64;
/** Pods that one event may tell about: as many as an object may have endpoints. */
const MAX_ENRICHED = 10_000;

/** `POST /v1/events`: the envelope. Each event is parsed alone, so that a bad one is refused alone (P6). */
export const eventsRequest = envelope.extend({ events: z.array(z.unknown()).max(MAX_EVENTS) });
export type EventsRequest = z.infer<typeof eventsRequest>;

/** Parses the envelope; `tooMany` is a 413, `invalid` a 400. */
export function parseEventsRequest(
  body: unknown,
): { readonly kind: 'ok'; readonly request: EventsRequest } | { readonly kind: 'tooMany' } | Invalid {
  if (isObject(body) && Array.isArray(body.events) && body.events.length > MAX_EVENTS)
    return { kind: 'tooMany' };
  const parsed = parse(eventsRequest, body);
  return parsed.kind === 'ok' ? { kind: 'ok', request: parsed.value } : parsed;
}

/** What may come with an object, whatever its kind. */
const options = z.object({
  stateUnknown: z
    .boolean()
    .default(false)
    .describe('The state was made up at a re-list: only the uid, or for a deletion the name, counts.'),
  confirm: z.boolean().default(false).describe('Record the version although nothing changed.'),
  resync: z.boolean().default(false).describe('Sent because an inventory missed it: marks the cause.'),
  former: z
    .array(serviceName)
    .max(MAX_FORMER)
    .default([])
    .describe('Other services of the namespace under which the relay has seen this object.'),
  observedAt: instant.nullish().transform(orNull).describe('When the relay saw it; null = at receipt.'),
  enrichVersion: count
    .nullish()
    .transform(orNull)
    .describe('Rises per relay process; orders changes of enrich at one resourceVersion.'),
  enrich: z
    .record(z.string(), podEnrichment)
    .refine((pods) => Object.keys(pods).length <= MAX_ENRICHED, `must have at most ${MAX_ENRICHED} pods`)
    .nullish()
    .transform(orNull)
    .describe('What the relay knows of pods, by NAMESPACE/POD.'),
});

const liveType = z.enum(['ADDED', 'MODIFIED']);
const deletedType = z.literal('DELETED');

const liveEvents = {
  Service: options.extend({ type: liveType, object: service }),
  EndpointSlice: options.extend({ type: liveType, object: endpointSlice }),
  Endpoints: options.extend({ type: liveType, object: endpoints }),
};

/** The rest of a deleted object says nothing: what goes is known from state. */
const deletedEvent = options
  .extend({
    type: deletedType,
    object: z.object({
      apiVersion: z.string(),
      kind: watchedKind,
      metadata: deletedMetadata,
    }),
  })
  .superRefine(({ object, stateUnknown }, context) => {
    for (const field of ['uid', 'resourceVersion'] as const) {
      if (object.metadata[field] !== null || stateUnknown) continue;
      context.addIssue({ code: 'custom', path: ['object', 'metadata', field], message: 'required' });
    }
  });

/** One event in every form that is taken; for documents. Code calls `parseWatchEvent`. */
export const watchEvent = z.union([
  liveEvents.Service,
  liveEvents.EndpointSlice,
  liveEvents.Endpoints,
  deletedEvent,
]);

/** The optional parts of an event, defaults filled in. */
export interface EventOptions {
  /** The object's state was made up at a re-list: only its uid, or its name, counts (S44, S45). */
  readonly stateUnknown: boolean;
  /** Record the version although nothing changed (P5). */
  readonly confirm: boolean;
  /** Sent because an inventory missed it: marks the cause of a delta. */
  readonly resync: boolean;
  /** Other services, of the same namespace, under which the relay has seen this object (S10). */
  readonly former: readonly string[];
  /** When the relay saw it; null = the time of receipt. */
  readonly observedAt: EpochMs | null;
  /** Orders changes of `enrich` at one resourceVersion; null = none told. */
  readonly enrichVersion: number | null;
  /** What the relay knows of pods, by `NAMESPACE/POD`; null = nothing told. */
  readonly enrich: Readonly<Record<string, PodEnrichment>> | null;
}

/** An object that is there. */
export interface LiveEvent extends EventOptions {
  readonly type: 'ADDED' | 'MODIFIED';
  readonly object: WatchedObject;
}

/** An object that is gone. */
export interface DeletedEvent extends EventOptions {
  readonly type: 'DELETED';
  readonly object: DeletedObject;
}

/** What a deletion tells; uid and version are null only with `stateUnknown`, and without uid the name is meant (S45). */
export interface DeletedObject {
  readonly kind: WatchedKind;
  readonly metadata: {
    readonly namespace: string;
    readonly name: string;
    readonly uid: string | null;
    readonly resourceVersion: string | null;
  } & Pick<WatchedObject['metadata'], 'labels' | 'annotations' | 'ownerReferences'>;
}

/** One event of a watched kind, its shape checked, its unread parts dropped. */
export type WatchEvent = LiveEvent | DeletedEvent;

export type ParsedWatchEvent =
  | { readonly kind: 'ok'; readonly event: WatchEvent }
  /** Not about an object that makes address sets: no error. */
  | { readonly kind: 'ignored'; readonly reason: string }
  /** Not what its kind says; the reason names the field. */
  | { readonly kind: 'rejected'; readonly reason: string };

/** API groups by kind: a Service of another group is another thing. */
const API_VERSIONS: Readonly<Record<WatchedKind, readonly string[]>> = {
  Service: ['v1'],
  EndpointSlice: ['discovery.k8s.io/v1', 'discovery.k8s.io/v1beta1'],
  Endpoints: ['v1'],
};

/** Parses one event (P6). */
export function parseWatchEvent(value: unknown): ParsedWatchEvent {
  if (!isObject(value)) return rejected(invalid('event', 'must be an object'));
  const { type, object } = value;
  if (type === 'BOOKMARK') return { kind: 'ignored', reason: 'a BOOKMARK is a version, not an object' };
  if (type !== 'ADDED' && type !== 'MODIFIED' && type !== 'DELETED')
    return rejected(invalid('type', 'must be "ADDED", "MODIFIED" or "DELETED"'));
  if (!isObject(object))
    return rejected(invalid('object', object === undefined ? 'required' : 'must be an object'));
  const { kind, apiVersion } = object;
  if (typeof kind !== 'string' || kind === '') return rejected(invalid('object.kind', 'required'));
  if (typeof apiVersion !== 'string' || apiVersion === '')
    return rejected(invalid('object.apiVersion', 'required'));
  if (!isWatchedKind(kind) || !API_VERSIONS[kind].includes(apiVersion))
    return { kind: 'ignored', reason: 'not a Service, EndpointSlice or Endpoints of Kubernetes' };
  const parsed = parse<WatchEvent>(type === 'DELETED' ? deletedEvent : liveEvents[kind], value, 'event');
  return parsed.kind === 'ok' ? { kind: 'ok', event: parsed.value } : rejected(parsed);
}

function rejected({ message }: Invalid): ParsedWatchEvent {
  return { kind: 'rejected', reason: message };
}

function isWatchedKind(kind: string): kind is WatchedKind {
  return Object.hasOwn(API_VERSIONS, kind);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** What became of one event. */
const EVENT_STATUSES = ['applied', 'unchanged', 'stale', 'ignored', 'rejected'] as const;
const eventStatus = z.enum(EVENT_STATUSES);
export type EventStatus = z.infer<typeof eventStatus>;

/** Answer of `POST /v1/events`: one result per event, in order; `deltas` counts what was made, a split one once. */
export const eventsAnswer = z.object({
  results: z.array(z.object({ index: count, status: eventStatus, reason: z.string().optional() })),
  deltas: count,
});
export type EventsAnswer = z.infer<typeof eventsAnswer>;
export type EventResult = EventsAnswer['results'][number];
