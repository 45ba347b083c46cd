import type { Clock } from '../../core/time.ts';
import type { Fence } from '../store/store.ts';

/** Head writes of a request start within so many milliseconds of its epoch's reading, or not at all (P8). */
const FENCE_MS = 8_000;

/** A fence for what is decided from now on; taken before the read that it guards. */
export function fenceFromNow(clock: Clock): Fence {
  return { deadline: clock.monotonic() + FENCE_MS };
}

/** After so many milliseconds a request of a former epoch has landed or is lost (P8, W18). */
export const GHOST_MS = 10_000;
