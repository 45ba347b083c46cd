import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Fault } from '../../infra/local/faults.ts';

const MAIN = new URL('../../infra/local/main.ts', import.meta.url).pathname;
/** Exit code of the fault that kills. */
const KILLED = 137;
/** Of what a process says on stderr the end is kept, in characters: it is shown when the process ends unasked. */
const MAX_STDERR = 4_000;

/** What came of a request; null when there was no answer. */
export interface Answer {
  readonly status: number;
  readonly body: unknown;
}

/** The laptop stack in a process of its own, on a directory that outlives it: it is killed and started over again. */
export class StackProcess implements AsyncDisposable {
  readonly #directory = mkdtempSync(join(tmpdir(), 'stack-process-'));
  readonly #flags: readonly string[];
  #child: ChildProcess | null = null;
  #url = '';
  #stderr = '';
  #starting: Promise<void> | null = null;
  /** How far the clock was moved, which a process forgets when it dies. */
  #advancedMs = 0;
  /** Sweeps begun, and ended: who works while one runs may see deltas twice. */
  sweeps = { begun: 0, ended: 0 };
  restarts = 0;

  private constructor(flags: readonly string[]) {
    this.#flags = flags;
  }

  /** @param flags beside those of a cloud half that is driven by a test. */
  static async start(...flags: readonly string[]): Promise<StackProcess> {
    const stack = new StackProcess(flags);
    await stack.#start();
    return stack;
  }

  /** Sends JSON; null when nobody answered. */
  async request(method: string, path: string, body?: unknown): Promise<Answer | null> {
    const headers = { 'content-type': 'application/json' };
    try {
      const init = { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) };
      const response = await fetch(`${this.#url}${path}`, init);
      const text = await response.text();
      return { status: response.status, body: text === '' ? null : JSON.parse(text) };
    } catch {
      return null;
    }
  }

  /** As `request`, of a stack that must be there. */
  async ask(method: string, path: string, body?: unknown): Promise<unknown> {
    const answer = await this.request(method, path, body);
    assert(
      answer !== null && answer.status < 300,
      `${method} ${path}: ${JSON.stringify(answer)?.slice(0, 500)}`,
    );
    return answer.body;
  }

  /** Starts the process again if a fault has ended it; whoever waits for that meanwhile waits for the same start. */
  async revive(): Promise<void> {
    // An answer may be missed before its process is seen to end.
    if (this.#child !== null && (await this.request('GET', '/healthz')) !== null) return;
    this.#starting ??= this.#restart().finally(() => {
      this.#starting = null;
    });
    await this.#starting;
  }

  async putFaults(...faults: readonly Partial<Fault>[]): Promise<void> {
    await this.ask('PUT', '/local/faults', { faults });
  }

  /** Moves the clock; also that of processes to come. */
  async advance(ms: number): Promise<void> {
    await this.ask('POST', '/local/clock', { advanceMs: ms });
    this.#advancedMs += ms;
  }

  /** Sweeps once; a fault may get in its way. */
  async sweep(): Promise<Answer | null> {
    this.sweeps.begun++;
    const answer = await this.request('POST', '/local/sweep', {});
    this.sweeps.ended++;
    return answer;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async #start(): Promise<void> {
    const fixed = ['--cluster', 'none', '--json', '--quiet', '--no-sweep', '--port', '0'];
    const args = [MAIN, ...fixed, '--data', this.#directory, ...this.#flags];
    const env = { ...process.env, LOG_LEVEL: 'error', AWS_EC2_METADATA_DISABLED: 'true' };
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'], env });
    this.#child = child;
    child.stderr.on('data', (text) => {
      this.#stderr = `${this.#stderr}${text}`.slice(-MAX_STDERR);
    });
    const lines = createInterface({ input: child.stdout });
    const line = await Promise.race([
      once(lines, 'line').then(([text]) => String(text)),
      once(child, 'exit').then(([code]) => Promise.reject(new Error(`ended with ${code}: ${this.#stderr}`))),
    ]);
    this.#url = JSON.parse(line).url;
  }

  async #restart(): Promise<void> {
    const child = this.#child;
    if (child !== null && child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    assert.equal(child?.exitCode, KILLED, `ended unasked: ${this.#stderr}`);
    this.restarts++;
    await this.#start();
    if (this.#advancedMs > 0) await this.ask('POST', '/local/clock', { advanceMs: this.#advancedMs });
  }

  async #end(): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  }
}
