import type { Clock, EpochMs } from '../../../../core/time.ts';
import {
  type ApiServer,
  type ApiServerOptions,
  startApiServer,
} from '../../../../infra/local/cluster/api-server.ts';
import type { Objects } from '../../../../infra/local/cluster/object-store.ts';
import type {
  ContainerPort,
  Labels,
  ObjectInput,
  Pod,
  Service,
} from '../../../../infra/local/cluster/resources.ts';

export interface FakeClock extends Clock {
  advance(ms: number): void;
}

export function fakeClock(start = Date.UTC(2026, 0, 1)): FakeClock {
  let elapsed = 0;
  return {
    now: () => (start + elapsed) as EpochMs,
    monotonic: () => elapsed,
    advance: (ms) => {
      elapsed += ms;
    },
  };
}

/** A server on a fake clock. */
export function testServer(options: Partial<ApiServerOptions> = {}): Promise<ApiServer> {
  return startApiServer({ clock: fakeClock(), historySize: 1_000, ...options });
}

export interface Answer {
  readonly code: number;
  readonly headers: Headers;
  readonly text: string;
  /** Parsed when it is JSON, else null. */
  // biome-ignore lint/suspicious/noExplicitAny: bodies of every shape are looked into
  readonly body: any;
}

export async function get(
  server: ApiServer,
  path: string,
  headers: Record<string, string> = {},
): Promise<Answer> {
  return toAnswer(await fetch(server.url + path, { headers }));
}

export async function send(server: ApiServer, method: string, path: string, body?: object): Promise<Answer> {
  const content = body === undefined ? {} : { body: JSON.stringify(body) };
  return toAnswer(await fetch(server.url + path, { method, ...content }));
}

/** Opens a watch; its headers have arrived when it resolves. */
export async function watch(
  server: ApiServer,
  path: string,
  headers: Record<string, string> = {},
): Promise<WatchReader> {
  const abort = new AbortController();
  const separator = path.includes('?') ? '&' : '?';
  const url = `${server.url}${path}${separator}watch=1`;
  return readWatch(await fetch(url, { headers, signal: abort.signal }), abort);
}

/** The code with which a connection broke: ECONNRESET, ECONNREFUSED, UND_ERR_SOCKET. */
export async function breakage(attempt: Promise<unknown>): Promise<string> {
  try {
    await attempt;
    return 'none';
  } catch (error) {
    const { cause } = error as { cause?: { code?: string } };
    return cause?.code ?? String(error);
  }
}

async function toAnswer(response: Response): Promise<Answer> {
  const text = await response.text();
  const isJson = response.headers.get('content-type') === 'application/json';
  return { code: response.status, headers: response.headers, text, body: isJson ? JSON.parse(text) : null };
}

// biome-ignore lint/suspicious/noExplicitAny: objects of every kind are looked into
export type WatchEvent = { readonly type: string; readonly object: any };

/** Reads a watch line by line. */
export interface WatchReader extends AsyncDisposable {
  readonly code: number;
  /** The next line, or null at a clean end; rejects when the connection breaks. */
  line(): Promise<string | null>;
  next(): Promise<WatchEvent | null>;
  /** The next events in the form `ADDED web 7`. */
  take(count: number): Promise<string[]>;
  /** Everything until the clean end, in the same form. */
  rest(): Promise<string[]>;
}

function readWatch(response: Response, abort: AbortController): WatchReader {
  const reader = (response.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream()).getReader();
  let buffered = '';
  const line = async (): Promise<string | null> => {
    for (;;) {
      const end = buffered.indexOf('\n');
      if (end >= 0) {
        const text = buffered.slice(0, end);
        buffered = buffered.slice(end + 1);
        return text;
      }
      const { value, done } = await reader.read();
      if (done) return null;
      buffered += value;
    }
  };
  const next = async () => {
    const text = await line();
    return text === null ? null : (JSON.parse(text) as WatchEvent);
  };
  return {
    code: response.status,
    line,
    next,
    take: async (count) => {
      const events: string[] = [];
      while (events.length < count) events.push(describe(await next()));
      return events;
    },
    rest: async () => {
      const events: string[] = [];
      for (let event = await next(); event !== null; event = await next()) events.push(describe(event));
      return events;
    },
    [Symbol.asyncDispose]: async () => {
      abort.abort();
      await reader.cancel().catch(() => {});
    },
  };
}

/** `ADDED web 7`, `BOOKMARK 7`, `ERROR 410 Expired`. */
function describe(event: WatchEvent | null): string {
  if (event === null) return 'END';
  const { type, object } = event;
  if (type === 'ERROR') return `ERROR ${object.code} ${object.reason}`;
  if (type !== 'BOOKMARK') return `${type} ${object.metadata.name} ${object.metadata.resourceVersion}`;
  const isEnd = object.metadata.annotations?.['k8s.io/initial-events-end'] === 'true';
  return `BOOKMARK ${object.metadata.resourceVersion}${isEnd ? ' initial-events-end' : ''}`;
}

/** Lets the event loop turn until something is so. */
export async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise(setImmediate);
}

export function service(
  name: string,
  spec: Partial<Service['spec']> = {},
  meta: { namespace?: string; labels?: Labels } = {},
): ObjectInput<'Service'> {
  return {
    kind: 'Service',
    metadata: { namespace: 'default', name, ...meta },
    spec: { ports: [{ name: 'http', port: 80, targetPort: 8080 }], ...spec },
  };
}

export interface PodOptions {
  readonly ips?: readonly string[];
  readonly labels?: Labels;
  readonly isReady?: boolean;
  readonly ports?: readonly ContainerPort[];
  readonly hostname?: string;
  readonly subdomain?: string;
  readonly readyAt?: string;
}

/** A running pod on node-1, ready unless said otherwise. */
export function pod(name: string, options: PodOptions = {}): ObjectInput<'Pod'> {
  const { ips = [], labels = { app: 'web' }, ports = [], hostname, subdomain } = options;
  return {
    kind: 'Pod',
    metadata: { namespace: 'default', name, labels },
    spec: {
      nodeName: 'node-1',
      ...(hostname === undefined ? {} : { hostname }),
      ...(subdomain === undefined ? {} : { subdomain }),
      containers: [{ name: 'main', image: 'registry.example/main', ports }],
    },
    status: {
      phase: 'Running',
      ...(ips[0] === undefined ? {} : { podIP: ips[0], podIPs: ips.map((ip) => ({ ip })) }),
      ...readiness(options.isReady ?? true, options.readyAt),
    },
  };
}

export function readiness(
  isReady: boolean,
  at = '2026-01-01T00:00:00Z',
): Pick<NonNullable<Pod['status']>, 'conditions'> {
  return { conditions: [{ type: 'Ready', status: isReady ? 'True' : 'False', lastTransitionTime: at }] };
}

export function node(name: string, zone: string): ObjectInput<'Node'> {
  return { kind: 'Node', metadata: { name, labels: { 'topology.kubernetes.io/zone': zone } } };
}

/** Marks a pod as terminating, as a DELETE with a grace period does. */
export function terminate(objects: Objects, name: string): void {
  const current = objects.get({ kind: 'Pod', namespace: 'default', name });
  if (current === undefined) throw new Error(`no pod ${name}`);
  objects.update({
    ...current,
    metadata: {
      ...current.metadata,
      deletionTimestamp: '2026-01-01T00:01:00Z',
      deletionGracePeriodSeconds: 30,
    },
  });
}
