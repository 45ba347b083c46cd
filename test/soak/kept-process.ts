import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import { heldKib } from './held-memory.ts';

/** Exit code of the fault that kills. */
const KILLED = 137;
/** Of what a process says its end is kept, in characters. */
const MAX_OUTPUT = 4_000;
/** Before a process that died unasked is started again, so that one that cannot start does not spin. */
const UNASKED_PAUSE_MS = 1_000;
/** A frozen process does not say what it holds; one that lives does in less. */
const SAMPLE_TIMEOUT_MS = 2_000;
const INSPECTOR = /Debugger listening on (ws:\S+)/;

/** One look at a process's memory. */
export interface MemorySample {
  /** Which of its lives, from 0. */
  readonly life: number;
  /** Since that life began, in milliseconds. */
  readonly ageMs: number;
  /** Without files that are mapped, such as LevelDB's: the system takes those back when it needs room. */
  readonly residentKib: number;
  /** Without its garbage; null when it did not say. */
  readonly heldKib: number | null;
}

/** A process that is started again whenever it dies, as a kubelet would. */
export class KeptProcess implements AsyncDisposable {
  readonly name: string;
  readonly #args: readonly string[];
  #child: ChildProcess | null = null;
  #startedAt = 0;
  #isStopping = false;
  #isKilled = false;
  /** From its end to its next start. */
  #pauseMs = 0;
  #output = '';
  /** `ws:` URL at which it tells of its memory. */
  #inspector: string | null = null;
  #running: Promise<void> = Promise.resolve();
  restarts = 0;
  /** What was said at ends that nobody asked for. */
  readonly unaskedEnds: string[] = [];
  readonly memory: MemorySample[] = [];

  constructor(name: string, ...args: readonly string[]) {
    this.name = name;
    this.#args = args;
    // Whatever ends this process, no other outlives it.
    process.once('exit', () => this.#child?.kill('SIGKILL'));
    this.#start();
  }

  /** kill -9. The next one starts after a pause. */
  kill(pauseMs: number): void {
    this.#isKilled = true;
    this.#pauseMs = pauseMs;
    this.#child?.kill('SIGKILL');
  }

  /** Stops it in the middle of whatever it does, and lets it go on later: it does not know, but time has passed. */
  async freeze(ms: number): Promise<void> {
    const child = this.#child;
    child?.kill('SIGSTOP');
    await wait(ms);
    child?.kill('SIGCONT');
  }

  /** Looks at its memory. Source of what is resident: /proc/PID/status, RssAnon. */
  async sample(): Promise<void> {
    const [life, pid] = [this.restarts, this.#child?.pid];
    const ageMs = performance.now() - this.#startedAt;
    const held =
      this.#inspector === null
        ? null
        : await heldKib(this.#inspector, AbortSignal.timeout(SAMPLE_TIMEOUT_MS));
    try {
      const [, kib] = /^RssAnon:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
      if (kib !== undefined) this.memory.push({ life, ageMs, residentKib: Number(kib), heldKib: held });
    } catch {
      // It has just died.
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isStopping = true;
    this.#child?.kill('SIGKILL');
    await this.#running;
  }

  #start(): void {
    this.#startedAt = performance.now();
    this.#output = '';
    this.#inspector = null;
    this.#isKilled = false;
    const child = spawn(process.execPath, ['--inspect=127.0.0.1:0', ...this.#args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, AWS_EC2_METADATA_DISABLED: 'true' },
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (text) => {
        this.#output = `${this.#output}${text}`.slice(-MAX_OUTPUT);
        this.#inspector ??= INSPECTOR.exec(this.#output)?.[1] ?? null;
      });
    this.#running = this.#follow(child);
  }

  async #follow(child: ChildProcess): Promise<void> {
    const [code] = await once(child, 'exit');
    if (this.#isStopping) return;
    if (!this.#isKilled && code !== KILLED) {
      this.unaskedEnds.push(`${this.name} ended with ${code}: ${this.#output}`);
      this.#pauseMs = UNASKED_PAUSE_MS;
    }
    await wait(this.#pauseMs);
    if (this.#isStopping) return;
    this.restarts++;
    this.#start();
  }
}

/**
 * How fast memory grows, in KiB a minute: least squares over all samples, each life about its own mean, without the
 * first `warmUpMs` of each. Null with too few samples to tell.
 */
export function memorySlope(
  samples: readonly MemorySample[],
  of: 'residentKib' | 'heldKib',
  warmUpMs: number,
): number | null {
  const MIN_SAMPLES = 10;
  const warm = samples.flatMap(({ life, ageMs, [of]: kib }) =>
    ageMs < warmUpMs || kib === null ? [] : [{ life, ageMs, kib }],
  );
  if (warm.length < MIN_SAMPLES) return null;
  let covariance = 0;
  let variance = 0;
  for (const life of Map.groupBy(warm, (sample) => sample.life).values()) {
    const meanAge = mean(life.map(({ ageMs }) => ageMs));
    const meanKib = mean(life.map(({ kib }) => kib));
    for (const { ageMs, kib } of life) {
      covariance += (ageMs - meanAge) * (kib - meanKib);
      variance += (ageMs - meanAge) ** 2;
    }
  }
  return variance === 0 ? null : (covariance / variance) * 60_000;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
