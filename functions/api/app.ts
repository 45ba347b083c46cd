import { type Context, Hono } from 'hono';
import { accepts } from 'hono/accepts';
import * as z from 'zod';
import { portId } from '../../core/service-port.ts';
import type { Clock } from '../../core/time.ts';
import {
  clusterPath,
  endpointsQuery,
  type Format,
  type HealthAnswer,
  knownSubscriptionQuery,
  parseQuery,
  servicePath,
  servicesPath,
  servicesQuery,
  subscriptionPath,
  subscriptionQuery,
  subscriptionRequest,
} from '../../wire/api.ts';
import type { Logger } from '../../wire/log.ts';
import { openApiDocument } from '../../wire/openapi.ts';
import { invalid, type Parsed, parse } from '../../wire/parse.ts';
import { honoPath, ROUTES } from '../../wire/routes.ts';
import type { Bus } from '../bus/bus.ts';
import {
  type AuthenticatedEnv,
  type Authentication,
  authenticate,
  mayAdminister,
} from '../http/authentication.ts';
import { readJsonBody, respondBodyFailure } from '../http/body.ts';
import {
  createErrorHandler,
  respondInvalid,
  respondNotFound,
  respondProblem,
} from '../http/problem-response.ts';
import type { ServiceRepository } from '../services/repository.ts';
import type { Store } from '../store/store.ts';
import { AnswerBody, encodePieces, type FinishedBody, isMatch } from './answer-body.ts';
import { deleteCluster, listClusters } from './clusters.ts';
import { type EndpointsOutcome, type FoundEndpoints, readEndpoints } from './endpoints.ts';
import { writeEndpointsJson } from './endpoints-json.ts';
import { METRICS_TYPE, Metrics } from './metrics.ts';
import { findFailures } from './readiness.ts';
import { listServices } from './services.ts';
import { findSubscription, MAX_SUBSCRIPTIONS, subscribe } from './subscriptions.ts';
import { writeTable, writeWideTable } from './table.ts';

/** What the api function needs. */
export interface ApiDeps {
  readonly store: Store;
  readonly repository: ServiceRepository;
  readonly bus: Pick<Bus, 'describe'>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly authentication: Authentication;
  /** DNS domain of the clusters, for names of addresses (S39). */
  readonly clusterDomain: string;
  /** Cache-Control of answers that have an ETag. */
  readonly cacheControl: string;
  /** Version of this release. */
  readonly version: string;
}

const NO_STORE = { 'cache-control': 'no-store' };
const JSON_TYPE = 'application/json';
const TEXT_TYPE = 'text/plain';

const noQuery = z.object({});
/** A presigned URL carries its signature in the query. */
const SIGNATURE_PARAMETER = /^x-amz-/i;
const MAX_NAME_ECHO = 80;
/** A subscription's body is one number. */
const MAX_BODY_BYTES = 4096;

/** The readers' side of the HTTP API, and what operators ask of a cluster. */
export function createApiApp(deps: ApiDeps): Hono<AuthenticatedEnv> {
  const { store, authentication, cacheControl, version } = deps;
  const app = new Hono<AuthenticatedEnv>();
  const metrics = new Metrics(deps);
  // Made when it is first asked for: a cold start should not pay for it.
  let openApi: FinishedBody | undefined;
  app.onError(createErrorHandler(deps.log));
  app.notFound(respondNotFound);

  app.get(ROUTES.getHealth.path, (context) => respondHealth(context, []));
  app.get(ROUTES.getReadiness.path, async (context) => respondHealth(context, await findFailures(deps)));
  app.get(ROUTES.getOpenApi.path, (context) => {
    openApi ??= jsonBody(openApiDocument({ version, auth: authentication.kind }));
    return respondTagged(context, JSON_TYPE, openApi, cacheControl);
  });

  app.use(ROUTES.getMetrics.path, authenticate(authentication));
  app.get(ROUTES.getMetrics.path, async (context) =>
    context.body(ReadableStream.from(encodePieces(await metrics.collect())), 200, {
      'content-type': METRICS_TYPE,
      'cache-control': 'no-store',
    }),
  );

  app.use('/v1/*', authenticate(authentication));
  app.get(ROUTES.listClusters.path, async (context) => {
    const query = readQuery(context, noQuery);
    if (query.kind === 'invalid') return respondInvalid(context, query);
    return respondTagged(context, JSON_TYPE, jsonBody(await listClusters(deps)), cacheControl);
  });

  app.get(honoPath(ROUTES.listServices), async (context) => {
    const path = parse(servicesPath, context.req.param(), 'path');
    if (path.kind === 'invalid') return respondInvalid(context, path);
    const query = readQuery(context, servicesQuery);
    if (query.kind === 'invalid') return respondInvalid(context, query);
    const { cluster, namespace } = path.value;
    const { limit, continue: after, namespace: otherNamespace } = query.value;
    const request = { cluster, namespace: otherNamespace ?? namespace, limit, after };
    const outcome = await listServices(store, request);
    switch (outcome.kind) {
      case 'found':
        return respondTagged(context, JSON_TYPE, jsonBody(outcome.answer), cacheControl);
      case 'noCluster':
        return respondNoCluster(context, cluster);
      case 'invalid':
        return respondInvalid(context, outcome);
      default:
        return outcome satisfies never;
    }
  });

  app.get(honoPath(ROUTES.getEndpoints), async (context) => {
    const path = parse(servicePath, context.req.param(), 'path');
    if (path.kind === 'invalid') return respondInvalid(context, path);
    const query = readQuery(context, endpointsQuery);
    if (query.kind === 'invalid') return respondInvalid(context, query);
    const { cluster, namespace, service } = path.value;
    const { port, format = acceptedFormat(context), ...filter } = query.value;
    const outcome = await readEndpoints(deps, { key: { cluster, namespace, name: service }, port, filter });
    if (outcome.kind !== 'found') return refuseEndpoints(context, outcome, port);
    const body = endpointsBody(deps, outcome, { format, isSingle: port !== undefined });
    context.header('vary', 'accept');
    const type = format === 'json' ? JSON_TYPE : `${TEXT_TYPE}; charset=utf-8`;
    return respondTagged(context, type, body, cacheControl);
  });
  app.delete(honoPath(ROUTES.deleteCluster), async (context) => {
    const path = parse(clusterPath, context.req.param(), 'path');
    if (path.kind === 'invalid') return respondInvalid(context, path);
    const query = readQuery(context, noQuery);
    if (query.kind === 'invalid') return respondInvalid(context, query);
    if (!mayAdminister(authentication, context.get('caller'))) {
      const detail = 'only principals that ADMINS names may delete clusters';
      return respondProblem(context, 403, 'Forbidden', detail);
    }
    const outcome = await deleteCluster(deps, path.value.cluster);
    if (outcome.kind === 'noCluster') return respondNoCluster(context, path.value.cluster);
    return context.json(outcome.answer, 202, NO_STORE);
  });

  serveSubscriptions(app, deps);
  return app;
}

function serveSubscriptions(app: Hono<AuthenticatedEnv>, deps: ApiDeps): void {
  const { store } = deps;
  app.put(honoPath(ROUTES.putSubscription), async (context) => {
    const path = parse(subscriptionPath, context.req.param(), 'path');
    if (path.kind === 'invalid') return respondInvalid(context, path);
    const query = readQuery(context, subscriptionQuery);
    if (query.kind === 'invalid') return respondInvalid(context, query);
    const body = await readJsonBody(context.req.raw, MAX_BODY_BYTES);
    if (body.kind !== 'ok') return respondBodyFailure(context, body);
    const request = parse(subscriptionRequest, body.value);
    if (request.kind === 'invalid') return respondInvalid(context, request);
    const { cluster, namespace, service: name, id } = path.value;
    const { port } = query.value;
    const { ttlSeconds } = request.value;
    const outcome = await subscribe(deps, { key: { cluster, namespace, name }, id, port, ttlSeconds });
    if (outcome.kind === 'found') {
      const { pieces } = endpointsBody(deps, outcome, { format: 'json', isSingle: true });
      const headers = { ...NO_STORE, 'content-type': JSON_TYPE };
      return context.body(ReadableStream.from(pieces), 200, headers);
    }
    if (outcome.kind !== 'tooMany') return refuseEndpoints(context, outcome, port);
    const detail = `${cluster}/${namespace}/${name} has ${MAX_SUBSCRIPTIONS} live subscriptions, as many as it may; delete some, or wait until they end`;
    return respondProblem(context, 429, 'Too many subscriptions', detail);
  });

  app.on(['GET', 'DELETE'], honoPath(ROUTES.getSubscription), async (context) => {
    const path = parse(subscriptionPath, context.req.param(), 'path');
    if (path.kind === 'invalid') return respondInvalid(context, path);
    const query = readQuery(context, knownSubscriptionQuery);
    if (query.kind === 'invalid') return respondInvalid(context, query);
    const { cluster, namespace, service: name, id } = path.value;
    const key = { cluster, namespace, name };
    const found = await findSubscription(store, key, id, query.value.port);
    const isDeletion = context.req.method === 'DELETE';
    if (found === null || (isDeletion && !(await store.deleteSubscription(key, id, null)))) {
      const detail = `id: ${cluster}/${namespace}/${name} has no live subscription ${id}`;
      return respondProblem(context, 404, 'No such subscription', detail);
    }
    return isDeletion ? context.body(null, 204) : context.json(found, 200, NO_STORE);
  });
}

function respondNoCluster(context: Context, cluster: string): Response {
  return respondProblem(
    context,
    404,
    'No such cluster',
    `cluster: no relay of ${cluster} was ever heard, or it was deleted`,
  );
}

/** Checks a query. What no schema knows is refused, so that nobody takes an answer for what was not asked. */
function readQuery<T>(context: Context, schema: z.ZodType<T> & Pick<z.ZodObject, 'shape'>): Parsed<T> {
  const known = Object.keys(schema.shape);
  for (const [name, values] of Object.entries(context.req.queries())) {
    if (known.includes(name)) {
      if (values.length > 1) return invalid(name, 'must be given once');
    } else if (!SIGNATURE_PARAMETER.test(name)) {
      const served = known.length === 0 ? 'there are none' : `there are ${known.join(', ')}`;
      return invalid(name.slice(0, MAX_NAME_ECHO), `is no parameter that is served here; ${served}`);
    }
  }
  return parseQuery(schema, context.req.query());
}

function acceptedFormat(context: Context): Format {
  const type = accepts(context, { header: 'Accept', supports: [JSON_TYPE, TEXT_TYPE], default: JSON_TYPE });
  return type === TEXT_TYPE ? 'table' : 'json';
}

function endpointsBody(
  { clock, clusterDomain }: ApiDeps,
  found: FoundEndpoints,
  { format, isSingle }: { readonly format: Format; readonly isSingle: boolean },
): FinishedBody {
  const body = new AnswerBody(format);
  switch (format) {
    case 'json':
      writeEndpointsJson(body, found, { isSingle, clusterDomain });
      break;
    case 'table':
      writeTable(body, found, clock.now());
      break;
    case 'wide':
      writeWideTable(body, found, clock.now());
      break;
    default:
      return format satisfies never;
  }
  return body.finish();
}

function refuseEndpoints(
  context: Context,
  outcome: Exclude<EndpointsOutcome, FoundEndpoints>,
  port: Parameters<typeof portId>[0] | undefined,
): Response {
  const { cluster, namespace, service } = context.req.param();
  const name = `${cluster}/${namespace}/${service}`;
  switch (outcome.kind) {
    case 'noService':
      return respondProblem(context, 404, 'No such service', `service: there is no ${name}`);
    case 'noPort': {
      const ports = outcome.defined.length === 0 ? 'none' : outcome.defined.join(', ');
      const detail = `port: ${name} has no port ${port === undefined ? '' : portId(port)}; its ports: ${ports}`;
      return respondProblem(context, 404, 'No such port', detail);
    }
    case 'externalName': {
      const { externalName } = outcome;
      const detail = `${name} is of type ExternalName: it has no endpoints, but the name ${externalName}`;
      return respondProblem(context, 422, 'ExternalName', detail, { externalName });
    }
    default:
      return outcome satisfies never;
  }
}

function respondHealth(context: Context, reasons: string[]): Response {
  const answer: HealthAnswer = { status: reasons.length === 0 ? 'ok' : 'failing', reasons };
  return context.json(answer, reasons.length === 0 ? 200 : 503, { 'cache-control': 'no-store' });
}

function jsonBody(value: unknown): FinishedBody {
  const body = new AnswerBody('json');
  body.write(JSON.stringify(value));
  return body.finish();
}

/** Answers a body with its ETag, or 304 to a reader who has it; more than one piece is streamed. */
function respondTagged(
  context: Context,
  type: string,
  { pieces, etag }: FinishedBody,
  cacheControl: string,
): Response {
  context.header('etag', etag);
  context.header('cache-control', cacheControl);
  if (isMatch(context.req.header('if-none-match'), etag)) return context.body(null, 304);
  const [first = new Uint8Array(), ...others] = pieces;
  context.header('content-type', type);
  return context.body(others.length === 0 ? first : ReadableStream.from(pieces));
}
