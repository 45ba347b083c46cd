import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import type { Relay } from '../../relay/relay.ts';
import { fastTimers } from '../fast-timers.ts';
import { randomFrom } from '../functions/store/seeded-random.ts';
import { Gate } from './gate.ts';
import { createDeployment, createService, HTTP, rollOut, type ServiceSpec, scale } from './workloads.ts';
import { World } from './world.ts';

/** Other lives: another SEED, more ROUNDS. It tells what is done; how it meets the controllers is new each time. */
const SEED = Number(process.env.SEED ?? 1);
const ROUNDS = Number(process.env.ROUNDS ?? 12);
/** Back-offs pass so much faster than by default. */
const SPEED = 10;
const MAX_STEPS = 12;
/** The sweep ends a rename that not all slices follow (S23), on AWS each minute. */
const SWEEP_MS = 1000;
const NAMESPACE = 'life';
const MODES = ['slices', 'endpoints'] as const;
const NAMES = ['a', 'b', 'c'] as const;
type Name = (typeof NAMES)[number];

const PORTS: readonly (readonly object[])[] = [
  [HTTP],
  [{ ...HTTP, targetPort: 'other' }],
  [{ ...HTTP, name: 'www' }],
  [{ ...HTTP, port: 8000 }],
  [HTTP, { ...HTTP, name: 'udp', protocol: 'UDP' }],
  [HTTP, { name: 'admin', port: 81, targetPort: 9090, protocol: 'TCP' }],
];

let world: World;
let gate: Gate;
before(async () => {
  world = await World.start();
  gate = await Gate.to(world.plane.server);
  await world.client.create('Namespace', { name: NAMESPACE });
  for (const name of NAMES) {
    await create(name, { ipFamilyPolicy: 'PreferDualStack' });
    await createDeployment(world.client, NAMESPACE, name, 3);
  }
});
after(async () => {
  await gate[Symbol.asyncDispose]();
  await world[Symbol.asyncDispose]();
});

const service = (name: Name) => ({ kind: 'Service', namespace: NAMESPACE, name }) as const;
const create = (name: Name, spec: ServiceSpec = {}) => createService(world.client, NAMESPACE, name, spec);
const patch = (name: Name, spec: object) => world.client.patch(service(name), { spec });
const slice = (name: string) => ({ kind: 'EndpointSlice', namespace: NAMESPACE, name }) as const;

async function recreate(name: Name, spec: ServiceSpec): Promise<void> {
  await world.client.delete(service(name)).catch(() => {});
  await create(name, spec);
}

/** What one does to a cluster; much of it is refused, depending on what was done before. */
function stepsOf(
  below: (bound: number) => number,
): Readonly<Record<string, (name: Name) => Promise<unknown>>> {
  const { client, player } = world;
  const chance = () => below(2) === 0;
  const pick = <T>(items: readonly T[]) => items[below(items.length)] as T;
  const somePod = async () => {
    const pods = await client.list('Pod');
    return pick(pods.filter(({ metadata }) => metadata.namespace === NAMESPACE)).metadata.name;
  };
  const ownSlices: string[] = [];
  let made = 0;
  return {
    scale: (name) => scale(client, NAMESPACE, name, below(26)),
    rollOut: (name) => rollOut(client, NAMESPACE, name, String(below(1_000_000))),
    deletePod: async () => client.delete({ kind: 'Pod', namespace: NAMESPACE, name: await somePod() }),
    probe: async () => player.setReady(NAMESPACE, await somePod(), chance()),
    ports: (name) => patch(name, { ports: pick(PORTS) }),
    selector: (name) => patch(name, { selector: pick([null, { app: name }, { app: pick(NAMES) }]) }),
    families: (name) => patch(name, { ipFamilyPolicy: pick(['SingleStack', 'PreferDualStack']) }),
    publishNotReady: (name) => patch(name, { publishNotReadyAddresses: chance() }),
    toExternalName: (name) => {
      const gone = { clusterIP: null, clusterIPs: null, ipFamilies: null, ipFamilyPolicy: null };
      return patch(name, { type: 'ExternalName', externalName: 'example.com', ...gone });
    },
    toClusterIp: (name) => patch(name, { type: 'ClusterIP', externalName: null }),
    delete: (name) => client.delete(service(name)),
    create: (name) => create(name),
    recreate: (name) => recreate(name, { ipFamilyPolicy: 'PreferDualStack' }),
    toHeadless: (name) => recreate(name, { clusterIP: 'None', ...(chance() && { ports: [] }) }),
    writeEndpoints: (name) =>
      client.patch(
        { kind: 'Endpoints', namespace: NAMESPACE, name },
        {
          subsets: [
            {
              addresses: [{ ip: `198.51.100.${below(3)}` }],
              ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
            },
          ],
        },
      ),
    createSlice: async (name) => {
      const own = `own-${++made}`;
      await client.create(
        'EndpointSlice',
        { name: own, namespace: NAMESPACE, labels: { 'kubernetes.io/service-name': name } },
        {
          addressType: 'IPv4',
          endpoints: [{ addresses: [`10.244.0.${1 + below(9)}`], conditions: { ready: below(3) > 0 } }],
          ports: [{ name: pick(['http', 'www']), port: pick([8080, 9090]) }],
        },
      );
      ownSlices.push(own);
    },
    moveSlice: (name) =>
      client.patch(slice(pick(ownSlices)), { metadata: { labels: { 'kubernetes.io/service-name': name } } }),
    deleteSlice: () => client.delete(slice(ownSlices.shift() ?? '')),
  };
}

/** Sweeps time and again until told to stop. */
function startSweeping(): AsyncDisposable {
  const stop = new AbortController();
  const run = async () => {
    while (!stop.signal.aborted) {
      await fetch(`${world.stack.url}/local/sweep`, { method: 'POST' });
      await wait(SWEEP_MS, undefined, { signal: stop.signal }).catch(() => {});
    }
  };
  const done = run();
  return {
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await done;
    },
  };
}

describe('a life of a cluster', () => {
  test(`with a rollout, a fault and a restart now and then, both modes tell the truth at each quiet moment (seed ${SEED})`, async () => {
    await using _sweeping = startSweeping();
    const below = randomFrom(SEED);
    const steps = Object.entries(stepsOf(below));
    const log: string[] = [];
    const live = async () => {
      for (let left = 1 + below(MAX_STEPS); left > 0; left--) {
        const [step, run] = steps[below(steps.length)] ?? ['', async () => {}];
        const name = NAMES[below(NAMES.length)] ?? 'a';
        const outcome = await run(name).then(
          () => '',
          () => ', refused',
        );
        log.push(`${step} ${name}${outcome}`);
        // Now and then the controllers and relays get a turn within a burst.
        await wait(below(4) === 0 ? below(200) : 0);
      }
    };
    const relays = new Map<string, Relay>();
    const start = (mode: (typeof MODES)[number]) =>
      relays.set(mode, world.startRelay({ mode, timers: fastTimers(SPEED), server: gate.url }));
    const faults: Readonly<Record<string, () => Promise<void>>> = {
      'the way to the API server is shut': async () => {
        gate.shut();
        await live();
        gate.open();
      },
      'the API server is killed': async () => {
        await world.plane.killApiServer();
        await world.plane.startApiServer();
        await live();
      },
      'history is forgotten': async () => {
        gate.shut();
        await live();
        await world.plane.compact();
        await world.plane.killApiServer();
        await world.plane.startApiServer();
        gate.open();
      },
      'a relay is away': async () => {
        const mode = MODES[below(MODES.length)] ?? 'slices';
        await relays.get(mode)?.[Symbol.asyncDispose]();
        await live();
        start(mode);
      },
    };
    const kinds = Object.entries(faults);
    for (const mode of MODES) start(mode);
    try {
      for (let round = 0; round < ROUNDS; round++) {
        await live();
        const [fault, happen] = kinds[below(kinds.length * 2)] ?? ['nothing', async () => {}];
        log.push(`${fault}:`);
        await happen();
        for (const mode of MODES) {
          await world.isTrue(mode).catch((error: Error) => {
            throw new Error(`${mode}, after: ${log.slice(-40).join('; ')}`, { cause: error });
          });
        }
      }
    } finally {
      for (const relay of relays.values()) await relay[Symbol.asyncDispose]();
    }
    assert(log.some((step) => step.startsWith('scale')));
  });
});
