import { mkdirSync, readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { getRequestListener } from '@hono/node-server';
import { Hono } from 'hono';
import { parse as parseYaml } from 'yaml';
import { createApiApp } from '../../functions/api/app.ts';
import type { Bus } from '../../functions/bus/bus.ts';
import { createEventBridgeBus, createEventBridgeClient } from '../../functions/bus/eventbridge-bus.ts';
import { createIngestApp } from '../../functions/ingest/app.ts';
import { DEFAULT_HISTORY_MS } from '../../functions/services/publication.ts';
import { ServiceRepository } from '../../functions/services/repository.ts';
import { createDynamoClient } from '../../functions/store/dynamodb-client.ts';
import { createDynamoStore } from '../../functions/store/dynamodb-store.ts';
import { type Store, StoreUnavailableError } from '../../functions/store/store.ts';
import { type Sweeper, type SweepReport, sweepAlone } from '../../functions/sweep/sweep.ts';
import release from '../../package.json' with { type: 'json' };
import { DEFAULT_CALL_BYTES } from '../../wire/delta.ts';
import type { Logger } from '../../wire/log.ts';
import { ROUTES } from '../../wire/routes.ts';
import { type LocalBus, startLocalBus } from './bus.ts';
import { createFaults, type Faults, withFaults } from './faults.ts';
import { createLocalRoutes, respondForeignHost } from './local-routes.ts';
import { isLoopbackHost, listenOnLoopback } from './loopback.ts';
import { StackClock } from './stack-clock.ts';
import { type LocalTable, startLocalTable, type TableDefinition } from './table.ts';
import { createUsage } from './usage.ts';

const NAME = 'endpoints-watcher';
const REGION = 'us-east-1';
/** Any will do: nothing on the loopback checks them. */
const CREDENTIALS = { accessKeyId: 'local', secretAccessKey: 'local' };
const SWEEP_EVERY_MS = 60_000;
const TABLE_FILE = new URL('../aws/table.yml', import.meta.url);

export interface LocalStackOptions {
  /** 0: any free port. */
  readonly port: number;
  /** Directory of the table and the bus's log; null keeps both in memory. */
  readonly dataDir: string | null;
  /** Packed endpoints that a head holds itself, in bytes; the deployed default when undefined. */
  readonly inlineBytes: number | undefined;
  /** Sweep each minute of the stack's clock. */
  readonly isSweeping: boolean;
  readonly logger: Logger;
  readonly clock?: StackClock;
}

/** The cloud half on loopback: what runs on Lambda, behind one port, over an embedded table and bus. */
export interface LocalStack extends AsyncDisposable {
  readonly url: string;
  readonly bus: LocalBus;
  readonly clock: StackClock;
}

/**
 * Starts table, bus, ingest, api and sweep in this process, on 127.0.0.1.
 * @throws the system's error when the port is in use; DirectoryInUseError when another process has the directory.
 */
export async function startLocalStack(options: LocalStackOptions): Promise<LocalStack> {
  const { dataDir, logger, clock = new StackClock() } = options;
  await using opened = new AsyncDisposableStack();
  const table = opened.use(
    await startLocalTable({
      dataDir: subdirectory(dataDir, 'table'),
      tableName: NAME,
      definition: tableDefinition(),
    }),
  );
  const bus = opened.use(
    await startLocalBus({ clock, dataDir: subdirectory(dataDir, 'bus'), logger, busNames: [NAME] }),
  );
  const usage = createUsage();
  const faults = createFaults();
  const dynamo = createDynamoClient({ region: REGION, endpoint: table.endpoint, credentials: CREDENTIALS });
  opened.defer(() => dynamo.destroy());
  const eventBridge = createEventBridgeClient({
    region: REGION,
    endpoint: bus.url,
    credentials: CREDENTIALS,
  });
  opened.defer(() => eventBridge.destroy());
  usage.countTable(dynamo);
  usage.countBus(eventBridge);

  const store = faultyStore(createDynamoStore({ client: dynamo, tableName: NAME, clock }), faults);
  const sweeper: Sweeper = {
    store,
    bus: faultyBus(createEventBridgeBus({ client: eventBridge, busName: NAME }), faults),
    repository: new ServiceRepository(
      store,
      options.inlineBytes === undefined ? {} : { inlineBytes: options.inlineBytes },
    ),
    clock,
    historyMs: DEFAULT_HISTORY_MS,
    maxEntryBytes: DEFAULT_CALL_BYTES,
    pause: (ms) => wait(ms),
    log: logger,
    collected: new Set(),
  };
  const sweeps = createSweeps(sweeper, table, options.isSweeping);
  opened.use(sweeps);
  const authentication = { kind: 'none' } as const;
  const app = createRootApp({
    ingest: createIngestApp({ ...sweeper, authentication }),
    api: createApiApp({
      ...sweeper,
      authentication,
      clusterDomain: 'cluster.local',
      cacheControl: 'no-cache',
      version: release.version,
    }),
    local: createLocalRoutes({
      bus,
      usage,
      faults,
      clock,
      sweep: sweeps.force,
      clockMoved: sweeps.clockMoved,
    }),
  });
  const listener = opened.use(listenerOf(app));
  const server = createServer(listener.listen);
  opened.defer(() => new Promise((resolve) => void server.close(() => resolve())));
  const url = await listenOnLoopback(server, options.port);
  const running = opened.move();
  return {
    url,
    bus,
    clock,
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

interface Listener extends AsyncDisposable {
  readonly listen: (request: IncomingMessage, response: ServerResponse) => void;
}

/** Answers requests; disposed of once the last one is done, since a handler works on when its client has gone. */
function listenerOf(app: Hono): Listener {
  const listener = getRequestListener(app.fetch, { overrideGlobalObjects: false });
  const running = new Set<Promise<void>>();
  return {
    listen: (request, response) => {
      const answer = listener(request, response).finally(() => running.delete(answer));
      running.add(answer);
    },
    [Symbol.asyncDispose]: async () => {
      await Promise.allSettled(running);
    },
  };
}

interface Apps {
  readonly ingest: Pick<Hono, 'fetch'>;
  readonly api: Pick<Hono, 'fetch'>;
  readonly local: Hono;
}

/** One port for what are several function URLs when deployed. */
function createRootApp({ ingest, api, local }: Apps): Hono {
  const app = new Hono();
  app.use('*', (context, next) =>
    isLoopbackHost(context.req.header('host')) ? next() : Promise.resolve(respondForeignHost(context)),
  );
  app.route('/local', local);
  for (const { servedBy, method, path } of Object.values(ROUTES)) {
    if (servedBy === 'ingest')
      app.on(method.toUpperCase(), path, (context) => ingest.fetch(context.req.raw, context.env));
  }
  app.all('*', (context) => api.fetch(context.req.raw, context.env));
  return app;
}

interface Sweeps extends AsyncDisposable {
  /** Sweeps once, whatever the lease says. */
  readonly force: () => Promise<SweepReport | null>;
  /** Sweeps when the moved clock has passed the next minute. */
  readonly clockMoved: () => Promise<void>;
}

function createSweeps(sweeper: Sweeper, table: LocalTable, isSweeping: boolean): Sweeps {
  const { clock, log } = sweeper;
  let last = clock.now();
  let running: Promise<unknown> = Promise.resolve();
  /** What expires goes here and not in the sweep itself: deployed, DynamoDB does that. */
  const sweep = async (isForced: boolean) => {
    const report = await sweepAlone(sweeper, { isForced });
    if (report !== null) await table.removeExpired(clock.now());
    return report;
  };
  const sweepWhenDue = () => {
    if (!isSweeping || clock.now() - last < SWEEP_EVERY_MS) return running;
    last = clock.now();
    running = sweep(false).catch((error: unknown) => log.error('sweep failed', { error }));
    return running;
  };
  const timer = setInterval(() => void sweepWhenDue(), SWEEP_EVERY_MS);
  return {
    force: () => sweep(true),
    clockMoved: async () => {
      await sweepWhenDue();
    },
    [Symbol.asyncDispose]: async () => {
      clearInterval(timer);
      await running;
    },
  };
}

function faultyStore(store: Store, faults: Faults): Store {
  const points = {
    'store.putChunk': 'putChunk',
    'store.putBody': 'putBody',
    'store.commit': 'commit',
    'store.putReceipt': 'putReceipt',
  } as const;
  return withFaults(store, faults, points, {
    throttled: () => new StoreUnavailableError('throttled by a fault'),
  });
}

/** `partial`: the first half is published, the rest is refused as throttled. */
function faultyBus(bus: Bus, faults: Faults): Bus {
  const publishHalf: Bus['publish'] = async (entries) => {
    const half = Math.floor(entries.length / 2);
    const published = await bus.publish(entries.slice(0, half));
    const refused = entries
      .slice(half)
      .map(() => ({ kind: 'refused', code: 'ThrottlingException', isFinal: false }) as const);
    return [...published, ...refused];
  };
  return withFaults(
    bus,
    faults,
    { 'bus.publish': 'publish' },
    {
      throttled: () => new StoreUnavailableError('throttled by a fault'),
      partial: (_publish, [entries]) => publishHalf(entries as Parameters<Bus['publish']>[0]),
    },
  );
}

function tableDefinition(): TableDefinition {
  const template = parseYaml(readFileSync(TABLE_FILE, 'utf8')) as {
    Resources: { Table: { Properties: TableDefinition } };
  };
  return template.Resources.Table.Properties;
}

function subdirectory(dataDir: string | null, name: string): string | null {
  if (dataDir === null) return null;
  const directory = join(dataDir, name);
  mkdirSync(directory, { recursive: true });
  return directory;
}
