import { createLogger } from '../wire/log.ts';
import { startAdmin } from './admin.ts';
import { type Authorize, noAuthorization, tokenAuthorization } from './authorization.ts';
import { type Config, readConfig } from './config.ts';
import { readPodNamespace } from './in-cluster.ts';
import { kubeconfigAccess } from './kubeconfig.ts';
import { startElectedRelay } from './leadership.ts';
import { describeEnd, type Relay, startRelay } from './relay.ts';
import { systemTimers as timers } from './timers.ts';

/** Exit status of a wrong command line or configuration. */
const USAGE_STATUS = 2;

function fail(lines: readonly string[]): never {
  for (const line of lines) process.stderr.write(`${line}\n`);
  process.exit(USAGE_STATUS);
}

async function authorizationOf({ auth, awsRegion, tokenFile }: Config): Promise<Authorize> {
  if (auth === 'token' && tokenFile !== null) return tokenAuthorization(tokenFile, timers);
  if (auth === 'sigv4' && awsRegion !== null) {
    const { awsAuthorization } = await import('./signing.ts');
    return awsAuthorization(awsRegion);
  }
  return noAuthorization;
}

const parsed = readConfig(process.argv.slice(2), process.env);
if (parsed.kind === 'invalid') fail(parsed.lines);
const { config } = parsed;
const log = createLogger({
  level: config.logLevel,
  clock: timers,
  write: (line) => process.stdout.write(`${line}\n`),
});
const readAccess = kubeconfigAccess(config);
await readAccess('aged').catch((error: Error) => fail([error.message]));

async function start(): Promise<Relay> {
  const { lease: name, leaseDurationMs: leaseMs, renewDeadlineMs, retryPeriodMs: retryMs } = config;
  const authorize = await authorizationOf(config);
  const options = { ...config, readAccess, authorize, timers, random: Math.random, log };
  if (name === null) return startRelay({ ...options, epoch: Math.floor(timers.now() / 1000) });
  const namespace =
    config.leaseNamespace ??
    (await readPodNamespace().catch((error: Error) =>
      fail([`--lease-namespace (or POD_NAMESPACE): required, the pod does not tell it: ${error.message}`]),
    ));
  return startElectedRelay({
    ...options,
    lease: { namespace, name },
    times: { leaseMs, renewDeadlineMs, retryMs },
  });
}

await using relay = await start();
await using admin = await startAdmin({
  host: config.adminHost,
  port: config.adminPort,
  metrics: () => relay.metrics.render(),
  notReady: () => relay.notReady(),
});
log.info('admin listens', { host: config.adminHost, port: admin.port });
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => void relay[Symbol.asyncDispose]());
}
const end = await relay.done;
log[end.kind === 'stopped' ? 'info' : 'error'](describeEnd(end));
process.exitCode = end.kind === 'stopped' ? 0 : 1;
