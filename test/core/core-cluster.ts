import assert from 'node:assert/strict';
import { kindOfMode } from '../../core/changes.ts';
import type { AddressFilter } from '../../core/query.ts';
import { queryPort } from '../../core/query.ts';
import { parsePortId } from '../../core/service-port.ts';
import { emptyState, type ServiceState } from '../../core/service-state.ts';
import type { EpochMs } from '../../core/time.ts';
import { ipsOf, type Transition, transit } from '../../core/transition.ts';
import { type ServiceChanges, type ServicePlace, sortEvents } from '../../functions/ingest/intake.ts';
import { orderMoves } from '../../functions/ingest/move-order.ts';
import { Membership } from '../../functions/services/membership.ts';
import { formatAddress } from '../../wire/address.ts';
import { deltaTypeOf, formatDelta } from '../../wire/delta.ts';
import type { EventStatus } from '../../wire/events.ts';
import { hashKey } from '../../wire/key-hash.ts';
import type { CaseAnswer, CaseEvent, CaseTarget } from '../cases.ts';
import type { ReceivedDelta } from '../replica.ts';

/** A cluster whose services live in memory: what ingest does with a batch, without a store and without a bus. */
export class CoreCluster implements CaseTarget {
  readonly name = 'test';
  /** By `namespace/name`. */
  readonly states = new Map<string, ServiceState>();
  readonly #mode: 'slices' | 'endpoints';
  /** By `namespace/name`; null where every object is looked at. */
  readonly #members: Map<string, Membership> | null;
  #now = Date.parse('2026-11-30T10:00:00Z') as EpochMs;
  #deltas: ReceivedDelta[] = [];

  /** @param usesHolders compute differences from the touched objects alone, as a warm function does. */
  constructor(mode: 'slices' | 'endpoints', { usesHolders = false } = {}) {
    this.#mode = mode;
    this.#members = usesHolders ? new Map() : null;
  }

  async send(event: CaseEvent): Promise<EventStatus> {
    const [status = 'rejected'] = this.post([event]);
    return status;
  }

  async advance(ms: number): Promise<void> {
    this.#now = (this.#now + ms) as EpochMs;
    for (const id of [...this.states.keys()]) this.#transit(placeOf(id), []);
  }

  async takeDeltas(): Promise<readonly ReceivedDelta[]> {
    return this.drain();
  }

  async answer(place: ServicePlace, params: Readonly<Record<string, string>>): Promise<CaseAnswer> {
    const { port: portText = '', ...filter } = params;
    const state = this.state(place);
    const port = parsePortId(portText);
    if (state.service === null || port === null) return { status: 404 };
    if (state.service.externalName !== null) return { status: 422 };
    const answer = queryPort(state, port, { tier: 'ready', ...filter } as AddressFilter, hashKey);
    if (answer === null) return { status: 404 };
    return {
      status: 200,
      set: {
        exists: true,
        portName: answer.port.name,
        truncated: answer.isTruncated,
        addresses: answer.addresses.map(formatAddress),
        draining: answer.draining.map(formatAddress),
        notReady: answer.notReady,
      },
    };
  }

  state({ namespace, name }: ServicePlace): ServiceState {
    return this.states.get(`${namespace}/${name}`) ?? emptyState(kindOfMode(this.#mode));
  }

  /** The deltas since the last call. */
  drain(): ReceivedDelta[] {
    return this.#deltas.splice(0);
  }

  /** Applies a batch; what became of each event. */
  post(events: readonly unknown[]): EventStatus[] {
    const intake = sortEvents(events, { mode: this.#mode, epoch: 1, receivedAt: this.#now });
    const statuses = new Map<number, EventStatus[]>();
    for (const wave of orderMoves([...intake.services, ...this.#findUnplaced(intake.unplaced)])) {
      for (const { place, changes } of wave) {
        const due = changes.filter(
          ({ kind, index }) => kind === 'leave' || !statuses.get(index)?.includes('stale'),
        );
        for (const [{ index }, status] of this.#transit(place, due).statuses)
          statuses.set(index, [...(statuses.get(index) ?? []), status]);
      }
    }
    return intake.results.map((result, index) => {
      if (result !== null) return result.status;
      const all = statuses.get(index) ?? [];
      return (['stale', 'applied'] as const).find((status) => all.includes(status)) ?? 'unchanged';
    });
  }

  #findUnplaced(unplaced: ReturnType<typeof sortEvents>['unplaced']): ServiceChanges[] {
    return unplaced.flatMap(({ namespace, change }) =>
      [...this.states]
        .filter(([id]) => placeOf(id).namespace === namespace)
        .filter(([, { objects }]) =>
          [...objects.values()].some(({ uid, kind, name }) =>
            change.uid === null ? kind === change.objectKind && name === change.name : uid === change.uid,
          ),
        )
        .map(([id]) => ({ place: placeOf(id), changes: [change] })),
    );
  }

  #transit(place: ServicePlace, changes: ServiceChanges['changes']): Transition {
    const { namespace, name: service } = place;
    const id = `${namespace}/${service}`;
    const before = this.state(place);
    const members = this.#members?.get(id) ?? new Membership();
    const transition = transit(before, changes, {
      now: this.#now,
      hash: hashKey,
      kind: kindOfMode(this.#mode),
      ...(this.#members !== null && { holders: (ips) => members.holders(ips) }),
    });
    if (!transition.isChanged) assert.deepEqual(transition.deltas, [], 'without a write, no delta');
    const after = transition.isChanged ? transition.state : before;
    this.states.set(id, after);
    this.#members?.set(id, members);
    for (const uid of transition.touched) {
      for (const [state, move] of [
        [before, 'remove'],
        [after, 'add'],
      ] as const) {
        const object = state.objects.get(uid);
        if (object !== undefined) members[move](uid, ipsOf(object));
      }
    }
    for (const delta of transition.deltas) {
      const detail = formatDelta({ cluster: this.name, namespace, service }, delta, this.#now);
      this.#deltas.push({ type: deltaTypeOf(delta), detail });
    }
    return transition;
  }
}

function placeOf(id: string): ServicePlace {
  const [namespace = '', name = ''] = id.split('/');
  return { namespace, name };
}
