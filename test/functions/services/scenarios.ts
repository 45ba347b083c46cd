import { deleteCluster } from '../../../functions/api/clusters.ts';
import { FencedError, StoreUnavailableError } from '../../../functions/store/store.ts';
import { sweepAlone } from '../../../functions/sweep/sweep.ts';
import type { Mode } from '../../../wire/envelope.ts';
import {
  CLUSTER,
  type ClusterObject,
  elapse,
  NAMESPACE,
  RelayModel,
  type Sighting,
  tellAtOnce,
} from './relay-model.ts';
import type { Bounds, Lane, Schedule } from './scheduler.ts';
import type { World, WorldOptions } from './world.ts';

/** One small story, to be run under every schedule. */
export interface Scenario {
  readonly options?: WorldOptions;
  /** Mode of the cluster in the end. */
  readonly mode?: Mode;
  /** What happened before, undisturbed. */
  readonly before: (world: World) => Promise<void>;
  readonly run: (world: World, schedule: Schedule) => void;
  /** The objects that the cluster has in the end. */
  readonly truth: readonly ClusterObject[];
  /** Services that had addresses, and have no object any more. */
  readonly gone?: readonly string[];
  /** What is explored at every test run. */
  readonly quick: readonly Bounds[];
  /** What is explored in depth. */
  readonly deep: readonly Bounds[];
}

function bounds(preemptions: number, faults: number): Bounds {
  return { preemptions, faults };
}

function service(
  version: number,
  {
    name = 'web',
    uid = `${name}-uid`,
    ports = ['http'],
  }: { readonly name?: string; readonly uid?: string; readonly ports?: readonly string[] } = {},
): ClusterObject {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { namespace: NAMESPACE, name, uid, resourceVersion: `${version}` },
    spec: {
      clusterIP: '10.0.0.1',
      ports: ports.map((portName, index) => ({ name: portName, port: 80 + index, protocol: 'TCP' })),
    },
  };
}

function slice(
  name: string,
  version: number,
  ips: readonly number[],
  { of = 'web', ports = ['http'] }: { readonly of?: string; readonly ports?: readonly string[] } = {},
): ClusterObject {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      namespace: NAMESPACE,
      name,
      uid: `${name}-uid`,
      resourceVersion: `${version}`,
      labels: { 'kubernetes.io/service-name': of },
    },
    addressType: 'IPv4',
    ports: ports.map((portName, index) => ({ name: portName, port: 8080 + index, protocol: 'TCP' })),
    endpoints: ips.map((ip) => ({ addresses: [`10.1.0.${ip}`] })),
  };
}

/** A slice whose delta does not fit into a head: names that do not compress. */
function bigSlice(version: number): ClusterObject {
  const names = Array.from({ length: 60 }, (_, index) => ((index + 1) * 0x9e3779b1).toString(36));
  return {
    ...slice('s', version, []),
    endpoints: names.map((name, index) => ({
      addresses: [`10.2.0.${index}`],
      targetRef: { kind: 'Pod', name: `${name}-${name.split('').reverse().join('')}` },
    })),
  };
}

function endpoints(version: number, ips: readonly number[]): ClusterObject {
  return {
    apiVersion: 'v1',
    kind: 'Endpoints',
    metadata: { namespace: NAMESPACE, name: 'web', uid: 'endpoints-uid', resourceVersion: `${version}` },
    subsets: [
      {
        addresses: ips.map((ip) => ({ ip: `10.1.0.${ip}` })),
        ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
      },
    ],
  };
}

export function added(...objects: readonly ClusterObject[]): Sighting[] {
  return objects.map((object) => ({ type: 'ADDED', object }));
}

function deleted(...objects: readonly ClusterObject[]): Sighting[] {
  return objects.map((object) => ({ type: 'DELETED', object }));
}

/** A service with one slice of one address. */
const WEB = service(10);
const FIRST = slice('s', 11, [1]);
const API = service(12, { name: 'api' });
const TWO = ['http', 'admin'];

async function webIsKnown(world: World): Promise<void> {
  await tellAtOnce(world, added(WEB, FIRST));
  await sweepAlone(world.deps());
}

async function bothAreKnown(world: World): Promise<void> {
  await tellAtOnce(world, added(WEB, FIRST, API));
  await sweepAlone(world.deps());
}

/** Chunks that were replaced so long ago that a sweep deletes them, and the daily visit is due. */
async function garbageIsDue(world: World): Promise<void> {
  await tellAtOnce(world, added(WEB, FIRST));
  await tellAtOnce(world, added(slice('s', 12, [1, 2])));
  await tellAtOnce(world, added(slice('s', 13, [1])));
  world.clock.advance(6 * 60_000);
}

/** A delta waits for a bus that is back. */
async function somethingIsPending(world: World): Promise<void> {
  await webIsKnown(world);
  world.isBusAway = true;
  await tellAtOnce(world, added(slice('s', 12, [1, 2])), { isHeard: false });
  world.isBusAway = false;
}

/** More deltas wait for the bus than a head may carry. */
async function muchIsPending(world: World): Promise<void> {
  await tellAtOnce(world, added(WEB, FIRST));
  world.isBusAway = true;
  for (let version = 1; version <= 51; version++) {
    await tellAtOnce(world, added(slice('s', 11 + version, version % 2 === 0 ? [1] : [1, 2])), {
      isHeard: false,
    });
  }
  world.isBusAway = false;
}

async function sweepIn(lane: Lane, world: World): Promise<void> {
  await lane.request('sweep', async () => {
    try {
      await sweepAlone(world.deps());
    } catch (error) {
      if (!(error instanceof StoreUnavailableError)) throw error;
    }
  });
}

/** What an operator does: asks until it is heard. */
async function deleteIn(lane: Lane, world: World): Promise<void> {
  for (let isHeard = false; !isHeard; ) {
    await lane.request('deletion', async () => {
      try {
        await deleteCluster(world, CLUSTER);
        isHeard = true;
      } catch (error) {
        if (!(error instanceof StoreUnavailableError || error instanceof FencedError)) throw error;
      }
    });
  }
}

/** Sweeps until the name of the deleted cluster is free. */
async function sweepAwayIn(lane: Lane, world: World): Promise<void> {
  while ((await world.memory.getCluster(CLUSTER))?.deletion !== 'over') {
    await sweepIn(lane, world);
    await elapse(lane, world, 6000);
  }
}

/** Two senders, one change each. */
function race(world: World, schedule: Schedule): void {
  for (const [name, object] of [
    ['one', slice('s1', 21, [2])],
    ['two', slice('s2', 22, [3, 1])],
  ] as const) {
    schedule.lane(name, (lane) => new RelayModel({ world, epoch: 1 }).tell(lane, [added(object)]));
  }
}

/** One sender, one change and its opposite. */
function changeAndBack(world: World, schedule: Schedule): void {
  const relay = new RelayModel({ world, epoch: 1, held: [WEB, FIRST] });
  schedule.lane('relay', (lane) =>
    relay.tell(lane, [added(slice('s', 21, [1, 2])), added(slice('s', 22, [1]))]),
  );
}

export const SCENARIOS: Readonly<Record<string, Scenario>> = {
  'two requests change different slices of one service': {
    before: webIsKnown,
    run: race,
    truth: [WEB, FIRST, slice('s1', 21, [2]), slice('s2', 22, [3, 1])],
    quick: [bounds(1, 1), bounds(2, 0)],
    deep: [bounds(2, 1), bounds(1, 2)],
  },
  'the same in one process, content in chunks': {
    options: { isInstanceShared: true, inlineBytes: 0 },
    before: webIsKnown,
    run: race,
    truth: [WEB, FIRST, slice('s1', 21, [2]), slice('s2', 22, [3, 1])],
    quick: [bounds(1, 0), bounds(0, 1)],
    deep: [bounds(1, 1), bounds(0, 2)],
  },
  'one request changes two services, and another one of them': {
    before: bothAreKnown,
    run: (world, schedule) => {
      const relay = new RelayModel({ world, epoch: 1, held: [WEB, FIRST, API] });
      const both = added(slice('s', 21, [1, 2]), slice('a', 22, [3], { of: 'api' }));
      schedule.lane('both', (lane) => relay.tell(lane, [both]));
      const other = added(slice('b', 23, [4], { of: 'api' }));
      schedule.lane('api alone', (lane) => new RelayModel({ world, epoch: 1 }).tell(lane, [other]));
    },
    truth: [
      WEB,
      slice('s', 21, [1, 2]),
      API,
      slice('a', 22, [3], { of: 'api' }),
      slice('b', 23, [4], { of: 'api' }),
    ],
    quick: [bounds(0, 1), bounds(1, 0)],
    deep: [bounds(1, 1), bounds(0, 2)],
  },
  'a change is sent again, and taken back, while its first request may still run': {
    before: webIsKnown,
    run: changeAndBack,
    truth: [WEB, slice('s', 22, [1])],
    quick: [bounds(1, 1)],
    deep: [bounds(1, 2), bounds(0, 3)],
  },
  'a slice is created and deleted, while its creation may still run': {
    before: webIsKnown,
    run: (world, schedule) => {
      const relay = new RelayModel({ world, epoch: 1, held: [WEB, FIRST] });
      schedule.lane('relay', (lane) =>
        relay.tell(lane, [added(slice('s1', 21, [2])), deleted(slice('s1', 22, [2]))]),
      );
    },
    truth: [WEB, FIRST],
    quick: [bounds(1, 1)],
    deep: [bounds(1, 2), bounds(0, 3)],
  },
  'a slice moves to another service, and comes back': {
    before: bothAreKnown,
    run: (world, schedule) => {
      const relay = new RelayModel({ world, epoch: 1, held: [WEB, FIRST, API] });
      schedule.lane('relay', (lane) =>
        relay.tell(lane, [added(slice('s', 21, [1], { of: 'api' })), added(slice('s', 22, [2]))]),
      );
    },
    truth: [WEB, API, slice('s', 22, [2])],
    quick: [bounds(1, 1)],
    deep: [bounds(1, 2)],
  },
  'two slices change places in one batch': {
    before: async (world) => {
      await tellAtOnce(world, added(WEB, FIRST, API, slice('a', 13, [2], { of: 'api' })));
      await sweepAlone(world.deps());
    },
    run: (world, schedule) => {
      const held = [WEB, FIRST, API, slice('a', 13, [2], { of: 'api' })];
      const relay = new RelayModel({ world, epoch: 1, held });
      const swap = added(slice('s', 21, [1], { of: 'api' }), slice('a', 22, [2]));
      const back = added(slice('a', 23, [2], { of: 'api' }));
      schedule.lane('relay', (lane) => relay.tell(lane, [swap, back]));
    },
    truth: [WEB, API, slice('s', 21, [1], { of: 'api' }), slice('a', 23, [2], { of: 'api' })],
    quick: [bounds(1, 0), bounds(0, 1)],
    deep: [bounds(1, 1), bounds(0, 2)],
  },
  'a relay dies while it moves a slice, and its successor reconciles': {
    before: bothAreKnown,
    run: (world, schedule) => {
      const moved = slice('s', 21, [1], { of: 'api' });
      const dying = new RelayModel({ world, epoch: 1, held: [WEB, FIRST, API] });
      schedule.lane('dying relay', (lane) => dying.tellOnce(lane, added(moved)));
      const next = new RelayModel({ world, epoch: 2, held: [WEB, API, moved] });
      schedule.lane('next relay', (lane) => next.takeOver(lane, { Service: '21', EndpointSlice: '21' }));
    },
    truth: [WEB, API, slice('s', 21, [1], { of: 'api' })],
    quick: [bounds(1, 0), bounds(0, 1)],
    deep: [bounds(1, 1), bounds(0, 2)],
  },
  'a new relay takes over while requests of its predecessor run': {
    before: webIsKnown,
    run: (world, schedule) => {
      const old = new RelayModel({ world, epoch: 1, held: [WEB, FIRST] });
      // The second slice is deleted before the new relay lists.
      const last = added(slice('s', 21, [1, 2]), slice('short', 22, [9]));
      schedule.lane('old relay', (lane) => old.tellOnce(lane, last));
      const held = [WEB, slice('s', 24, [1])];
      const next = new RelayModel({ world, epoch: 2, held, isShared: true, name: 'new' });
      schedule.lane('new relay', (lane) => next.takeOver(lane, { Service: '25', EndpointSlice: '25' }));
      schedule.lane('its events', (lane) => next.tell(lane, [added(slice('s2', 26, [4]))]));
    },
    truth: [WEB, slice('s', 24, [1]), slice('s2', 26, [4])],
    quick: [bounds(1, 0), bounds(0, 1)],
    deep: [bounds(1, 1)],
  },
  'a sweep publishes what a request has not published yet': {
    before: webIsKnown,
    run: (world, schedule) => {
      const relay = new RelayModel({ world, epoch: 1, held: [WEB, FIRST] });
      schedule.lane('relay', (lane) =>
        relay.tell(lane, [added(slice('s', 21, [1, 2])), added(slice('s', 22, [1, 3]))]),
      );
      schedule.lane('sweep', (lane) => sweepIn(lane, world));
    },
    truth: [WEB, slice('s', 22, [1, 3])],
    quick: [bounds(1, 1)],
    deep: [bounds(2, 1), bounds(0, 2)],
  },
  'the next request finds a delta pending': {
    before: somethingIsPending,
    run: (world, schedule) => {
      const held = [WEB, slice('s', 12, [1, 2])];
      const relay = new RelayModel({ world, epoch: 1, held, isWarm: true });
      schedule.lane('relay', (lane) => relay.tell(lane, [added(slice('s', 21, [1, 3]))]));
      schedule.lane('sweep', (lane) => sweepIn(lane, world));
    },
    truth: [WEB, slice('s', 21, [1, 3])],
    quick: [bounds(1, 1)],
    deep: [bounds(2, 1), bounds(0, 2)],
  },
  'a slice changes two ports': {
    before: async (world) => {
      await tellAtOnce(world, added(service(10, { ports: TWO }), slice('s', 11, [1], { ports: TWO })));
      await sweepAlone(world.deps());
    },
    run: (world, schedule) => {
      const relay = new RelayModel({ world, epoch: 1 });
      schedule.lane('relay', (lane) => relay.tell(lane, [added(slice('s', 21, [1, 2], { ports: TWO }))]));
      schedule.lane('other', (lane) =>
        new RelayModel({ world, epoch: 1 }).tell(lane, [added(slice('s1', 22, [3], { ports: ['admin'] }))]),
      );
    },
    truth: [
      service(10, { ports: TWO }),
      slice('s', 21, [1, 2], { ports: TWO }),
      slice('s1', 22, [3], { ports: ['admin'] }),
    ],
    quick: [bounds(1, 1)],
    deep: [bounds(2, 1), bounds(0, 2)],
  },
  'a daily visit collects chunks while a content comes back': {
    options: { inlineBytes: 0 },
    before: garbageIsDue,
    run: (world, schedule) => {
      const held = [WEB, slice('s', 13, [1])];
      const relay = new RelayModel({ world, epoch: 1, held, isWarm: true });
      schedule.lane('relay', (lane) =>
        relay.tell(lane, [
          added(slice('s', 21, [1, 2])),
          added(slice('s', 22, [1, 3])),
          added(slice('s', 23, [1, 2])),
        ]),
      );
      schedule.lane('sweep', (lane) => sweepIn(lane, world));
    },
    truth: [WEB, slice('s', 23, [1, 2])],
    quick: [bounds(1, 0), bounds(0, 1)],
    deep: [bounds(1, 1)],
  },
  'chunks are collected between a reading of the head and theirs': {
    options: { inlineBytes: 0 },
    before: webIsKnown,
    run: (world, schedule) => {
      const slow = new RelayModel({ world, epoch: 1 });
      schedule.lane('slow', (lane) => slow.tell(lane, [added(slice('s1', 21, [2]))]));
      const relay = new RelayModel({ world, epoch: 1, held: [WEB, FIRST] });
      schedule.lane('relay', async (lane) => {
        await relay.tell(lane, [added(slice('s', 22, [1, 2]))]);
        await elapse(lane, world, 6 * 60_000);
        await sweepIn(lane, world);
      });
    },
    truth: [WEB, slice('s', 22, [1, 2]), slice('s1', 21, [2])],
    quick: [bounds(2, 0), bounds(0, 1)],
    deep: [bounds(2, 1), bounds(0, 2)],
  },
  'a delta is too big for its head, and for one entry of the bus': {
    options: { maxEntryBytes: 8000 },
    before: webIsKnown,
    run: (world, schedule) => {
      const relay = new RelayModel({ world, epoch: 1, held: [WEB, FIRST] });
      schedule.lane('relay', (lane) => relay.tell(lane, [added(bigSlice(21)), added(slice('s', 22, [1]))]));
      schedule.lane('sweep', (lane) => sweepIn(lane, world));
    },
    truth: [WEB, slice('s', 22, [1])],
    quick: [bounds(0, 1), bounds(1, 0)],
    deep: [bounds(1, 1)],
  },
  'more is pending than a head may carry': {
    before: muchIsPending,
    run: (world, schedule) => {
      const relay = new RelayModel({ world, epoch: 1, held: [WEB, slice('s', 62, [1, 2])] });
      schedule.lane('relay', (lane) => relay.tell(lane, [added(slice('s', 71, [1, 3]))]));
      schedule.lane('other', (lane) =>
        new RelayModel({ world, epoch: 1 }).tell(lane, [added(slice('s1', 72, [4]))]),
      );
    },
    truth: [WEB, slice('s', 71, [1, 3]), slice('s1', 72, [4])],
    quick: [bounds(1, 0)],
    deep: [bounds(2, 0), bounds(0, 1)],
  },
  'an inventory is on its way while a slice is created': {
    before: async (world) => {
      await tellAtOnce(world, added(WEB, FIRST, slice('old', 12, [9])));
      await sweepAlone(world.deps());
    },
    run: (world, schedule) => {
      const held = [WEB, slice('s', 21, [1, 2])];
      const relay = new RelayModel({ world, epoch: 1, held, isShared: true });
      schedule.lane('list', (lane) => relay.reconcile(lane, { Service: '30', EndpointSlice: '30' }));
      schedule.lane('watch', (lane) => relay.tell(lane, [added(slice('s2', 31, [4]))]));
    },
    truth: [WEB, slice('s', 21, [1, 2]), slice('s2', 31, [4])],
    quick: [bounds(2, 0), bounds(0, 1)],
    deep: [bounds(1, 1), bounds(0, 2)],
  },
  'an inventory finds a service gone': {
    before: async (world) => {
      await tellAtOnce(world, added(WEB, FIRST, API, slice('a', 13, [2], { of: 'api' })));
      await sweepAlone(world.deps());
    },
    run: (world, schedule) => {
      const relay = new RelayModel({ world, epoch: 1, held: [WEB, FIRST] });
      schedule.lane('list', (lane) => relay.reconcile(lane, { Service: '30', EndpointSlice: '30' }));
      schedule.lane('sweep', (lane) => sweepIn(lane, world));
    },
    truth: [WEB, FIRST],
    gone: ['api'],
    quick: [bounds(2, 0), bounds(0, 1)],
    deep: [bounds(2, 1), bounds(0, 2)],
  },
  'a cluster changes its mode while requests of the old one run': {
    mode: 'endpoints',
    before: webIsKnown,
    run: (world, schedule) => {
      const old = new RelayModel({ world, epoch: 1, held: [WEB, FIRST] });
      schedule.lane('old relay', (lane) => old.tellOnce(lane, added(slice('s', 21, [1, 2]))));
      const held = [WEB, endpoints(30, [1, 3])];
      const next = new RelayModel({ world, epoch: 2, mode: 'endpoints', held, isShared: true, name: 'new' });
      schedule.lane('new relay', (lane) => next.takeOver(lane, { Service: '31', Endpoints: '31' }));
      schedule.lane('its events', (lane) => next.tell(lane, [added(endpoints(32, [1, 4]))]));
    },
    truth: [WEB, endpoints(32, [1, 4])],
    quick: [bounds(1, 0), bounds(0, 1)],
    deep: [bounds(1, 1)],
  },
  'a Service is recreated, and its deletion and its past come late': {
    before: webIsKnown,
    run: (world, schedule) => {
      const relay = new RelayModel({ world, epoch: 1, held: [WEB, FIRST] });
      const recreated = added(service(22, { uid: 'web-2' }));
      schedule.lane('relay', (lane) => relay.tell(lane, [deleted(service(21)), recreated]));
      schedule.lane('deletion', (lane) =>
        new RelayModel({ world, epoch: 1, held: [WEB] }).tell(lane, [deleted(service(21))]),
      );
      schedule.lane('past', (lane) => new RelayModel({ world, epoch: 1 }).tell(lane, [added(WEB)]));
    },
    truth: [service(22, { uid: 'web-2' }), FIRST],
    quick: [bounds(2, 0), bounds(0, 1)],
    deep: [bounds(1, 1), bounds(0, 2)],
  },
  'a port is renamed, and its slice follows late': {
    before: webIsKnown,
    run: (world, schedule) => {
      const relay = new RelayModel({ world, epoch: 1, held: [WEB, FIRST] });
      schedule.lane('relay', (lane) =>
        relay.tell(lane, [
          added(service(21, { ports: ['web'] })),
          added(slice('s', 22, [1], { ports: ['web'] })),
        ]),
      );
      schedule.lane('sweep', async (lane) => {
        await elapse(lane, world, 11_000);
        await sweepIn(lane, world);
      });
    },
    truth: [service(21, { ports: ['web'] }), slice('s', 22, [1], { ports: ['web'] })],
    quick: [bounds(1, 1), bounds(2, 0)],
    deep: [bounds(2, 1), bounds(0, 2)],
  },
  'a port is renamed, and no slice follows': {
    before: webIsKnown,
    run: (world, schedule) => {
      const relay = new RelayModel({ world, epoch: 1, held: [WEB, FIRST] });
      schedule.lane('relay', (lane) =>
        relay.tell(lane, [added(service(21, { ports: ['web'] })), added(slice('s', 22, [2]))]),
      );
      schedule.lane('sweep', async (lane) => {
        await elapse(lane, world, 11_000);
        await sweepIn(lane, world);
      });
    },
    truth: [service(21, { ports: ['web'] }), slice('s', 22, [2])],
    quick: [bounds(2, 0), bounds(0, 1)],
    deep: [bounds(2, 1), bounds(0, 2)],
  },
  'a cluster is deleted while requests of its relay run, and is rebuilt under its name': {
    before: webIsKnown,
    run: (world, schedule) => {
      const old = new RelayModel({ world, epoch: 1, held: [WEB, FIRST] });
      const last = added(slice('s', 21, [1, 2]), slice('late', 900, [9]));
      schedule.lane('old relay', (lane) => old.tellOnce(lane, last));
      const held = [service(5, { uid: 'web-2' }), slice('t', 6, [4])];
      const next = new RelayModel({ world, epoch: 3, held });
      schedule.lane('operator', async (lane) => {
        await deleteIn(lane, world);
        await sweepAwayIn(lane, world);
        await next.takeOver(lane, { Service: '7', EndpointSlice: '7' });
      });
    },
    truth: [service(5, { uid: 'web-2' }), slice('t', 6, [4])],
    quick: [bounds(2, 0), bounds(0, 1)],
    deep: [bounds(1, 1), bounds(0, 2)],
  },
  'a sweep of a deleted cluster is late': {
    before: async (world) => {
      await webIsKnown(world);
      await deleteCluster(world, CLUSTER);
    },
    run: (world, schedule) => {
      schedule.lane('late sweep', (lane) => sweepIn(lane, world));
      const held = [service(5, { uid: 'web-2' }), slice('t', 6, [4])];
      const next = new RelayModel({ world, epoch: 3, held });
      schedule.lane('operator', async (lane) => {
        await sweepAwayIn(lane, world);
        await next.takeOver(lane, { Service: '7', EndpointSlice: '7' });
        await next.tell(lane, [added(slice('t', 8, [5]))]);
      });
    },
    truth: [service(5, { uid: 'web-2' }), slice('t', 8, [5])],
    quick: [bounds(2, 0), bounds(0, 1)],
    deep: [bounds(2, 0), bounds(1, 1)],
  },
  'a cluster comes back from a backup': {
    before: async (world) => {
      await tellAtOnce(world, added(service(100), slice('s', 101, [1, 2]), slice('lost', 102, [3])));
      await sweepAlone(world.deps());
    },
    run: (world, schedule) => {
      const relay = new RelayModel({ world, epoch: 1, held: [service(50), slice('s', 51, [1])] });
      schedule.lane('relay', async (lane) => {
        await relay.reconcile(lane, { Service: '60', EndpointSlice: '60' }, { restored: true });
        await relay.tell(lane, [added(slice('s', 61, [1, 4]))]);
      });
    },
    truth: [service(50), slice('s', 61, [1, 4])],
    quick: [bounds(1, 1)],
    deep: [bounds(1, 2)],
  },
};
