import assert from 'node:assert/strict';
import { kindOfMode } from '../../../core/changes.ts';
import { queryPorts } from '../../../core/query.ts';
import { portId } from '../../../core/service-port.ts';
import { emptyState } from '../../../core/service-state.ts';
import { transit } from '../../../core/transition.ts';
import { sortEvents } from '../../../functions/ingest/intake.ts';
import { ServiceRepository } from '../../../functions/services/repository.ts';
import type { ServiceKey } from '../../../functions/store/store.ts';
import { formatAddress } from '../../../wire/address.ts';
import { type DeltaDetail, type DeltaType, groupOf } from '../../../wire/delta.ts';
import type { Mode } from '../../../wire/envelope.ts';
import { formatDigest, hashKey } from '../../../wire/key-hash.ts';
import { type ReceivedDelta, Replica } from '../../replica.ts';
import { START } from '../store/fake-clock.ts';
import { randomFrom } from '../store/seeded-random.ts';
import { CLUSTER, NAMESPACE } from './relay-model.ts';
import { added, type Scenario } from './scenarios.ts';
import { type Bounds, type Exploration, explore, type Schedule, wander } from './scheduler.ts';
import { namedChunks, World, type WorldOptions } from './world.ts';

/** A defined port as the objects of the cluster make it. */
interface ExpectedPort {
  readonly id: string;
  readonly digest: string;
  readonly addresses: readonly ReturnType<typeof formatAddress>[];
}

/** What must be in a service's ports in the end. */
type Truth = ReadonlyMap<string, readonly ExpectedPort[]>;

/** How a scenario is gone through: everything within bounds, or so many schedules at random. */
export interface Itinerary {
  readonly bounds: Bounds;
  readonly walks?: { readonly schedules: number; readonly seed: number };
}

/** Runs a scenario under many schedules; what must hold in the end is checked each time. */
export async function exploreScenario(
  scenario: Scenario,
  { bounds, walks }: Itinerary,
  flawed: WorldOptions = {},
): Promise<Exploration> {
  const options = { ...scenario.options, ...flawed };
  const mode = scenario.mode ?? 'slices';
  const past = new World(options);
  await scenario.before(past);
  const start = past.snapshot();
  const truth = truthOf(scenario, mode);
  const run = async (schedule: Schedule) => {
    const world = new World(options, start, schedule);
    scenario.run(world, schedule);
    await schedule.exhaust();
    await check(world, truth, mode);
  };
  return walks === undefined
    ? explore(run, bounds)
    : wander(run, bounds, walks.schedules, randomFrom(walks.seed));
}

/** Lets the world come to rest, and looks at all of it; a day later it must be the same, and tidy. */
async function check(world: World, truth: Truth, mode: Mode): Promise<void> {
  const checkServices = async () => {
    for (const [name, ports] of truth) {
      await checkService(world, { cluster: CLUSTER, namespace: NAMESPACE, name }, mode, ports);
    }
  };
  await world.settle(15_000);
  await checkServices();
  const { deltas } = world;
  await world.settle(24 * 3_600_000);
  await checkServices();
  assert.equal(world.deltas, deltas, 'the daily visit has nothing to say');
  for (const name of truth.keys()) {
    await checkLeftovers(world, { cluster: CLUSTER, namespace: NAMESPACE, name });
  }
}

/** Nothing is left of what no head names. */
async function checkLeftovers({ memory }: World, key: ServiceKey): Promise<void> {
  const head = await memory.getHead(key);
  const { chunks, bodies } = await memory.listLeftovers(key);
  const stored = chunks.map(({ chunk }) => chunk).sort();
  assert.deepEqual(stored, namedChunks(head).sort(), 'all chunks are named');
  assert.deepEqual(bodies, [], 'no body without expiry');
  assert.deepEqual(head?.pending ?? [], [], 'nothing pending');
  assert.deepEqual(head?.garbage ?? [], [], 'no garbage');
}

/**
 * P1, P2, P4: each port's stored set is what its deltas add up to, without a gap, and what the truth says; each delta
 * has its receipt.
 */
async function checkService(
  world: World,
  key: ServiceKey,
  mode: Mode,
  truth: readonly ExpectedPort[],
): Promise<void> {
  const { head, state } = await new ServiceRepository(world.memory).load(key, kindOfMode(mode));
  for (const entry of head?.pending ?? []) {
    const isReceipted = (await world.memory.findReceipts(key, [entry])).size === 1;
    assert(isReceipted, `${key.name}:${entry.port}#${entry.sequence} has its receipt after the sweep`);
  }
  const replica = replay(world, key);
  const stored = queryPorts(state, { tier: 'ready' });
  for (const { port, sequence, digest, size, addresses } of stored) {
    const group = groupOf({ cluster: key.cluster, namespace: key.namespace, service: key.name, ...port });
    const copy = replica.port(group);
    const set = addresses.map(formatAddress);
    assert.deepEqual([...copy.addresses.values()].sort(byIp), set.sort(byIp), `P1: ${group}: deltas add up`);
    assert.equal(copy.sequence, sequence, `P2: ${group}: sequence`);
    assert.equal(size, copy.addresses.size, `${group}: size`);
    const expected = truth.find(({ id }) => group.endsWith(`:${id}`));
    assert(expected, `P4: ${group} is defined`);
    assert.equal(formatDigest(digest), expected.digest, `P4: ${group}: digest`);
    assert.deepEqual(set, [...expected.addresses].sort(byIp), `P4: ${group}: stored set`);
  }
  assert.equal(stored.length, truth.length, `P4: ${key.name}: ports`);
  for (const [id, port] of state.ports) {
    const { exists, sequence, addresses } = replica.port(`${key.cluster}/${key.namespace}/${key.name}:${id}`);
    assert.equal(sequence, port.sequence, `P2: ${key.name}:${id}: sequence`);
    assert.equal(exists, state.service !== null, `${key.name}:${id}: exists`);
    assert.equal(addresses.size, port.size, `P1: ${key.name}:${id}: size`);
  }
}

/** What a subscriber holds after all deltas of a service. */
function replay({ published }: World, { cluster, namespace, name }: ServiceKey): Replica {
  const prefix = `${cluster}/${namespace}/${name}:`;
  const entries = [...published.values()].filter((entry) => entry.resources[0]?.startsWith(prefix));
  const parts = entries.map((entry): ReceivedDelta => {
    return { type: entry.detailType as DeltaType, detail: JSON.parse(entry.detail) as DeltaDetail };
  });
  const wholes = Map.groupBy(parts, ({ detail }) => `${detail.group}#${detail.sequence}`);
  const deltas = [...wholes.values()].map(joinParts);
  const replica = new Replica();
  for (const delta of deltas.sort((a, b) => a.detail.sequence - b.detail.sequence)) replica.apply(delta);
  return replica;
}

function joinParts(parts: readonly ReceivedDelta[]): ReceivedDelta {
  const sorted = [...parts].sort((a, b) => (a.detail.part?.index ?? 0) - (b.detail.part?.index ?? 0));
  const [first] = sorted;
  assert(first);
  const details = sorted.map(({ detail }) => detail);
  assert.equal(parts.length, first.detail.part?.count ?? 1, `${first.detail.id}: all parts`);
  return {
    type: first.type,
    detail: {
      ...first.detail,
      added: details.flatMap(({ added }) => added),
      updated: details.flatMap(({ updated }) => updated),
      removed: details.flatMap(({ removed }) => removed),
    },
  };
}

function byIp(a: { readonly ip: string }, b: { readonly ip: string }): number {
  return a.ip < b.ip ? -1 : 1;
}

/** What the objects of the cluster mean, computed at once from nothing (P4). */
function truthOf({ truth, gone = [] }: Scenario, mode: Mode): Truth {
  const now = START;
  const { services } = sortEvents(added(...truth), { mode, epoch: 0, receivedAt: now });
  const kind = kindOfMode(mode);
  const expected = new Map<string, readonly ExpectedPort[]>(gone.map((name) => [name, []]));
  for (const { place, changes } of services) {
    const { state } = transit(emptyState(kind), changes, { now, hash: hashKey, kind });
    const ports = queryPorts(state, { tier: 'ready' }).map(({ port, digest, addresses }) => ({
      id: portId(port),
      digest: formatDigest(digest),
      addresses: addresses.map(formatAddress),
    }));
    expected.set(place.name, ports);
  }
  return expected;
}
