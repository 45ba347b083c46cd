import { formatInstant } from '../core/time.ts';
import { type EventStatus, eventsAnswer } from '../wire/events.ts';
import type { Logger } from '../wire/log.ts';
import type { Conflict } from '../wire/problem.ts';
import { delayOf } from './backoff.ts';
import { type Held, objectJson } from './compact.ts';
import type { Answer, IngestClient } from './ingest-client.ts';
import type { Metrics } from './metrics.ts';
import { type Batch, FENCE_MS, type Outcome, type Queue, type QueuedEvent } from './queue.ts';
import type { Pulse, Timers } from './timers.ts';

/** Requests under way at the same time, at most. */
const MAX_IN_FLIGHT = 8;
/** Delays of repeated requests, in milliseconds, before their jitter. */
const RETRY_BASE_MS = 200;
const RETRY_CAP_MS = 10_000;
/** A batch that is still too large when it was halved this often is not going to fit. */
const MAX_SPLITS = 12;

export interface SenderDeps {
  readonly queue: Queue;
  readonly ingest: IngestClient;
  /** What every request says of the relay, as JSON. */
  readonly envelope: Readonly<Record<string, unknown>>;
  /** Must each event be recorded, since requests of a former leader may still run (W18)? */
  readonly mustConfirm: () => boolean;
  /** What is known of an object's pods, as fields of its event in JSON; null when that is nothing. It counts as told. */
  readonly tellPods: (object: Held) => string | null;
  readonly onAnswered: () => void;
  readonly onConflict: (conflict: Conflict) => void;
  readonly pulse: Pulse;
  readonly timers: Timers;
  readonly random: () => number;
  readonly metrics: Metrics;
  readonly log: Logger;
}

/** Takes batches from the queue and brings them to ingest, several at a time, until they are answered. */
export class Sender {
  readonly #deps: SenderDeps;
  #inFlight = 0;
  #failures = 0;
  #failingSince: number | null = null;

  constructor(deps: SenderDeps) {
    this.#deps = deps;
  }

  /** Requests under way, and those whose failure is being waited out. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** Milliseconds since deliveries began to fail; null while they succeed. */
  get failingForMs(): number | null {
    return this.#failingSince === null ? null : this.#deps.timers.monotonic() - this.#failingSince;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { queue, pulse, timers } = this.#deps;
    while (!signal.aborted) {
      let batch = this.#inFlight < MAX_IN_FLIGHT ? queue.take() : null;
      for (; batch !== null; batch = this.#inFlight < MAX_IN_FLIGHT ? queue.take() : null) {
        void this.#deliver(batch, signal);
      }
      const waitMs = queue.nextAt === null ? null : Math.max(0, queue.nextAt - timers.monotonic());
      await pulse.wait(timers, waitMs);
    }
  }

  /** One request, and after a failure a pause, which keeps its place among those in flight. */
  async #deliver(batch: Batch, signal: AbortSignal): Promise<void> {
    const { queue, ingest, envelope, tellPods, pulse, timers } = this.#deps;
    this.#inFlight++;
    const mustConfirm = this.#deps.mustConfirm();
    const answer = await ingest.post(
      '/v1/events',
      bodyOf(envelope, batch, mustConfirm, tellPods),
      eventsAnswer,
      signal,
    );
    if (signal.aborted) return;
    const outcome = this.#outcomeOf(batch, answer);
    queue.settle(batch, outcome);
    pulse.notify();
    if (outcome.kind === 'failed') await timers.sleep(outcome.retryAt - timers.monotonic(), signal);
    this.#inFlight--;
    pulse.notify();
  }

  #outcomeOf(batch: Batch, answer: Answer<{ results: readonly Result[] }>): Outcome {
    const { log, metrics, onConflict } = this.#deps;
    const count = batch.events.length;
    switch (answer.kind) {
      case 'ok': {
        const statuses = statusesOf(answer.value.results, count);
        if (statuses === null) return this.#failed(batch, 'not one result for each event', true, 0);
        this.#failures = 0;
        this.#failingSince = null;
        this.#note(batch, answer.value.results);
        this.#deps.onAnswered();
        return { kind: 'answered', statuses };
      }
      case 'conflict':
        onConflict(answer.conflict);
        return this.#failed(batch, `conflict: ${answer.conflict.error}`, false, 0);
      case 'tooLarge':
        if (count > 1 && batch.splits < MAX_SPLITS) return { kind: 'tooLarge' };
        log.error('event dropped, ingest finds it too large', { name: batch.events[0]?.held.name, count });
        metrics.count('endpoints_watcher_relay_results_total', { status: 'dropped' }, count);
        return { kind: 'dropped' };
      case 'refused':
        log.error('batch dropped, ingest refused it', { reason: answer.reason, count });
        metrics.count('endpoints_watcher_relay_results_total', { status: 'dropped' }, count);
        return { kind: 'dropped' };
      case 'unavailable':
        return this.#failed(batch, answer.reason, answer.mayHaveRun, answer.retryAfterMs, answer.status);
      default:
        return answer satisfies never;
    }
  }

  #failed(
    batch: Batch,
    reason: string,
    mayHaveRun: boolean,
    retryAfterMs: number,
    status: number | null = null,
  ): Outcome {
    const { timers, random, log, metrics } = this.#deps;
    const now = timers.monotonic();
    this.#failingSince ??= now;
    const step = Math.max(batch.failures, this.#failures++);
    // What replaces any version is not stopped by `confirm`: its former request has to be over first.
    const isFenced = mayHaveRun && batch.events.some((event) => event.isStateUnknown);
    const delay = delayOf(step, RETRY_BASE_MS, RETRY_CAP_MS, random);
    const waitMs = Math.max(delay, retryAfterMs, isFenced ? FENCE_MS : 0);
    metrics.count('endpoints_watcher_relay_retries_total', { path: 'events' });
    log.warn('delivery failed', {
      status,
      reason,
      count: batch.events.length,
      retry_in_ms: Math.round(waitMs),
    });
    return { kind: 'failed', mayHaveRun, retryAt: now + waitMs };
  }

  #note(batch: Batch, results: readonly Result[]): void {
    const { timers, metrics, log } = this.#deps;
    for (const { index, status, reason } of results) {
      metrics.count('endpoints_watcher_relay_results_total', { status });
      const held = batch.events[index]?.held;
      if (held === undefined) continue;
      if (status === 'applied') {
        metrics.observeLatency('publish', (timers.now() - held.observedAt) / 1000);
      } else if (status === 'rejected') {
        const { kind, namespace, name, resourceVersion } = held;
        log.error('object rejected', { kind, namespace, name, resource_version: resourceVersion, reason });
      }
    }
  }
}

interface Result {
  readonly index: number;
  readonly status: EventStatus;
  readonly reason?: string | undefined;
}

/** One status per event, in order; null when some have none. */
function statusesOf(results: readonly Result[], count: number): EventStatus[] | null {
  const byIndex = new Map(results.map(({ index, status }) => [index, status]));
  const statuses: EventStatus[] = [];
  for (let index = 0; index < count; index++) {
    const status = byIndex.get(index);
    if (status === undefined) return null;
    statuses.push(status);
  }
  return statuses;
}

/** The request's JSON, in pieces. */
function* bodyOf(
  envelope: object,
  { events }: Batch,
  mustConfirm: boolean,
  tellPods: SenderDeps['tellPods'],
): Generator<string> {
  yield `${JSON.stringify(envelope).slice(0, -1)},"events":[`;
  for (const [index, event] of events.entries()) {
    if (index > 0) yield ',';
    yield eventJson(event, mustConfirm, event.type === 'DELETED' ? null : tellPods(event.held));
  }
  yield ']}';
}

/** What is false is left out: a batch is mostly its objects. */
function eventJson(event: QueuedEvent, mustConfirm: boolean, pods: string | null): string {
  const { type, held, former, isResync, isConfirmed, isStateUnknown } = event;
  const options = {
    observedAt: formatInstant(held.observedAt),
    ...((isConfirmed || mustConfirm) && { confirm: true }),
    ...(isResync && { resync: true }),
    ...(isStateUnknown && { stateUnknown: true }),
    ...(former.length > 0 && { former }),
  };
  const said = [...(pods === null ? [] : [pods]), JSON.stringify(options).slice(1)].join(',');
  return `{"type":"${type}","object":${objectJson(held)},${said}`;
}
