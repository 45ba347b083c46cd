import assert from 'node:assert/strict';
import { serviceNameOf } from '../../../core/slice.ts';
import { BusUnavailableError } from '../../../functions/bus/bus.ts';
import { type Admission, admit, type Sender } from '../../../functions/ingest/admission.ts';
import { applyEvents } from '../../../functions/ingest/events.ts';
import { recordHeartbeat } from '../../../functions/ingest/heartbeat.ts';
import { reconcile } from '../../../functions/ingest/inventory.ts';
import type { ServiceRepository } from '../../../functions/services/repository.ts';
import { FencedError, StoreUnavailableError } from '../../../functions/store/store.ts';
import type { Sweeper } from '../../../functions/sweep/sweep.ts';
import type { Mode } from '../../../wire/envelope.ts';
import { type EventsAnswer, parseEventsRequest } from '../../../wire/events.ts';
import { type HeartbeatAnswer, parseHeartbeatRequest } from '../../../wire/heartbeat.ts';
import {
  type InventoryAnswer,
  type InventoryRequest,
  parseInventoryRequest,
} from '../../../wire/inventory.ts';
import type { Lane } from './scheduler.ts';
import type { World } from './world.ts';

export const CLUSTER = 'c';
export const NAMESPACE = 'n';

/** An object of the API server, as far as it counts here. */
export interface ClusterObject {
  readonly apiVersion: string;
  readonly kind: 'Service' | 'EndpointSlice' | 'Endpoints';
  readonly metadata: {
    readonly namespace: string;
    readonly name: string;
    readonly uid: string;
    readonly resourceVersion: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
  readonly [field: string]: unknown;
}

/** One event of a watch. */
export interface Sighting {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly object: ClusterObject;
}

/** What came of a request, as its sender sees it; null when there was no answer. */
type Reply<T> =
  | { readonly kind: 'answered'; readonly answer: T }
  | { readonly kind: 'unavailable' | 'deposed' }
  | null;

interface Untold extends Sighting {
  readonly isResync: boolean;
  readonly isStateUnknown: boolean;
}

/** What a relay may do wrong, to prove that it matters. */
export interface RelayFlaws {
  /** Repeats without `confirm`. */
  readonly isUnconfirmed?: boolean;
  /** Does not say where a slice was before. */
  readonly isFormerUntold?: boolean;
  /** Reconciles at once under a new epoch. */
  readonly isHasty?: boolean;
  /** Repeats pages and unknown states at once. */
  readonly isImpatient?: boolean;
  /** Takes whatever epoch is the highest. */
  readonly isUnfenced?: boolean;
  /** Claims that its list knows everything. */
  readonly isOverconfident?: boolean;
}

export interface RelayOptions {
  readonly world: World;
  readonly epoch: number;
  readonly mode?: Mode;
  /** What it holds and has told. */
  readonly held?: readonly ClusterObject[];
  /** Does one instance answer all its requests, and remember? Else each one is answered by a cold one. */
  readonly isWarm?: boolean;
  /** Do several lanes belong to it, so that the order of their steps matters? */
  readonly isShared?: boolean;
  /** Name in traces. */
  readonly name?: string;
}

/**
 * A relay reduced to what the protocol asks of it: it sends the newest state of each object, one request at a time, again
 * and with `confirm` when no answer or a 5xx came, deletions always (W10, W10a, P5); reconciles after a list (W11); and
 * stands down when a newer one has written (W18).
 */
export class RelayModel {
  private readonly world: World;
  private readonly epoch: number;
  private readonly mode: Mode;
  private readonly isWarm: boolean;
  private readonly isShared: boolean;
  private readonly resource: string;
  private readonly held: Map<string, ClusterObject>;
  /** By uid. */
  private readonly untold = new Map<string, Untold>();
  /** uids of which a request may still be running. */
  private readonly unanswered = new Set<string>();
  private readonly former = new Map<string, Set<string>>();
  private isDeposed = false;
  /** Calls of `tell` and `reconcile` so far. */
  private errands = 0;
  private isNew = false;
  private turn: Promise<void> = Promise.resolve();
  /** The warm instance; another one while a former request still runs there. */
  private repository: ServiceRepository | null = null;

  constructor(options: RelayOptions) {
    const {
      world,
      epoch,
      mode = 'slices',
      held = [],
      isWarm = false,
      isShared = false,
      name = 'relay',
    } = options;
    this.world = world;
    this.epoch = world.options.flaws?.isUnfenced ? 2 : epoch;
    this.mode = mode;
    this.isWarm = isWarm;
    this.isShared = isShared;
    this.resource = `relay/${name}`;
    this.held = new Map(held.map((object) => [idOf(object), object]));
  }

  /** Watches events, one after the other, and tells them until each is answered. After a failure it may see more first. */
  async tell(lane: Lane, arrivals: readonly (readonly Sighting[])[]): Promise<void> {
    const rest = [...arrivals];
    this.errands++;
    while (!this.isDeposed) {
      const [next] = rest;
      this.tellKnowledge(lane, `${rest.length} to be seen`);
      if (next !== undefined && (this.untold.size === 0 || (await mayHappenFirst(lane, 'sees more')))) {
        rest.shift();
        await this.touch(lane, 'sees');
        for (const sighting of next) this.see(sighting);
      } else if (next === undefined && this.untold.size === 0) return;
      await this.inTurn(() => this.send(lane));
    }
  }

  /** Tells events once; whatever becomes of it, this relay says no more. */
  async tellOnce(lane: Lane, sightings: readonly Sighting[]): Promise<void> {
    for (const sighting of sightings) this.see(sighting);
    await this.send(lane);
  }

  /** Begins under a new epoch: nothing is reconciled while requests of the former one may still run (W18). */
  async takeOver(lane: Lane, listed: InventoryRequest['resourceVersions']): Promise<void> {
    this.isNew = true;
    for (;;) {
      const reply = await this.request(lane, 'heartbeat', (deps) => this.receiveHeartbeat(deps));
      if (reply?.kind === 'deposed') return;
      if (reply?.kind !== 'answered') continue;
      const { waitMs } = reply.answer;
      if (waitMs > 0 && !this.flaws.isHasty) await elapse(lane, this.world, waitMs);
      return this.reconcile(lane, listed);
    }
  }

  /** Sends an inventory, and what it finds missing, until nothing is held back. */
  async reconcile(
    lane: Lane,
    listed: InventoryRequest['resourceVersions'],
    extra: { readonly restored?: boolean } = {},
  ): Promise<void> {
    this.errands++;
    while (!this.isDeposed) {
      this.tellKnowledge(lane, 'to be listed');
      await this.touch(lane, 'waits for its turn');
      const page = await this.inTurn(async () => {
        while (this.untold.size > 0 && !this.isDeposed) await this.send(lane);
        await this.touch(lane, 'names what it holds');
        return { ...this.page(listed), ...extra };
      });
      const reply = await this.request(lane, 'inventory', (deps) => receiveInventory(deps, page));
      if (reply?.kind === 'deposed') return this.standDown();
      if (reply?.kind !== 'answered') {
        if (!this.flaws.isImpatient) await elapse(lane, this.world, 10_000);
        continue;
      }
      await this.touch(lane, 'notes what is missing');
      this.noteMissing(reply.answer, extra.restored ?? false);
      if (!reply.answer.again) break;
    }
    await this.inTurn(async () => {
      while (this.untold.size > 0 && !this.isDeposed) await this.send(lane);
    });
    this.isNew = false;
  }

  /** Between two requests a relay is what it holds and has yet to say; not so beside a warm instance, or a second lane. */
  private tellKnowledge(lane: Lane, position: string): void {
    if (this.isWarm || this.isShared) return;
    const nameOf = ({ kind, metadata }: ClusterObject) =>
      `${kind} ${metadata.uid} ${metadata.resourceVersion}`;
    const known = [
      [...this.held.values()].map(nameOf),
      [...this.untold.values()].map(({ object, ...untold }) => ({ ...untold, object: nameOf(object) })),
      [...this.unanswered],
      [...this.former].map(([uid, services]) => [uid, ...services]),
      [this.isDeposed, this.isNew],
    ];
    lane.knows(`${this.errands}: ${position}: ${JSON.stringify(known)}`);
  }

  private get flaws(): RelayFlaws {
    return this.world.options.flaws ?? {};
  }

  private see({ type, object }: Sighting): void {
    const { uid } = object.metadata;
    const id = idOf(object);
    const before = this.held.get(id);
    const service = serviceOf(object);
    const formerService = before?.metadata.uid === uid ? serviceOf(before) : null;
    if (formerService !== null && formerService !== service) {
      this.former.set(uid, (this.former.get(uid) ?? new Set()).add(formerService));
    }
    if (type !== 'DELETED') this.held.set(id, object);
    else if (before?.metadata.uid === uid) this.held.delete(id);
    const { isResync, isStateUnknown } = this.untold.get(uid) ?? { isResync: false, isStateUnknown: false };
    this.untold.set(uid, { type, object, isResync, isStateUnknown });
  }

  private async send(lane: Lane): Promise<void> {
    await this.touch(lane, 'takes what is untold');
    const batch = [...this.untold.values()];
    if (batch.length === 0) return;
    this.untold.clear();
    const events = batch.map((untold) => this.toEvent(untold));
    const reply = await this.request(lane, 'events', (deps) =>
      receiveEvents(deps, { ...this.envelope(), events }),
    );
    await this.touch(lane, 'notes the answer');
    if (reply?.kind === 'deposed') this.standDown();
    else if (reply?.kind === 'answered') this.noteStatuses(batch, reply.answer);
    else await this.noteFailure(lane, batch);
  }

  private toEvent({ type, object, isResync, isStateUnknown }: Untold): object {
    const { uid } = object.metadata;
    const service = serviceOf(object);
    const former = [...(this.former.get(uid) ?? [])].filter((name) => name !== service);
    return {
      type,
      object,
      resync: isResync,
      stateUnknown: isStateUnknown,
      confirm: (this.isNew || this.unanswered.has(uid)) && !this.flaws.isUnconfirmed,
      former: this.flaws.isFormerUntold ? [] : former,
    };
  }

  private noteStatuses(batch: readonly Untold[], { results }: EventsAnswer): void {
    for (const [index, { object }] of batch.entries()) {
      const { uid } = object.metadata;
      if (results[index]?.status === 'stale') continue;
      this.unanswered.delete(uid);
      if (!this.untold.has(uid)) this.former.delete(uid);
    }
  }

  private async noteFailure(lane: Lane, batch: readonly Untold[]): Promise<void> {
    const isStateUnknown = batch.some((untold) => untold.isStateUnknown);
    if (isStateUnknown && !this.flaws.isImpatient) await elapse(lane, this.world, 10_000);
    const later = [...this.untold];
    this.untold.clear();
    for (const untold of batch) {
      this.unanswered.add(untold.object.metadata.uid);
      this.untold.set(untold.object.metadata.uid, untold);
    }
    for (const [uid, untold] of later) this.untold.set(uid, untold);
  }

  private noteMissing({ missing, again }: InventoryAnswer, restored: boolean): void {
    for (const { kind, namespace, name } of missing) {
      const object = this.held.get(`${kind}/${namespace}/${name}`);
      if (object === undefined) continue;
      const { uid } = object.metadata;
      if (again || restored) this.unanswered.add(uid);
      this.untold.set(uid, { type: 'ADDED', object, isResync: true, isStateUnknown: restored });
    }
  }

  private page(listed: InventoryRequest['resourceVersions']): object {
    const kind = this.mode === 'slices' ? 'EndpointSlice' : 'Endpoints';
    const objects = [...this.held.values()];
    const names = new Set(objects.flatMap((object) => serviceOf(object) ?? []));
    const services = [...names].sort().map((name) => {
      const own = objects.filter((object) => serviceOf(object) === name);
      const service = own.find((object) => object.kind === 'Service');
      return {
        namespace: NAMESPACE,
        name,
        uid: service?.metadata.uid ?? null,
        resourceVersion: service?.metadata.resourceVersion ?? null,
        objects: own
          .filter((object) => object.kind === kind)
          .map(({ metadata }) => ({
            name: metadata.name,
            uid: metadata.uid,
            resourceVersion: metadata.resourceVersion,
          })),
      };
    });
    const everything = Object.fromEntries(Object.keys(listed).map((listedKind) => [listedKind, '999999']));
    const resourceVersions = this.flaws.isOverconfident ? everything : listed;
    return { ...this.envelope(), resourceVersions, last: true, services };
  }

  private envelope() {
    return { cluster: CLUSTER, epoch: this.epoch, mode: this.mode };
  }

  private receiveHeartbeat(deps: Sweeper): Promise<Reply<HeartbeatAnswer>> {
    const parsed = parseHeartbeatRequest({ ...this.envelope(), relay: 'r', synced: false, kinds: [] });
    assert.equal(parsed.kind, 'ok');
    const { request } = parsed;
    return admitted(deps, request, ({ cluster }) => recordHeartbeat(deps, request, cluster));
  }

  private async request<T>(
    lane: Lane,
    name: string,
    body: (deps: Sweeper) => Promise<Reply<T>>,
  ): Promise<Reply<T>> {
    if (!this.isWarm) return lane.request(name, () => body(this.world.deps()));
    this.repository ??= this.world.newRepository();
    const { repository } = this;
    const reply = await lane.request(name, () => body(this.world.deps(repository)));
    if (reply === null) this.repository = null;
    return reply;
  }

  private standDown(): void {
    this.isDeposed = true;
    this.untold.clear();
  }

  /** Marks a step of one lane that others of the same relay may notice. */
  private async touch(lane: Lane, name: string): Promise<void> {
    if (this.isShared) await lane.call({ ...STEP, name, reads: [this.resource], writes: [this.resource] });
  }

  private async inTurn<T>(body: () => Promise<T>): Promise<T> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const former = this.turn;
    this.turn = promise;
    await former;
    try {
      return await body();
    } finally {
      resolve();
    }
  }
}

const STEP = {
  name: '',
  run: async () => undefined,
  reads: [],
  writes: [],
  faults: [],
  alternatives: [],
  isLocal: false,
};

/** Time passes. */
export function elapse(lane: Lane, world: World, ms: number): Promise<void> {
  return lane.call({
    ...STEP,
    name: `${ms / 1000} s pass`,
    writes: ['clock'],
    run: async () => world.clock.advance(ms),
  });
}

/** A choice that is the environment's. */
async function mayHappenFirst(lane: Lane, name: string): Promise<boolean> {
  const happens = { name, writes: [], run: async () => true };
  return lane.call({
    ...STEP,
    name: 'decides',
    isLocal: true,
    run: async () => false,
    alternatives: [happens],
  });
}

/** Events at once, for what a scenario begins with. `isHeard`: the bus is there. */
export async function tellAtOnce(
  world: World,
  sightings: readonly Sighting[],
  { isHeard = true } = {},
): Promise<void> {
  const reply = await receiveEvents(world.deps(), { cluster: CLUSTER, epoch: 1, events: sightings });
  assert.equal(reply?.kind, isHeard ? 'answered' : 'unavailable');
}

function receiveEvents(deps: Sweeper, body: object): Promise<Reply<EventsAnswer>> {
  const parsed = parseEventsRequest(body);
  assert.equal(parsed.kind, 'ok');
  const { request } = parsed;
  return admitted(deps, request, ({ fence }) => applyEvents(deps, request, fence));
}

function receiveInventory(deps: Sweeper, body: object): Promise<Reply<InventoryAnswer>> {
  const parsed = parseInventoryRequest(body);
  assert.equal(parsed.kind, 'ok');
  const { request } = parsed;
  return admitted(deps, request, async ({ fence }) => {
    const outcome = await reconcile(deps, request, fence);
    assert.equal(outcome.kind, 'reconciled');
    return outcome.answer;
  });
}

/** What the ingest function does around each of its use cases. */
async function admitted<T>(
  deps: Sweeper,
  sender: Sender,
  body: (admission: Extract<Admission, { readonly kind: 'admitted' }>) => Promise<T>,
): Promise<Reply<T>> {
  try {
    const admission = await admit(deps, sender);
    if (admission.kind === 'beingDeleted') return { kind: 'unavailable' };
    if (admission.kind !== 'admitted') return { kind: 'deposed' };
    return { kind: 'answered', answer: await body(admission) };
  } catch (error) {
    if (UNAVAILABLE.some((unavailable) => error instanceof unavailable)) return { kind: 'unavailable' };
    throw error;
  }
}

const UNAVAILABLE = [StoreUnavailableError, FencedError, BusUnavailableError];

function idOf({ kind, metadata: { namespace, name } }: ClusterObject): string {
  return `${kind}/${namespace}/${name}`;
}

function serviceOf({ kind, metadata }: ClusterObject): string | null {
  return kind === 'EndpointSlice' ? serviceNameOf(metadata) : metadata.name;
}
