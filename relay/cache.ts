import { compareVersions } from '../core/version.ts';
import type { WatchedKind } from '../wire/envelope.ts';
import { MAX_FORMER } from '../wire/events.ts';
import { compareServiceKeys, type ServiceKey } from '../wire/inventory.ts';
import type { Held } from './compact.ts';

/** Names an object among all: `KIND/NAMESPACE/NAME`. */
export type ObjectId = string & { readonly __brand: 'ObjectId' };

export function objectId(object: Pick<Held, 'kind' | 'namespace' | 'name'>): ObjectId {
  return `${object.kind}/${object.namespace}/${object.name}` as ObjectId;
}

/** Names a service: `NAMESPACE/NAME`. */
export type ServiceId = string & { readonly __brand: 'ServiceId' };

export function serviceId(namespace: string, name: string): ServiceId {
  return `${namespace}/${name}` as ServiceId;
}

interface CachedService extends ServiceKey {
  /** The Service and the objects that count for it. */
  readonly objects: Map<ObjectId, Held>;
}

/** Hears of each object's state before and after; undefined = none. */
type OnChange = (before: Held | undefined, after: Held | undefined) => void;

/** The cluster's objects as they are now, by service; bounded by what lives, and by what lived and is not told yet. */
export class Cache {
  readonly #objects = new Map<ObjectId, Held>();
  readonly #services = new Map<ServiceId, CachedService>();
  /** By uid: the other services under which an object was seen since the cloud last took a state of it (S10), and when last. */
  readonly #former = new Map<string, Map<string, Held>>();
  readonly #onChange: OnChange;

  constructor(onChange: OnChange = () => {}) {
    this.#onChange = onChange;
  }

  get(id: ObjectId): Held | undefined {
    return this.#objects.get(id);
  }

  /** The Service of this name and the objects that count for it. */
  ofService(id: ServiceId): Iterable<Held> {
    return this.#services.get(id)?.objects.values() ?? [];
  }

  /** Services that exist or have objects, in the order of inventory pages. */
  services(): readonly CachedService[] {
    return [...this.#services.values()].sort(compareServiceKeys);
  }

  /**
   * Takes a newer state of an object.
   * @returns false when it was seen under more services than can be told, so that only an inventory can tidy up.
   */
  put(held: Held): boolean {
    const id = objectId(held);
    const before = this.#take(id);
    this.#objects.set(id, held);
    if (held.service !== null) {
      const key = serviceId(held.namespace, held.service);
      const service = this.#services.get(key) ?? {
        namespace: held.namespace,
        name: held.service,
        objects: new Map(),
      };
      this.#services.set(key, service);
      service.objects.set(id, held);
    }
    this.#onChange(before, held);
    if (before === undefined) return true;
    if (before.uid !== held.uid) this.#former.delete(before.uid);
    return this.#noteMove(before, held);
  }

  /** Takes an object out, whatever its uid. @returns what was held of it. */
  remove(object: Pick<Held, 'kind' | 'namespace' | 'name'>): Held | undefined {
    const held = this.#take(objectId(object));
    if (held !== undefined) this.#onChange(held, undefined);
    return held;
  }

  #take(id: ObjectId): Held | undefined {
    const held = this.#objects.get(id);
    if (held === undefined) return undefined;
    this.#objects.delete(id);
    if (held.service !== null) {
      const key = serviceId(held.namespace, held.service);
      const service = this.#services.get(key);
      service?.objects.delete(id);
      if (service?.objects.size === 0) this.#services.delete(key);
    }
    return held;
  }

  /** Takes a whole list of a kind, in one namespace or all: what it does not name is gone, without an event (W11). */
  replace(kind: WatchedKind, namespace: string | null, list: readonly Held[]): void {
    const listed = new Set(list.map(objectId));
    for (const [id, held] of this.#objects) {
      if (held.kind !== kind || (namespace !== null && held.namespace !== namespace) || listed.has(id))
        continue;
      this.remove(held);
      this.#former.delete(held.uid);
    }
    for (const held of list) {
      const before = this.get(objectId(held));
      // What is known of a state stays known; after a restore one version may mean two states.
      if (before !== undefined && isSameState(before, held)) continue;
      this.put(held);
    }
  }

  /** The object is gone, but its deletion has yet to be told: it may have been told under another service before. */
  noteDeletion(before: Held | undefined, deleted: Held): boolean {
    return before === undefined || this.#noteMove(before, deleted);
  }

  /** Names of the other services, of the same namespace, under which this object was seen and may be known (S10). */
  former({ uid, service }: Held): string[] {
    return [...(this.#former.get(uid)?.keys() ?? [])].filter((name) => name !== service);
  }

  /** The cloud took this state: what was seen before it is over, but it may be an older one, of another service than now. */
  settle(taken: Held): void {
    const seen = this.#former.get(taken.uid);
    if (seen === undefined) return;
    const current = this.#objects.get(objectId(taken));
    for (const [name, last] of seen) {
      if (name !== taken.service && compareVersions(last.resourceVersion, taken.resourceVersion) <= 0)
        seen.delete(name);
    }
    const isElsewhere = current?.uid === taken.uid && current.service !== taken.service;
    if (seen.size === 0 || !isElsewhere) this.#former.delete(taken.uid);
  }

  #noteMove(before: Held, after: Held): boolean {
    const { uid, service } = before;
    if (after.uid !== uid || service === after.service || service === null) return true;
    const seen = this.#former.get(uid) ?? new Map<string, Held>();
    this.#former.set(uid, seen);
    // Last seen last, so that the first is the one that was left longest ago.
    seen.delete(service);
    seen.set(service, before);
    const [oldest] = seen.keys();
    if (seen.size <= MAX_FORMER || oldest === undefined) return true;
    seen.delete(oldest);
    return false;
  }
}

function isSameState(a: Held, b: Held): boolean {
  return a.uid === b.uid && a.resourceVersion === b.resourceVersion && a.content.equals(b.content);
}
