import assert from 'node:assert/strict';
import type { ApiServer } from '../../infra/local/cluster/api-server.ts';
import type { LocalStack } from '../../infra/local/stack.ts';
import { startRelay } from '../../relay/relay.ts';
import type { Mode } from '../../wire/envelope.ts';
import { eventually } from '../eventually.ts';
import { fastTimers } from '../fast-timers.ts';
import { relayOptions } from '../relay/relay-options.ts';
import { CLUSTER, startSmallCluster } from '../system/small-cluster.ts';

/** Epoch of its relay. */
export const EPOCH = 1;
/** The relay's waits pass this much faster than it believes. */
const SPEED = 50;

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
  const { apiServer, stack, clock, logger, quiet } = opened.use(await startSmallCluster());
  opened.use(
    startRelay(
      relayOptions(apiServer, {
        cluster: CLUSTER,
        epoch: EPOCH,
        mode,
        ingestUrl: new URL(stack.url),
        timers: fastTimers(SPEED, clock),
        random: Math.random,
        log: logger,
      }),
    ),
  );
  await eventually(async () => {
    assert((await fetch(`${stack.url}/v1/clusters/${CLUSTER}/namespaces/_all/services`)).ok);
  });
  const running = opened.move();
  return { apiServer, stack, quiet, [Symbol.asyncDispose]: () => running.disposeAsync() };
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
