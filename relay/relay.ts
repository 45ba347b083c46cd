import type { Mode } from '../wire/envelope.ts';
import type { Logger } from '../wire/log.ts';
import type { Conflict } from '../wire/problem.ts';
import { eventLine, watchingLine } from '../wire/watcher-log.ts';
import type { Authorize } from './authorization.ts';
import { Backoff } from './backoff.ts';
import { Cache, type ServiceId } from './cache.ts';
import { Connection, type ReadAccess } from './connection.ts';
import { Enrichment } from './enrichment.ts';
import { type EnrichmentName, EnrichmentWatch, factResources } from './enrichment-watch.ts';
import { Heartbeat } from './heartbeat.ts';
import { IngestClient } from './ingest-client.ts';
import { Inventory } from './inventory.ts';
import { readText } from './json-lines.ts';
import { Metrics } from './metrics.ts';
import { Queue } from './queue.ts';
import { type ListCause, type Observation, Reflector } from './reflector.ts';
import { type Resource, type Seen, watchedResources } from './resources.ts';
import { Sender } from './sender.ts';
import { Pulse, type Timers } from './timers.ts';

/** Time between two lists that are made only to be sure, in milliseconds, before jitter (W7). */
const AUDIT_MS = 30 * 60_000;
/** What was seen this long ago should be told (heartbeat's `synced`). */
const SYNCED_WITHIN_MS = 5000;
/** How long deliveries may fail before the relay is not ready (W16). */
const RETRY_BUDGET_MS = 60_000;
/**
 * How long the first sets wait for the pods behind them, in milliseconds: most clusters list theirs within it, and so are told
 * each address once; others are told again what is known later (S7).
 */
const PODS_WAIT_MS = 5000;
/** How often a condition is looked at that nobody announces, in milliseconds. */
const LOOK_MS = 1000;
const MAX_NAMESPACE_BYTES = 1_000_000;
/** Without the right to read it a relay starts all the same, some seconds later. */
const MAX_UID_DENIALS = 3;

export interface RelayOptions {
  /** Name of the cluster, as the cloud knows it. */
  readonly cluster: string;
  /** Name of this process, for logs. */
  readonly relay: string;
  /** Rises with each leader (W18); without an election, the start-up time in seconds. */
  readonly epoch: number;
  readonly mode: Mode;
  /** Namespaces to watch, each by watches of its own; null is the whole cluster (W14). */
  readonly namespaces: readonly string[] | null;
  /** What is watched to tell more of each address; nothing by default. */
  readonly enrich?: readonly EnrichmentName[];
  readonly settleMs: number;
  /** Share of a service's addresses that an inventory may remove at once; null = any. */
  readonly maxRemoved: number | null;
  readonly readAccess: ReadAccess;
  readonly ingestUrl: URL;
  readonly authorize: Authorize;
  readonly timers: Timers;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  readonly log: Logger;
  /** Looked at right before each request; none starts while it is false (W17). Absent: always true. */
  readonly maySend?: () => boolean;
}

/** Why a relay ended. */
export type RelayEnd =
  /** It was disposed. */
  | { readonly kind: 'stopped' }
  /** A newer leader has written (W18). */
  | { readonly kind: 'fenced'; readonly epoch: number; readonly current: number }
  /** The name belongs to another cluster. */
  | { readonly kind: 'otherCluster' }
  /** In slices mode, slices cannot be read at all. */
  | { readonly kind: 'noSlices'; readonly status: number; readonly reason: string };

export interface Relay extends AsyncDisposable {
  /** Resolves when the relay has ended, by itself or not; rejects only at a fault of its own. */
  readonly done: Promise<RelayEnd>;
  readonly metrics: Metrics;
  /** Why it is not ready; empty when it is (W16). */
  notReady(): string[];
}

/** The end in one line, and what to do. */
export function describeEnd(end: RelayEnd): string {
  switch (end.kind) {
    case 'stopped':
      return 'stopped';
    case 'fenced':
      return `stands down: epoch ${end.epoch} is over, another relay leads this cluster with epoch ${end.current}`;
    case 'otherCluster':
      return 'another cluster has this name in the cloud: choose another, or delete that cluster there';
    case 'noSlices':
      return (
        `EndpointSlices cannot be read (${end.status}: ${end.reason}): allow list and watch of endpointslices in ` +
        'discovery.k8s.io, or run with -enable-endpoint-slices=false'
      );
    default:
      return end satisfies never;
  }
}

/** Watches a cluster and tells the cloud, until it is disposed or must stand down. */
export function startRelay(options: RelayOptions): Relay {
  return new RunningRelay(options);
}

class RunningRelay implements Relay {
  readonly metrics = new Metrics();
  readonly done: Promise<RelayEnd>;
  readonly #options: RelayOptions;
  readonly #stop = new AbortController();
  readonly #pulse = new Pulse();
  readonly #cache = new Cache((before, after) => this.#enrichment?.noteObject(before, after));
  readonly #queue: Queue;
  readonly #connection: Connection;
  readonly #ingest: IngestClient;
  readonly #reflectors: readonly Reflector[];
  /** Null when nothing is to enrich addresses. */
  readonly #enrichment: Enrichment | null = null;
  readonly #enrichmentWatch: EnrichmentWatch | null = null;
  #parts: { readonly sender: Sender; readonly inventory: Inventory } | null = null;
  #end: RelayEnd = { kind: 'stopped' };

  constructor(options: RelayOptions) {
    this.#options = options;
    const { mode, namespaces, enrich = [], settleMs, timers, log } = options;
    this.#queue = new Queue({ cache: this.#cache, settleMs, monotonic: timers.monotonic });
    this.#connection = new Connection({ readAccess: options.readAccess, timers, log });
    const { ingestUrl: url, authorize, maySend } = options;
    this.#ingest = new IngestClient({ url, authorize, timers, ...(maySend && { maySend }) });
    const scopes = namespaces ?? [null];
    this.#reflectors = watchedResources(mode).flatMap((resource) =>
      scopes.map((namespace) => this.#reflector(resource, namespace)),
    );
    if (enrich.length > 0) {
      const reflectors = factResources(enrich).flatMap((resource) =>
        scopes.map((namespace) => this.#reflector(resource, namespace)),
      );
      const ofService = (id: ServiceId) => this.#cache.ofService(id);
      this.#enrichment = new Enrichment({ ofService, log: log.with({ component: 'enrichment' }) });
      this.#enrichmentWatch = new EnrichmentWatch(reflectors, this.#enrichment, this.#pulse);
    }
    this.metrics.onCollect = () => this.#collect();
    this.done = this.#run();
    // Whoever waits for `done` hears of a fault; nobody has to.
    this.done.catch(() => {});
  }

  #reflector<T extends Seen, K extends string>(
    resource: Resource<T, K>,
    namespace: string | null,
  ): Reflector<T, K> {
    const { timers, random, log } = this.#options;
    const { kind } = resource;
    return new Reflector(resource, namespace, {
      connection: this.#connection,
      timers,
      random,
      log: log.with({ component: 'reflector', kind, ...(namespace !== null && { ns: namespace }) }),
      onEnding: (cause) => this.metrics.count('endpoints_watcher_relay_watch_ends_total', { kind, cause }),
    });
  }

  notReady(): string[] {
    const parts = this.#parts;
    if (parts === null) return ['ingest has not answered yet'];
    const reasons = this.#reflectors
      .filter((reflector) => !reflector.isLive)
      .map(
        ({ resource, namespace }) =>
          `no watch of ${resource.kind}${namespace === null ? '' : ` in ${namespace}`}`,
      );
    if (!parts.inventory.isDone) reasons.push('the first inventory is not done');
    if ((parts.sender.failingForMs ?? 0) > RETRY_BUDGET_MS) reasons.push('deliveries fail');
    return reasons;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopAll();
    await this.done.catch(() => {});
  }

  async #run(): Promise<RelayEnd> {
    await using _connection = this.#connection;
    await using _ingest = this.#ingest;
    const { signal } = this.#stop;
    try {
      const clusterUid = await this.#readClusterUid(signal);
      if (!signal.aborted) await this.#runParts(clusterUid, signal);
    } finally {
      this.#stopAll();
    }
    return this.#end;
  }

  async #runParts(clusterUid: string | null, signal: AbortSignal): Promise<void> {
    const { cluster, relay, epoch, mode, namespaces, maxRemoved, timers, random, log } = this.#options;
    const shared = {
      queue: this.#queue,
      ingest: this.#ingest,
      pulse: this.#pulse,
      metrics: this.metrics,
      envelope: { cluster, ...(clusterUid !== null && { clusterUid }), epoch, relay, mode },
      onConflict: (conflict: Conflict) => this.#standDown(conflict),
      timers,
      random,
    };
    const heartbeat = new Heartbeat({
      ...shared,
      log: log.with({ component: 'heartbeat' }),
      state: () => ({ namespaces, ...this.#state() }),
    });
    const relist = (cause: ListCause) => {
      for (const reflector of this.#reflectors) reflector.relist(cause);
    };
    const inventory = new Inventory({
      ...shared,
      watched: this.#reflectors.map(({ resource, namespace }) => ({ kind: resource.kind, namespace })),
      mode,
      namespaces,
      maxRemoved,
      cache: this.#cache,
      heartbeat,
      relist,
      log: log.with({ component: 'inventory' }),
    });
    const sender = new Sender({
      ...shared,
      mustConfirm: () => !inventory.isDone,
      tellPods: (object) => this.#enrichment?.tell(object) ?? null,
      onAnswered: () => {
        if (this.#queue.takeOverflow()) relist('overflow');
      },
      log: log.with({ component: 'sender' }),
    });
    this.#parts = { sender, inventory };
    const audit = async () => {
      while (!signal.aborted) {
        await timers.sleep(AUDIT_MS * (0.9 + 0.2 * random()), signal);
        if (signal.aborted) return;
        relist('audit');
        for (const reflector of this.#enrichmentWatch?.reflectors ?? []) reflector.relist('audit');
      }
    };
    const watch = async () => {
      // The first heartbeat takes the cluster for this epoch, and tells how far the cloud has come before anything is listed.
      while (heartbeat.fencedUntil === null && !signal.aborted) await this.#pulse.next();
      const endpoints = async () => {
        await this.#awaitPods(signal);
        await this.#all(this.#reflectors.map((reflector) => this.#follow(reflector, inventory, signal)));
      };
      await this.#all([this.#enrichmentWatch?.run(signal) ?? Promise.resolve(), endpoints()]);
    };
    await this.#all([
      heartbeat.run(signal),
      watch(),
      sender.run(signal),
      inventory.run(signal),
      audit(),
      this.#tellChanges(inventory, signal),
    ]);
  }

  async #awaitPods(signal: AbortSignal): Promise<void> {
    const { timers } = this.#options;
    const end = timers.monotonic() + PODS_WAIT_MS;
    const isAnswered = () => this.#enrichmentWatch?.isAnswered ?? true;
    while (!signal.aborted && !isAnswered() && timers.monotonic() < end) {
      await this.#pulse.wait(timers, end - timers.monotonic());
    }
  }

  /**
   * Sends objects again of whose pods something new is known. Inventories compare versions alone, so behind the first one
   * comes everything that this process has not yet told of pods; what the cloud knew costs no write there.
   */
  async #tellChanges(inventory: Inventory, signal: AbortSignal): Promise<void> {
    const enrichment = this.#enrichment;
    if (enrichment === null) return;
    const { timers } = this.#options;
    while (!signal.aborted && !inventory.isDone) await this.#pulse.wait(timers, LOOK_MS);
    for (let isResync = true; !signal.aborted; ) {
      for (const object of enrichment.takeChanged()) {
        const held = { ...object, observedAt: timers.now() };
        this.#cache.put(held);
        this.#queue.resend(held, { isResync }, 'MODIFIED');
      }
      this.#pulse.notify();
      if (enrichment.hasSuspects) await timers.sleep(0, signal);
      else isResync = false;
      while (!signal.aborted && !enrichment.hasSuspects) await this.#pulse.next();
    }
  }

  /** The first part that fails ends the others. */
  async #all(parts: readonly Promise<void>[]): Promise<void> {
    const stopAll = (error: unknown) => {
      this.#stopAll();
      throw error;
    };
    const results = await Promise.allSettled(parts.map((part) => part.catch(stopAll)));
    for (const result of results) if (result.status === 'rejected') throw result.reason;
  }

  /** Pulls what one watch sees, in order, and waits for nothing else (W8, W9). */
  async #follow(reflector: Reflector, inventory: Inventory, signal: AbortSignal): Promise<void> {
    const { kind } = reflector.resource;
    const watching = watchingLine(kind);
    this.#options.log.debug(watching.message, watching.fields);
    for await (const seen of reflector.observations(signal)) {
      switch (seen.kind) {
        case 'listed':
          this.#cache.replace(kind, reflector.namespace, seen.objects);
          this.metrics.count('endpoints_watcher_relay_lists_total', { kind, cause: seen.cause });
          inventory.noteList({ kind, namespace: reflector.namespace }, seen.resourceVersion, seen.isRewound);
          break;
        case 'event':
          this.#noteEvent(seen);
          break;
        case 'denied':
          if (kind === 'EndpointSlice' && reflector.resourceVersion === null && !seen.mayPass) {
            this.#end = { kind: 'noSlices', status: seen.status, reason: seen.reason };
            this.#stopAll();
          }
          break;
        default:
          return seen satisfies never;
      }
      this.#pulse.notify();
    }
  }

  #noteEvent({ type, held, lastUpdate, triggeredAt }: Observation & { kind: 'event' }): void {
    const { kind, namespace, name, service, observedAt } = held;
    const { metrics } = this;
    this.#queue.observe(type, held);
    metrics.count('endpoints_watcher_relay_events_total', { kind, type });
    if (service === null) metrics.count('endpoints_watcher_relay_ignored_total', { kind });
    if (type === 'MODIFIED' && lastUpdate !== null)
      metrics.observeLag(kind, (observedAt - lastUpdate) / 1000);
    if (type !== 'DELETED' && triggeredAt !== null) {
      metrics.observeLatency('observe', (observedAt - triggeredAt) / 1000);
    }
    const { message, fields } = eventLine({ type, kind, namespace, name }, service);
    this.#options.log.debug(message, fields);
  }

  #standDown(conflict: Conflict): void {
    if (conflict.error === 'guard') return;
    this.#end =
      conflict.error === 'epoch'
        ? { kind: 'fenced', epoch: this.#options.epoch, current: conflict.current }
        : { kind: 'otherCluster' };
    this.#stopAll();
  }

  #stopAll(): void {
    this.#stop.abort();
    this.#pulse.notify();
  }

  /** uid of namespace kube-system, which no two clusters share; null when the relay may not read it. */
  async #readClusterUid(signal: AbortSignal): Promise<string | null> {
    const { timers, random, log } = this.#options;
    const backoff = new Backoff(timers, random);
    let denials = 0;
    while (!signal.aborted) {
      try {
        const response = await this.#connection.request('/api/v1/namespaces/kube-system', signal);
        const text = await readText(response.body, MAX_NAMESPACE_BYTES);
        if (response.statusCode === 404) return null;
        // A server that has just started denies everything for a moment.
        if (response.statusCode === 403 && denials++ === MAX_UID_DENIALS) return null;
        if (response.statusCode === 200) {
          const { metadata } = JSON.parse(text) as { readonly metadata?: { readonly uid?: string } };
          return metadata?.uid ?? null;
        }
        log.warn('API server does not tell the cluster uid', { status: response.statusCode });
      } catch (error) {
        if (!signal.aborted) log.warn('API server cannot be reached', { error });
      }
      await timers.sleep(backoff.next(), signal);
    }
    return null;
  }

  /** Is everything that was seen more than 5 s ago told, and is every kind watched? */
  #isSynced(): boolean {
    const { inventory } = this.#parts ?? {};
    if (!inventory?.isDone || this.#reflectors.some((reflector) => !reflector.isLive)) return false;
    const latest = this.#options.timers.monotonic() - SYNCED_WITHIN_MS;
    return [this.#queue.oldestAt, inventory.pendingSince].every((at) => at === null || at >= latest);
  }

  /** Of a kind with a watch in each namespace, the version of the first and the last sign of any are told. */
  #state(): Readonly<Record<string, unknown>> {
    const kinds = watchedResources(this.#options.mode).map(({ kind }) => {
      const watches = this.#reflectors.filter((reflector) => reflector.resource.kind === kind);
      const ages = watches.flatMap(({ lastEventAgeMs }) => (lastEventAgeMs === null ? [] : [lastEventAgeMs]));
      return {
        kind,
        resourceVersion: watches[0]?.resourceVersion ?? null,
        lastEventAgeMs: ages.length === 0 ? null : Math.min(...ages),
      };
    });
    return { synced: this.#isSynced(), kinds, histograms: this.metrics.histograms() };
  }

  #collect(): void {
    const { metrics } = this;
    metrics.set('endpoints_watcher_relay_leader', {}, 1);
    metrics.set('endpoints_watcher_relay_epoch', {}, this.#options.epoch);
    const reflectors = [...this.#reflectors, ...(this.#enrichmentWatch?.reflectors ?? [])];
    for (const { resource, namespace, isLive, lastEventAgeMs, resourceVersion } of reflectors) {
      const labels = { kind: resource.kind, ...(namespace !== null && { namespace }) };
      metrics.set('endpoints_watcher_relay_watch_live', labels, isLive ? 1 : 0);
      if (lastEventAgeMs !== null)
        metrics.set('endpoints_watcher_relay_last_event_age_seconds', labels, lastEventAgeMs / 1000);
      if (resourceVersion !== null)
        metrics.set('endpoints_watcher_relay_resource_version', labels, resourceVersion);
    }
    for (const [kind, kept] of Object.entries(this.#enrichment?.counts ?? {}))
      metrics.set('endpoints_watcher_relay_enrichment_kept', { kind }, kept);
    const { waiting, inFlight } = this.#queue.depth;
    metrics.set('endpoints_watcher_relay_queue_depth', {}, waiting);
    metrics.set('endpoints_watcher_relay_in_flight', {}, inFlight);
    const { merged, unchanged } = this.#queue.coalesced;
    metrics.set('endpoints_watcher_relay_coalesced_total', { kind: 'merged' }, merged);
    metrics.set('endpoints_watcher_relay_coalesced_total', { kind: 'unchanged' }, unchanged);
  }
}
