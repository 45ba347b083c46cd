import type { Timers } from './timers.ts';

/** The n-th delay of an exponential back-off, in milliseconds, with a jitter of 100 %. `step` counts from 0. */
export function delayOf(step: number, baseMs: number, capMs: number, random: () => number): number {
  return Math.min(capMs, baseMs * 2 ** step) * (1 + random());
}

/** First delay of client-go's reflector, in milliseconds (W5). */
const BASE_MS = 800;
const CAP_MS = 30_000;
/** Without a failure for this long the next one starts anew. */
const RESET_AFTER_MS = 120_000;

/** Delays between tries, growing while they fail (W5). */
export class Backoff {
  readonly #timers: Timers;
  readonly #random: () => number;
  #step = 0;
  #lastAt = 0;

  constructor(timers: Timers, random: () => number) {
    this.#timers = timers;
    this.#random = random;
  }

  /** Notes a failure. @returns how long to wait, in milliseconds. */
  next(): number {
    const now = this.#timers.monotonic();
    if (now - this.#lastAt >= RESET_AFTER_MS) this.#step = 0;
    this.#lastAt = now;
    return delayOf(this.#step++, BASE_MS, CAP_MS, this.#random);
  }
}
