import { performance } from 'node:perf_hooks';
import type { Clock, EpochMs } from '../../core/time.ts';

/** The machine's time, which can be moved forward: what waits for a minute or a week need not be waited for. */
export class StackClock implements Clock {
  private offsetMs = 0;

  now(): EpochMs {
    return (Date.now() + this.offsetMs) as EpochMs;
  }

  /** Never moved: deadlines of requests under way are about real time. */
  monotonic(): number {
    return performance.now();
  }

  /** Moves the wall clock forward, in milliseconds. */
  advance(ms: number): void {
    this.offsetMs += ms;
  }
}
