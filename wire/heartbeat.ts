import * as z from 'zod';
import { count, envelope, namespaces, optionalVersion, orNull } from './envelope.ts';
import { type Invalid, parse } from './parse.ts';

/** Bounds of the lag and latency histograms, in seconds. */
export const LAG_BOUNDS_SECONDS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 1000] as const;

const MAX_KINDS = 16;
const MAX_HISTOGRAMS = 32;
const MAX_SERIES = 16;
const MAX_BOUNDS = 64;
const MAX_LABELS = 8;
const MAX_LABEL_LENGTH = 128;
/** All histograms as JSON: they are stored in one item with the scope, at each heartbeat anew. */
const MAX_HISTOGRAM_CHARS = 40_000;

/** One series of a histogram since the relay's start, cumulative as Prometheus has it. */
const histogramSeries = z
  .object({
    labels: z
      .record(
        z.string().regex(/^[a-z_][a-z0-9_]{0,63}$/, 'must be a label name of a-z, 0-9 and "_"'),
        z.string().max(MAX_LABEL_LENGTH),
      )
      .refine((labels) => Object.keys(labels).length <= MAX_LABELS, `must have at most ${MAX_LABELS} labels`)
      .default({}),
    bounds: z.array(z.number()).max(MAX_BOUNDS).describe('Upper bounds, rising, without +Inf.'),
    buckets: z.array(count).max(MAX_BOUNDS).describe('buckets[i] counts values up to bounds[i].'),
    count: count.describe('All values, those above the last bound too.'),
    sum: z.number(),
  })
  .superRefine(({ bounds, buckets, count }, context) => {
    const issue = (field: string, message: string) =>
      context.addIssue({ code: 'custom', path: [field], message });
    if (!isRising(bounds, (former, next) => former < next)) issue('bounds', 'must rise');
    else if (buckets.length !== bounds.length) issue('buckets', 'must have one count for each of bounds');
    else if (!isRising([...buckets, count], (former, next) => former <= next))
      issue('buckets', 'must be cumulative counts, none above count');
  });
export type HistogramSeries = z.infer<typeof histogramSeries>;

function isRising(values: readonly number[], isOrdered: (former: number, next: number) => boolean): boolean {
  return values.every((value, index) => index === 0 || isOrdered(values[index - 1] ?? value, value));
}

/** Histograms by metric name: one series for each set of labels. */
export const histograms = z
  .record(
    z.string().regex(/^[a-z_][a-z0-9_]{0,127}$/, 'must be a metric name of a-z, 0-9 and "_"'),
    z.array(histogramSeries).max(MAX_SERIES),
  )
  .refine((value) => Object.keys(value).length <= MAX_HISTOGRAMS, `must have at most ${MAX_HISTOGRAMS} names`)
  .refine(
    (value) => JSON.stringify(value).length <= MAX_HISTOGRAM_CHARS,
    `must have at most ${MAX_HISTOGRAM_CHARS} characters as JSON`,
  );
export type Histograms = z.infer<typeof histograms>;

/** State of one watch. */
const watchedKindState = z.object({
  kind: z
    .string()
    .regex(/^[A-Za-z][A-Za-z0-9]{0,62}$/, 'must be a kind, such as Service')
    .describe('Service, EndpointSlice, Endpoints, or what the relay watches beside them.'),
  resourceVersion: optionalVersion.describe('Null before the first list is complete.'),
  lastEventAgeMs: z.number().min(0).nullish().transform(orNull).describe('Null before the first event.'),
});

/** `POST /v1/heartbeat`, every 15 s and at start. */
export const heartbeatRequest = envelope.extend({
  namespaces,
  synced: z
    .boolean()
    .default(false)
    .describe('Every kind has a live watch, and nothing seen more than 5 s ago is undelivered.'),
  kinds: z.array(watchedKindState).max(MAX_KINDS).default([]),
  histograms: histograms.default({}).describe('By metric name, one series for each set of labels.'),
});
export type HeartbeatRequest = z.infer<typeof heartbeatRequest>;

/** Parses a heartbeat; `invalid` is a 400. */
export function parseHeartbeatRequest(
  body: unknown,
): { readonly kind: 'ok'; readonly request: HeartbeatRequest } | Invalid {
  const parsed = parse(heartbeatRequest, body);
  return parsed.kind === 'ok' ? { kind: 'ok', request: parsed.value } : parsed;
}

/** Answer of `POST /v1/heartbeat`. */
export const heartbeatAnswer = z.object({
  epoch: count,
  waitMs: count.describe('How long requests of a former leader may still run.'),
  versions: z.record(z.string(), z.string()).describe('Highest version stored, by kind.'),
});
export type HeartbeatAnswer = z.infer<typeof heartbeatAnswer>;
