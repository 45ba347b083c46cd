import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../../core/time.ts';
import {
  apiVersionOf,
  type Kind,
  type KubeObject,
  type MetaInput,
  type ObjectInput,
  type ObjectMeta,
  type Resource,
  resourceOf,
} from './resources.ts';
import { withDefaults } from './service-defaults.ts';
import { alreadyExists, conflict, invalid, notFound } from './status.ts';

/** Names one object; `namespace` is absent for Nodes and Namespaces. */
export interface ObjectRef<K extends Kind = Kind> {
  readonly kind: K;
  readonly namespace?: string;
  readonly name: string;
}

/** One write. Each has its own revision, so revisions have no gaps and the history is an array. */
export interface Change {
  readonly revision: number;
  /** The object after the write, or null when it deleted it. */
  readonly object: KubeObject | null;
  /** The object before the write, or null when it created it. */
  readonly previous: KubeObject | null;
}

/** All objects at one revision: what an etcd backup holds. */
export interface Snapshot {
  readonly revision: number;
  readonly objects: readonly KubeObject[];
}

/** Called after every write with the change, and with null after a restore, when anything may be different. */
type StoreListener = (change: Change | null) => void;

/** An object whose `kind` tells the compiler which one comes back. */
type OfKind<K extends Kind> = { readonly kind: K } & ObjectInput<K>;

/** The writes and reads that a controller or a test does; each write sends its watch events at once. */
export interface Objects {
  /** @throws ApiError 409 when an object of that name is there. */
  create<K extends Kind>(object: OfKind<K>): KubeObject<K>;
  /**
   * Replaces all but the status of kinds that keep it apart. Equal content writes nothing.
   *
   * @throws ApiError 404 when it is not there, 409 when `metadata.resourceVersion` is given and no longer the stored one.
   */
  update<K extends Kind>(object: OfKind<K>): KubeObject<K>;
  /**
   * Merges fields into the status, as a kubelet does.
   *
   * @throws ApiError 404 when it is not there.
   */
  patchStatus<K extends Kind>(ref: ObjectRef<K>, status: object): KubeObject<K>;
  /**
   * Deletes at once, without grace period, and answers the last state with the version of the deletion.
   *
   * @throws ApiError 404 when it is not there, 409 when a precondition does not hold.
   */
  delete<K extends Kind>(ref: ObjectRef<K>, preconditions?: Preconditions): KubeObject<K>;
  get<K extends Kind>(ref: ObjectRef<K>): KubeObject<K> | undefined;
  /** In the order of their keys: namespace, then name. */
  list<K extends Kind>(kind: K, namespace?: string): readonly KubeObject<K>[];
  /** Answers a function that ends the subscription. */
  subscribe(listener: StoreListener): () => void;
}

interface Preconditions {
  readonly uid?: string;
  readonly resourceVersion?: string;
}

/** Objects under one revision counter with a bounded history, as etcd keeps them. */
export interface ObjectStore extends Objects {
  readonly revision: number;
  /** The oldest revision that can still be read or watched from; what happened before is forgotten. */
  readonly compactedRevision: number;
  /** The change that made a revision, or undefined when it is forgotten or has not happened. */
  changeAt(revision: number): Change | undefined;
  /** The objects of one kind as they were at a revision from `compactedRevision` on, in the order of their keys. */
  listAt(kind: Kind, revision: number): readonly KubeObject[];
  /** Forgets the whole history: every version but the current one becomes too old. */
  compact(): void;
  snapshot(): Snapshot;
  /** Goes back to a snapshot: versions fall, and the same versions are given again to other content. */
  restore(snapshot: Snapshot): void;
}

export interface ObjectStoreOptions {
  readonly clock: Clock;
  /** Changes that are remembered, at least 1. */
  readonly historySize: number;
}

/** Letters of generated names, without vowels, as Kubernetes has them so that no words come up. */
const SUFFIX_LETTERS = 'bcdfghjklmnpqrstvwxz2456789';
const SUFFIX_LENGTH = 5;

export function createObjectStore({ clock, historySize }: ObjectStoreOptions): ObjectStore {
  if (!Number.isSafeInteger(historySize) || historySize < 1) {
    throw new RangeError(`historySize must be a whole number from 1 on, not ${historySize}`);
  }
  const byKind = new Map<Kind, Map<string, KubeObject>>();
  const listeners = new Set<StoreListener>();
  let revision = 1;
  let compactedRevision = revision;
  // The history holds the changes after `historyStart`, one for each revision.
  let history: Change[] = [];
  let historyStart = revision;

  const objectsOf = (kind: Kind) => {
    const known = byKind.get(kind);
    if (known !== undefined) return known;
    const objects = new Map<string, KubeObject>();
    byKind.set(kind, objects);
    return objects;
  };

  const record = (change: Change) => {
    revision = change.revision;
    history.push(change);
    compactedRevision = Math.max(compactedRevision, revision - historySize);
    if (history.length > 2 * historySize) {
      history = history.slice(compactedRevision - historyStart);
      historyStart = compactedRevision;
    }
    for (const listener of listeners) listener(change);
  };

  const write = (previous: KubeObject | null, object: KubeObject) => {
    objectsOf(object.kind).set(keyOf(object), object);
    record({ revision: revision + 1, object, previous });
    return object;
  };

  const stored = ({ kind, namespace = '', name }: ObjectRef) => {
    const object = objectsOf(kind).get(`${namespace}/${name}`);
    if (object === undefined) throw notFound(resourceOf(kind), name);
    return object;
  };

  const timestamp = () => new Date(clock.now()).toISOString().replace(/\.\d+Z$/, 'Z');

  const store: ObjectStore = {
    get revision() {
      return revision;
    },
    get compactedRevision() {
      return compactedRevision;
    },

    create: <K extends Kind>(object: OfKind<K>) => {
      const input = withoutApiVersion(object as ObjectInput);
      const resource = resourceOf(input.kind);
      const {
        generateName,
        name = generatedName(resource, generateName),
        namespace,
        ...meta
      } = input.metadata;
      const key = `${namespace ?? ''}/${name}`;
      if (objectsOf(input.kind).has(key)) throw alreadyExists(resource, name);
      return write(
        null,
        toObject(resource, input, {
          name,
          ...(generateName === undefined ? {} : { generateName }),
          ...(namespace === undefined ? {} : { namespace }),
          uid: randomUUID(),
          resourceVersion: String(revision + 1),
          ...(resource.kind === 'EndpointSlice' ? { generation: 1 } : {}),
          creationTimestamp: timestamp(),
          ...clientMeta(meta),
          managedFields: managedFields(resource, input, timestamp()),
        }),
      ) as KubeObject<K>;
    },

    update: <K extends Kind>(object: OfKind<K>) => {
      const input = withoutApiVersion(object as ObjectInput);
      const { name = '', namespace, resourceVersion } = input.metadata;
      const resource = resourceOf(input.kind);
      const previous = stored({ kind: input.kind, name, ...(namespace === undefined ? {} : { namespace }) });
      if (resourceVersion !== undefined && resourceVersion !== previous.metadata.resourceVersion) {
        throw conflict(resource, name);
      }
      const { labels, annotations, ownerReferences, managedFields: old, ...kept } = previous.metadata;
      const { deletionTimestamp, deletionGracePeriodSeconds, ...identity } = kept;
      const next = toObject(resource, input, { ...identity, ...clientMeta(input.metadata) }, previous);
      const { metadata: nextMeta, ...nextContent } = next;
      const { metadata: previousMeta, ...previousContent } = previous;
      const isSameContent = isDeepStrictEqual(nextContent, previousContent);
      if (isSameContent && isDeepStrictEqual(nextMeta, withoutManagedFields(previousMeta))) {
        return previous as KubeObject<K>;
      }
      const { generation } = previousMeta;
      return write(previous, {
        ...next,
        metadata: {
          ...nextMeta,
          resourceVersion: String(revision + 1),
          ...(generation === undefined ? {} : { generation: generation + (isSameContent ? 0 : 1) }),
          managedFields: managedFields(resource, input, timestamp()),
        },
      } as KubeObject) as KubeObject<K>;
    },

    patchStatus: <K extends Kind>(ref: ObjectRef<K>, status: object) => {
      const previous = stored(ref);
      const current = 'status' in previous ? previous.status : {};
      return write(
        previous,
        toJson({
          ...previous,
          metadata: { ...previous.metadata, resourceVersion: String(revision + 1) },
          status: { ...(current ?? {}), ...status },
        }) as KubeObject,
      ) as KubeObject<K>;
    },

    delete: <K extends Kind>(ref: ObjectRef<K>, { uid, resourceVersion }: Preconditions = {}) => {
      const previous = stored(ref);
      const resource = resourceOf(ref.kind);
      const failed = (field: string, wanted: string, actual: string) =>
        conflict(
          resource,
          ref.name,
          `Precondition failed: ${field} in precondition: ${wanted}, ${field} in object meta: ${actual}`,
        );
      const { metadata } = previous;
      if (uid !== undefined && uid !== metadata.uid) throw failed('UID', uid, metadata.uid);
      if (resourceVersion !== undefined && resourceVersion !== metadata.resourceVersion) {
        throw failed('ResourceVersion', resourceVersion, metadata.resourceVersion);
      }
      objectsOf(ref.kind).delete(keyOf(previous));
      record({ revision: revision + 1, object: null, previous });
      return atVersion(previous, revision) as KubeObject<K>;
    },

    get: <K extends Kind>({ kind, namespace = '', name }: ObjectRef<K>) =>
      objectsOf(kind).get(`${namespace}/${name}`) as KubeObject<K> | undefined,

    list: <K extends Kind>(kind: K, namespace?: string) =>
      sortByKey([...objectsOf(kind).values()])
        .filter(({ metadata }) => namespace === undefined || metadata.namespace === namespace)
        .map((object) => object as KubeObject<K>),

    subscribe: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },

    changeAt: (at) => (at > compactedRevision ? history[at - historyStart - 1] : undefined),

    listAt: (kind, at) => {
      const objects = new Map(objectsOf(kind));
      for (const change of history.slice(at - historyStart).reverse()) {
        const { object, previous } = change;
        if ((object ?? previous)?.kind !== kind) continue;
        if (object !== null) objects.delete(keyOf(object));
        if (previous !== null) objects.set(keyOf(previous), previous);
      }
      return sortByKey([...objects.values()]);
    },

    compact: () => {
      compactedRevision = revision;
      history = [];
      historyStart = revision;
    },

    snapshot: () => ({ revision, objects: [...byKind.values()].flatMap((objects) => [...objects.values()]) }),

    restore: (snapshot) => {
      byKind.clear();
      for (const object of snapshot.objects) objectsOf(object.kind).set(keyOf(object), object);
      revision = snapshot.revision;
      store.compact();
      for (const listener of listeners) listener(null);
    },
  };
  return store;
}

/** `namespace/name`; the namespace is empty for cluster-wide resources. Lists are in this order, as etcd's are. */
export function keyOf({ metadata }: KubeObject): string {
  return `${metadata.namespace ?? ''}/${metadata.name}`;
}

/** The same object under the version of its deletion, which is what a DELETED event carries. */
export function atVersion(object: KubeObject, revision: number): KubeObject {
  return { ...object, metadata: { ...object.metadata, resourceVersion: String(revision) } };
}

function sortByKey(objects: KubeObject[]): KubeObject[] {
  const keyed = objects.map((object) => ({ key: keyOf(object), object }));
  keyed.sort((a, b) => (a.key < b.key ? -1 : 1));
  return keyed.map(({ object }) => object);
}

function toObject(
  resource: Resource,
  input: ObjectInput,
  metadata: ObjectMeta,
  previous?: KubeObject,
): KubeObject {
  const { kind, metadata: _, ...content } = input;
  const status = previous !== undefined && 'status' in previous ? { status: previous.status } : {};
  const object = { kind, apiVersion: apiVersionOf(resource), metadata, ...content, ...status };
  return withDefaults(toJson(object) as KubeObject, previous);
}

/** What a client may set, in the order in which the server writes it. */
function clientMeta(meta: MetaInput): Partial<ObjectMeta> {
  const { deletionTimestamp, deletionGracePeriodSeconds, labels, annotations, ownerReferences } = meta;
  return {
    ...(deletionTimestamp === undefined ? {} : { deletionTimestamp }),
    ...(deletionGracePeriodSeconds === undefined ? {} : { deletionGracePeriodSeconds }),
    ...(isEmpty(labels) ? {} : { labels }),
    ...(isEmpty(annotations) ? {} : { annotations }),
    ...(ownerReferences === undefined ? {} : { ownerReferences }),
  };
}

/** Who set which fields: every real object carries this, and a client that keeps it pays for it (W13). */
function managedFields(resource: Resource, input: ObjectInput, time: string): readonly unknown[] {
  const { kind: _, metadata, ...content } = input;
  const { labels, annotations, ownerReferences } = metadata;
  return [
    {
      manager: 'demo-cluster',
      operation: 'Update',
      apiVersion: apiVersionOf(resource),
      time,
      fieldsType: 'FieldsV1',
      fieldsV1: fieldNames(toJson({ metadata: { labels, annotations, ownerReferences }, ...content })),
    },
  ];
}

function fieldNames(value: unknown): object {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return {};
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [`f:${name}`, fieldNames(field)]));
}

function withoutManagedFields({
  managedFields: _,
  ...metadata
}: ObjectMeta): Omit<ObjectMeta, 'managedFields'> {
  return metadata;
}

function generatedName(resource: Resource, prefix: string | undefined): string {
  if (prefix === undefined) {
    throw invalid(resource.group, resource.kind, '', [
      {
        reason: 'FieldValueRequired',
        message: 'Required value: name or generateName is required',
        field: 'metadata.name',
      },
    ]);
  }
  const letters = Array.from(
    { length: SUFFIX_LENGTH },
    () => SUFFIX_LETTERS[Math.floor(Math.random() * SUFFIX_LETTERS.length)],
  );
  return `${prefix}${letters.join('')}`;
}

/** The server knows the version of a kind: what an object read before says about it is not a change. */
function withoutApiVersion(object: ObjectInput & { readonly apiVersion?: string }): ObjectInput {
  const { apiVersion: _, ...input } = object;
  return input;
}

function isEmpty(record: object | undefined): boolean {
  return record === undefined || Object.keys(record).length === 0;
}

function toJson(value: object): object {
  return JSON.parse(JSON.stringify(value));
}
