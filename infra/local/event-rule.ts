import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../wire/log.ts';
import type { EventLog, LogEntry } from './event-log.ts';

/** The event as EventBridge shows it to patterns and targets. Source: EventBridge user guide, event structure. */
export interface BusEvent {
  readonly version: '0';
  readonly id: string;
  readonly 'detail-type': string;
  readonly source: string;
  readonly account: string;
  /** RFC 3339 in whole seconds, as EventBridge writes it. */
  readonly time: string;
  readonly region: string;
  readonly resources: readonly string[];
  readonly detail: Readonly<Record<string, unknown>>;
}

/** Which events go where. */
export interface EventRule {
  readonly name: string;
  readonly matches: (event: BusEvent) => boolean;
  /** Receives one POST of the event for each match. */
  readonly target: URL;
}

export interface DeliveryOptions {
  readonly log: EventLog;
  readonly toEvent: (entry: LogEntry) => BusEvent;
  readonly logger: Logger;
  /** Wait before attempt `attempt + 1`, in milliseconds. */
  readonly retryDelayMs: (attempt: number) => number;
}

/** A rule at work. */
export interface Delivery extends AsyncDisposable {
  /** `n` of the last entry that was delivered, given up or did not match. */
  readonly position: number;
}

/** Then the event is dropped. Source: EventBridge, default retry policy (185 attempts). */
const MAX_ATTEMPTS = 185;
/** A target must answer within this. Source: EventBridge, API destinations. */
const ATTEMPT_TIMEOUT_MS = 5000;
/** Entries that a rule holds in memory at a time. */
const BATCH = 100;
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 30_000;

/** Exponential with full jitter: a target that comes back is not met by all rules at once. */
export function backOffMs(attempt: number): number {
  return Math.random() * Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** (attempt - 1));
}

/**
 * Delivers what matches a rule, in order and at least once, from the entry after `position` on until disposal. Its queue
 * is the log itself, so it is bounded as the log is: in memory, a rule that falls behind it loses what was forgotten.
 */
export function startDelivery(rule: EventRule, position: number, options: DeliveryOptions): Delivery {
  const { log, toEvent, logger } = options;
  const closing = new AbortController();
  let done = position;

  const run = async () => {
    while (!closing.signal.aborted) {
      await log.waitBeyond(done, closing.signal);
      for (const entry of await log.read(done, BATCH)) {
        if (entry.n > done + 1)
          logger.warn('rule lost events that the log forgot', {
            rule: rule.name,
            events: entry.n - done - 1,
          });
        const event = toEvent(entry);
        if (rule.matches(event)) await deliver(event, rule, options, closing.signal);
        if (closing.signal.aborted) return;
        done = entry.n;
      }
    }
  };
  const running = run().catch((error: unknown) => {
    if (!closing.signal.aborted) logger.error('rule stopped', { rule: rule.name, error });
  });

  return {
    get position() {
      return done;
    },
    async [Symbol.asyncDispose]() {
      closing.abort();
      await running;
    },
  };
}

async function deliver(
  event: BusEvent,
  { name, target }: EventRule,
  { logger, retryDelayMs }: DeliveryOptions,
  closing: AbortSignal,
): Promise<void> {
  for (let attempt = 1; attempt <= MAX_ATTEMPTS && !closing.aborted; attempt++) {
    const outcome = await post(target, event, closing);
    if (outcome === 'delivered') return;
    if (outcome === 'refused') break;
    logger.debug('rule retries its target', { rule: name, event_id: event.id, attempt, outcome });
    await sleep(retryDelayMs(attempt), undefined, { signal: closing }).catch(() => undefined);
  }
  if (!closing.aborted) logger.warn('rule dropped an event', { rule: name, event_id: event.id });
}

/** Which answers are tried again is as for API destinations: 409, 429, 5xx, none. */
async function post(
  target: URL,
  event: BusEvent,
  closing: AbortSignal,
): Promise<'delivered' | 'refused' | 'failed'> {
  try {
    const response = await fetch(target, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(event),
      // A loopback target must not send the event on to elsewhere.
      redirect: 'manual',
      signal: AbortSignal.any([closing, AbortSignal.timeout(ATTEMPT_TIMEOUT_MS)]),
    });
    await response.body?.cancel();
    if (response.ok) return 'delivered';
    return response.status === 409 || response.status === 429 || response.status >= 500
      ? 'failed'
      : 'refused';
  } catch {
    return 'failed';
  }
}
