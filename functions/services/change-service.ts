import type { Change, ChangeStatus } from '../../core/changes.ts';
import type { PortDelta } from '../../core/delta.ts';
import type { EndpointKind } from '../../core/endpoint-object.ts';
import type { ServiceState } from '../../core/service-state.ts';
import { transit } from '../../core/transition.ts';
import { hashKey } from '../../wire/key-hash.ts';
import { type DeltaEntry, type Fence, type ServiceKey, StoreUnavailableError } from '../store/store.ts';
import { type Publisher, publish, storeDeltas, type Unpublished } from './publication.ts';

/** A head that waits for the bus may carry so many deltas and bytes; beyond, nothing new is taken (P1). */
const MAX_PENDING_ENTRIES = 50;
const MAX_PENDING_BYTES = 64_000;
/** Races lost in a row before the sender is asked to come again. */
const MAX_ATTEMPTS = 6;
const MAX_JITTER_MS = 40;

/** What changing services needs. */
export interface ServiceChanger extends Publisher {
  /** Waits between two attempts of a lost race, in milliseconds. */
  readonly pause: (ms: number) => Promise<void>;
}

/** What a batch of changes came to in one service. */
export interface ChangedService extends Unpublished {
  readonly statuses: ReadonlyMap<Change, ChangeStatus>;
  /** The deltas made, whether published yet or not. */
  readonly deltas: readonly PortDelta[];
}

/** A change to a service. */
export interface ServiceRequest {
  readonly key: ServiceKey;
  /** The kind of objects that the sender watches (S12). */
  readonly kind: EndpointKind;
  readonly fence: Fence;
  /** The changes, given the state that they apply to; called again after a lost race. */
  readonly plan: (state: ServiceState) => readonly Change[];
}

/**
 * Read, decide, write: one conditional write of state and deltas together (P1). A lost race starts over from the new
 * state. Nothing is published: the caller does that with what is returned.
 * @throws StoreUnavailableError when the store is away, or the race is lost too often, or once for a state that was made
 * up at a re-list: its sender must look again (P8).
 * @throws FencedError when the request has grown too old to write.
 * @throws BusUnavailableError when too many deltas wait for a bus that still fails.
 */
export async function changeService(
  changer: ServiceChanger,
  request: ServiceRequest,
): Promise<ChangedService> {
  const { store, repository, clock } = changer;
  const { key, kind, fence, plan } = request;
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
    const loaded = await repository.load(key, kind);
    const carried = await relieve(changer, key, await repository.unpublished(key, loaded.head));
    const now = clock.now();
    const changes = plan(loaded.state);
    const transition = transit(loaded.state, changes, { now, hash: hashKey, kind, holders: loaded.holders });
    const { statuses, deltas } = transition;
    if (!transition.isChanged) return { key, statuses, deltas: [], entries: carried };
    const entries = [...carried, ...(await storeDeltas(store, key, deltas, now))];
    const outcome = await repository.save(loaded, { ...transition, pending: entries, now }, fence);
    if (outcome.kind === 'committed') return { key, statuses, deltas, entries };
    if (changes.some((change) => change.isStateUnknown)) break;
    await changer.pause(Math.random() * MAX_JITTER_MS * attempt);
  }
  throw new StoreUnavailableError(`lost a race for ${key.namespace}/${key.name}`);
}

/** Publishes first what has piled up too high, so that a head stays small while the bus is away. */
async function relieve(
  changer: ServiceChanger,
  key: ServiceKey,
  carried: readonly DeltaEntry[],
): Promise<readonly DeltaEntry[]> {
  let bytes = 0;
  for (const { body } of carried) if (body.kind === 'inline') bytes += body.bytes.byteLength;
  if (carried.length <= MAX_PENDING_ENTRIES && bytes <= MAX_PENDING_BYTES) return carried;
  await publish(changer, [{ key, entries: carried }]);
  return [];
}
