import type { WatchedKind } from './envelope.ts';
import type { LogFields } from './log.ts';

/** What a debug line says of an event. */
export interface WatcherLine {
  readonly message: string;
  readonly fields: LogFields;
}

type EventType = 'ADDED' | 'MODIFIED' | 'DELETED';

/** Linkerd's words, so that whoever searches the logs as there finds the same lines. */
const WORDS: Readonly<Record<WatchedKind, Readonly<Record<EventType, string>>>> = {
  Service: {
    ADDED: 'Updating service for',
    MODIFIED: 'Updating service for',
    DELETED: 'Deleting service for',
  },
  EndpointSlice: { ADDED: 'Adding ES', MODIFIED: 'Updating ES', DELETED: 'Deleting ES' },
  Endpoints: {
    ADDED: 'Updating endpoints for',
    MODIFIED: 'Updating endpoints for',
    DELETED: 'Deleting endpoints for',
  },
};

/** `Adding ES NS/SLICE`, `Updating service for NS/NAME` and so on; `service` is null for a slice that is nobody's. */
export function eventLine(
  event: {
    readonly type: EventType;
    readonly kind: WatchedKind;
    readonly namespace: string;
    readonly name: string;
  },
  service: string | null,
): WatcherLine {
  const { type, kind, namespace, name } = event;
  return {
    message: `${WORDS[kind][type]} ${namespace}/${name}`,
    fields: { component: 'service-publisher', ns: namespace, svc: service },
  };
}

/** `Watching EndpointSlice resources`: which objects make the sets. */
export function watchingLine(kind: WatchedKind): WatcherLine {
  return { message: `Watching ${kind} resources`, fields: { component: 'endpoints-watcher' } };
}

/** `Establishing watch on endpoint [NS/NAME:PORT]`, and its end: a service port is published from now on, or no more. */
export function portLine(
  isEstablished: boolean,
  port: { readonly namespace: string; readonly service: string; readonly id: string },
): WatcherLine {
  const { namespace, service, id } = port;
  return {
    message: `${isEstablished ? 'Establishing' : 'Stopping'} watch on endpoint [${namespace}/${service}:${id}]`,
    fields: { component: 'endpoints-watcher', ns: namespace, svc: service },
  };
}
