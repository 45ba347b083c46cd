import type { Clock, EpochMs } from '../core/time.ts';

/** Time as the relay needs it: the clocks, and waiting. */
export interface Timers extends Clock {
  /** Resolves after `ms`, or at once when `signal` is aborted; never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** The machine's own time. */
export const systemTimers: Timers = {
  now: () => Date.now() as EpochMs,
  monotonic: () => performance.now(),
  sleep(ms, signal) {
    const { promise, resolve } = Promise.withResolvers<void>();
    if (signal?.aborted) return Promise.resolve();
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end, { once: true });
    return promise;
  },
};

/** Tells everyone who waits that something changed and is worth another look. */
export class Pulse {
  #next = Promise.withResolvers<void>();

  notify(): void {
    this.#next.resolve();
    this.#next = Promise.withResolvers<void>();
  }

  /** Resolves at the next `notify`. A condition looked at in the same turn cannot be missed. */
  next(): Promise<void> {
    return this.#next.promise;
  }

  /** Waits for the next `notify`, at most `ms` (null: for ever). */
  async wait(timers: Timers, ms: number | null): Promise<void> {
    if (ms === null) return this.next();
    const timer = new AbortController();
    await Promise.race([this.next(), timers.sleep(ms, timer.signal)]);
    timer.abort();
  }
}
