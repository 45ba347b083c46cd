import { createLogger, LOG_LEVELS, type LogLevel } from '../../wire/log.ts';
import { parseOptions, type StackOptions, USAGE } from './options.ts';
import { createPrinter } from './printer.ts';
import { type LocalStack, startLocalStack } from './stack.ts';
import { StackClock } from './stack-clock.ts';
import { type ClusterSource, startWatchedCluster } from './watched-cluster.ts';

/** Exit status of a wrong command line, or of something that is not as it must be to start. */
const USAGE_STATUS = 2;
/** After a signal the process ends within so many milliseconds, whatever is still open. */
const SHUTDOWN_MS = 4_500;
/** One read of the bus's log waits so long for news, in milliseconds. */
const BUS_WAIT_MS = 30_000;

// A table and a log in memory are made of buffers: each that came from Node's pool would keep its slab of 64 KiB alive.
Buffer.poolSize = 0;

const parsed = parseOptions(process.argv.slice(2));
if (parsed.kind === 'invalid') fail(parsed.message);
if (parsed.options.help) {
  process.stdout.write(`${USAGE}\n`);
  process.exit(0);
}
await run(parsed.options);

async function run(options: StackOptions): Promise<void> {
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
  // Whoever read stdout has gone: there is nobody left to print for.
  process.stdout.on('error', () => stop.abort());
  stop.signal.addEventListener('abort', () => setTimeout(() => process.exit(0), SHUTDOWN_MS).unref());

  const clock = new StackClock();
  const logger = createLogger({
    level: logLevel(),
    clock,
    write: (line) => void process.stderr.write(`${line}\n`),
  });
  if (options.diagnose)
    process.stderr.write('--diagnose: this release does not tell yet why a service has no endpoints\n');
  const printer = createPrinter({
    json: options.json,
    quiet: options.quiet,
    isColoured: process.stdout.isTTY && !process.env.NO_COLOR,
    write: (line) => void process.stdout.write(`${line}\n`),
  });
  await using opened = new AsyncDisposableStack();
  const stack = opened.use(
    await startLocalStack({
      port: options.port,
      dataDir: options.data ?? null,
      inlineBytes: options['inline-bytes'],
      isSweeping: !options['no-sweep'],
      logger,
      clock,
    }).catch((error: unknown) => fail(describeStartError(error, options))),
  );
  const { last } = await stack.bus.read({ after: 0, limit: 0, wait: 0 });
  const source = clusterSource(options);
  if (source !== null) {
    const watched = startWatchedCluster({
      source,
      name: options['cluster-name'] ?? (source.kind === 'demo' ? 'demo' : 'local'),
      mode: options.mode,
      namespaces: options.namespaces ?? null,
      enrich: options.enrich,
      ingestUrl: new URL(stack.url),
      clock,
      logger,
    });
    opened.use(await watched.catch((error: unknown) => fail(describeStartError(error, options))));
  }
  printer.ready(stack.url);
  await printEntries(stack, last, printer.entry, stop.signal);
}

/** Prints what the bus accepts, from a position on, until the signal. */
async function printEntries(
  stack: LocalStack,
  from: number,
  print: (entry: Awaited<ReturnType<LocalStack['bus']['read']>>['entries'][number]) => void,
  signal: AbortSignal,
): Promise<void> {
  for (let after = from; !signal.aborted; ) {
    const { entries, last } = await stack.bus.read({ after, limit: 1000, wait: BUS_WAIT_MS }, signal);
    for (const entry of entries) print(entry);
    after = last;
  }
}

function clusterSource({ cluster, kubeconfig, context }: StackOptions): ClusterSource | null {
  switch (cluster) {
    case 'none':
      return null;
    case 'demo':
      return { kind: 'demo' };
    case 'kubeconfig':
      return { kind: 'kubeconfig', kubeconfig: kubeconfig ?? null, context: context ?? null };
    default:
      return cluster satisfies never;
  }
}

function describeStartError(error: unknown, { port }: StackOptions): string {
  if (!(error instanceof Error)) return String(error);
  const code = 'code' in error ? error.code : undefined;
  if (code === 'EADDRINUSE') return `--port: ${port} is in use; choose another, or 0 for any`;
  if (code === 'EACCES') return `--port: ${port} may not be listened on; choose one above 1023, or 0 for any`;
  return error.message.split('\n', 1)[0] ?? error.name;
}

function logLevel(): LogLevel {
  const asked = process.env.LOG_LEVEL ?? 'warn';
  return (
    LOG_LEVELS.find((level) => level === asked) ?? fail(`LOG_LEVEL: must be one of ${LOG_LEVELS.join(', ')}`)
  );
}

/** One clear line, and out. */
function fail(line: string): never {
  process.stderr.write(`${line}\n`);
  process.exit(USAGE_STATUS);
}
