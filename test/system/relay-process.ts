import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { LeaseName } from '../../relay/lease.ts';
import { CLUSTER } from './small-cluster.ts';

const MAIN = new URL('../../relay/main.ts', import.meta.url).pathname;
/** An election that is over sooner than by default, yet bears a machine that is busy with other things. */
const TIMES = ['--lease-duration-ms=3000', '--renew-deadline-ms=2500', '--retry-period-ms=250'];
/** The Lease of all relays. */
export const LEASE = { kind: 'Lease', namespace: 'default', name: 'relay' } as const;

/** What a relay process is told of. */
interface Surroundings {
  readonly apiServer: { readonly kubeconfig: string };
  readonly stack: { readonly url: string };
}

/** One relay of several, as it runs in a cluster: a process of its own, told by flags and a kubeconfig file. */
export class RelayProcess implements AsyncDisposable {
  readonly name: string;
  /** Of the cloud. */
  readonly cluster = CLUSTER;
  readonly #directory = mkdtempSync(join(tmpdir(), 'relay-process-'));
  readonly #child: ChildProcess;
  readonly #ended: Promise<unknown>;
  readonly #messages: string[] = [];
  #stderr = '';
  #adminPort: number | null = null;

  /** @param lease another one than LEASE. */
  constructor(name: string, { apiServer, stack }: Surroundings, lease: LeaseName = LEASE) {
    this.name = name;
    const kubeconfig = join(this.#directory, 'kubeconfig');
    writeFileSync(kubeconfig, apiServer.kubeconfig);
    const election = ['--lease', lease.name, '--lease-namespace', lease.namespace, ...TIMES];
    const where = ['--ingest-url', stack.url, '--auth', 'none', '--kubeconfig', kubeconfig];
    const admin = ['--admin-host', '127.0.0.1', '--admin-port', '0'];
    const args = [MAIN, '--cluster', CLUSTER, '--relay', name, ...where, ...admin, ...election];
    this.#child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#ended = once(this.#child, 'exit');
    this.#child.stderr?.on('data', (text) => {
      this.#stderr += text;
    });
    assert(this.#child.stdout);
    createInterface({ input: this.#child.stdout }).on('line', (line) => this.#note(line));
  }

  /** Has it written this message? */
  said(message: string): boolean {
    return this.#messages.includes(message);
  }

  /** Epoch under which it leads, with its first inventory done; null while it is no such leader. */
  async leads(): Promise<number | null> {
    const [metrics, ready] = await Promise.all([this.#ask('/metrics'), this.#ask('/readyz')]);
    const text = (await metrics?.text()) ?? '';
    await ready?.body?.cancel();
    const epoch = /^endpoints_watcher_relay_epoch (\d+)$/m.exec(text)?.[1];
    return epoch === undefined || !ready?.ok ? null : Number(epoch);
  }

  /** @throws an AssertionError unless it is ready, and does not lead. */
  async standsBy(): Promise<void> {
    const [metrics, ready] = await Promise.all([this.#ask('/metrics'), this.#ask('/readyz')]);
    assert.match((await metrics?.text()) ?? '', /^endpoints_watcher_relay_leader 0$/m, this.name);
    assert.equal(ready?.status, 200, await ready?.text());
  }

  signal(signal: 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void {
    this.#child.kill(signal);
  }

  /** Asks it to end. @returns its exit status. */
  async end(): Promise<number | null> {
    this.#child.kill('SIGTERM');
    await this.#ended;
    return this.#child.exitCode;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#ended;
    rmSync(this.#directory, { recursive: true });
    assert.equal(this.#stderr, '', this.name);
  }

  #note(line: string): void {
    const { message, port } = JSON.parse(line) as { readonly message: string; readonly port?: number };
    this.#messages.push(message);
    if (message === 'admin listens') this.#adminPort = port ?? null;
  }

  /** Null while it does not answer: it starts, stands still or is gone. */
  async #ask(path: string): Promise<Response | null> {
    if (this.#adminPort === null) return null;
    const url = `http://127.0.0.1:${this.#adminPort}${path}`;
    return fetch(url, { signal: AbortSignal.timeout(1000) }).catch(() => null);
  }
}
