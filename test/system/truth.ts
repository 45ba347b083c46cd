import assert from 'node:assert/strict';
import { addressKey, compareText } from '../../core/address.ts';
import type {
  Endpoints as RawEndpoints,
  Service as RawService,
  EndpointSlice as RawSlice,
} from '../../core/kubernetes.ts';
import type { ApiServer } from '../../infra/local/cluster/api-server.ts';
import type { Mode } from '../../wire/envelope.ts';
import { naiveSets } from '../core/naive-model.ts';
import { eventually } from '../eventually.ts';
import { Replica } from '../replica.ts';
import { CLUSTER, type SmallCluster } from './small-cluster.ts';
import { StackCluster } from './stack-cluster.ts';

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

/** Replays the whole bus, until each port's copy is what the API answers: what is stored is published a moment later. */
export async function replayIsTrue({ stack, apiServer }: SmallCluster, mode: Mode): Promise<Replica> {
  let replica = new Replica();
  await eventually(async () => {
    replica = new Replica();
    for (const delta of await new StackCluster(stack, CLUSTER, mode).takeDeltas()) replica.apply(delta);
    for (const [port, { ready }] of Object.entries(truth(apiServer, mode))) {
      const copy = replica.port(`${CLUSTER}/${port}`);
      assert.deepEqual(
        [...copy.addresses.keys()].sort(compareText),
        Object.keys(ready).sort(compareText),
        port,
      );
    }
  });
  return replica;
}
