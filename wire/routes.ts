import * as z from 'zod';
import {
  clusterDeletionAnswer,
  clusterPath,
  clustersAnswer,
  endpointsAnswer,
  endpointsQuery,
  healthAnswer,
  knownSubscriptionQuery,
  portSet,
  servicePath,
  servicesAnswer,
  servicesPath,
  servicesQuery,
  subscriptionAnswer,
  subscriptionPath,
  subscriptionQuery,
  subscriptionRequest,
} from './api.ts';
import { eventsAnswer, eventsRequest, MAX_EVENTS, watchEvent } from './events.ts';
import { heartbeatAnswer, heartbeatRequest } from './heartbeat.ts';
import { inventoryAnswer, inventoryRequest } from './inventory.ts';
import { conflictDocument, PROBLEM_TYPE, problemDocument } from './problem.ts';

/** What a caller must be allowed. */
export type Scope = 'read' | 'metrics' | 'ingest' | 'admin';

/** One answer of a route. */
export interface RouteAnswer {
  readonly description: string;
  /** Bodies by media type; none for an answer without a body. */
  readonly content: Readonly<Record<string, z.ZodType>>;
}

/** One route of the HTTP API: what it takes, what it answers and who serves it. */
export interface Route {
  readonly method: 'get' | 'post' | 'put' | 'delete';
  /** Path with `{name}` for each of `params`. */
  readonly path: string;
  readonly summary: string;
  /** The function that serves it. */
  readonly servedBy: 'ingest' | 'api';
  /** Null = anybody may call it. */
  readonly scope: Scope | null;
  readonly params?: z.ZodObject;
  readonly query?: z.ZodObject;
  /** JSON body. */
  readonly body?: z.ZodType;
  readonly answers: Readonly<Record<number, RouteAnswer>>;
}

/** The body of `POST /v1/events` with its events spelt out, which code checks one by one. */
export const eventsDocument = eventsRequest.extend({ events: z.array(watchEvent).max(MAX_EVENTS) });

const text = z.string();

function json(description: string, schema: z.ZodType): RouteAnswer {
  return { description, content: { 'application/json': schema } };
}

function failure(description: string): RouteAnswer {
  return { description, content: { [PROBLEM_TYPE]: problemDocument } };
}

const UNAUTHORISED = {
  401: failure('No or wrong credentials.'),
  403: failure('The credentials do not allow this.'),
};
const BAD_REQUEST = { 400: failure('A part of the request is wrong; the detail names it.') };
const UNCHANGED = { 304: { description: 'Unchanged since the ETag of If-None-Match.', content: {} } };
const UNAVAILABLE = { 503: failure('The store is throttled or away; see Retry-After.') };

const INGEST_FAILURES = {
  ...BAD_REQUEST,
  ...UNAUTHORISED,
  409: {
    description: 'Refused: by a newer relay, a second cluster of the name, or the guard of an inventory.',
    content: { [PROBLEM_TYPE]: conflictDocument },
  },
  413: failure('More than 5 MB decoded, or more than 10,000 events.'),
  415: failure('A body that is not JSON, plain or gzipped.'),
  503: failure(
    'The store or the bus is throttled or away, or the cluster is being deleted; see Retry-After.',
  ),
};

const SUBSCRIPTION_PATH =
  '/v1/clusters/{cluster}/namespaces/{namespace}/services/{service}/subscriptions/{id}';
const SUBSCRIPTION_FAILURES = {
  ...BAD_REQUEST,
  ...UNAUTHORISED,
  404: failure('No such live subscription.'),
  ...UNAVAILABLE,
};

/** The routes by operation. */
export const ROUTES = {
  postEvents: {
    method: 'post',
    path: '/v1/events',
    summary: 'Apply watch events of one cluster',
    servedBy: 'ingest',
    scope: 'ingest',
    body: eventsDocument,
    answers: { 200: json('One result per event, in order.', eventsAnswer), ...INGEST_FAILURES },
  },
  postInventory: {
    method: 'post',
    path: '/v1/inventory',
    summary: 'Reconcile a page of a list with what is stored',
    servedBy: 'ingest',
    scope: 'ingest',
    body: inventoryRequest,
    answers: { 200: json('What to send, and what went.', inventoryAnswer), ...INGEST_FAILURES },
  },
  postHeartbeat: {
    method: 'post',
    path: '/v1/heartbeat',
    summary: 'Say that a relay is alive, and how fresh it is',
    servedBy: 'ingest',
    scope: 'ingest',
    body: heartbeatRequest,
    answers: { 200: json('What the cloud knows of the cluster.', heartbeatAnswer), ...INGEST_FAILURES },
  },
  getHealth: {
    method: 'get',
    path: '/healthz',
    summary: 'Is the function alive?',
    servedBy: 'api',
    scope: null,
    answers: { 200: json('Alive.', healthAnswer), 503: json('Not alive.', healthAnswer) },
  },
  getReadiness: {
    method: 'get',
    path: '/readyz',
    summary: 'Can the function reach what it needs?',
    servedBy: 'api',
    scope: null,
    answers: { 200: json('Ready.', healthAnswer), 503: json('Not ready.', healthAnswer) },
  },
  getOpenApi: {
    method: 'get',
    path: '/openapi.json',
    summary: 'This document',
    servedBy: 'api',
    scope: null,
    answers: { 200: json('OpenAPI 3.1.', z.looseObject({})), ...UNCHANGED },
  },
  getMetrics: {
    method: 'get',
    path: '/metrics',
    summary: 'Metrics for Prometheus',
    servedBy: 'api',
    scope: 'metrics',
    answers: {
      200: { description: 'Text format 0.0.4.', content: { 'text/plain': text } },
      ...UNAUTHORISED,
      ...UNAVAILABLE,
    },
  },
  listClusters: {
    method: 'get',
    path: '/v1/clusters',
    summary: 'Clusters and their freshness',
    servedBy: 'api',
    scope: 'read',
    answers: {
      200: json('All clusters.', clustersAnswer),
      ...UNCHANGED,
      ...BAD_REQUEST,
      ...UNAUTHORISED,
      ...UNAVAILABLE,
    },
  },
  listServices: {
    method: 'get',
    path: '/v1/clusters/{cluster}/namespaces/{namespace}/services',
    summary: 'Services of a namespace, or of all with _all',
    servedBy: 'api',
    scope: 'read',
    params: servicesPath,
    query: servicesQuery,
    answers: {
      200: json('One page.', servicesAnswer),
      ...UNCHANGED,
      ...BAD_REQUEST,
      ...UNAUTHORISED,
      404: failure('No such cluster.'),
      ...UNAVAILABLE,
    },
  },
  getEndpoints: {
    method: 'get',
    path: '/v1/clusters/{cluster}/namespaces/{namespace}/services/{service}/endpoints',
    summary: 'Current endpoints of a service',
    servedBy: 'api',
    scope: 'read',
    params: servicePath,
    query: endpointsQuery,
    answers: {
      200: {
        description: 'With port one set, without it all.',
        content: { 'application/json': endpointsAnswer, 'text/plain': text, 'application/yaml': text },
      },
      ...UNCHANGED,
      ...BAD_REQUEST,
      ...UNAUTHORISED,
      404: failure('No such service, or the service does not define this port.'),
      422: failure('An ExternalName Service has no endpoints.'),
      ...UNAVAILABLE,
    },
  },
  deleteCluster: {
    method: 'delete',
    path: '/v1/clusters/{cluster}',
    summary: 'Delete what is stored of a cluster, and free its name',
    servedBy: 'api',
    scope: 'admin',
    params: clusterPath,
    answers: {
      202: json(
        'Its relays are refused from now on; the sweep publishes the removals.',
        clusterDeletionAnswer,
      ),
      ...BAD_REQUEST,
      ...UNAUTHORISED,
      404: failure('No such cluster.'),
      ...UNAVAILABLE,
    },
  },
  putSubscription: {
    method: 'put',
    path: SUBSCRIPTION_PATH,
    summary: 'Begin or renew a subscription to a service port, by which its reader is counted',
    servedBy: 'api',
    scope: 'read',
    params: subscriptionPath,
    query: subscriptionQuery,
    body: subscriptionRequest,
    answers: {
      200: json('The set that it begins with; deltas of a higher sequence follow on the bus.', portSet),
      ...BAD_REQUEST,
      ...UNAUTHORISED,
      404: failure('No such service, or the service does not define this port.'),
      413: failure('A body of more than 4 KB.'),
      415: failure('A body that is not JSON, plain or gzipped.'),
      422: failure('An ExternalName Service has no endpoints.'),
      429: failure('The service has as many subscriptions as it may.'),
      ...UNAVAILABLE,
    },
  },
  getSubscription: {
    method: 'get',
    path: SUBSCRIPTION_PATH,
    summary: 'A live subscription',
    servedBy: 'api',
    scope: 'read',
    params: subscriptionPath,
    query: knownSubscriptionQuery,
    answers: { 200: json('It lives.', subscriptionAnswer), ...SUBSCRIPTION_FAILURES },
  },
  deleteSubscription: {
    method: 'delete',
    path: SUBSCRIPTION_PATH,
    summary: 'End a subscription',
    servedBy: 'api',
    scope: 'read',
    params: subscriptionPath,
    query: knownSubscriptionQuery,
    answers: { 204: { description: 'It has ended.', content: {} }, ...SUBSCRIPTION_FAILURES },
  },
} as const satisfies Readonly<Record<string, Route>>;

/** A route's path as Hono writes it: `:name` for `{name}`. */
export function honoPath({ path }: Pick<Route, 'path'>): string {
  return path.replace(/\{(\w+)\}/g, ':$1');
}
