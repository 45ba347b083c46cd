import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { Hono } from 'hono';
import { createApiApp } from '../../functions/api/app.ts';
import { createEventBridgeBus, createEventBridgeClient } from '../../functions/bus/eventbridge-bus.ts';
import { createIngestApp } from '../../functions/ingest/app.ts';
import { DEFAULT_HISTORY_MS } from '../../functions/services/publication.ts';
import { ServiceRepository } from '../../functions/services/repository.ts';
import { createDynamoClient } from '../../functions/store/dynamodb-client.ts';
import { createDynamoStore } from '../../functions/store/dynamodb-store.ts';
import type { Store } from '../../functions/store/store.ts';
import { type Sweeper, type SweepReport, sweepAlone } from '../../functions/sweep/sweep.ts';
import { startLocalBus } from '../../infra/local/bus.ts';
import { listenOnLoopback } from '../../infra/local/loopback.ts';
import { DEFAULT_CALL_BYTES, type DeltaDetail } from '../../wire/delta.ts';
import { createLogger } from '../../wire/log.ts';
import { serveApp } from '../functions/http/served-app.ts';
import { startTable } from '../functions/store/dynalite-table.ts';
import { FakeClock } from '../functions/store/fake-clock.ts';
import type { LoggedEntry } from './subscriber.ts';

const REGION = 'us-east-1';
const CREDENTIALS = { accessKeyId: 'local', secretAccessKey: 'local' };
const BUS_NAME = 'endpoints-watcher';

/** What the bus makes of a call: takes it, refuses entries by code, refuses it as a whole by code, or hangs up. */
export type BusMood =
  | { readonly kind: 'well' }
  | { readonly kind: 'picky'; readonly codeOf: (detail: DeltaDetail) => string | null }
  | { readonly kind: 'refusing'; readonly code: string }
  | { readonly kind: 'away' };

/** The deployed half on loopback, on a clock of the test's and a bus of any mood. */
export interface Cloud extends AsyncDisposable {
  /** Of ingest and api. */
  readonly url: string;
  /** Of DynamoDB and EventBridge, as an SDK's `endpoint`. */
  readonly endpoint: string;
  readonly tableName: string;
  readonly busName: string;
  readonly clock: FakeClock;
  readonly store: Store;
  mood: BusMood;
  /** Log lines of all functions. */
  readonly lines: Readonly<Record<string, unknown>>[];
  /** Puts other function instances in place of the present ones, and what those knew is forgotten. */
  restart(): void;
  post(path: string, body: unknown): Promise<Response>;
  sweep(): Promise<SweepReport | null>;
  /** Everything that the bus took, in order. */
  entries(): Promise<readonly LoggedEntry[]>;
}

export interface CloudOptions {
  readonly inlineBytes?: number;
  readonly maxEntryBytes?: number;
  readonly historyMs?: number;
  /** Function instances that take requests in turn; 1 by default. */
  readonly instances?: number;
  /** Does a failed condition show the stored item, as DynamoDB does and dynalite does not? */
  readonly showsOldItems?: boolean;
  /** What functions do to wait between two tries, in milliseconds; they do not wait by default. */
  readonly pause?: (ms: number) => Promise<void>;
  /** Of so many head writes the answer to one is lost; none by default. */
  readonly losesEvery?: number;
}

export async function startCloud(options: CloudOptions = {}): Promise<Cloud> {
  const clock = new FakeClock();
  const lines: Record<string, unknown>[] = [];
  const log = createLogger({ level: 'info', clock, write: (line) => void lines.push(JSON.parse(line)) });
  await using opened = new AsyncDisposableStack();
  const table = opened.use(await startTable());
  const bus = opened.use(await startLocalBus({ clock, dataDir: null, logger: log, busNames: [BUS_NAME] }));
  let mood: BusMood = { kind: 'well' };
  const { showsOldItems = false, losesEvery = Number.POSITIVE_INFINITY } = options;
  let writes = 0;
  const isLost = () => ++writes % losesEvery === 0;
  const front = createServer((request, response) => {
    const upstreams = { table: table.endpoint, bus: bus.url, mood, showsOldItems, isLost };
    forward(request, response, upstreams).catch(() => response.destroy());
  });
  opened.defer(() => new Promise<void>((resolve) => void front.close(() => resolve())));
  const endpoint = await listenOnLoopback(front);
  const connection = { region: REGION, endpoint, credentials: CREDENTIALS };
  const dynamo = opened.adopt(createDynamoClient(connection), (client) => client.destroy());
  const eventBridge = opened.adopt(createEventBridgeClient(connection), (client) => client.destroy());

  const newInstance = () => {
    const { pause = async () => {} } = options;
    const store = createDynamoStore({ client: dynamo, tableName: table.tableName, clock, pause });
    const { inlineBytes, maxEntryBytes = DEFAULT_CALL_BYTES, historyMs = DEFAULT_HISTORY_MS } = options;
    const sweeper: Sweeper = {
      ...{ store, clock, historyMs, maxEntryBytes, pause, log },
      bus: createEventBridgeBus({ client: eventBridge, busName: BUS_NAME, pause }),
      repository: new ServiceRepository(store, inlineBytes === undefined ? {} : { inlineBytes }),
      collected: new Set(),
    };
    const authentication = { kind: 'none' } as const;
    const api = createApiApp({
      ...{ ...sweeper, authentication, version: '0' },
      clusterDomain: 'cluster.local',
      cacheControl: 'no-cache',
    });
    return { sweeper, ingest: createIngestApp({ ...sweeper, authentication }), api };
  };
  const newInstances = () => Array.from({ length: options.instances ?? 1 }, newInstance);
  let instances = newInstances();
  let turn = 0;
  const next = () => instances[turn++ % instances.length] ?? newInstance();
  const app = new Hono();
  app.all('*', ({ req }) => (req.method === 'POST' ? next().ingest : next().api).fetch(req.raw));
  const { url } = opened.use(await serveApp(app));
  const running = opened.move();
  return {
    ...{ url, endpoint, tableName: table.tableName, busName: BUS_NAME, clock, lines },
    store: next().sweeper.store,
    get mood() {
      return mood;
    },
    set mood(changed) {
      mood = changed;
    },
    restart: () => {
      instances = newInstances();
    },
    post: (path, body) => {
      const headers = { 'content-type': 'application/json' };
      return fetch(`${url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    },
    sweep: () => sweepAlone(next().sweeper),
    entries: async () => (await bus.read({ after: 0, limit: 10_000, wait: 0 })).entries,
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

interface Upstreams {
  readonly table: string;
  readonly bus: string;
  readonly mood: BusMood;
  readonly showsOldItems: boolean;
  /** Counts a head write. */
  readonly isLost: () => boolean;
}

interface PutEntry {
  readonly Detail: string;
}

/** One endpoint for both services, told apart by their calls. */
async function forward(
  request: IncomingMessage,
  response: ServerResponse,
  { table, bus, mood, showsOldItems, isLost }: Upstreams,
): Promise<void> {
  const body = await buffer(request);
  const target = String(request.headers['x-amz-target']);
  const headers = Object.fromEntries(
    ['content-type', 'x-amz-target', 'x-amz-date', 'authorization'].flatMap((name) => {
      const value = request.headers[name];
      return typeof value === 'string' ? [[name, value]] : [];
    }),
  );
  const send = async (url: string, sent: Uint8Array | string) => {
    const answer = await fetch(url, { method: 'POST', headers, body: sent });
    return { status: answer.status, text: await answer.text() };
  };
  const reply = (status: number, text: string) =>
    void response.writeHead(status, { 'content-type': 'application/x-amz-json-1.1' }).end(text);
  if (!target.startsWith('AWSEvents')) {
    const { status, text } = await send(table, body);
    if (!target.endsWith('.UpdateItem')) return reply(status, text);
    if (isLost()) return void response.destroy();
    if (!showsOldItems || !text.includes('ConditionalCheckFailed')) return reply(status, text);
    const { TableName, Key } = JSON.parse(body.toString()) as {
      readonly TableName: string;
      readonly Key: object;
    };
    headers['x-amz-target'] = target.replace('UpdateItem', 'GetItem');
    const stored = await send(table, JSON.stringify({ TableName, Key, ConsistentRead: true }));
    return reply(status, JSON.stringify({ ...JSON.parse(text), ...JSON.parse(stored.text) }));
  }
  switch (mood.kind) {
    case 'well': {
      const { status, text } = await send(bus, body);
      return reply(status, text);
    }
    case 'away':
      return void response.destroy();
    case 'refusing':
      return reply(400, JSON.stringify({ __type: mood.code, message: 'refused' }));
    case 'picky': {
      const { Entries } = JSON.parse(body.toString()) as { readonly Entries: readonly PutEntry[] };
      const codes = Entries.map(({ Detail }) => mood.codeOf(JSON.parse(Detail)));
      const good = Entries.filter((_, index) => codes[index] === null);
      const taken =
        good.length === 0
          ? []
          : (JSON.parse((await send(bus, JSON.stringify({ Entries: good }))).text) as { Entries: object[] })
              .Entries;
      const answers = codes.map((code) =>
        code === null ? taken.shift() : { ErrorCode: code, ErrorMessage: code },
      );
      return reply(200, JSON.stringify({ FailedEntryCount: Entries.length - good.length, Entries: answers }));
    }
    default:
      return mood satisfies never;
  }
}
