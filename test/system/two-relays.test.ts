import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { eventually } from '../eventually.ts';
import { LEASE, RelayProcess } from './relay-process.ts';
import {
  CLUSTER,
  createPod,
  createService,
  deletePod,
  populate,
  type SmallCluster,
  startSmallCluster,
} from './small-cluster.ts';
import { answersAreTrue, replayIsTrue } from './truth.ts';

/** A populated cluster with two relays: one leads and has told everything, the other stands by. */
async function startPair() {
  await using opened = new AsyncDisposableStack();
  const small = opened.use(await startSmallCluster());
  const { web = [], shop = [] } = await populate(small);
  const relays = ['one', 'two'].map((name) => opened.use(new RelayProcess(name, small)));
  const [leader, standby] = await theLeader(relays);
  assert.ok(standby);
  await eventually(() => standby.standsBy());
  await eventually(() => answersAreTrue(small, 'slices'));
  const running = opened.move();
  return {
    small,
    web,
    shop,
    leader,
    standby,
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

/** Waits until one leads. @returns that one first. */
async function theLeader(relays: readonly RelayProcess[]): Promise<[RelayProcess, ...RelayProcess[]]> {
  let leading: RelayProcess | undefined;
  await eventually(async () => {
    for (const relay of relays) if ((await relay.leads()) !== null) leading = relay;
    assert.ok(leading);
  });
  assert.ok(leading);
  return [leading, ...relays.filter((relay) => relay !== leading)];
}

/**
 * Until one of these leads under an epoch of at least this, with an inventory done, and the cloud is as the cluster. On a busy
 * machine a leader may lose the Lease and take it again. @returns its epoch.
 */
async function leadTruly(
  relays: readonly RelayProcess[],
  least: number,
  small: SmallCluster,
): Promise<number> {
  let epoch = -1;
  await eventually(async () => {
    for (const relay of relays) epoch = Math.max(epoch, (await relay.leads()) ?? -1);
    assert.ok(epoch >= least, `epoch ${epoch}`);
  });
  await eventually(() => answersAreTrue(small, 'slices'));
  await replayIsTrue(small, 'slices');
  return epoch;
}

const leaseOf = ({ apiServer }: SmallCluster) => apiServer.objects.get(LEASE)?.spec;

async function positionOf({ stack }: SmallCluster): Promise<number> {
  return (await stack.bus.read({ after: 0, limit: 0, wait: 0 })).last;
}

/** What a former leader sends late: an address that nobody has, and an inventory of nothing. */
async function sendLate({ stack }: SmallCluster, epoch: number) {
  const slice = {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      name: 'web-late',
      namespace: 'default',
      uid: '00000000-0000-4000-8000-000000000000',
      resourceVersion: '999999',
      labels: { 'kubernetes.io/service-name': 'web' },
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    endpoints: [{ addresses: ['192.0.2.1'], conditions: { ready: true } }],
  };
  const bodies = {
    '/v1/events': { events: [{ type: 'ADDED', object: slice }] },
    '/v1/inventory': {
      id: 'late',
      resourceVersions: { Service: '999999', EndpointSlice: '999999' },
      after: null,
      last: true,
      services: [],
    },
    '/v1/heartbeat': {},
  };
  const answers = Object.entries(bodies).map(async ([path, body]) => {
    const response = await fetch(stack.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ cluster: CLUSTER, epoch, mode: 'slices', ...body }),
    });
    const { error, current } = (await response.json()) as { error: string; current: number };
    return { status: response.status, error, current };
  });
  return Promise.all(answers);
}

suite('two relay processes elect one', { concurrency: true }, () => {
  test('W17, W18, W19: the leader is killed; the other takes over, finds what changed between them, and late requests of the dead are refused', async () => {
    await using pair = await startPair();
    const { small, web, shop, leader, standby } = pair;
    const { apiServer } = small;
    leader.signal('SIGKILL');
    for (const name of [...web.slice(0, 2), ...shop]) deletePod(apiServer, name);
    apiServer.objects.delete({ kind: 'Service', namespace: 'default', name: 'shop' });
    createPod(apiServer, 'web');
    createService(apiServer, 'new');
    createPod(apiServer, 'new');
    await small.quiet();
    const epoch = await leadTruly([standby], 1, small);
    const before = await positionOf(small);
    for (const { status, error, current } of await sendLate(small, 0)) {
      assert.deepEqual([status, error], [409, 'epoch']);
      assert.ok(current >= epoch, `${current}`);
    }
    await answersAreTrue(small, 'slices');
    assert.equal(await positionOf(small), before);
  });

  test('W17, W18: the leader stands still past its Lease while the other leads; awake it stands by, and harms nothing', async () => {
    await using pair = await startPair();
    const { small, web, leader, standby } = pair;
    const { apiServer } = small;
    leader.signal('SIGSTOP');
    deletePod(apiServer, web[0] ?? '');
    createPod(apiServer, 'shop');
    await small.quiet();
    await eventually(() => assert.ok(standby.said('leads')));
    deletePod(apiServer, web[1] ?? '');
    createPod(apiServer, 'web');
    await small.quiet();
    leader.signal('SIGCONT');
    createPod(apiServer, 'web');
    await small.quiet();
    await eventually(() => leader.standsBy());
    assert.ok(leader.said('no longer leads, stands by'));
    await leadTruly([leader, standby], 1, small);
  });

  test('W18, W19: the leader ends when asked; the Lease is deleted, so that epochs begin anew: who makes it raises its own, and goes on', async () => {
    await using small = await startSmallCluster();
    const { apiServer } = small;
    const { kind, ...metadata } = LEASE;
    apiServer.objects.create({ kind, metadata, spec: { leaseTransitions: 6 } });
    const { web = [] } = await populate(small);
    await using one = new RelayProcess('one', small);
    const former = await leadTruly([one], 7, small);
    assert.equal(await one.end(), 0);
    assert.equal(leaseOf(small)?.holderIdentity, '');
    apiServer.objects.delete(LEASE);
    deletePod(apiServer, web[0] ?? '');
    await small.quiet();
    await using two = new RelayProcess('two', small);
    const epoch = await leadTruly([two], former + 1, small);
    assert.ok(two.said('ingest has heard a higher epoch'));
    assert.ok((leaseOf(small)?.leaseTransitions ?? 0) >= epoch);
  });
});
