import { type Bus, BusUnavailableError } from '../../../functions/bus/bus.ts';
import { admit } from '../../../functions/ingest/admission.ts';
import { applyEvents } from '../../../functions/ingest/events.ts';
import { ServiceRepository } from '../../../functions/services/repository.ts';
import type { ServiceKey, Store } from '../../../functions/store/store.ts';
import { type Sweeper, type SweepReport, sweepAlone } from '../../../functions/sweep/sweep.ts';
import { createLogger } from '../../../wire/log.ts';
import { FakeClock } from '../store/fake-clock.ts';
import { MemoryStore } from '../store/memory-store.ts';

export const CLUSTER = 'prod-eu';
export const MINUTE_MS = 60_000;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;

/** A store and a bus that sweeps and relays share; each call of either is a cold function instance. */
export class World {
  readonly clock = new FakeClock();
  readonly memory = new MemoryStore(this.clock);
  /** What functions see: tests put something between. */
  store: Store = this.memory;
  isBusAway = false;
  /** Packed endpoints that a head holds itself, in bytes. */
  inlineBytes = 2048;
  /** Ids that the bus took, in order. */
  readonly published: string[] = [];
  /** What failures were about. */
  readonly failed: unknown[] = [];

  readonly bus: Bus = {
    publish: async (entries) => {
      if (this.isBusAway) throw new BusUnavailableError('away');
      for (const { detail } of entries) this.published.push((JSON.parse(detail) as { id: string }).id);
      return entries.map(() => ({ kind: 'accepted' }));
    },
    describe: async () => true,
  };

  deps(): Sweeper {
    const { clock, store, bus, inlineBytes } = this;
    const write = (line: string) => void this.failed.push((JSON.parse(line) as { of?: unknown }).of);
    return {
      ...{ clock, store, bus, historyMs: 7 * DAY_MS, maxEntryBytes: 240_000, collected: new Set<never>() },
      repository: new ServiceRepository(store, { inlineBytes }),
      pause: async () => {},
      log: createLogger({ level: 'error', clock, write }),
    };
  }

  async sweep(): Promise<SweepReport> {
    const report = await sweepAlone(this.deps(), { isForced: true });
    if (report === null) throw new Error('the lease was not taken');
    return report;
  }

  /** Applies events as ingest would; false when the epoch is not taken. */
  async send(epoch: number, ...objects: readonly object[]): Promise<boolean> {
    const deps = this.deps();
    const sender = { cluster: CLUSTER, clusterUid: null, epoch, mode: 'slices' } as const;
    const admission = await admit(deps, sender);
    if (admission.kind !== 'admitted') return false;
    const events = objects.map((object) => ({ type: 'ADDED', object }));
    await applyEvents(deps, { ...sender, relay: null, events }, admission.fence);
    return true;
  }

  /** Addresses of a service. */
  async ips(name: string): Promise<string[]> {
    const { state } = await new ServiceRepository(this.memory).load(keyOf(name), 'EndpointSlice');
    return [...state.objects.values()].flatMap((object) =>
      object.content().groups.flatMap((group) => group.endpoints.map(({ ip }) => ip)),
    );
  }
}

export function keyOf(name: string): ServiceKey {
  return { cluster: CLUSTER, namespace: 'default', name };
}

/** A store some of whose methods are others. */
export function altered(store: Store, over: Partial<Store>): Store {
  return new Proxy(store, {
    get(target, name) {
      const member: unknown = Reflect.get(over, name) ?? Reflect.get(target, name, target);
      return typeof member === 'function' ? member.bind(target) : member;
    },
  });
}
