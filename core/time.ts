/** Wall-clock instant in milliseconds since the Unix epoch. */
export type EpochMs = number & { readonly __brand: 'EpochMs' };

/** Time as a dependency, so that tests and the laptop stack can move it. */
export interface Clock {
  /** Wall clock: what is stored, published and compared across machines. */
  now(): EpochMs;
  /** Milliseconds from an arbitrary start that never step back: deadlines and ages inside one process. */
  monotonic(): number;
}

/** RFC 3339 in UTC with milliseconds, the one form in which instants leave the system. */
export function formatInstant(at: EpochMs): string {
  return new Date(at).toISOString();
}
