import { setTimeout as wait } from 'node:timers/promises';
import type { Clock } from '../../core/time.ts';
import { type Fence, FencedError, StoreUnavailableError } from './store.ts';

/** Longest time that one try may take, in milliseconds (P8). */
export const TRY_TIMEOUT_MS = 1000;
/** Tries of one call; with the pauses between them they outlast a burst of throttling, not an outage. */
const MAX_TRIES = 5;
const FIRST_PAUSE_MS = 50;

/** One try of a call to DynamoDB, with a client that does not retry by itself. */
export type Try<T> = (options: { readonly abortSignal: AbortSignal }) => Promise<T>;

/**
 * Tries a call until it gets an answer. Each try ends after TRY_TIMEOUT_MS, and starts only before the fence's deadline.
 * @throws StoreUnavailableError, with its cause, when the last try too was throttled or got no answer: what an earlier
 * one did is not known.
 * @throws FencedError when the deadline passed first (P8).
 * @throws whatever else DynamoDB answers, such as a failed condition.
 */
export type Retry = <T>(attempt: Try<T>, fence?: Fence) => Promise<T>;

export interface RetryOptions {
  readonly clock: Clock;
  /** Waits for so many milliseconds. */
  readonly pause?: (ms: number) => Promise<void>;
}

export function createRetry({ clock, pause = wait }: RetryOptions): Retry {
  return async (attempt, fence) => {
    for (let tries = 1; ; tries++) {
      if (fence !== undefined && clock.monotonic() >= fence.deadline) {
        throw new FencedError('the request is too old to write');
      }
      const abortSignal = AbortSignal.timeout(TRY_TIMEOUT_MS);
      try {
        return await attempt({ abortSignal });
      } catch (error) {
        if (!abortSignal.aborted && !isUnavailability(error)) throw error;
        if (tries === MAX_TRIES)
          throw new StoreUnavailableError('DynamoDB does not answer', { cause: error });
        await pause(pauseMs(tries));
      }
    }
  };
}

/** Doubles with every try, and is spread evenly, so that callers who were throttled together do not come back together. */
export function pauseMs(tries: number): number {
  return Math.random() * FIRST_PAUSE_MS * 2 ** tries;
}

const THROTTLES: ReadonlySet<string> = new Set([
  'ProvisionedThroughputExceededException',
  'RequestLimitExceeded',
  'ThrottlingException',
  'TooManyRequestsException',
]);

/** Does an SDK's error say that a service is throttling, failing or out of reach: may the same call succeed later? */
function isUnavailability(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { $metadata, code } = error as { $metadata?: { httpStatusCode?: number }; code?: unknown };
  if (THROTTLES.has(error.name)) return true;
  if ($metadata?.httpStatusCode !== undefined) return $metadata.httpStatusCode >= 500;
  // No answer: the errors of sockets and name look-ups have a code.
  return typeof code === 'string' || error.name === 'TimeoutError';
}
