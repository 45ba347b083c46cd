import type { ConnectionOptions } from 'node:tls';
import { Agent, type Dispatcher, ProxyAgent } from 'undici';
import type { Logger } from '../wire/log.ts';
import type { Timers } from './timers.ts';

/** Where an API server is, and who the relay is there. */
export interface Access {
  /** Base URL; it may have a path. */
  readonly server: string;
  readonly tls: Pick<ConnectionOptions, 'ca' | 'cert' | 'key' | 'servername' | 'rejectUnauthorized'>;
  /** URL of an HTTP proxy to go through; null for none. */
  readonly proxy: string | null;
  /** Credentials, as headers. */
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * Reads tokens and certificates, which are replaced while the relay runs: every minute (`aged`), and when the server
 * did not take the former ones (`refused`, so a cached one will not do).
 */
export type ReadAccess = (reason: 'aged' | 'refused') => Promise<Access>;

/** How long credentials are used before they are read again, in milliseconds (W12). */
const ACCESS_MAX_AGE_MS = 60_000;
const CONNECT_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 30_000;

/** A request that changes something. */
export interface Write {
  readonly method: 'POST' | 'PUT';
  /** JSON. */
  readonly body: string;
}

/** Bounds of waiting for a server, in milliseconds. */
export interface Timeouts {
  /** Until the headers of an answer. */
  readonly headersMs: number;
  /** Between two pieces of a body: a watch has a bookmark about every minute (W6). */
  readonly silenceMs: number;
}

const TIMEOUTS: Timeouts = { headersMs: 15_000, silenceMs: 90_000 };

export interface ConnectionDeps {
  readonly readAccess: ReadAccess;
  readonly timers: Timers;
  readonly log: Logger;
  readonly timeouts?: Timeouts;
}

/** The way to one API server: connections are shared, credentials are renewed. */
export class Connection implements AsyncDisposable {
  readonly #deps: ConnectionDeps;
  #current: { readonly access: Access; readonly agent: Dispatcher; readonly readAt: number } | null = null;
  #renewal: Promise<void> | null = null;

  constructor(deps: ConnectionDeps) {
    this.#deps = deps;
  }

  /**
   * GETs a path, or writes there, in `accept`ed form. A 401 is answered only after a second try with credentials read anew.
   * @throws an error of undici when there is no answer, or of `readAccess` while there were never any credentials.
   */
  async request(
    path: string,
    signal: AbortSignal,
    accept = 'application/json',
    write: Write | null = null,
  ): Promise<Dispatcher.ResponseData> {
    const response = await this.#send(path, signal, accept, write);
    if (response.statusCode !== 401) return response;
    await response.body.dump();
    await this.#renew('refused');
    return this.#send(path, signal, accept, write);
  }

  async #send(
    path: string,
    signal: AbortSignal,
    accept: string,
    write: Write | null,
  ): Promise<Dispatcher.ResponseData> {
    const { timers, timeouts = TIMEOUTS } = this.#deps;
    const isFresh = this.#current !== null && timers.monotonic() - this.#current.readAt < ACCESS_MAX_AGE_MS;
    if (!isFresh) await this.#renew('aged');
    if (this.#current === null) throw new Error('no credentials');
    const { access, agent } = this.#current;
    const { origin, pathname } = new URL(access.server);
    return agent.request({
      origin,
      path: pathname.replace(/\/$/, '') + path,
      method: write?.method ?? 'GET',
      headers: {
        accept,
        'user-agent': 'endpoints-watcher',
        ...(write !== null && { 'content-type': 'application/json' }),
        ...access.headers,
      },
      body: write?.body ?? null,
      headersTimeout: timeouts.headersMs,
      bodyTimeout: timeouts.silenceMs,
      signal,
    });
  }

  /** Several requests that need new credentials share one reading; the old ones are kept when it fails (W12). */
  #renew(reason: 'aged' | 'refused'): Promise<void> {
    this.#renewal ??= this.#read(reason).finally(() => {
      this.#renewal = null;
    });
    return this.#renewal;
  }

  async #read(reason: 'aged' | 'refused'): Promise<void> {
    const { readAccess, timers, log } = this.#deps;
    const former = this.#current;
    const readAt = timers.monotonic();
    try {
      const access = await readAccess(reason);
      const isSame = former !== null && transportKey(former.access) === transportKey(access);
      this.#current = { access, readAt, agent: isSame ? former.agent : createAgent(access) };
      // Ends its connections once their last answer is complete.
      if (former !== null && !isSame) void former.agent.close();
    } catch (error) {
      if (former === null) throw error;
      log.warn('credentials could not be read again, the old ones are kept', { error });
      this.#current = { ...former, readAt };
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#current?.agent.destroy();
  }
}

/** What a pool of connections depends on: the CA file, for one, may change (W12). */
function transportKey({ server, tls, proxy }: Access): string {
  const { ca, cert, key, servername, rejectUnauthorized } = tls;
  return [server, proxy, ca, cert, key, servername, rejectUnauthorized].map(String).join('\n');
}

function createAgent({ tls, proxy }: Access): Dispatcher {
  const keepAlive = { keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS, timeout: CONNECT_TIMEOUT_MS };
  if (proxy !== null) return new ProxyAgent({ uri: proxy, requestTls: tls, connect: keepAlive });
  return new Agent({ connect: { ...tls, ...keepAlive } });
}
