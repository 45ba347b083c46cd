import { type ApiServer, startApiServer } from '../../infra/local/cluster/api-server.ts';
import { startControllers } from '../../infra/local/cluster/controllers.ts';
import { type LocalStack, startLocalStack } from '../../infra/local/stack.ts';
import { StackClock } from '../../infra/local/stack-clock.ts';
import { noAuthorization } from '../../relay/authorization.ts';
import { startRelay } from '../../relay/relay.ts';
import { systemTimers } from '../../relay/timers.ts';
import type { Mode } from '../../wire/envelope.ts';
import { createLogger } from '../../wire/log.ts';

/** Name of the cluster, and the epoch of its relay. */
export const CLUSTER = 'prod-eu';
export const EPOCH = 1;
/** The relay's waits pass this much faster than it believes. */
const SPEED = 50;
/** Between two looks at whether the relay was heard. */
const LOOK_MS = 10;

/** A cluster whose relay tells a laptop stack about it. */
export interface CliWorld extends AsyncDisposable {
  readonly apiServer: ApiServer;
  readonly stack: LocalStack;
  /** Resolves when the controllers have followed every write. */
  readonly quiet: () => Promise<void>;
}

/** Starts it; resolves once the relay was heard. */
export async function startCliWorld(mode: Mode): Promise<CliWorld> {
  await using opened = new AsyncDisposableStack();
  const clock = new StackClock();
  const logger = createLogger({
    level: 'error',
    clock,
    write: (line) => void process.stderr.write(`${line}\n`),
  });
  const stack = opened.use(
    await startLocalStack({
      port: 0,
      dataDir: null,
      inlineBytes: undefined,
      isSweeping: false,
      logger,
      clock,
    }),
  );
  const apiServer = opened.use(await startApiServer({ clock }));
  const controllers = opened.use(startControllers({ objects: apiServer.objects, maxEndpointsPerSlice: 3 }));
  opened.use(
    startRelay({
      cluster: CLUSTER,
      relay: 'test',
      epoch: EPOCH,
      mode,
      namespaces: null,
      settleMs: 25,
      maxRemoved: 0.5,
      readAccess: async () => ({ server: apiServer.url, tls: {}, proxy: null, headers: {} }),
      ingestUrl: new URL(stack.url),
      authorize: noAuthorization,
      timers: {
        now: () => clock.now(),
        monotonic: () => performance.now() * SPEED,
        sleep: (ms, signal) => systemTimers.sleep(ms / SPEED, signal),
      },
      random: Math.random,
      log: logger,
    }),
  );
  while (!(await fetch(`${stack.url}/v1/clusters/${CLUSTER}/namespaces/_all/services`)).ok)
    await systemTimers.sleep(LOOK_MS);
  const running = opened.move();
  return {
    apiServer,
    stack,
    quiet: () => controllers.idle(),
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

let pods = 0;

/** A running, ready pod of `app`, with an address of its own. */
export function createPod({ apiServer: { objects } }: CliWorld, app: string): string {
  const name = `${app}-${++pods}`;
  const podIP = `10.244.${Math.floor(pods / 200)}.${(pods % 200) + 1}`;
  objects.create({
    kind: 'Pod',
    metadata: { name, namespace: 'default', labels: { app } },
    spec: { nodeName: 'n1', containers: [{ name: 'main', image: 'web' }] },
  });
  objects.patchStatus(
    { kind: 'Pod', namespace: 'default', name },
    { phase: 'Running', podIP, podIPs: [{ ip: podIP }], conditions: [{ type: 'Ready', status: 'True' }] },
  );
  return podIP;
}

/** A Service that selects the pods of its name. */
export function createService({ apiServer: { objects } }: CliWorld, name: string): void {
  objects.create({
    kind: 'Service',
    metadata: { name, namespace: 'default' },
    spec: { selector: { app: name }, ports: [{ name: 'http', port: 80, targetPort: 8080 }] },
  });
}

/** A Node; a pod on one that does not exist is in no slice. */
export function createNode({ apiServer: { objects } }: CliWorld): void {
  objects.create({
    kind: 'Node',
    metadata: { name: 'n1', labels: { 'topology.kubernetes.io/zone': 'a' } },
  });
}
