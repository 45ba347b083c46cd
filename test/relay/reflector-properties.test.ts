import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type ApiServer, startApiServer } from '../../infra/local/cluster/api-server.ts';
import { anyFault } from './any-fault.ts';
import { createSlice, deleteSlice, updateSlice } from './builders.ts';
import { HastyTimers } from './manual-timers.ts';
import { Rig, until } from './reflector-rig.ts';

const SEED = Number(process.env.SEED ?? Date.now() % 2 ** 31);
const RUNS = Number(process.env.RUNS ?? 40);

const step = fc.oneof(
  { weight: 8, arbitrary: fc.record({ do: fc.constant('put' as const), name: fc.nat(4) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('delete' as const), name: fc.nat(4) }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('turns' as const), count: fc.nat(30) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('audit' as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('hold' as const, 'release' as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('bookmark' as const, 'compact' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart' as const) }) },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('fault' as const), fault: anyFault, skip: fc.nat(2) }),
  },
);

/** The server's slices at each of its versions, each as `NAME VERSION`. */
class History {
  readonly #states: { readonly revision: number; readonly slices: readonly string[] }[] = [];
  readonly #server: ApiServer;

  constructor(server: ApiServer) {
    this.#server = server;
    this.note();
    server.objects.subscribe(() => this.note());
  }

  note(): void {
    const slices = this.#server.objects.list('EndpointSlice').map(({ metadata }) => nameOf(metadata));
    this.#states.push({ revision: this.#server.snapshot().revision, slices: slices.sort() });
  }

  at(version: string): readonly string[] {
    return this.#states.findLast(({ revision }) => revision <= Number(version))?.slices ?? [];
  }
}

function nameOf({
  name,
  resourceVersion,
}: {
  readonly name: string;
  readonly resourceVersion: string;
}): string {
  return `${name} ${resourceVersion}`;
}

for (const watchList of [true, false]) {
  const server = watchList ? 'with watch-list' : 'without watch-list';
  test(`W4, W7, W8: any history, any faults, ${server}: what is seen is the server's state at that version (seed ${SEED})`, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
        const server = await startApiServer({ clock: new HastyTimers(), watchList });
        const history = new History(server);
        await using rig = new Rig(server, null, 60_000);
        const { objects } = server;
        const seen = new Map<string, string>();
        let failure: unknown = null;
        rig.onSeen = (observation) => {
          if (observation.kind === 'denied') return;
          if (observation.kind === 'listed') {
            seen.clear();
            for (const held of observation.objects) seen.set(held.name, nameOf(held));
          } else if (observation.type === 'DELETED') seen.delete(observation.held.name);
          else seen.set(observation.held.name, nameOf(observation.held));
          const version =
            observation.kind === 'listed' ? observation.resourceVersion : observation.held.resourceVersion;
          assert.deepEqual([...seen.values()].sort(), history.at(version));
        };
        const drained = rig.drain().catch((error: unknown) => {
          failure = error;
        });
        for (const [index, step] of steps.entries()) {
          switch (step.do) {
            case 'put': {
              const slice = { name: `s${step.name}`, service: 'web', ips: [`10.0.0.${index}`] };
              const isThere = objects.get({ kind: 'EndpointSlice', namespace: 'default', name: slice.name });
              (isThere ? updateSlice : createSlice)(objects, slice);
              break;
            }
            case 'delete': {
              const name = `s${step.name}`;
              if (objects.get({ kind: 'EndpointSlice', namespace: 'default', name }))
                deleteSlice(objects, name);
              break;
            }
            case 'turns':
              for (let turn = 0; turn < step.count; turn++) await new Promise(setImmediate);
              break;
            case 'audit':
              rig.reflector.relist('audit');
              break;
            case 'hold':
              rig.timers.hold();
              break;
            case 'release':
              rig.timers.release();
              break;
            case 'bookmark':
              server.bookmark();
              break;
            case 'compact':
              server.compact();
              break;
            case 'restart':
              await server.restart();
              break;
            case 'fault':
              await server.misbehave({ fault: step.fault, skip: step.skip, times: 1 });
              break;
            default:
              step satisfies never;
          }
        }
        rig.timers.release();
        createSlice(objects, { name: 'last', service: 'web' });
        await until(() => failure !== null || seen.has('last'));
        if (failure !== null) throw failure;
        await rig.stop();
        await drained;
        assert.deepEqual([...seen.values()].sort(), history.at(rig.reflector.resourceVersion ?? ''));
      }),
      { numRuns: RUNS, seed: SEED, endOnFailure: process.env.SHRINK === undefined },
    );
  });
}
