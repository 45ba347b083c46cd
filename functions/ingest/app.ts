import { type Context, Hono } from 'hono';
import type { Mode } from '../../wire/envelope.ts';
import { MAX_EVENTS, parseEventsRequest } from '../../wire/events.ts';
import { parseHeartbeatRequest } from '../../wire/heartbeat.ts';
import { parseInventoryRequest } from '../../wire/inventory.ts';
import type { Invalid } from '../../wire/parse.ts';
import {
  type AuthenticatedEnv,
  type Authentication,
  authenticate,
  mayWrite,
} from '../http/authentication.ts';
import { readJsonBody, respondBodyFailure } from '../http/body.ts';
import {
  createErrorHandler,
  respondInvalid,
  respondNotFound,
  respondProblem,
} from '../http/problem-response.ts';
import { type Admission, admit, type Sender } from './admission.ts';
import { applyEvents, type EventsDeps } from './events.ts';
import { recordHeartbeat } from './heartbeat.ts';
import { reconcile } from './inventory.ts';

/** Seconds after which a cluster of a name that is being deleted may ask again: the sweep comes each minute. */
const DELETION_RETRY_SECONDS = 15;

/** What the ingest function needs. */
export interface IngestDeps extends EventsDeps {
  readonly authentication: Authentication;
}

type Admitted = Extract<Admission, { readonly kind: 'admitted' }>;

/** A body that passed its schema, or what is wrong with it. */
type ParsedBody<R> = { readonly kind: 'ok'; readonly request: R } | { readonly kind: 'tooMany' } | Invalid;

/** The relay's side of the HTTP API: events, inventories and heartbeats of clusters. */
export function createIngestApp(deps: IngestDeps): Hono<AuthenticatedEnv> {
  const app = new Hono<AuthenticatedEnv>();
  app.onError(createErrorHandler(deps.log));
  app.notFound(respondNotFound);
  app.get('/healthz', (context) => context.json({ status: 'ok', reasons: [] }));
  app.use('/v1/*', authenticate(deps.authentication));

  app.post('/v1/events', (context) =>
    receive(deps, context, parseEventsRequest, async (request, { fence }) =>
      context.json(await applyEvents(deps, request, fence)),
    ),
  );
  app.post('/v1/inventory', (context) =>
    receive(deps, context, parseInventoryRequest, async (request, { fence }) => {
      const outcome = await reconcile(deps, request, fence);
      if (outcome.kind === 'reconciled') return context.json(outcome.answer);
      const detail = `more than ${request.maxRemoved} of the addresses of ${outcome.services.length} services would go; list again, and send the page without maxRemoved if the list agrees`;
      return respondProblem(context, 409, 'Guarded', detail, { error: 'guard', services: outcome.services });
    }),
  );
  app.post('/v1/heartbeat', (context) =>
    receive(deps, context, parseHeartbeatRequest, async (request, { cluster }) =>
      context.json(await recordHeartbeat(deps, request, cluster)),
    ),
  );
  return app;
}

/** What every request of a relay goes through: body, shape, permission, epoch. */
async function receive<
  R extends {
    readonly cluster: string;
    readonly clusterUid: string | null;
    readonly epoch: number;
    readonly mode: Mode;
  },
>(
  deps: IngestDeps,
  context: Context<AuthenticatedEnv>,
  parse: (body: unknown) => ParsedBody<R>,
  apply: (request: R, admitted: Admitted) => Promise<Response>,
): Promise<Response> {
  const body = await readJsonBody(context.req.raw);
  if (body.kind !== 'ok') return respondBodyFailure(context, body);
  const parsed = parse(body.value);
  if (parsed.kind === 'tooMany') {
    return respondProblem(
      context,
      413,
      'Too large',
      `events: must be at most ${MAX_EVENTS}; send them in several requests`,
    );
  }
  if (parsed.kind === 'invalid') return respondInvalid(context, parsed);
  const { request } = parsed;
  if (!mayWrite(deps.authentication, context.get('caller'), request.cluster)) {
    return respondProblem(
      context,
      403,
      'Forbidden',
      `cluster: these credentials may not write ${request.cluster}`,
    );
  }
  const admission = await admit(deps, request);
  return admission.kind === 'admitted' ? apply(request, admission) : refuse(context, admission, request);
}

function refuse(
  context: Context,
  admission: Exclude<Admission, Admitted>,
  { cluster, epoch }: Sender,
): Response {
  switch (admission.kind) {
    case 'oldEpoch': {
      const { current } = admission;
      const detail = `epoch: ${epoch} is over, a relay with epoch ${current} has taken over`;
      return respondProblem(context, 409, 'Old epoch', detail, { error: 'epoch', current });
    }
    case 'otherCluster': {
      const detail = `clusterUid: the name ${cluster} belongs to another cluster, with uid ${admission.uid}; choose another name, or delete that cluster first`;
      return respondProblem(context, 409, 'Another cluster', detail, { error: 'clusterUid' });
    }
    case 'beingDeleted': {
      const detail = `cluster: what was stored of ${cluster} is being deleted; its name is free in a minute or two`;
      context.header('retry-after', `${DELETION_RETRY_SECONDS}`);
      return respondProblem(context, 503, 'Being deleted', detail);
    }
    default:
      return admission satisfies never;
  }
}
