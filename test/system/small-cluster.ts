import { type ApiServer, startApiServer } from '../../infra/local/cluster/api-server.ts';
import { startControllers } from '../../infra/local/cluster/controllers.ts';
import type { LocalStack } from '../../infra/local/stack.ts';
import { StackClock } from '../../infra/local/stack-clock.ts';
import { createLogger, type Logger } from '../../wire/log.ts';
import { startQuietStack } from '../quiet-stack.ts';

/** Its name in the cloud. */
export const CLUSTER = 'prod-eu';

/** A control plane with its controllers, and the cloud half that hears of it from whatever relay. */
export interface SmallCluster extends AsyncDisposable {
  readonly stack: LocalStack;
  readonly apiServer: ApiServer;
  readonly clock: StackClock;
  readonly logger: Logger;
  /** Resolves when the controllers have followed every write. */
  readonly quiet: () => Promise<void>;
}

export async function startSmallCluster(): Promise<SmallCluster> {
  await using opened = new AsyncDisposableStack();
  const clock = new StackClock();
  const logger = createLogger({
    level: 'error',
    clock,
    write: (line) => void process.stderr.write(`${line}\n`),
  });
  const stack = opened.use(await startQuietStack({ logger, clock }));
  const apiServer = opened.use(await startApiServer({ clock }));
  const controllers = opened.use(startControllers({ objects: apiServer.objects, maxEndpointsPerSlice: 3 }));
  const running = opened.move();
  return {
    stack,
    apiServer,
    clock,
    logger,
    quiet: () => controllers.idle(),
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

/** A Service that selects the pods of its name. */
export function createService({ objects }: ApiServer, name: string): void {
  objects.create({
    kind: 'Service',
    metadata: { name, namespace: 'default' },
    spec: { selector: { app: name }, ports: [{ name: 'http', port: 80, targetPort: 8080 }] },
  });
}

let pods = 0;

/** A running, ready pod of an app. */
export function createPod({ objects }: ApiServer, app: string): string {
  const name = `${app}-${++pods}`;
  const podIP = `10.244.${Math.floor(pods / 200)}.${(pods % 200) + 1}`;
  objects.create({
    kind: 'Pod',
    metadata: { name, namespace: 'default', labels: { app } },
    spec: {
      nodeName: 'n1',
      containers: [{ name: 'main', image: 'web', ports: [{ name: 'http', containerPort: 8080 }] }],
    },
  });
  objects.patchStatus(
    { kind: 'Pod', namespace: 'default', name },
    { phase: 'Running', podIP, podIPs: [{ ip: podIP }], conditions: [{ type: 'Ready', status: 'True' }] },
  );
  return name;
}

export function deletePod({ objects }: ApiServer, name: string): void {
  objects.delete({ kind: 'Pod', namespace: 'default', name });
}

/** Two services of seven pods each, and one of none. */
export async function populate({ apiServer, quiet }: SmallCluster): Promise<Record<string, string[]>> {
  const names: Record<string, string[]> = {};
  // A pod on a node that does not exist is in no slice.
  apiServer.objects.create({
    kind: 'Node',
    metadata: { name: 'n1', labels: { 'topology.kubernetes.io/zone': 'a' } },
  });
  for (const app of ['web', 'shop', 'empty']) {
    createService(apiServer, app);
    names[app] = app === 'empty' ? [] : Array.from({ length: 7 }, () => createPod(apiServer, app));
  }
  await quiet();
  return names;
}
