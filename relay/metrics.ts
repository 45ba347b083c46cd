import type { WatchedKind } from '../wire/envelope.ts';
import { type Histograms, LAG_BOUNDS_SECONDS } from '../wire/heartbeat.ts';

type Labels = Readonly<Record<string, string>>;

interface Family {
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
}

/** Every metric of the relay, with its help text (W15). */
const FAMILIES = {
  services_informer_lag_seconds: {
    type: 'histogram',
    help: "From a Service's last update until the relay saw it.",
  },
  endpointslices_informer_lag_seconds: {
    type: 'histogram',
    help: "From an EndpointSlice's last update until the relay saw it.",
  },
  endpoints_informer_lag_seconds: {
    type: 'histogram',
    help: "From an Endpoints object's last update until the relay saw it.",
  },
  endpoints_watcher_delta_latency_seconds: {
    type: 'histogram',
    help: 'From the change behind a watch event until a stage had it.',
  },
  endpoints_watcher_relay_leader: { type: 'gauge', help: '1 while this relay leads, 0 while it stands by.' },
  endpoints_watcher_relay_epoch: { type: 'gauge', help: 'Epoch under which this relay leads.' },
  endpoints_watcher_relay_last_event_age_seconds: {
    type: 'gauge',
    help: 'Since the API server last said anything of a kind, bookmarks too.',
  },
  endpoints_watcher_relay_resource_version: { type: 'gauge', help: 'Version up to which a kind was seen.' },
  endpoints_watcher_relay_watch_live: {
    type: 'gauge',
    help: '1 while a kind has a watch behind a full list.',
  },
  endpoints_watcher_relay_lists_total: { type: 'counter', help: 'Lists, by kind and cause.' },
  endpoints_watcher_relay_watch_ends_total: { type: 'counter', help: 'Ends of watches, by kind and cause.' },
  endpoints_watcher_relay_events_total: { type: 'counter', help: 'Watch events, by kind and type.' },
  endpoints_watcher_relay_ignored_total: {
    type: 'counter',
    help: 'Watch events of slices that belong to no service or hold no IPs.',
  },
  endpoints_watcher_relay_queue_depth: { type: 'gauge', help: 'Objects that wait to be told.' },
  endpoints_watcher_relay_in_flight: { type: 'gauge', help: 'Objects in requests without an answer.' },
  endpoints_watcher_relay_coalesced_total: {
    type: 'counter',
    help: 'Watch events merged into later ones (merged), or that changed nothing (unchanged).',
  },
  endpoints_watcher_relay_results_total: {
    type: 'counter',
    help: "Ingest's answers for objects, by status.",
  },
  endpoints_watcher_relay_retries_total: {
    type: 'counter',
    help: 'Requests that failed and are repeated, by path.',
  },
  endpoints_watcher_relay_enrichment_kept: {
    type: 'gauge',
    help: 'What is kept of pods, their owners and Servers, by kind; traits are what pods of one namespace differ in.',
  },
  endpoints_watcher_relay_inventories_total: { type: 'counter', help: 'Inventories, by outcome.' },
} as const satisfies Record<string, Family>;

export type MetricName = keyof typeof FAMILIES;

const LAG_NAMES = {
  Service: 'services_informer_lag_seconds',
  EndpointSlice: 'endpointslices_informer_lag_seconds',
  Endpoints: 'endpoints_informer_lag_seconds',
} as const satisfies Record<WatchedKind, MetricName>;

interface Value {
  readonly labels: Labels;
  value: number | string;
}

interface Histogram {
  readonly labels: Labels;
  /** Not cumulative: values in (bounds[i - 1], bounds[i]]; the last one is above all bounds. */
  readonly counts: number[];
  sum: number;
}

/** Counts what the relay does, and tells it in Prometheus' text format and in heartbeats. */
export class Metrics {
  /** Sets the gauges before they are shown. */
  onCollect: () => void = () => {};
  readonly #values = new Map<MetricName, Map<string, Value>>();
  readonly #histograms = new Map<MetricName, Map<string, Histogram>>();

  count(name: MetricName, labels: Labels = {}, by = 1): void {
    const series = this.#series(name, labels);
    series.value = Number(series.value) + by;
  }

  /** A version is kept as text: it may have more digits than a double. */
  set(name: MetricName, labels: Labels, value: number | string): void {
    this.#series(name, labels).value = value;
  }

  /** From an object's last update until the relay saw it. */
  observeLag(kind: WatchedKind, seconds: number): void {
    this.#observe(LAG_NAMES[kind], {}, seconds);
  }

  /** `observe`: a change until the relay saw it; `publish`: seen until ingest had published it. */
  observeLatency(stage: 'observe' | 'publish', seconds: number): void {
    this.#observe('endpoints_watcher_delta_latency_seconds', { stage }, seconds);
  }

  /** All histograms so far, for the heartbeat. */
  histograms(): Histograms {
    const entries = [...this.#histograms].map(([name, series]) => {
      const told = [...series.values()].map(({ labels, counts, sum }) => {
        const cumulative = accumulate(counts);
        const count = cumulative.at(-1) ?? 0;
        return { labels, bounds: [...LAG_BOUNDS_SECONDS], buckets: cumulative.slice(0, -1), count, sum };
      });
      return [name, told] as const;
    });
    return Object.fromEntries(entries);
  }

  /** Prometheus text format 0.0.4. */
  render(): string {
    this.onCollect();
    const lines: string[] = [];
    for (const name of Object.keys(FAMILIES) as MetricName[]) {
      const values = [...(this.#values.get(name)?.values() ?? [])];
      const histograms = [...(this.#histograms.get(name)?.values() ?? [])];
      if (values.length + histograms.length === 0) continue;
      const { type, help } = FAMILIES[name];
      lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
      for (const { labels, value } of values) lines.push(`${name}${renderLabels(labels)} ${value}`);
      for (const { labels, counts, sum } of histograms) {
        const cumulative = accumulate(counts);
        cumulative.forEach((count, index) => {
          const le = String(LAG_BOUNDS_SECONDS[index] ?? '+Inf');
          lines.push(`${name}_bucket${renderLabels({ ...labels, le })} ${count}`);
        });
        lines.push(`${name}_sum${renderLabels(labels)} ${sum}`);
        lines.push(`${name}_count${renderLabels(labels)} ${cumulative.at(-1)}`);
      }
    }
    return `${lines.join('\n')}\n`;
  }

  #series(name: MetricName, labels: Labels): Value {
    return seriesOf(this.#values, name, labels, () => ({ labels, value: 0 }));
  }

  #observe(name: MetricName, labels: Labels, seconds: number): void {
    const histogram = seriesOf(this.#histograms, name, labels, () => ({
      labels,
      counts: new Array<number>(LAG_BOUNDS_SECONDS.length + 1).fill(0),
      sum: 0,
    }));
    const value = Math.max(0, seconds);
    const bucket = LAG_BOUNDS_SECONDS.findIndex((bound) => value <= bound);
    const index = bucket === -1 ? LAG_BOUNDS_SECONDS.length : bucket;
    histogram.counts[index] = (histogram.counts[index] ?? 0) + 1;
    histogram.sum += value;
  }
}

/** The series of a metric with these labels, made when it is not there yet. */
function seriesOf<V>(
  families: Map<MetricName, Map<string, V>>,
  name: MetricName,
  labels: Labels,
  create: () => V,
): V {
  const family = families.get(name) ?? new Map<string, V>();
  families.set(name, family);
  const key = renderLabels(labels);
  const known = family.get(key) ?? create();
  family.set(key, known);
  return known;
}

function accumulate(counts: readonly number[]): number[] {
  let sum = 0;
  return counts.map((count) => {
    sum += count;
    return sum;
  });
}

function renderLabels(labels: Labels): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escapeLabel(value)}"`);
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}

function escapeLabel(value: string): string {
  return value.replace(/[\\"\n]/g, (character) => (character === '\n' ? '\\n' : `\\${character}`));
}
