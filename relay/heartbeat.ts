import { type HeartbeatAnswer, heartbeatAnswer } from '../wire/heartbeat.ts';
import type { Logger } from '../wire/log.ts';
import type { Conflict } from '../wire/problem.ts';
import { delayOf } from './backoff.ts';
import type { IngestClient } from './ingest-client.ts';
import type { Pulse, Timers } from './timers.ts';

const INTERVAL_MS = 15_000;
/** First delay after a heartbeat that was not answered, in milliseconds. */
const RETRY_MS = 500;

export interface HeartbeatDeps {
  readonly ingest: IngestClient;
  readonly envelope: Readonly<Record<string, unknown>>;
  /** What changes from beat to beat: `synced`, `kinds`, `histograms`. */
  readonly state: () => Readonly<Record<string, unknown>>;
  readonly onConflict: (conflict: Conflict) => void;
  readonly pulse: Pulse;
  readonly timers: Timers;
  readonly random: () => number;
  readonly log: Logger;
}

/** Tells the cloud every 15 s how the relay is; the first one takes the cluster for this relay's epoch (W18). */
export class Heartbeat {
  readonly #deps: HeartbeatDeps;
  #versions: HeartbeatAnswer['versions'] = {};
  #fencedUntil: number | null = null;

  constructor(deps: HeartbeatDeps) {
    this.#deps = deps;
  }

  /** Monotonic time until which requests of a former leader may run; null before the first answer. */
  get fencedUntil(): number | null {
    return this.#fencedUntil;
  }

  /** The highest versions that the cloud had before this relay listed or sent anything, by kind. */
  get versions(): HeartbeatAnswer['versions'] {
    return this.#versions;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { timers, random } = this.#deps;
    let failures = 0;
    while (!signal.aborted) {
      failures = (await this.#beat(signal)) ? 0 : failures + 1;
      const waitMs = failures === 0 ? INTERVAL_MS : delayOf(failures - 1, RETRY_MS, INTERVAL_MS / 2, random);
      await timers.sleep(waitMs, signal);
    }
  }

  async #beat(signal: AbortSignal): Promise<boolean> {
    const { ingest, envelope, state, onConflict, pulse, timers, log } = this.#deps;
    const json = JSON.stringify({ ...envelope, ...state() });
    const answer = await ingest.post('/v1/heartbeat', [json], heartbeatAnswer, signal);
    if (signal.aborted) return true;
    switch (answer.kind) {
      case 'ok':
        if (this.#fencedUntil === null) {
          this.#versions = answer.value.versions;
          this.#fencedUntil = timers.monotonic() + answer.value.waitMs;
        }
        pulse.notify();
        return true;
      case 'conflict':
        onConflict(answer.conflict);
        return false;
      case 'tooLarge':
      case 'refused':
      case 'unavailable':
        log.warn('heartbeat failed', { answer });
        return false;
      default:
        return answer satisfies never;
    }
  }
}
