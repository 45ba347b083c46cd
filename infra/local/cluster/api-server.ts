import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Clock } from '../../../core/time.ts';
import { parseListOptions } from './list-options.ts';
import { expiredPage, firstPageToken, readPage } from './list-pages.ts';
import {
  createMisbehaviours,
  type Fault,
  type FaultCode,
  type Misbehaviour,
  type RequestFacts,
  type Verb,
} from './misbehaviour.ts';
import { createObjectStore, type ObjectRef, type Objects, type Snapshot } from './object-store.ts';
import {
  apiVersionOf,
  type ObjectInput,
  type ObjectMeta,
  RESOURCES,
  type Resource,
  resourceOf,
} from './resources.ts';
import {
  ApiError,
  badRequest,
  entityTooLarge,
  forbidden,
  internalError,
  invalid,
  methodNotAllowed,
  notAcceptable,
  notFound,
  type Status,
  serviceUnavailable,
  tooManyRequests,
  tooOldVersion,
  unauthorized,
  unknownResource,
  versionTooLarge,
} from './status.ts';
import { type OpenWatch, openWatch } from './watch-stream.ts';

export interface ApiServerOptions {
  readonly clock: Clock;
  /** Bearer token that requests must carry; null lets everyone in. Default null. */
  readonly token?: string | null;
  /** Changes remembered for watches and for the pages of a list, over all resources. Default 10,000. */
  readonly historySize?: number;
  /**
   * Whether watches may ask for `sendInitialEvents`; off, they are told 422. `ignored`: such a watch begins with the state and
   * has no end of it, as before Kubernetes 1.19. Default true, as since 1.34.
   */
  readonly watchList?: boolean | 'ignored';
  /** Whether Linkerd's Servers are served; absent, as without the CRD, they are a 404. Default false. */
  readonly linkerdPolicy?: boolean;
  /** Default 0: any free one. */
  readonly port?: number;
}

/**
 * A small Kubernetes API server on loopback: LIST with pages, WATCH, watch-list, bookmarks and versions as a real one
 * answers them, over HTTP/1.1 and JSON. Leases can be written over HTTP; the rest by `objects`.
 */
export interface ApiServer extends AsyncDisposable {
  /** `http://127.0.0.1:PORT`. */
  readonly url: string;
  /** A kubeconfig for this server, in JSON, which is YAML too. */
  readonly kubeconfig: string;
  readonly objects: Objects;
  /** The last requests, oldest first: at most 1,000. */
  readonly requests: readonly RequestFacts[];
  /** Plural names of the resources that are being watched, one for each open watch. */
  readonly watched: readonly string[];
  /** Makes requests fail in a named way until the answer is disposed of, or `times` requests were hit. */
  misbehave(misbehaviour: Misbehaviour): Promise<AsyncDisposable>;
  /** Changes the accepted bearer token; open watches go on. */
  setToken(token: string | null): void;
  /** Forgets the history, as etcd's compaction does: every version but the current one is too old. */
  compact(): void;
  /** Sends a bookmark to every watch that asked for them. */
  bookmark(): void;
  snapshot(): Snapshot;
  /** Restores a snapshot, as of an etcd backup: drops every connection, and versions fall. */
  restore(snapshot: Snapshot): void;
  /** Drops every connection and listens anew on the same port. Real ones also forget the history: see `compact`. */
  restart(): Promise<void>;
}

const DEFAULT_HISTORY_SIZE = 10_000;
const MAX_REQUESTS_KEPT = 1_000;
/** Source: kube-apiserver's limit of a request body. */
const MAX_BODY_BYTES = 3 * 1024 * 1024;
/** How long a request waits for a version that is still to come. Source: watch cache, `blockTimeout`. */
const FRESHNESS_WAIT_MS = 3_000;
const FRESHNESS_RETRY_SECONDS = 1;
/** A watch without `timeoutSeconds` lasts one to two of these. Source: `--min-request-timeout`. */
const MIN_WATCH_MS = 1_800_000;
/** How long a connection may lie idle between requests. Source: net/http defaults of kube-apiserver. */
const IDLE_CONNECTION_MS = 90_000;
/** How often the clock is read for bookmarks and ends of watches. */
const TICK_MS = 1_000;
/** What an API server that knows no watch-list does not look at. */
const WATCH_LIST_OPTIONS = ['sendInitialEvents', 'resourceVersionMatch'];
const SYSTEM_NAMESPACES = ['default', 'kube-node-lease', 'kube-public', 'kube-system'];
const VERSION = {
  major: '1',
  minor: '37',
  gitVersion: 'v1.37.2',
  gitCommit: '',
  gitTreeState: 'clean',
  buildDate: '1970-01-01T00:00:00Z',
  goVersion: 'go1.26',
  compiler: 'gc',
  platform: 'linux/amd64',
};
/** Paths that need no token, as the role `system:public-info-viewer` allows. */
const PUBLIC_PATHS: ReadonlySet<string> = new Set(['/version', '/readyz', '/livez', '/healthz']);

/** Starts the server with the four namespaces that every cluster has, on 127.0.0.1 only. */
export async function startApiServer(options: ApiServerOptions): Promise<ApiServer> {
  const { clock, historySize = DEFAULT_HISTORY_SIZE, watchList = true, linkerdPolicy = false } = options;
  const store = createObjectStore({ clock, historySize });
  const misbehaviours = createMisbehaviours();
  const resources = RESOURCES.filter(({ kind }) => linkerdPolicy || kind !== 'Server');
  const requests: RequestFacts[] = [];
  const watches = new Set<OpenWatch>();
  const sockets = new Set<Socket>();
  let token = options.token ?? null;
  let isClosed = false;

  for (const name of SYSTEM_NAMESPACES) {
    const labels = { 'kubernetes.io/metadata.name': name };
    store.create({
      kind: 'Namespace',
      metadata: { name, labels },
      spec: { finalizers: ['kubernetes'] },
      status: { phase: 'Active' },
    });
  }

  const answer = async (exchange: Exchange, facts: RequestFacts, resource: Resource | null) => {
    const { request, path, fault } = exchange;
    if (fault?.kind === 'status') throw errorOf(fault.code, facts, resource, fault.retryAfterSeconds);
    const { authorization } = request.headers;
    const isAnonymous = authorization === undefined && PUBLIC_PATHS.has(path);
    if (token !== null && !isAnonymous && authorization !== `Bearer ${token}`) throw unauthorized();
    if (resource === null) return answerOther(exchange);
    switch (facts.verb) {
      case 'list':
        return answerList(exchange, facts, resource);
      case 'watch':
        return answerWatch(exchange, facts, resource);
      case 'get':
        return answerObject(exchange, resource, facts);
      case 'create':
      case 'update':
      case 'delete':
        return answerWrite(exchange, resource, facts);
      case 'other':
        throw methodNotAllowed();
      default:
        return facts.verb satisfies never;
    }
  };

  const answerOther = (exchange: Exchange) => {
    if (exchange.path === '/version') return send(exchange, 200, VERSION);
    if (PUBLIC_PATHS.has(exchange.path)) return sendText(exchange, 200, 'ok');
    return sendText(exchange, 404, '404 page not found\n');
  };

  const answerList = async (exchange: Exchange, { namespace }: RequestFacts, resource: Resource) => {
    const { query, request, fault } = exchange;
    const isMetadataOnly = acceptsMetadata(request, 'PartialObjectMetadataList');
    const list = parseListOptions(query, namespace, watchList !== false);
    if (list.match !== 'Exact' && list.continueToken === null && !(list.match === null && list.limit > 0)) {
      await untilFresh(exchange, list.resourceVersion ?? 0);
    }
    const body = readPage(store, resource, list);
    const { continue: _continue, remainingItemCount: _remaining, ...lastPage } = body.metadata;
    let page = body;
    if (fault?.kind === 'omitContinue') page = { ...body, metadata: lastPage };
    if (fault?.kind === 'repeatPage') {
      const same = list.continueToken ?? firstPageToken(store.revision);
      page = { ...body, metadata: { ...lastPage, continue: same } };
    }
    return send(exchange, 200, isMetadataOnly ? toMetadataList(page) : page);
  };

  const answerWatch = async (exchange: Exchange, facts: RequestFacts, resource: Resource) => {
    const { query, request, response, fault } = exchange;
    const isMetadataOnly = acceptsMetadata(request, 'PartialObjectMetadata');
    if (watchList === 'ignored') for (const name of WATCH_LIST_OPTIONS) query.delete(name);
    const list = parseListOptions(query, facts.namespace, watchList !== false);
    const { resourceVersion, sendInitialEvents } = list;
    const version = resourceVersion ?? 0;
    // Without a version a watch starts with the state, unless it says that it does not want it.
    const startsWithState = sendInitialEvents ?? version === 0;
    response.writeHead(200, { ...commonHeaders(), 'content-type': 'application/json' });
    response.flushHeaders();
    try {
      if (sendInitialEvents === true) await untilFresh(exchange, version);
      if (!startsWithState && version !== 0 && version < store.compactedRevision) {
        throw tooOldVersion(version, store.compactedRevision);
      }
    } catch (error) {
      // Once a watch is accepted, its errors come as events.
      if (!(error instanceof ApiError)) throw error;
      response.end(`${JSON.stringify({ type: 'ERROR', object: error.status })}\n`);
      return;
    }
    const seconds = list.timeoutSeconds;
    const watch = openWatch(
      {
        resource,
        selects: list.selects,
        from: startsWithState || version === 0 ? store.revision : version,
        initial: startsWithState ? store.list(resource.kind).filter(list.selects) : [],
        marksInitialEnd: sendInitialEvents === true && list.allowWatchBookmarks,
        allowsBookmarks: list.allowWatchBookmarks,
        timeoutMs: seconds > 0 ? seconds * 1_000 : MIN_WATCH_MS * (1 + Math.random()),
        render: isMetadataOnly ? toMetadata : (object) => object,
        fault,
      },
      {
        store,
        clock,
        response,
        statusOf: (code, retryAfter) => errorOf(code, facts, resource, retryAfter).status,
      },
    );
    watches.add(watch);
    await watch.finished;
    watches.delete(watch);
  };

  const answerObject = (exchange: Exchange, resource: Resource, facts: RequestFacts) => {
    const object = store.get(refOf(resource, facts));
    if (object === undefined) throw notFound(resource, facts.name ?? '');
    const isMetadataOnly = acceptsMetadata(exchange.request, 'PartialObjectMetadata');
    return send(exchange, 200, isMetadataOnly ? toMetadata(object) : object);
  };

  const answerWrite = async (exchange: Exchange, resource: Resource, facts: RequestFacts) => {
    if (resource.kind !== 'Lease' || facts.namespace === null) throw methodNotAllowed();
    const body = await readBody(exchange.request);
    if (facts.verb === 'delete') {
      const { preconditions = {} } = body as { preconditions?: object };
      const deleted = store.delete(refOf(resource, facts), preconditions);
      return send(exchange, 200, deletionStatus(resource, deleted.metadata));
    }
    if (store.get({ kind: 'Namespace', name: facts.namespace }) === undefined) {
      throw notFound(resourceOf('Namespace'), facts.namespace);
    }
    const lease = toLease(body, facts);
    if (facts.verb === 'create') return send(exchange, 201, store.create(lease));
    if (lease.metadata.resourceVersion !== undefined) return send(exchange, 200, store.update(lease));
    if (store.get(refOf(resource, facts)) === undefined) throw notFound(resource, facts.name ?? '');
    throw unconditionalUpdate(resource, facts.name ?? '');
  };

  const untilFresh = (exchange: Exchange, version: number) =>
    new Promise<void>((resolve, reject) => {
      const finish = (settle: () => void) => {
        clearTimeout(timer);
        unsubscribe();
        settle();
      };
      const check = () => {
        if (store.revision >= version || exchange.response.destroyed) finish(resolve);
      };
      const unsubscribe = store.subscribe(check);
      const timer = setTimeout(
        () => finish(() => reject(versionTooLarge(version, store.revision, FRESHNESS_RETRY_SECONDS))),
        FRESHNESS_WAIT_MS,
      );
      exchange.response.once('close', check);
      check();
    });

  const errorOf = (code: FaultCode, facts: RequestFacts, resource: Resource | null, retryAfter = 1) => {
    const query = new URL(facts.url, 'http://localhost').searchParams;
    const version = Number(query.get('resourceVersion') ?? 0);
    switch (code) {
      case 400:
        return badRequest(`invalid resource version: ${version}`);
      case 401:
        return unauthorized();
      case 403:
        return forbidden(facts, resource);
      case 404:
        return unknownResource();
      case 410:
        if (facts.verb === 'watch') return tooOldVersion(version, store.compactedRevision);
        return expiredPage(query.get('continue'));
      case 429:
        return tooManyRequests(retryAfter);
      case 500:
        return internalError();
      case 503:
        return serviceUnavailable();
      case 504:
        return versionTooLarge(Math.max(version, store.revision + 1), store.revision, retryAfter);
      default:
        return code satisfies never;
    }
  };

  const handle = async (request: IncomingMessage, response: ServerResponse) => {
    const parsed = parseRequest(request, resources);
    if (parsed === null) return response.writeHead(400).end('400 Bad Request: malformed URL');
    const { facts, resource, path, query } = parsed;
    requests.push(facts);
    if (requests.length > MAX_REQUESTS_KEPT) requests.shift();
    const fault = misbehaviours.next(facts);
    if (fault?.kind === 'resetBeforeHeaders') return request.socket.resetAndDestroy();
    if (fault?.kind === 'stallBeforeHeaders') return;
    const exchange = { request, response, path, query, fault };
    try {
      await answer(exchange, facts, resource);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      sendError(exchange, error);
    }
  };

  const server = createServer((request, response) => {
    handle(request, response).catch((error: unknown) => {
      // A defect of this server: the request fails and the process says why.
      response.destroy();
      process.emitWarning(error instanceof Error ? error : String(error));
    });
  });
  server.keepAliveTimeout = IDLE_CONNECTION_MS;
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });

  const listen = async (port: number) => {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    return (server.address() as AddressInfo).port;
  };
  const dropConnections = () => {
    for (const socket of sockets) socket.destroy();
  };
  const stopListening = async () => {
    if (!server.listening) return;
    const closed = once(server, 'close');
    server.close();
    dropConnections();
    await closed;
  };

  const port = await listen(options.port ?? 0);
  const url = `http://127.0.0.1:${port}`;
  const ticker = setInterval(() => {
    for (const watch of watches) watch.tick();
  }, TICK_MS);
  ticker.unref();

  return {
    url,
    get kubeconfig() {
      return kubeconfig(url, token);
    },
    objects: store,
    requests,
    get watched() {
      return [...watches].map(({ resource }) => resource);
    },
    misbehave: async (misbehaviour) => {
      if (misbehaviour.fault.kind === 'refuse') {
        await stopListening();
        return { [Symbol.asyncDispose]: async () => void (isClosed || (await listen(port))) };
      }
      misbehaviours.add(misbehaviour);
      return { [Symbol.asyncDispose]: async () => misbehaviours.remove(misbehaviour) };
    },
    setToken: (next) => {
      token = next;
    },
    compact: store.compact,
    bookmark: () => {
      for (const watch of watches) watch.bookmark();
    },
    snapshot: store.snapshot,
    restore: (snapshot) => {
      store.restore(snapshot);
      dropConnections();
    },
    restart: async () => {
      await stopListening();
      await listen(port);
    },
    [Symbol.asyncDispose]: async () => {
      isClosed = true;
      clearInterval(ticker);
      await stopListening();
    },
  };
}

/** One request with its answer and what is to go wrong with it. */
interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly fault: Fault | undefined;
}

interface ParsedRequest {
  readonly facts: RequestFacts;
  /** Null when the path names none that is served. */
  readonly resource: Resource | null;
  readonly path: string;
  readonly query: URLSearchParams;
}

/** Null when the URL cannot be read. */
function parseRequest(request: IncomingMessage, resources: readonly Resource[]): ParsedRequest | null {
  const url = request.url ?? '/';
  const base = 'http://localhost';
  if (!URL.canParse(url, base)) return null;
  const { pathname: path, searchParams: query } = new URL(url, base);
  const target = parsePath(path, resources);
  const verb = target === null ? 'other' : verbOf(request.method ?? 'GET', target.name !== null, query);
  const { resource = null, namespace = null, name = null } = target ?? {};
  return { facts: { verb, resource: resource?.plural ?? null, namespace, name, url }, resource, path, query };
}

function parsePath(path: string, resources: readonly Resource[]) {
  for (const resource of resources) {
    const root = `${resource.group === '' ? '/api' : '/apis'}/${apiVersionOf(resource)}/`;
    if (!path.startsWith(root)) continue;
    const parts = path.slice(root.length).split('/');
    const isScoped = resource.isNamespaced && parts[0] === 'namespaces';
    const [plural, name = null, ...rest] = isScoped ? parts.slice(2) : parts;
    if (plural !== resource.plural || rest.length > 0) continue;
    if (resource.isNamespaced && !isScoped && name !== null) continue;
    return { resource, namespace: isScoped ? (parts[1] ?? null) : null, name };
  }
  return null;
}

function verbOf(method: string, hasName: boolean, query: URLSearchParams): Verb {
  switch (method) {
    case 'GET':
      if (hasName) return 'get';
      return query.has('watch') && !['false', '0'].includes(query.get('watch') ?? '') ? 'watch' : 'list';
    case 'POST':
      return hasName ? 'other' : 'create';
    case 'PUT':
      return hasName ? 'update' : 'other';
    case 'DELETE':
      return hasName ? 'delete' : 'other';
    default:
      return 'other';
  }
}

function refOf(resource: Resource, { namespace, name }: RequestFacts): ObjectRef {
  return { kind: resource.kind, ...(namespace === null ? {} : { namespace }), name: name ?? '' };
}

/** True when only metadata is asked for: `Accept: application/json;as=KIND;g=meta.k8s.io;v=v1`. */
function acceptsMetadata(request: IncomingMessage, kind: string): boolean {
  for (const media of (request.headers.accept ?? '*/*').split(',')) {
    const [type = '', ...parameters] = media.split(';').map((part) => part.trim());
    if (!['application/json', 'application/*', '*/*'].includes(type)) continue;
    const as = parameters.find((parameter) => parameter.startsWith('as='));
    if (as === undefined) return false;
    if (as === `as=${kind}`) return true;
  }
  throw notAcceptable();
}

function toMetadata(object: object): object {
  const metadata = 'metadata' in object ? object.metadata : {};
  return 'kind' in object && object.kind === 'Status'
    ? object
    : { kind: 'PartialObjectMetadata', apiVersion: 'meta.k8s.io/v1', metadata };
}

function toMetadataList({ metadata, items }: { metadata: object; items: readonly unknown[] }): object {
  return {
    kind: 'PartialObjectMetadataList',
    apiVersion: 'meta.k8s.io/v1',
    metadata,
    items: items.map((item) => toMetadata(item as object)),
  };
}

async function readBody(request: IncomingMessage): Promise<object> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_BODY_BYTES) throw entityTooLarge(MAX_BODY_BYTES);
    chunks.push(chunk);
  }
  if (bytes === 0) return {};
  try {
    const body: unknown = JSON.parse(Buffer.concat(chunks).toString());
    if (typeof body === 'object' && body !== null) return body;
  } catch {
    // Answered below like any other body that is no object.
  }
  throw badRequest('the body of the request is not a JSON object');
}

/** A Lease from a body that a client sent: it names itself as the path does, or not at all. */
function toLease(body: object, { namespace, name }: RequestFacts): ObjectInput<'Lease'> {
  const { metadata = {}, spec = {} } = body as Partial<ObjectInput<'Lease'>>;
  if (namespace === null || (metadata.namespace ?? namespace) !== namespace) {
    throw badRequest('the namespace of the provided object does not match the namespace sent on the request');
  }
  if (name !== null && (metadata.name ?? name) !== name) {
    throw badRequest(
      `the name of the object (${metadata.name}) does not match the name on the URL (${name})`,
    );
  }
  return {
    kind: 'Lease',
    metadata: { ...metadata, ...(name === null ? {} : { name }), namespace },
    spec,
  };
}

/** Leases may only be updated on top of a version that the client has read. */
function unconditionalUpdate(resource: Resource, name: string): ApiError {
  return invalid(resource.group, resource.plural, name, [
    {
      reason: 'FieldValueInvalid',
      message: 'Invalid value: 0: must be specified for an update',
      field: 'metadata.resourceVersion',
    },
  ]);
}

function deletionStatus(resource: Resource, { name, uid }: ObjectMeta): Status {
  return {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Success',
    details: { name, group: resource.group, kind: resource.plural, uid },
  };
}

function commonHeaders(): Record<string, string> {
  return { 'audit-id': randomUUID(), 'cache-control': 'no-cache, private' };
}

function send(exchange: Exchange, code: number, body: object): void {
  const text = `${JSON.stringify(body)}\n`;
  const headers = { ...commonHeaders(), 'content-type': 'application/json' };
  const { response, fault } = exchange;
  switch (fault?.kind) {
    case 'cutList':
    case 'resetMidStream':
    case 'stallMidStream':
      response.writeHead(code, headers);
      response.write(text.slice(0, text.length / 2), () => {
        if (fault.kind === 'cutList') response.socket?.destroy();
        if (fault.kind === 'resetMidStream') response.socket?.resetAndDestroy();
      });
      return;
    default:
      response.writeHead(code, { ...headers, 'content-length': Buffer.byteLength(text) }).end(text);
  }
}

function sendText({ response }: Exchange, code: number, text: string): void {
  response.writeHead(code, {
    ...commonHeaders(),
    'content-type': 'text/plain; charset=utf-8',
    'x-content-type-options': 'nosniff',
  });
  response.end(text);
}

function sendError(exchange: Exchange, { status }: ApiError): void {
  const { fault, response } = exchange;
  const seconds = status.details?.retryAfterSeconds;
  if (seconds !== undefined) response.setHeader('retry-after', seconds);
  // Overload and unknown paths are answered before any handler, in plain text.
  if (status.code === 429) sendText(exchange, 429, `${status.message}\n`);
  else if (fault?.kind === 'status' && status.code === 404) sendText(exchange, 404, '404 page not found\n');
  else send(exchange, status.code, status);
}

function kubeconfig(server: string, token: string | null): string {
  const name = 'demo';
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name, cluster: { server, 'insecure-skip-tls-verify': true } }],
    users: [{ name, user: token === null ? {} : { token } }],
    contexts: [{ name, context: { cluster: name, user: name } }],
    'current-context': name,
  });
}
