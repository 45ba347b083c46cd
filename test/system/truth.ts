import assert from 'node:assert/strict';
import { setTimeout } from 'node:timers/promises';
import { addressKey, compareText } from '../../core/address.ts';
import type {
  Endpoints as RawEndpoints,
  Service as RawService,
  EndpointSlice as RawSlice,
} from '../../core/kubernetes.ts';
import type { ApiServer } from '../../infra/local/cluster/api-server.ts';
import type { Mode } from '../../wire/envelope.ts';
import { naiveSets } from '../core/naive-model.ts';
import { Replica } from '../replica.ts';
import { CLUSTER, type SmallCluster } from './small-cluster.ts';
import { StackCluster } from './stack-cluster.ts';

/** One look at what should come true; so many looks in all. */
const LOOK_MS = 20;
const MAX_LOOKS = 1_000;

/** Looks until a check passes; its last failure is thrown. */
export async function eventually(check: () => Promise<void> | void): Promise<void> {
  for (let look = 1; ; look++) {
    try {
      return await check();
    } catch (error) {
      if (look >= MAX_LOOKS) throw error;
      await setTimeout(LOOK_MS);
    }
  }
}

/** What the objects of the API server say, by `namespace/service:port`. */
function truth({ objects }: ApiServer, mode: Mode) {
  const listed = mode === 'slices' ? objects.list('EndpointSlice') : objects.list('Endpoints');
  const recorded = listed.map((object) => ({
    object: object as unknown as RawSlice | RawEndpoints,
    version: object.metadata.resourceVersion ?? '',
  }));
  return naiveSets(objects.list('Service') as unknown as RawService[], recorded);
}

/** The API answers each port as the cluster's objects say. */
export async function answersAreTrue({ apiServer, stack }: SmallCluster, mode: Mode): Promise<void> {
  const cluster = new StackCluster(stack, CLUSTER, mode);
  for (const [port, expected] of Object.entries(truth(apiServer, mode))) {
    const [service = '', number = ''] = port.split(':');
    const [namespace = '', name = ''] = service.split('/');
    const { set } = await cluster.answer({ namespace, name }, { port: number });
    assert.deepEqual(set?.addresses.map(addressKey), Object.keys(expected.ready).sort(compareText), port);
    assert.equal(set?.notReady, expected.notReady, port);
  }
}

/** Replays the whole bus; each port's copy is what the API answers. */
export async function replayIsTrue({ stack, apiServer }: SmallCluster, mode: Mode): Promise<Replica> {
  const replica = new Replica();
  for (const delta of await new StackCluster(stack, CLUSTER, mode).takeDeltas()) replica.apply(delta);
  for (const [port, { ready }] of Object.entries(truth(apiServer, mode))) {
    const copy = replica.port(`${CLUSTER}/${port}`);
    assert.deepEqual(
      [...copy.addresses.keys()].sort(compareText),
      Object.keys(ready).sort(compareText),
      port,
    );
  }
  return replica;
}
