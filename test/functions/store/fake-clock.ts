import type { Clock, EpochMs } from '../../../core/time.ts';

/** Some day in 2026, on a whole second. */
export const START = Date.UTC(2026, 10, 30, 10) as EpochMs;

/** Time that moves only when told. */
export class FakeClock implements Clock {
  private elapsedMs = 0;

  now(): EpochMs {
    return (START + this.elapsedMs) as EpochMs;
  }

  monotonic(): number {
    return this.elapsedMs;
  }

  advance(ms: number): void {
    this.elapsedMs += ms;
  }
}
