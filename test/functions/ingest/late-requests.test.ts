import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { deleteCluster } from '../../../functions/api/clusters.ts';
import { admit } from '../../../functions/ingest/admission.ts';
import { recordHeartbeat } from '../../../functions/ingest/heartbeat.ts';
import { reconcile } from '../../../functions/ingest/inventory.ts';
import { parseHeartbeatRequest } from '../../../wire/heartbeat.ts';
import { parseInventoryRequest } from '../../../wire/inventory.ts';
import { CLUSTER, World } from '../sweep/world.ts';

const ENVELOPE = { cluster: CLUSTER, clusterUid: 'uid', epoch: 1, mode: 'slices' } as const;

/** What came in between a request's admission and its work. */
const meanwhile: Record<string, (world: World) => Promise<unknown>> = {
  'a newer relay': async (world) => {
    const sender = { ...ENVELOPE, epoch: 2 };
    const admission = await admit(world.deps(), sender);
    if (admission.kind === 'admitted')
      await recordHeartbeat(world.deps(), heartbeat({ epoch: 2, mode: 'endpoints' }), admission.cluster);
  },
  'a deletion': (world) => deleteCluster(world, CLUSTER),
  'a deletion that is done': async (world) => {
    await deleteCluster(world, CLUSTER);
    await world.sweep();
  },
};

function heartbeat(more: object) {
  const parsed = parseHeartbeatRequest({ ...ENVELOPE, ...more });
  return parsed.kind === 'ok' ? parsed.request : assert.fail(parsed.message);
}

describe('a request that was let in, and works behind', () => {
  for (const [name, come] of Object.entries(meanwhile)) {
    test(`${name}: a heartbeat changes nothing`, async () => {
      const world = new World();
      const admission = await admit(world.deps(), ENVELOPE);
      assert(admission.kind === 'admitted');
      await come(world);
      const before = await world.memory.getCluster(CLUSTER);
      const late = heartbeat({ kinds: [{ kind: 'Service', resourceVersion: '99' }], synced: true });
      await recordHeartbeat(world.deps(), late, admission.cluster);
      assert.deepEqual(await world.memory.getCluster(CLUSTER), before);
    });

    test(`${name}: an inventory leaves no versions behind`, async () => {
      const world = new World();
      const admission = await admit(world.deps(), ENVELOPE);
      assert(admission.kind === 'admitted');
      await come(world);
      const before = await world.memory.getCluster(CLUSTER);
      const page = { ...ENVELOPE, resourceVersions: { Service: '99' }, last: true, restored: true };
      const services = [{ namespace: 'default', name: 'web', uid: 'u', resourceVersion: '9' }];
      const parsed = parseInventoryRequest({ ...page, services });
      assert(parsed.kind === 'ok');
      await reconcile(world.deps(), parsed.request, admission.fence);
      assert.deepEqual(await world.memory.getCluster(CLUSTER), before);
    });
  }
});
