import { setImmediate, setTimeout } from 'node:timers/promises';
import type { EpochMs } from '../../core/time.ts';
import type { Timers } from '../../relay/timers.ts';

interface Sleeper {
  readonly until: number;
  readonly wake: () => void;
}

/** Time that moves only when a test moves it. HTTP stays real. */
export class ManualTimers implements Timers {
  readonly #startedAt = Date.UTC(2026, 0, 1);
  readonly #sleepers = new Set<Sleeper>();
  #elapsed = 0;

  now = (): EpochMs => (this.#startedAt + this.#elapsed) as EpochMs;
  monotonic = (): number => this.#elapsed;

  sleep = (ms: number, signal?: AbortSignal): Promise<void> => {
    const { promise, resolve } = Promise.withResolvers<void>();
    if (signal?.aborted) return Promise.resolve();
    const sleeper: Sleeper = {
      until: this.#elapsed + ms,
      wake: () => {
        this.#sleepers.delete(sleeper);
        signal?.removeEventListener('abort', sleeper.wake);
        resolve();
      },
    };
    this.#sleepers.add(sleeper);
    signal?.addEventListener('abort', sleeper.wake, { once: true });
    return promise;
  };

  /** Lets `ms` pass, waking in order those whose time it is. */
  async advance(ms: number): Promise<void> {
    const end = this.#elapsed + ms;
    for (;;) {
      await setImmediate();
      const [next] = [...this.#sleepers].sort((a, b) => a.until - b.until);
      if (next === undefined || next.until > end) break;
      this.#elapsed = Math.max(this.#elapsed, next.until);
      next.wake();
    }
    this.#elapsed = end;
  }

  /** Lets time pass, `stepMs` at a time, between turns of real I/O, until a condition holds. */
  async until(condition: () => boolean, what: string, stepMs = 50): Promise<void> {
    for (let turn = 0; !condition(); turn++) {
      if (turn > 5000) throw new Error(`never happened: ${what}`);
      await setTimeout(1);
      if (!condition()) await this.advance(stepMs);
    }
  }
}

/** Time in which every sleep is over at once, unless time is held, and is written down. */
export class HastyTimers implements Timers {
  readonly sleeps: number[] = [];
  #elapsed = 0;
  #held: PromiseWithResolvers<void> | null = null;

  now = (): EpochMs => (Date.UTC(2026, 0, 1) + this.#elapsed) as EpochMs;
  monotonic = (): number => this.#elapsed;

  sleep = async (ms: number): Promise<void> => {
    this.sleeps.push(Math.round(ms));
    this.#elapsed += ms;
    await setImmediate();
    await this.#held?.promise;
  };

  /** Lets no sleep end before `release`. */
  hold(): void {
    this.#held ??= Promise.withResolvers();
  }

  release(): void {
    this.#held?.resolve();
    this.#held = null;
  }

  pass(ms: number): void {
    this.#elapsed += ms;
  }
}
