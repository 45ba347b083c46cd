import { type EndpointKind, type EndpointObject, equalContents } from './endpoint-object.ts';
import type { ServiceRecord } from './service.ts';
import type { Cause, Deletion, ObjectKind, ServiceState } from './service-state.ts';
import type { EpochMs } from './time.ts';
import { compareVersions } from './version.ts';

/** How long a deletion is remembered, in milliseconds (S45: at least 10 minutes). */
export const DELETION_MEMORY_MS = 10 * 60_000;

/** One thing that is to happen to a service's records. */
export type Change = ChangeOrigin &
  (
    | { readonly kind: 'putService'; readonly service: ServiceRecord }
    | { readonly kind: 'putObject'; readonly object: EndpointObject }
    /** `uid` null means whatever has the name: taken from a re-list alone (S45). */
    | {
        readonly kind: 'delete';
        readonly objectKind: ObjectKind;
        readonly name: string;
        readonly uid: string | null;
        readonly version: string | null;
      }
    /** A slice that belongs to another service, or to none, from this version on (S10). */
    | { readonly kind: 'leave'; readonly uid: string; readonly version: string }
    /** An inventory found the object gone. `isForgotten`: it lives, but is no longer watched, so no deletion is remembered. */
    | { readonly kind: 'remove'; readonly uid: string; readonly isForgotten: boolean }
  );

interface ChangeOrigin {
  /** Identifies the change to its sender; several changes may share one. */
  readonly index: number;
  readonly cause: Cause;
  /** Made up at a re-list: only the uid counts, whatever the version (S44). */
  readonly isStateUnknown: boolean;
  /** Records the version although nothing changed (P5). */
  readonly isConfirmed: boolean;
  /** RFC 3339 with up to nanoseconds, as the controller wrote it (S47); null when unknown. */
  readonly triggeredAt: string | null;
  readonly observedAt: EpochMs;
}

/** What became of a change. */
export type ChangeStatus = 'applied' | 'unchanged' | 'stale';

/** A change that altered a record, if only its version: what was there, and what is. */
export type AppliedChange =
  | {
      readonly kind: 'service';
      readonly change: Change;
      readonly before: ServiceRecord | null;
      readonly after: ServiceRecord | null;
    }
  | {
      readonly kind: 'object';
      readonly change: Change;
      readonly before: EndpointObject | null;
      readonly after: EndpointObject | null;
    };

/** The records of a service after a batch of changes. */
export interface FoldedChanges {
  readonly records: Pick<ServiceState, 'service' | 'objects' | 'deletions'>;
  /** Must the records be written? True also where only a version was recorded. */
  readonly isChanged: boolean;
  /** In the order of the batch; only what may alter a set. */
  readonly applied: readonly AppliedChange[];
  readonly statuses: ReadonlyMap<Change, ChangeStatus>;
}

type Verdict =
  | { readonly kind: 'stale' }
  | { readonly kind: 'known' }
  /** Of the recorded version or newer; `replaced` is another object of the same name that it takes the place of. */
  | { readonly kind: 'news'; readonly replaced: string | null };

/** Applies changes to the records, in order; versions decide what is stale (S45). Sets are not looked at. */
export function foldChanges(state: ServiceState, changes: readonly Change[], now: EpochMs): FoldedChanges {
  const draft = new Draft(state, now);
  const statuses = new Map<Change, ChangeStatus>();
  for (const change of changes) statuses.set(change, draft.apply(change));
  return { records: draft.records(), isChanged: draft.isChanged, applied: draft.applied, statuses };
}

/** Records that are being changed; lives no longer than one fold. */
class Draft {
  readonly applied: AppliedChange[] = [];
  isChanged = false;
  private service: ServiceRecord | null;
  private readonly objects: Map<string, EndpointObject>;
  private readonly deletions: Map<string, Deletion>;
  private readonly now: EpochMs;

  constructor(state: ServiceState, now: EpochMs) {
    this.service = state.service;
    this.objects = new Map(state.objects);
    this.deletions = new Map(state.deletions);
    this.now = now;
  }

  /** Deletions past their time go with the next write; they never cause one. */
  records(): Pick<ServiceState, 'service' | 'objects' | 'deletions'> {
    if (this.isChanged) {
      for (const [uid, { at }] of this.deletions)
        if (this.now - at > DELETION_MEMORY_MS) this.deletions.delete(uid);
    }
    return { service: this.service, objects: this.objects, deletions: this.deletions };
  }

  apply(change: Change): ChangeStatus {
    switch (change.kind) {
      case 'putService':
        return this.putService(change, change.service);
      case 'putObject':
        return this.putObject(change, change.object);
      case 'delete':
        return this.delete(change);
      case 'leave':
        return this.leave(change);
      case 'remove':
        return this.remove(change);
      default:
        return change satisfies never;
    }
  }

  private putService(change: Change, service: ServiceRecord): ChangeStatus {
    const current = this.service;
    const verdict = this.judge(change, service.uid, service.version, current);
    if (verdict.kind === 'stale') return 'stale';
    if (verdict.kind === 'known') return 'unchanged';
    const isSame = current !== null && current.uid === service.uid && equalServices(current, service);
    if (isSame) {
      if (isRecorded(change) && current.version !== service.version) this.setService(service);
      return 'unchanged';
    }
    if (verdict.replaced !== null && current !== null) this.rememberReplaced(current, service.version);
    this.deletions.delete(service.uid);
    this.setService(service);
    this.applied.push({ kind: 'service', change, before: current, after: service });
    return 'applied';
  }

  private putObject(change: Change, object: EndpointObject): ChangeStatus {
    const current = this.objects.get(object.uid) ?? null;
    const rival = current ?? this.namesake(object);
    const verdict = this.judge(change, object.uid, object.version, rival);
    if (verdict.kind === 'stale') return 'stale';
    if (verdict.kind === 'known' && !isNewerEnrichment(object, current)) return 'unchanged';
    if (current !== null && equalContents(current.content(), object.content())) {
      const isNew = current.version !== object.version || isNewerEnrichment(object, current);
      if (isRecorded(change) && isNew) this.recordVersion(change, current, object);
      return 'unchanged';
    }
    if (verdict.kind === 'news' && verdict.replaced !== null && rival !== null) {
      this.objects.delete(verdict.replaced);
      this.rememberReplaced(rival, object.version);
      this.applied.push({ kind: 'object', change, before: rival, after: null });
    }
    this.deletions.delete(object.uid);
    this.setObject(object);
    this.applied.push({ kind: 'object', change, before: current, after: object });
    return 'applied';
  }

  /**
   * What a version means beside what is recorded (S45). `rival` is the record of the same uid, else of the same name:
   * between two live uids of one name the version decides.
   */
  private judge(
    change: Change,
    uid: string,
    version: string,
    rival: { uid: string; version: string } | null,
  ): Verdict {
    const replaced = rival !== null && rival.uid !== uid ? rival.uid : null;
    if (change.isStateUnknown) return { kind: 'news', replaced };
    const deletion = this.deletions.get(uid);
    if (deletion !== undefined && compareVersions(version, deletion.version) <= 0) return { kind: 'stale' };
    if (rival === null) return { kind: 'news', replaced };
    const order = compareVersions(version, rival.version);
    if (order < 0) return { kind: 'stale' };
    if (order > 0) return { kind: 'news', replaced };
    if (replaced === null) return { kind: 'known' };
    return uid > rival.uid ? { kind: 'news', replaced } : { kind: 'stale' };
  }

  /** The content stays, but another object that holds the same addresses may now be the older one (S11). */
  private recordVersion(
    change: Change,
    current: EndpointObject,
    { version, enrichment }: EndpointObject,
  ): void {
    const object = { ...current, version, enrichment };
    this.setObject(object);
    this.applied.push({ kind: 'object', change, before: current, after: object });
  }

  private delete(change: Change & { readonly kind: 'delete' }): ChangeStatus {
    const uid = change.uid ?? this.uidOfName(change.objectKind, change.name);
    if (uid === null) return 'unchanged';
    const live = this.liveRecord(change.objectKind, uid);
    const recorded = live?.version ?? this.deletions.get(uid)?.version ?? null;
    const version = change.version ?? recorded ?? '0';
    if (recorded !== null && !change.isStateUnknown && compareVersions(version, recorded) < 0) return 'stale';
    const remembered = recorded === null || compareVersions(version, recorded) > 0 ? version : recorded;
    if (live === null) {
      this.remember(uid, remembered);
      return 'unchanged';
    }
    this.take(change, uid, remembered);
    return 'applied';
  }

  private leave(change: Change & { readonly kind: 'leave' }): ChangeStatus {
    const live = this.objects.get(change.uid) ?? null;
    const recorded = live?.version ?? this.deletions.get(change.uid)?.version ?? null;
    if (recorded !== null && !change.isStateUnknown && compareVersions(recorded, change.version) > 0)
      return 'stale';
    if (live === null) {
      this.remember(change.uid, change.version);
      return 'unchanged';
    }
    this.take(change, change.uid, change.version);
    return 'applied';
  }

  private remove(change: Change & { readonly kind: 'remove' }): ChangeStatus {
    const live = this.service?.uid === change.uid ? this.service : this.objects.get(change.uid);
    if (live === undefined) return 'unchanged';
    this.take(change, change.uid, change.isForgotten ? null : live.version);
    return 'applied';
  }

  /** Takes a live record away; `remembered` is the version of the deletion, null to remember none. */
  private take(change: Change, uid: string, remembered: string | null): void {
    this.isChanged = true;
    if (remembered !== null) this.remember(uid, remembered);
    const object = this.objects.get(uid);
    if (object !== undefined) {
      this.objects.delete(uid);
      this.applied.push({ kind: 'object', change, before: object, after: null });
    } else {
      this.applied.push({ kind: 'service', change, before: this.service, after: null });
      this.service = null;
    }
  }

  private remember(uid: string, version: string): void {
    if (this.deletions.get(uid)?.version === version) return;
    this.deletions.set(uid, { version, at: this.now });
    this.isChanged = true;
  }

  /** Its own deletion is on its way, or lost; it cannot have happened after its successor's version. */
  private rememberReplaced(
    record: { readonly uid: string; readonly version: string },
    successor: string,
  ): void {
    this.remember(record.uid, compareVersions(record.version, successor) > 0 ? record.version : successor);
  }

  private setService(service: ServiceRecord): void {
    this.service = service;
    this.isChanged = true;
  }

  private setObject(object: EndpointObject): void {
    this.objects.set(object.uid, object);
    this.isChanged = true;
  }

  private namesake(object: EndpointObject): EndpointObject | null {
    for (const other of this.objects.values()) {
      if (other.kind === object.kind && other.name === object.name) return other;
    }
    return null;
  }

  private uidOfName(kind: ObjectKind, name: string): string | null {
    if (kind === 'Service') return this.service?.uid ?? null;
    for (const object of this.objects.values())
      if (object.kind === kind && object.name === name) return object.uid;
    return null;
  }

  private liveRecord(kind: ObjectKind, uid: string): { readonly version: string } | null {
    if (kind === 'Service') return this.service?.uid === uid ? this.service : null;
    return this.objects.get(uid) ?? null;
  }
}

/** An unchanged event is recorded only when its sender asks for it (P5) or its version is the only truth left (S44). */
function isRecorded({ isConfirmed, isStateUnknown }: Change): boolean {
  return isConfirmed || isStateUnknown;
}

function isNewerEnrichment(object: EndpointObject, current: EndpointObject | null): boolean {
  if (object.enrichment === null) return false;
  const known = current?.enrichment;
  if (!known) return true;
  return (
    object.enrichment.epoch > known.epoch ||
    (object.enrichment.epoch === known.epoch && object.enrichment.number > known.number)
  );
}

/** Does a Service publish the same under both records? The version alone is noise (S5). */
function equalServices(a: ServiceRecord, b: ServiceRecord): boolean {
  return JSON.stringify({ ...a, version: '' }) === JSON.stringify({ ...b, version: '' });
}

/** The kind of objects that a mode watches (S12). */
export function kindOfMode(mode: 'slices' | 'endpoints'): EndpointKind {
  return mode === 'slices' ? 'EndpointSlice' : 'Endpoints';
}
