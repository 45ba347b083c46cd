import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gunzipSync } from 'node:zlib';
import { compareVersions } from '../../core/version.ts';
import { parseEventsRequest, parseWatchEvent, type WatchEvent } from '../../wire/events.ts';
import { parseHeartbeatRequest } from '../../wire/heartbeat.ts';
import {
  compareServiceKeys,
  type InventoryRequest,
  parseInventoryRequest,
  type ServiceKey,
} from '../../wire/inventory.ts';

/** One request as it came, in its order. */
export interface Received {
  readonly path: string;
  /** By the test's clock. */
  readonly at: number;
  // biome-ignore lint/suspicious/noExplicitAny: bodies of every shape are looked into
  readonly body: any;
  readonly headers: IncomingMessage['headers'];
}

/** An answer instead of the right one; `applied`: the request has its effect all the same; `hangUp` ends the connection. */
export interface Mishap {
  readonly path: string;
  readonly status: number | 'hangUp';
  readonly body?: object;
  readonly headers?: Readonly<Record<string, string>>;
  readonly isApplied?: boolean;
}

interface Stored {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly version: string;
  readonly service: string;
}

/**
 * What the relay's contract says of ingest, without sets and deltas: per object its version, stale events, inventories,
 * the epoch. Requests are checked by the schemas that ingest has.
 */
export class ScriptedIngest implements AsyncDisposable {
  readonly received: Received[] = [];
  /** Told answers, oldest first; each serves once. */
  readonly mishaps: Mishap[] = [];
  readonly stored = new Map<string, Stored>();
  /** How every request fails: with a status, a connection that is ended, or no answer at all; null while all is well. */
  outage: number | 'hangUp' | 'hang' | null = null;
  /** Bodies that are answered 503, and 413. */
  failing: (body: Received['body']) => boolean = () => false;
  tooLarge: (body: Received['body']) => boolean = () => false;
  /** Called for each request, before it is answered. */
  onReceived: (request: Received) => void = () => {};
  epoch = 0;
  waitMs = 0;
  /** Lets each page's guard refuse as many times. */
  guards: string[][] = [];
  readonly #deletions = new Map<string, string>();
  readonly #highest = new Map<string, string>();
  readonly #now: () => number;
  readonly #server = createServer((request, response) => {
    void readBody(request).then((text) => {
      const path = request.url ?? '';
      const body = JSON.parse(text);
      const received = { path, at: this.#now(), body, headers: request.headers };
      this.received.push(received);
      this.onReceived(received);
      if (this.outage === 'hang') return;
      if (this.outage === 'hangUp') return request.socket.destroy();
      if (this.outage !== null) return response.writeHead(this.outage).end();
      if (path === '/v1/events' && this.failing(body)) return response.writeHead(503).end();
      if (path === '/v1/events' && this.tooLarge(body)) return response.writeHead(413).end();
      const index = this.mishaps.findIndex((mishap) => mishap.path === path);
      const [mishap] = index === -1 ? [] : this.mishaps.splice(index, 1);
      const right = mishap === undefined || mishap.isApplied ? this.#answer(path, body) : null;
      if (mishap?.status === 'hangUp') return request.socket.destroy();
      const { status, body: answer } = mishap
        ? { status: mishap.status, body: mishap.body ?? {} }
        : (right ?? { status: 500, body: {} });
      response.writeHead(Number(status), { 'content-type': 'application/json', ...mishap?.headers });
      response.end(JSON.stringify(answer));
    });
  });

  constructor(now: () => number) {
    this.#now = now;
  }

  static async start(now: () => number): Promise<ScriptedIngest> {
    const ingest = new ScriptedIngest(now);
    ingest.#server.listen(0, '127.0.0.1');
    await once(ingest.#server, 'listening');
    return ingest;
  }

  get url(): URL {
    return new URL(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`);
  }

  /** What is stored, as `KIND/NAMESPACE/NAME VERSION`. */
  get objects(): string[] {
    return [...this.stored.values()]
      .map(({ kind, namespace, name, version }) => `${kind}/${namespace}/${name} ${version}`)
      .sort();
  }

  /** Events in order of arrival, each as `TYPE NAME` and what it carries. */
  get events(): string[] {
    return this.received
      .filter(({ path }) => path === '/v1/events')
      .flatMap(({ body }) => body.events)
      .map(({ type, object, observedAt, former, ...marks }) => {
        const words = [...Object.keys(marks), ...(former ? [`former ${former}`] : [])];
        return [type, object.metadata.name, ...words].join(' ');
      });
  }

  /** Ends every connection: whoever waits for an answer gets none. */
  hangUp(): void {
    this.#server.closeAllConnections();
  }

  /** Refuses connections, until the returned function lets them in again. */
  async refuse(): Promise<() => Promise<void>> {
    const { port } = this.url;
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
    return async () => {
      this.#server.listen(Number(port), '127.0.0.1');
      await once(this.#server, 'listening');
    };
  }

  bodies(path: string): Received['body'][] {
    return this.received.filter((request) => request.path === path).map(({ body }) => body);
  }

  #answer(path: string, body: unknown): { readonly status: number; readonly body: object } {
    switch (path) {
      case '/v1/events': {
        const parsed = parseEventsRequest(body);
        if (parsed.kind !== 'ok') return { status: 400, body: { detail: parsed.kind } };
        return (
          this.#fence(parsed.request.epoch) ?? {
            status: 200,
            body: {
              results: parsed.request.events.map((event, index) => ({ index, ...this.#apply(event) })),
              deltas: 0,
            },
          }
        );
      }
      case '/v1/inventory': {
        const parsed = parseInventoryRequest(body);
        if (parsed.kind !== 'ok') return { status: 400, body: { detail: parsed.message } };
        return this.#fence(parsed.request.epoch) ?? this.#reconcile(parsed.request);
      }
      case '/v1/heartbeat': {
        const parsed = parseHeartbeatRequest(body);
        if (parsed.kind !== 'ok') return { status: 400, body: { detail: parsed.message } };
        const versions = Object.fromEntries(this.#highest);
        return (
          this.#fence(parsed.request.epoch) ?? {
            status: 200,
            body: { epoch: this.epoch, waitMs: this.waitMs, versions },
          }
        );
      }
      default:
        return { status: 404, body: {} };
    }
  }

  #fence(epoch: number) {
    if (epoch < this.epoch) return { status: 409, body: { error: 'epoch', current: this.epoch } };
    this.epoch = epoch;
    return null;
  }

  #apply(raw: unknown): { readonly status: string; readonly reason?: string } {
    const parsed = parseWatchEvent(raw);
    if (parsed.kind !== 'ok') return { status: parsed.kind, reason: parsed.reason };
    const { event } = parsed;
    const { kind, metadata } = event.object;
    const { uid, resourceVersion: version } = metadata;
    const key = `${kind}/${metadata.namespace}/${metadata.name}`;
    if (uid === null || version === null) return { status: 'rejected' };
    const known = this.stored.get(key);
    const isStale =
      (known?.uid === uid && compareVersions(version, known.version) < 0) ||
      (this.#deletions.has(uid) && compareVersions(version, this.#deletions.get(uid) ?? '') <= 0) ||
      (event.type !== 'DELETED' && known !== undefined && compareVersions(version, known.version) < 0);
    if (isStale && !event.stateUnknown) return { status: 'stale' };
    if (compareVersions(version, this.#highest.get(kind) ?? '') > 0) this.#highest.set(kind, version);
    if (event.type === 'DELETED') {
      this.#deletions.set(uid, version);
      if (known?.uid === uid) this.stored.delete(key);
      return { status: known?.uid === uid ? 'applied' : 'unchanged' };
    }
    const service = serviceOf(event);
    if (service === null) {
      this.stored.delete(key);
      return { status: 'ignored' };
    }
    this.#deletions.delete(uid);
    this.stored.set(key, { kind, namespace: metadata.namespace, name: metadata.name, uid, version, service });
    return { status: known?.uid === uid && known.version === version ? 'unchanged' : 'applied' };
  }

  #reconcile(page: InventoryRequest): { readonly status: number; readonly body: object } {
    const guarded = page.maxRemoved === null ? undefined : this.guards.shift();
    if (guarded !== undefined) return { status: 409, body: { error: 'guard', services: guarded } };
    if (page.restored) this.#highest.clear();
    const named = new Map<string, { readonly uid: string; readonly version: string }>();
    for (const { namespace, name, uid, resourceVersion, objects } of page.services) {
      if (uid !== null) named.set(`Service/${namespace}/${name}`, { uid, version: resourceVersion ?? '' });
      for (const object of objects) {
        const kind = page.mode === 'slices' ? 'EndpointSlice' : 'Endpoints';
        named.set(`${kind}/${namespace}/${object.name}`, {
          uid: object.uid,
          version: object.resourceVersion,
        });
      }
    }
    const missing = [...named]
      .filter(([key, { uid, version }]) => {
        const known = this.stored.get(key);
        return page.restored || known?.uid !== uid || known.version !== version;
      })
      .map(([key]) => {
        const [kind = '', namespace = '', name = ''] = key.split('/');
        return { kind, namespace, name };
      });
    let [deleted, isHeldBack] = [0, false];
    const last = page.services.at(-1);
    for (const [key, { kind, namespace, service, version, uid }] of this.stored) {
      const at: ServiceKey = { namespace, name: service };
      const isInRange =
        (page.after === null || compareServiceKeys(at, page.after) > 0) &&
        (page.last || (last !== undefined && compareServiceKeys(at, last) <= 0));
      const listed = page.resourceVersions[kind as 'Service'];
      const limit = typeof listed === 'string' ? listed : (listed?.[namespace] ?? '');
      if (!isInRange || named.has(key) || (!page.restored && compareVersions(version, limit) > 0)) continue;
      const isAbsent = missing.some(
        (object) => !this.stored.has(`${object.kind}/${object.namespace}/${object.name}`),
      );
      if (isAbsent) isHeldBack = true;
      else {
        this.stored.delete(key);
        this.#deletions.set(uid, version);
        deleted++;
      }
    }
    return { status: 200, body: { missing, deleted, again: isHeldBack } };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#server.listening) return;
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

function serviceOf({ object }: WatchEvent): string | null {
  if (object.kind !== 'EndpointSlice') return object.metadata.name;
  return object.metadata.labels?.['kubernetes.io/service-name'] ?? null;
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks);
  return (request.headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body).toString();
}
