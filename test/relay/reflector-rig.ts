import assert from 'node:assert/strict';
import { compareVersions } from '../../core/version.ts';
import { type ApiServer, startApiServer } from '../../infra/local/cluster/api-server.ts';
import type { Fault, Misbehaviour } from '../../infra/local/cluster/misbehaviour.ts';
import { Connection } from '../../relay/connection.ts';
import { type Observation, Reflector } from '../../relay/reflector.ts';
import { watchedResources } from '../../relay/resources.ts';
import { testLog } from './builders.ts';
import { HastyTimers } from './manual-timers.ts';

const [, SLICES] = watchedResources('slices');
/** What a server says of a stream that neither ends nor says anything, in milliseconds of real time. */
const SILENCE_MS = 60;

/** A reflector of slices on a demo server, and what it saw. */
export class Rig implements AsyncDisposable {
  readonly server: ApiServer;
  readonly timers = new HastyTimers();
  readonly endings: string[] = [];
  readonly reflector: Reflector;
  readonly #connection: Connection;
  readonly #stop = new AbortController();
  readonly #observations: AsyncGenerator<Observation, void, undefined>;
  /** Names that are there, by what was seen. */
  readonly names = new Set<string>();
  readonly seen: string[] = [];
  token: string | null = null;
  reads = 0;
  /** Drawn by the reflector: of jitter, and of the length of watches. */
  random = 0;
  readonly lines: string[] = [];
  /** The newest version that was seen: no event may come twice, or out of order (W8). */
  #newest = '';

  constructor(server: ApiServer, namespace: string | null = null, silenceMs = SILENCE_MS) {
    this.server = server;
    this.#connection = new Connection({
      timers: this.timers,
      log: testLog(),
      timeouts: { headersMs: SILENCE_MS, silenceMs },
      readAccess: async () => {
        this.reads++;
        const headers = this.token === null ? {} : { authorization: `Bearer ${this.token}` };
        return { server: server.url, tls: {}, proxy: null, headers };
      },
    });
    this.reflector = new Reflector(SLICES, namespace, {
      connection: this.#connection,
      timers: this.timers,
      random: () => this.random,
      log: testLog(this.lines),
      onEnding: (kind) => this.endings.push(kind),
    });
    this.#observations = this.reflector.observations(this.#stop.signal);
  }

  static async start(options: Partial<Parameters<typeof startApiServer>[0]> = {}): Promise<Rig> {
    const server = await startApiServer({ clock: new HastyTimers(), ...options });
    return new Rig(server);
  }

  /** The next thing that is seen, as text. */
  async next(): Promise<string> {
    const { value } = await this.#observations.next();
    if (!value) return 'end';
    const text = this.#note(value);
    this.seen.push(text);
    this.onSeen(value);
    return text;
  }

  onSeen: (seen: Observation) => void = () => {};

  /** Pulls all there is, until the end. */
  async drain(): Promise<void> {
    while ((await this.next()) !== 'end');
  }

  #note(seen: Observation): string {
    switch (seen.kind) {
      case 'listed':
        this.names.clear();
        for (const { name } of seen.objects) this.names.add(name);
        if (!seen.isRewound)
          assert.ok(compareVersions(seen.resourceVersion, this.#newest) >= 0, 'back in time');
        this.#newest = seen.resourceVersion;
        return `listed ${seen.cause} ${[...this.names].sort().join(',')}${seen.isRewound ? ' rewound' : ''}`;
      case 'event':
        assert.ok(
          compareVersions(seen.held.resourceVersion, this.#newest) > 0,
          `${seen.held.name} came again`,
        );
        this.#newest = seen.held.resourceVersion;
        if (seen.type === 'DELETED') this.names.delete(seen.held.name);
        else this.names.add(seen.held.name);
        return `${seen.type} ${seen.held.name}`;
      case 'denied':
        return `denied ${seen.status}`;
      default:
        return seen satisfies never;
    }
  }

  /** Requests of slices so far: `watchList FROM`, `watch`, `list`, `probe`. */
  get requests(): string[] {
    return this.server.requests.map(({ url }) => {
      const query = new URL(url, 'http://localhost').searchParams;
      if (query.get('limit') === '1') return 'probe';
      if (!query.has('watch')) return `list${query.has('continue') ? ' more' : ''}`;
      if (query.get('sendInitialEvents') === 'true')
        return `watchList ${query.get('resourceVersion')}`.trim();
      return `watch ${query.get('resourceVersion')}`;
    });
  }

  /** Ends the reflector; the server goes on. */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.timers.release();
    await this.#observations.return();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await this.#connection[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
  }
}

/** Lets real I/O go on until a condition holds. */
export async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 10_000;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`never: ${condition}`);
    await new Promise(setImmediate);
  }
}

export function hit(fault: Fault, rest: Omit<Misbehaviour, 'fault'> = {}): Misbehaviour {
  return { fault, times: 1, ...rest };
}
