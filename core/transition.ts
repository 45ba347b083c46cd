import { type AddressKey, addressKey } from './address.ts';
import { type Occurrences, resolvePort } from './address-set.ts';
import { type AppliedChange, type Change, type ChangeStatus, foldChanges } from './changes.ts';
import { advanceDigest, type KeyHash, type PortDelta, type RemovalReason } from './delta.ts';
import { type Difference, diffOccurrences, isEmptyDifference } from './diff.ts';
import type { EndpointKind, EndpointObject } from './endpoint-object.ts';
import { nextWindows } from './rename-window.ts';
import type { ServiceRecord } from './service.ts';
import { type PortId, portId, type ServicePort } from './service-port.ts';
import {
  type Cause,
  countedObjects,
  definedPorts,
  isTruncated,
  lookupOf,
  type PortState,
  type ServiceState,
} from './service-state.ts';
import type { EpochMs } from './time.ts';

/** What a transition needs to know beside the state and the changes. */
export interface TransitionContext {
  readonly now: EpochMs;
  readonly hash: KeyHash;
  /** The kind of objects that the sender watches (S12). */
  readonly kind: EndpointKind;
  /**
   * uids of the objects of the *former* state that hold any of these IPs. With it the cost of a change is that of the
   * objects it touches; without it every object is looked at.
   */
  readonly holders?: (ips: ReadonlySet<string>) => Iterable<string>;
}

/** A service after a batch of changes. */
export interface Transition {
  readonly state: ServiceState;
  /** Must the state be written (P5)? */
  readonly isChanged: boolean;
  readonly statuses: ReadonlyMap<Change, ChangeStatus>;
  /** At most one a service port (S4), sorted by port id. */
  readonly deltas: readonly PortDelta[];
  /** uids of the objects whose content is new or gone. */
  readonly touched: ReadonlySet<string>;
}

/** Applies a batch of changes to a service as one: one recomputation, one difference a port (S4). */
export function transit(
  before: ServiceState,
  changes: readonly Change[],
  context: TransitionContext,
): Transition {
  const { records, applied, statuses, isChanged } = foldChanges(before, changes, context.now);
  const after = settle(before, records, applied, context);
  const deltas =
    isChanged || after.windows !== before.windows ? diffPorts(before, after, applied, context) : [];
  const ports = new Map(before.ports);
  for (const delta of deltas) ports.set(portId(delta), toPortState(delta));
  return {
    state: { ...after, ports },
    isChanged: isChanged || after.windows !== before.windows,
    statuses,
    deltas,
    touched: new Set(applied.flatMap(touchedUid)),
  };
}

/** The uid of an object whose content changed, and not its version alone. */
function touchedUid({ kind, before, after }: AppliedChange): string[] {
  if (kind !== 'object' || before?.content === after?.content) return [];
  return [(after ?? before)?.uid ?? ''];
}

function toPortState({
  port,
  protocol,
  portName: name,
  sequence,
  exists,
  size,
  digest,
}: PortDelta): PortState {
  return { port, protocol, name, sequence, exists, size, digest };
}

function settle(
  before: ServiceState,
  records: Pick<ServiceState, 'service' | 'objects' | 'deletions'>,
  applied: readonly AppliedChange[],
  { now, kind }: TransitionContext,
): ServiceState {
  const isKindLeft = [...records.objects.values()].some((object) => object.kind === before.preferredKind);
  const state: ServiceState = {
    ...records,
    preferredKind: isKindLeft ? before.preferredKind : kind,
    ports: before.ports,
    windows: new Map(),
  };
  // Looking for renames reads every slice; without an open window only a changed Service can open one.
  const isUnmoved = before.windows.size === 0 && !applied.some((change) => change.kind === 'service');
  return { ...state, windows: isUnmoved ? before.windows : nextWindows(before, state, applied, now) };
}

/** Difference of every port that is or was defined, or ever spoke (S38). */
function diffPorts(
  before: ServiceState,
  after: ServiceState,
  applied: readonly AppliedChange[],
  context: TransitionContext,
): PortDelta[] {
  const scope = scopeOf(before, after, applied, context);
  const formerPorts = definedPorts(before);
  const ports = definedPorts(after);
  const ids = new Set([...formerPorts.keys(), ...ports.keys(), ...before.ports.keys()]);
  const deltas: PortDelta[] = [];
  for (const id of [...ids].sort()) {
    const was = formerPorts.get(id);
    const is = ports.get(id);
    const formerSet = resolveIn(before, was, scope.before, scope.ips);
    const set = resolveIn(after, is, scope.after, scope.ips);
    const difference = diffOccurrences(formerSet, set);
    const said = before.ports.get(id);
    const exists = after.service !== null;
    const isDue =
      said === undefined ? is !== undefined : said.exists !== exists || !isEmptyDifference(difference);
    if (!isDue) continue;
    const speaker = is ?? was ?? said;
    if (speaker === undefined) continue;
    deltas.push(
      toDelta({ speaker, said, exists, difference, set, before, after, id, scope, applied, context }),
    );
  }
  return deltas;
}

/** The objects and IPs that a difference must look at. */
interface Scope {
  readonly before: readonly EndpointObject[];
  readonly after: readonly EndpointObject[];
  /** Undefined: all. */
  readonly ips: ReadonlySet<string> | undefined;
}

/** A changed Service or an open window may touch every address; changed objects touch their own IPs alone. */
function scopeOf(
  before: ServiceState,
  after: ServiceState,
  applied: readonly AppliedChange[],
  { holders }: TransitionContext,
): Scope {
  const isWhole =
    holders === undefined ||
    before.windows.size + after.windows.size > 0 ||
    applied.some(({ kind }) => kind === 'service');
  if (isWhole)
    return { before: [...before.objects.values()], after: [...after.objects.values()], ips: undefined };
  const ips = new Set<string>();
  const uids = new Set<string>();
  for (const change of applied) {
    if (change.kind !== 'object') continue;
    for (const object of [change.before, change.after]) {
      if (object === null) continue;
      uids.add(object.uid);
      for (const ip of ipsOf(object)) ips.add(ip);
    }
  }
  for (const uid of holders(ips)) uids.add(uid);
  const pick = (state: ServiceState) =>
    [...uids].flatMap((uid) => {
      const object = state.objects.get(uid);
      return object === undefined ? [] : [object];
    });
  return { before: pick(before), after: pick(after), ips };
}

/** Every IP that an object holds, once or more. */
export function* ipsOf(object: EndpointObject): Iterable<string> {
  for (const group of object.content().groups) for (const { ip } of group.endpoints) yield ip;
}

function resolveIn(
  state: ServiceState,
  port: ServicePort | undefined,
  objects: readonly EndpointObject[],
  ips: ReadonlySet<string> | undefined,
): Occurrences {
  if (port === undefined) return new Map();
  return resolvePort(countedObjects(state, objects), lookupOf(state, port), ips);
}

interface DeltaParts {
  readonly id: PortId;
  readonly speaker: ServicePort;
  readonly said: PortState | undefined;
  readonly exists: boolean;
  readonly difference: Difference;
  readonly set: Occurrences;
  readonly before: ServiceState;
  readonly after: ServiceState;
  readonly scope: Scope;
  readonly applied: readonly AppliedChange[];
  readonly context: TransitionContext;
}

function toDelta(parts: DeltaParts): PortDelta {
  const { speaker, said, exists, difference, after, applied, context } = parts;
  const { added, updated, removed } = difference;
  const reasonOf = removalReasons(parts);
  const keys = { added: added.map(addressKey), removed: removed.map(addressKey) };
  return {
    port: speaker.port,
    protocol: speaker.protocol,
    portName: speaker.name,
    sequence: (said?.sequence ?? 0) + 1,
    exists,
    size: (said?.size ?? 0) + added.length - removed.length,
    digest: advanceDigest(said?.digest ?? 0n, keys, context.hash),
    isTruncated: isTruncated(after),
    added,
    updated,
    removed: removed.map((address) => ({ address, reason: reasonOf(addressKey(address)) })),
    cause: causeOf(parts),
    triggeredAt: oldestTrigger(applied),
    observedAt: oldestObservation(applied) ?? context.now,
  };
}

/** S29: the first that holds. */
function removalReasons({
  exists,
  id,
  set,
  before,
  after,
  scope,
  applied,
}: DeltaParts): (key: AddressKey) => RemovalReason {
  const port = definedPorts(after).get(id);
  if (!exists) return () => 'serviceDeleted';
  if (port === undefined) return () => 'portRemoved';
  const moved = applied.flatMap((change) =>
    change.kind === 'object' && change.change.kind === 'leave' && change.before !== null
      ? [change.before]
      : [],
  );
  const formerPort = definedPorts(before).get(id) ?? port;
  const movedSet = resolveIn(before, formerPort, moved, scope.ips);
  return (key) => {
    const condition = set.get(key)?.condition;
    if (condition === 'terminating' || condition === 'draining') return 'terminating';
    if (condition === 'notReady') return 'notReady';
    return movedSet.get(key)?.condition === 'ready' ? 'sliceMoved' : 'gone';
  };
}

/** The last change of the batch that touched this port; without one, the rename whose window closed. */
function causeOf(parts: DeltaParts): Cause {
  const { id, applied, before, difference } = parts;
  const { added, updated, removed } = difference;
  const changed = new Set(
    [...added, ...removed, ...updated.map(({ address }) => address)].map(({ ip }) => ip),
  );
  const last = applied.findLast((change) => touches(change, parts, changed));
  const cause = last?.change.cause ?? before.windows.get(id)?.cause ?? applied.at(-1)?.change.cause;
  if (cause === undefined) throw new Error('a difference without a change');
  return cause;
}

/** Where a port ends, its Service ends it, whatever becomes of objects behind that. */
function touches(change: AppliedChange, { id, after }: DeltaParts, ips: ReadonlySet<string>): boolean {
  if (change.kind === 'service') return !isPortAlike(change.before, change.after, id);
  const port = definedPorts(after).get(id);
  const was = resolveIn(after, port, change.before === null ? [] : [change.before], ips);
  const is = resolveIn(after, port, change.after === null ? [] : [change.after], ips);
  return was.size !== is.size || !isEmptyDifference(diffOccurrences(was, is));
}

function isPortAlike(a: ServiceRecord | null, b: ServiceRecord | null, id: PortId): boolean {
  const nameIn = (service: ServiceRecord | null) => service?.ports.find((port) => portId(port) === id)?.name;
  return a?.uid === b?.uid && nameIn(a) === nameIn(b);
}

/**
 * The oldest trigger time of the batch (S47); unknown where only more is known of pods: the time that an object tells is
 * that of its own last change.
 */
function oldestTrigger(applied: readonly AppliedChange[]): string | null {
  let oldest: string | null = null;
  for (const { change, before, after } of applied) {
    const { triggeredAt } = change;
    if (before?.uid === after?.uid && before?.version === after?.version) continue;
    if (triggeredAt !== null && (oldest === null || isEarlier(triggeredAt, oldest))) oldest = triggeredAt;
  }
  return oldest;
}

/** RFC 3339 to the nanosecond: those within one millisecond differ in their fraction alone. */
function isEarlier(a: string, b: string): boolean {
  const [aMs, bMs] = [Date.parse(a), Date.parse(b)];
  return aMs === bMs ? fractionOf(a) < fractionOf(b) : aMs < bMs;
}

function fractionOf(time: string): string {
  return /\.(\d+)/.exec(time)?.[1]?.padEnd(9, '0') ?? '000000000';
}

function oldestObservation(applied: readonly AppliedChange[]): EpochMs | null {
  const instants = applied.map(({ change }) => change.observedAt);
  return instants.length === 0 ? null : (Math.min(...instants) as EpochMs);
}
