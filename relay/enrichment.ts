import { hash } from 'node:crypto';
import type { PodEnrichment } from '../core/kubernetes.ts';
import type { Logger } from '../wire/log.ts';
import { type ObjectId, objectId, type ServiceId, serviceId } from './cache.ts';
import type { Held } from './compact.ts';
import type {
  FactKind,
  Facts,
  Owner,
  ParentFacts,
  PodFacts,
  PodTraits,
  ServerFacts,
  ServerRule,
} from './enrichment-facts.ts';
import {
  DEFAULT_OPAQUE_PORTS,
  includesPort,
  type NamedPort,
  type OpaquePorts,
  parseOpaquePorts,
} from './enrichment-ports.ts';
import {
  type PodName,
  readPodGroups,
  readServiceTraits,
  type ServiceTraits,
  type TargetPort,
} from './enrichment-references.ts';
import type { Labels } from './enrichment-selector.ts';

/** Objects that are looked at in one go: each takes less than a millisecond for a hundred pods. */
const MAX_LOOKS = 50;

/** A pod that lives, or that an object names. */
interface Pod extends PodName {
  readonly id: string;
  /** Null until it is seen. */
  facts: KnownPod | null;
  isLive: boolean;
  readonly referrers: Referrer[];
}

interface KnownPod {
  /** Null for a pod of its own. */
  readonly parent: Parent | null;
  readonly node: string | null;
  readonly traits: Traits;
}

/** What owns pods. */
interface Parent extends Owner {
  readonly id: string;
  readonly namespace: string;
  /** What owns it, of a ReplicaSet or Job that has been seen. */
  owner: Owner | null;
  isLive: boolean;
  readonly pods: Set<Pod>;
}

/** Traits that pods of one namespace share. */
interface Traits {
  readonly text: string;
  readonly namespace: string;
  readonly labels: Labels;
  readonly ports: readonly NamedPort[];
  readonly opaquePorts: OpaquePorts | null;
  /** Ports that Servers make opaque. */
  serverPorts: ReadonlySet<number>;
  readonly pods: Set<Pod>;
}

/** An EndpointSlice or Endpoints object. */
interface Referrer {
  held: Held;
  groups: readonly { readonly ports: readonly TargetPort[]; readonly pods: readonly Pod[] }[];
  /** Digest of what was last sent of its pods; empty when that was nothing. */
  told: string;
}

export interface EnrichmentDeps {
  /** The Service of this name and the objects that count for it. */
  readonly ofService: (id: ServiceId) => Iterable<Held>;
  readonly log: Logger;
}

/**
 * What is known of the pods that objects name: owner, node and whether their protocol is opaque. It never gates an address
 * (S7): a pod that is not known is left out, and one that is gone stays known as long as an object names it, so that its end
 * alone tells nothing new.
 *
 * **Owner.** The pod's only ownerReference, and behind a ReplicaSet or Job that one's only owner; with none or several it is
 * the pod, or the ReplicaSet or Job, itself. The kind is spelt as Kubernetes does.
 *
 * **Opaque.** Linkerd answers for a port, an event for a pod: it is true when any port at which the object offers the pod is
 * opaque. An opaque port taken for transparent stalls its connections, in which the server speaks first; a transparent one
 * taken for opaque loses no more than what a proxy does with HTTP. A port is opaque when the annotation of the pod, else of
 * the Service, else the default list has it, or any Server of the pod's namespace that selects the pod. A Service's
 * annotation means its own port numbers and names; the target's number is taken as well. A named port of a Server is that
 * container's port or host port.
 *
 * Every change is looked up from the pod, its parent or its traits to the objects that name it. Nothing is searched.
 */
export class Enrichment {
  readonly #deps: EnrichmentDeps;
  readonly #pods = new Map<string, Pod>();
  readonly #parents = new Map<string, Parent>();
  /** By namespace and text. */
  readonly #traits = new Map<string, Map<string, Traits>>();
  /** By namespace and name; only those that make something opaque. */
  readonly #servers = new Map<string, Map<string, ServerRule>>();
  /** Services with an annotation. */
  readonly #services = new Map<ServiceId, ServiceTraits>();
  readonly #referrers = new Map<ObjectId, Referrer>();
  /** Objects of whose pods something has changed; null: look at all. */
  #suspects: Set<Referrer> | null = null;
  #version = 0;

  constructor(deps: EnrichmentDeps) {
    this.#deps = deps;
  }

  /** What is kept; `traits` are those in which pods of one namespace differ. */
  get counts(): {
    readonly pods: number;
    readonly owners: number;
    readonly traits: number;
    readonly servers: number;
  } {
    const sum = (maps: Iterable<ReadonlyMap<string, unknown>>) =>
      [...maps].reduce((total, { size }) => total + size, 0);
    return {
      pods: this.#pods.size,
      owners: this.#parents.size,
      traits: sum(this.#traits.values()),
      servers: sum(this.#servers.values()),
    };
  }

  /** May `takeChanged` have something? */
  get hasSuspects(): boolean {
    return this.#suspects === null || this.#suspects.size > 0;
  }

  /**
   * Objects of whose pods something else is known than was last told, or at the first look something that this process has
   * not told yet. Some are looked at in one go, so that nothing else waits long: `hasSuspects` says whether there are more.
   */
  takeChanged(): Held[] {
    this.#suspects ??= new Set(this.#referrers.values());
    const looked = [...this.#suspects.values().take(MAX_LOOKS)];
    for (const referrer of looked) this.#suspects.delete(referrer);
    return looked
      .filter((referrer) => digest(this.#textOf(referrer)) !== referrer.told)
      .map(({ held }) => held);
  }

  /**
   * What to tell of an object's pods, as fields of its event in JSON; null when nothing is known. It counts as told.
   * The number is higher than any before when it differs from what was last told of this object.
   */
  tell(object: Held): string | null {
    const referrer = this.#referrers.get(objectId(object));
    if (referrer === undefined) return null;
    const text = this.#textOf(referrer);
    const told = digest(text);
    if (told !== referrer.told) this.#version++;
    referrer.told = told;
    return text === '' ? null : `"enrichVersion":${this.#version},"enrich":${text}`;
  }

  /** An object that makes address sets has another state, or is gone. */
  noteObject(before: Held | undefined, after: Held | undefined): void {
    const object = after ?? before;
    if (object === undefined) return;
    if (object.kind === 'Service') this.#noteService(object, after);
    else if (after === undefined) this.#dropReferrer(objectId(object));
    else this.#putReferrer(after);
  }

  observe(type: 'ADDED' | 'MODIFIED' | 'DELETED', facts: Facts): void {
    if (type === 'DELETED') this.#remove(facts.kind, facts);
    else this.#put(facts);
  }

  /** Takes a whole list of a kind, in one namespace or all: what it does not name is gone. */
  replace(kind: FactKind, namespace: string | null, list: readonly Facts[]): void {
    const listed = new Set(list.map(nameText));
    for (const known of this.#liveOf(kind)) {
      const isInScope = namespace === null || known.namespace === namespace;
      if (isInScope && !listed.has(nameText(known))) this.#remove(kind, known);
    }
    for (const facts of list) this.#put(facts);
  }

  #put(facts: Facts): void {
    switch (facts.kind) {
      case 'Pod':
        this.#putPod(facts);
        break;
      case 'ReplicaSet':
      case 'Job':
        this.#putParent(facts);
        break;
      case 'Server':
        this.#putServer(facts);
        break;
      default:
        facts satisfies never;
    }
  }

  #remove(kind: FactKind, object: PodName): void {
    switch (kind) {
      case 'Pod': {
        const pod = this.#pod(object);
        pod.isLive = false;
        this.#releasePod(pod);
        break;
      }
      case 'ReplicaSet':
      case 'Job': {
        const parent = this.#parent(object.namespace, { kind, name: object.name });
        parent.isLive = false;
        this.#releaseParent(parent);
        break;
      }
      case 'Server':
        this.#setRule(object, null);
        break;
      default:
        kind satisfies never;
    }
  }

  *#liveOf(kind: FactKind): Generator<PodName> {
    switch (kind) {
      case 'Pod':
        for (const pod of this.#pods.values()) if (pod.isLive) yield pod;
        return;
      case 'ReplicaSet':
      case 'Job':
        for (const parent of this.#parents.values()) if (parent.isLive && parent.kind === kind) yield parent;
        return;
      case 'Server':
        for (const [namespace, rules] of this.#servers) {
          for (const name of rules.keys()) yield { namespace, name };
        }
        return;
      default:
        return kind satisfies never;
    }
  }

  #putPod({ namespace, name, owner, node, traits }: PodFacts): void {
    const pod = this.#pod({ namespace, name });
    pod.isLive = true;
    const before = pod.facts;
    const parent = owner === null ? null : this.#parent(namespace, owner);
    const after: KnownPod = { parent, node, traits: this.#intern(namespace, traits) };
    if (before?.parent === parent && before.node === node && before.traits === after.traits) return;
    pod.facts = after;
    parent?.pods.add(pod);
    after.traits.pods.add(pod);
    if (before !== null) this.#detach(pod, before);
    this.#suspect([pod]);
  }

  #putParent({ kind, namespace, name, owner }: ParentFacts): void {
    const parent = this.#parent(namespace, { kind, name });
    parent.isLive = true;
    if (parent.owner?.kind === owner?.kind && parent.owner?.name === owner?.name) return;
    parent.owner = owner;
    this.#suspect(parent.pods);
  }

  #putServer({ namespace, name, rule, fault }: ServerFacts): void {
    if (fault !== null) this.#deps.log.warn('Server skipped', { namespace, name, reason: fault });
    this.#setRule({ namespace, name }, rule);
  }

  /** Its effect is worked out anew from all Servers, for the pods that it selects or selected. */
  #setRule({ namespace, name }: PodName, rule: ServerRule | null): void {
    const rules = entryOf(this.#servers, namespace, () => new Map<string, ServerRule>());
    const before = rules.get(name) ?? null;
    if (rule === null) rules.delete(name);
    else rules.set(name, rule);
    if (rules.size === 0) this.#servers.delete(namespace);
    if (before?.text === rule?.text) return;
    for (const traits of this.#traits.get(namespace)?.values() ?? []) {
      if (!before?.selects(traits.labels) && !rule?.selects(traits.labels)) continue;
      const ports = this.#serverPorts(traits);
      if (ports.symmetricDifference(traits.serverPorts).size === 0) continue;
      traits.serverPorts = ports;
      this.#suspect(traits.pods);
    }
  }

  #serverPorts({ namespace, labels, ports }: Pick<Traits, 'namespace' | 'labels' | 'ports'>): Set<number> {
    const opaque = new Set<number>();
    for (const { selects, port } of this.#servers.get(namespace)?.values() ?? []) {
      if (!selects(labels)) continue;
      if (typeof port === 'number') opaque.add(port);
      for (const named of ports) {
        if (named.name !== port) continue;
        opaque.add(named.port);
        if (named.hostPort !== null) opaque.add(named.hostPort);
      }
    }
    return opaque;
  }

  #noteService({ namespace, name }: Held, after: Held | undefined): void {
    const id = serviceId(namespace, name);
    const before = this.#services.get(id) ?? null;
    const traits = after === undefined ? null : readServiceTraits(after);
    if (traits === null) this.#services.delete(id);
    else this.#services.set(id, traits);
    if (before === null && traits === null) return;
    for (const held of this.#deps.ofService(id)) {
      const referrer = this.#referrers.get(objectId(held));
      if (referrer !== undefined) this.#suspects?.add(referrer);
    }
  }

  #putReferrer(held: Held): void {
    const referrer = entryOf(
      this.#referrers,
      objectId(held),
      (): Referrer => ({ held, groups: [], told: '' }),
    );
    const before = referrer.held;
    referrer.held = held;
    if (before !== held && before.content.equals(held.content)) return;
    // What is nobody's is not told (S8, S13).
    const groups = held.service === null ? [] : readPodGroups(held);
    this.#link(
      referrer,
      groups.map(({ ports, pods }) => ({ ports, pods: pods.map((pod) => this.#pod(pod)) })),
    );
  }

  #dropReferrer(id: ObjectId): void {
    const referrer = this.#referrers.get(id);
    if (referrer === undefined) return;
    this.#referrers.delete(id);
    this.#suspects?.delete(referrer);
    this.#link(referrer, []);
  }

  /** Pods that are named before and after are never let go in between. */
  #link(referrer: Referrer, groups: Referrer['groups']): void {
    const before = podsOf(referrer.groups);
    const after = podsOf(groups);
    referrer.groups = groups;
    for (const pod of after.difference(before)) pod.referrers.push(referrer);
    for (const pod of before.difference(after)) {
      pod.referrers.splice(pod.referrers.indexOf(referrer), 1);
      this.#releasePod(pod);
    }
  }

  #suspect(pods: Iterable<Pod>): void {
    if (this.#suspects === null) return;
    for (const { referrers } of pods) for (const referrer of referrers) this.#suspects.add(referrer);
  }

  /** JSON of `enrich`; empty when nothing is known of any pod. */
  #textOf({ held, groups }: Referrer): string {
    const service =
      held.service === null ? null : this.#services.get(serviceId(held.namespace, held.service));
    const enrich = new Map<string, PodEnrichment>();
    for (const { ports, pods } of groups) {
      const opaque = new Map<Traits, boolean>();
      for (const pod of pods) {
        if (pod.facts === null) continue;
        const { traits, node } = pod.facts;
        const isOpaque = entryOf(opaque, traits, () =>
          ports.some((port) => isOpaquePort(port, traits, service ?? null)),
        );
        const opaqueProtocol = isOpaque || enrich.get(pod.id)?.opaqueProtocol === true;
        enrich.set(pod.id, {
          owner: ownerOf(pod, pod.facts),
          ...(node !== null && { node }),
          opaqueProtocol,
        });
      }
    }
    return enrich.size === 0 ? '' : JSON.stringify(Object.fromEntries(enrich));
  }

  #pod({ namespace, name }: PodName): Pod {
    const id = `${namespace}/${name}`;
    return entryOf(this.#pods, id, () => ({
      id,
      namespace,
      name,
      facts: null,
      isLive: false,
      referrers: [],
    }));
  }

  #parent(namespace: string, { kind, name }: Owner): Parent {
    const id = `${kind}/${namespace}/${name}`;
    return entryOf(this.#parents, id, () => ({
      id,
      namespace,
      kind,
      name,
      owner: null,
      isLive: false,
      pods: new Set(),
    }));
  }

  #intern(namespace: string, { labels, ports, opaquePorts }: PodTraits): Traits {
    const text = JSON.stringify([labels, ports, opaquePorts]);
    const known = entryOf(this.#traits, namespace, () => new Map<string, Traits>());
    return entryOf(known, text, () => ({
      text,
      namespace,
      labels,
      ports,
      opaquePorts: opaquePorts === null ? null : parseOpaquePorts(opaquePorts),
      serverPorts: this.#serverPorts({ namespace, labels, ports }),
      pods: new Set(),
    }));
  }

  #releasePod(pod: Pod): void {
    if (pod.isLive || pod.referrers.length > 0) return;
    this.#pods.delete(pod.id);
    const { facts } = pod;
    pod.facts = null;
    if (facts !== null) this.#detach(pod, facts);
  }

  /** Ends what an earlier state of a pod held on to. */
  #detach(pod: Pod, { parent, traits }: KnownPod): void {
    if (parent !== null && pod.facts?.parent !== parent) {
      parent.pods.delete(pod);
      this.#releaseParent(parent);
    }
    if (pod.facts?.traits === traits) return;
    traits.pods.delete(pod);
    if (traits.pods.size > 0) return;
    const known = this.#traits.get(traits.namespace);
    known?.delete(traits.text);
    if (known?.size === 0) this.#traits.delete(traits.namespace);
  }

  #releaseParent(parent: Parent): void {
    if (!parent.isLive && parent.pods.size === 0) this.#parents.delete(parent.id);
  }
}

function ownerOf({ name }: Pod, { parent }: KnownPod): Owner {
  if (parent === null) return { kind: 'Pod', name };
  return parent.owner ?? { kind: parent.kind, name: parent.name };
}

function isOpaquePort(
  { name, port }: TargetPort,
  { serverPorts, opaquePorts, ports }: Traits,
  service: ServiceTraits | null,
): boolean {
  if (serverPorts.has(port)) return true;
  if (opaquePorts !== null) return includesPort(opaquePorts, port, ports);
  if (service === null) return includesPort(DEFAULT_OPAQUE_PORTS, port, []);
  const own = service.numbers.get(name);
  const isOwn = own !== undefined && includesPort(service.opaquePorts, own, []);
  return isOwn || includesPort(service.opaquePorts, port, [...ports, { name, port }]);
}

function podsOf(groups: Referrer['groups']): Set<Pod> {
  return new Set(groups.flatMap(({ pods }) => pods));
}

function nameText({ namespace, name }: PodName): string {
  return `${namespace}/${name}`;
}

function digest(text: string): string {
  return text === '' ? '' : hash('sha256', text, 'base64');
}

/** The entry of a key, made when it is not there yet. */
function entryOf<K, V>(map: Map<K, V>, key: K, create: () => V): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const created = create();
  map.set(key, created);
  return created;
}
