import { type PortId, parsePortId, portId } from '../../core/service-port.ts';
import type { Clock, EpochMs } from '../../core/time.ts';
import type { HistogramSeries } from '../../wire/heartbeat.ts';
import { isGone } from '../services/cluster.ts';
import { serviceId } from '../services/service-cache.ts';
import type { ClusterRecord, DeadLetter, ServiceKey, ServiceSummary, Store } from '../store/store.ts';

/** Media type of the text format. Source: Prometheus, exposition formats. */
export const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** How long a counter that a list has missed is remembered, in milliseconds; no list is behind for so long. */
const COUNTER_MEMORY_MS = 3_600_000;
/** Dead letters that a scrape counts: as many tell no more than fewer. */
const MAX_DEAD_LETTERS = 1000;

/** Metrics that relays tell in their heartbeats. */
const HISTOGRAM_HELP: ReadonlyMap<string, string> = new Map([
  ['endpointslices_informer_lag_seconds', "From an EndpointSlice's last update until its relay saw it."],
  ['endpoints_informer_lag_seconds', "From an Endpoints object's last update until its relay saw it."],
  ['services_informer_lag_seconds', "From a Service's last update until its relay saw it."],
  [
    'endpoints_watcher_delta_latency_seconds',
    'From a change in the cluster to the relay (observe), to the state (commit) and to the bus (publish).',
  ],
]);
const OTHER_HISTOGRAM_HELP = 'As its relay tells it.';

/** Metrics of our own; a relay that tells one of them is not believed. */
const OWN_METRICS = new Set([
  'endpoints_exists',
  'endpoints_pods',
  'endpoints_subscribers',
  'endpoints_updates',
  'endpoints_watcher_dead_letters',
  'endpoints_watcher_relay_last_event_age_seconds',
  'endpoints_watcher_resyncs_total',
]);

type Labels = Readonly<Record<string, string>>;

/** A service port in a scrape. */
interface PortSeries {
  readonly labels: Labels;
  readonly exists: boolean;
  readonly size: number;
  readonly updates: number;
}

/** The readers of a service port. */
interface SubscriberSeries {
  readonly labels: Labels;
  readonly live: number;
}

/** What metrics are read from. */
export interface MetricsDeps {
  readonly store: Store;
  readonly clock: Clock;
}

/** One for a function instance: it remembers its counters, since the list of services may be seconds behind. */
export class Metrics {
  private readonly store: Store;
  private readonly clock: Clock;
  private readonly counters = new Map<string, { value: number; seenAt: EpochMs }>();

  constructor({ store, clock }: MetricsDeps) {
    this.store = store;
    this.clock = clock;
  }

  /** All metrics, in pieces of the text format. */
  async collect(): Promise<Iterable<string>> {
    const clusters = (await this.store.listClusters()).filter((cluster) => !isGone(cluster));
    const ports: PortSeries[] = [];
    for (const { name } of clusters)
      for await (const page of this.store.listServices(name, {}))
        for (const service of page) ports.push(...this.portSeries(service));
    const deadLetters = await this.store.listDeadLetters(MAX_DEAD_LETTERS);
    const now = this.clock.now();
    const subscribers = await this.subscriberSeries(new Set(clusters.map(({ name }) => name)), now);
    this.forget(now);
    return writeMetrics({ clusters, ports, subscribers, deadLetters }, now);
  }

  /** Of ports with a live subscription: a series goes when the last one ends. */
  private async subscriberSeries(clusters: ReadonlySet<string>, now: EpochMs): Promise<SubscriberSeries[]> {
    const series = new Map<string, { labels: Labels; live: number }>();
    for await (const page of this.store.listSubscriptions(null)) {
      for (const { key, port, until } of page) {
        if (until <= now || !clusters.has(key.cluster)) continue;
        const id = `${serviceId(key)}:${port}`;
        const known = series.get(id) ?? { labels: portLabels(key, port), live: 0 };
        known.live++;
        series.set(id, known);
      }
    }
    return [...series.values()];
  }

  private portSeries({ key, exists, ports }: ServiceSummary): PortSeries[] {
    return ports.map(({ id, size, sequence }) => ({
      labels: portLabels(key, id),
      exists,
      size,
      updates: this.advance(`${serviceId(key)}:${id}`, sequence),
    }));
  }

  /** The highest value that this instance has seen. */
  private advance(counter: string, value: number): number {
    const highest = Math.max(value, this.counters.get(counter)?.value ?? 0);
    this.counters.set(counter, { value: highest, seenAt: this.clock.now() });
    return highest;
  }

  private forget(now: EpochMs): void {
    for (const [counter, { seenAt }] of this.counters)
      if (now - seenAt > COUNTER_MEMORY_MS) this.counters.delete(counter);
  }
}

/** As Linkerd's destination controller labels its series. */
function portLabels({ cluster, namespace, name: service }: ServiceKey, id: PortId): Labels {
  return { cluster, hostname: '', namespace, port: portLabel(id), service };
}

/** `80`, and `53/UDP` for what is not TCP: else two ports of one number would be one series (S21). */
function portLabel(id: string): string {
  const port = parsePortId(id);
  return port === null ? id : portId(port);
}

/** What a scrape has read. */
interface Scrape {
  readonly clusters: readonly ClusterRecord[];
  readonly ports: readonly PortSeries[];
  readonly subscribers: readonly SubscriberSeries[];
  readonly deadLetters: readonly DeadLetter[];
}

function* writeMetrics(scrape: Scrape, now: EpochMs): Iterable<string> {
  const { clusters, ports, subscribers, deadLetters } = scrape;
  yield* family('endpoints_exists', 'gauge', '1 if the Service exists, else 0.', ports, ({ exists }) =>
    exists ? 1 : 0,
  );
  yield* family('endpoints_pods', 'gauge', 'Ready addresses of the service port.', ports, ({ size }) => size);
  yield* family(
    'endpoints_subscribers',
    'gauge',
    'Live subscriptions to the service port.',
    subscribers,
    ({ live }) => live,
  );
  yield* family(
    'endpoints_updates',
    'counter',
    'Changes of the service port since it was first seen.',
    ports,
    ({ updates }) => updates,
  );
  yield* histogramFamilies(clusters);
  const ofCluster = clusters.map((cluster) => ({ labels: { cluster: cluster.name }, cluster }));
  yield* family(
    'endpoints_watcher_dead_letters',
    'gauge',
    'Deltas of the cluster that the bus refused for good, and that nobody has replayed.',
    ofCluster,
    ({ cluster }) => deadLetters.filter(({ key }) => key.cluster === cluster.name).length,
  );
  yield* family(
    'endpoints_watcher_relay_last_event_age_seconds',
    'gauge',
    'Time since the relay of the cluster saw an event.',
    ofCluster.filter(({ cluster }) => lastEventAge(cluster, now) !== null),
    ({ cluster }) => lastEventAge(cluster, now) ?? 0,
  );
  yield* family(
    'endpoints_watcher_resyncs_total',
    'counter',
    'Lists of the cluster that were reconciled with the state.',
    ofCluster,
    ({ cluster }) => cluster.resyncs,
  );
}

/** Seconds since any kind had an event; null while none had. */
function lastEventAge({ lastHeartbeat, lastEventAges }: ClusterRecord, now: EpochMs): number | null {
  const ages = Object.values(lastEventAges).filter((age) => age !== null);
  if (lastHeartbeat === null || ages.length === 0) return null;
  return (Math.min(...ages) + Math.max(0, now - lastHeartbeat)) / 1000;
}

function* family<S extends { readonly labels: Labels }>(
  name: string,
  type: 'gauge' | 'counter',
  help: string,
  series: readonly S[],
  measure: (series: S) => number,
): Iterable<string> {
  if (series.length === 0) return;
  yield header(name, type, help);
  for (const one of series) yield sample(name, one.labels, measure(one));
}

/** One family for each name, with the series of all clusters. */
function* histogramFamilies(clusters: readonly ClusterRecord[]): Iterable<string> {
  const told = new Set(clusters.flatMap(({ histograms }) => Object.keys(histograms)));
  const names = [...told].filter((name) => !OWN_METRICS.has(name));
  for (const name of names.sort()) {
    yield header(name, 'histogram', HISTOGRAM_HELP.get(name) ?? OTHER_HISTOGRAM_HELP);
    for (const { name: cluster, histograms } of clusters) {
      // A relay names its metrics as it likes, `constructor` too.
      const series = Object.hasOwn(histograms, name) ? histograms[name] : undefined;
      for (const one of distinctSeries(series ?? [])) yield* histogram(name, cluster, one);
    }
  }
}

/** The series without the labels that are ours to set; of two that are then alike the first. */
function distinctSeries(told: readonly HistogramSeries[]): Iterable<HistogramSeries> {
  const byLabels = new Map<string, HistogramSeries>();
  for (const series of told) {
    const { le: _bound, cluster: _cluster, ...labels } = series.labels;
    const id = JSON.stringify(Object.entries(labels).sort());
    if (!byLabels.has(id)) byLabels.set(id, { ...series, labels });
  }
  return byLabels.values();
}

function* histogram(name: string, cluster: string, series: HistogramSeries): Iterable<string> {
  const { bounds, buckets, count, sum } = series;
  const labels = { ...series.labels, cluster };
  for (const [index, bound] of bounds.entries())
    yield sample(`${name}_bucket`, { ...labels, le: `${bound}` }, buckets[index] ?? count);
  yield sample(`${name}_bucket`, { ...labels, le: '+Inf' }, count);
  yield sample(`${name}_sum`, labels, sum);
  yield sample(`${name}_count`, labels, count);
}

function header(name: string, type: 'gauge' | 'counter' | 'histogram', help: string): string {
  return `# HELP ${name} ${help.replace(/[\\\n]/g, escapeCharacter)}\n# TYPE ${name} ${type}\n`;
}

function sample(name: string, labels: Labels, value: number): string {
  const pairs = Object.entries(labels).map(
    ([label, text]) => `${label}="${text.replace(/[\\\n"]/g, escapeCharacter)}"`,
  );
  return `${name}{${pairs.join(',')}} ${value}\n`;
}

function escapeCharacter(character: string): string {
  return character === '\n' ? '\\n' : `\\${character}`;
}
