import type { Clock } from '../core/time.ts';
import { systemTimers, type Timers } from '../relay/timers.ts';

/** Waits pass so many times faster than the relay believes; `clock` tells the time of day. */
export function fastTimers(speed: number, clock: Pick<Clock, 'now'> = systemTimers): Timers {
  return {
    now: () => clock.now(),
    monotonic: () => performance.now() * speed,
    sleep: (ms, signal) => systemTimers.sleep(ms / speed, signal),
  };
}
