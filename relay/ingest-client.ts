import { gzipSync } from 'node:zlib';
import { Agent } from 'undici';
import type * as z from 'zod';
import { parse } from '../wire/parse.ts';
import { type Conflict, conflict } from '../wire/problem.ts';
import type { Authorize } from './authorization.ts';
import { readText } from './json-lines.ts';
import type { Timers } from './timers.ts';

/** What became of a request. */
export type Answer<T> =
  | { readonly kind: 'ok'; readonly value: T }
  /** 409: another leader, another cluster, or a guard (W18). */
  | { readonly kind: 'conflict'; readonly conflict: Conflict }
  /** 413. */
  | { readonly kind: 'tooLarge' }
  /** 400: the request is wrong, and stays so. */
  | { readonly kind: 'refused'; readonly reason: string }
  /** Anything else is worth another try. `mayHaveRun`: no answer, or a 5xx (P5). */
  | {
      readonly kind: 'unavailable';
      readonly status: number | null;
      readonly reason: string;
      readonly retryAfterMs: number;
      readonly mayHaveRun: boolean;
    };

/** Longer than ingest's own limit, so that its answer is not missed (W18). */
const TIMEOUT_MS = 15_000;
const CONNECT_TIMEOUT_MS = 10_000;
/** A batch, and some. */
const BODY_BYTES = 1_200_000;
/** 10,000 results with their reasons. */
const MAX_ANSWER_BYTES = 8_000_000;
const MAX_RETRY_AFTER_MS = 300_000;

export interface IngestDeps {
  /** Base URL of the ingest function. */
  readonly url: URL;
  readonly authorize: Authorize;
  readonly timers: Timers;
  readonly timeoutMs?: number;
  /** Looked at right before each request; none starts while it is false (W17). Absent: always true. */
  readonly maySend?: () => boolean;
}

/** Speaks to the ingest function; it repeats nothing by itself but a request whose credentials were not taken. */
export class IngestClient implements AsyncDisposable {
  readonly #deps: IngestDeps;
  readonly #agent: Agent;
  #body = Buffer.allocUnsafeSlow(BODY_BYTES);
  /** When a request last ended that may still be running, as a monotonic time (P8). */
  lastUncertainAt = Number.NEGATIVE_INFINITY;

  constructor(deps: IngestDeps) {
    this.#deps = deps;
    const { timeoutMs = TIMEOUT_MS } = deps;
    const connect = { timeout: CONNECT_TIMEOUT_MS, keepAlive: true };
    this.#agent = new Agent({ headersTimeout: timeoutMs, bodyTimeout: timeoutMs, connect });
  }

  /** POSTs JSON, which may come in pieces, and checks the answer's shape. */
  async post<T>(
    path: string,
    json: Iterable<string>,
    schema: z.ZodType<T>,
    signal: AbortSignal,
  ): Promise<Answer<T>> {
    const body = this.#compress(json);
    const first = await this.#try(path, body, schema, signal, false);
    const isRefused = first.kind === 'unavailable' && (first.status === 401 || first.status === 403);
    const answer = isRefused ? await this.#try(path, body, schema, signal, true) : first;
    if (answer.kind === 'unavailable' && answer.mayHaveRun) {
      this.lastUncertainAt = this.#deps.timers.monotonic();
    }
    return answer;
  }

  /**
   * All bodies are put together in one buffer: megabytes of joined text would stay until a full collection. Here it takes some
   * 10 ms a megabyte; in the thread pool each thread would keep memory of its own.
   */
  #compress(json: Iterable<string>): Buffer {
    let length = 0;
    for (const piece of json) {
      const end = length + Buffer.byteLength(piece);
      if (end > this.#body.length) {
        const former = this.#body;
        this.#body = Buffer.allocUnsafeSlow(2 * end);
        former.copy(this.#body);
      }
      length += this.#body.write(piece, length);
    }
    return gzipSync(this.#body.subarray(0, length));
  }

  async #try<T>(
    path: string,
    body: Buffer,
    schema: z.ZodType<T>,
    signal: AbortSignal,
    isRefused: boolean,
  ): Promise<Answer<T>> {
    const { url, authorize, maySend } = this.#deps;
    const target = new URL(url.pathname.replace(/\/$/, '') + path, url);
    let headers: Readonly<Record<string, string>> = {
      'content-type': 'application/json',
      'content-encoding': 'gzip',
    };
    try {
      headers = { ...headers, ...(await authorize({ url: target, headers, body }, isRefused)) };
    } catch (error) {
      return unavailable(null, `no credentials: ${describe(error)}`, false);
    }
    if (maySend?.() === false) return unavailable(null, 'not sent: the Lease was not renewed in time', false);
    try {
      const options = {
        origin: target.origin,
        path: target.pathname,
        method: 'POST',
        headers,
        body,
        signal,
      } as const;
      const response = await this.#agent.request(options);
      const text = await readText(response.body, MAX_ANSWER_BYTES);
      return readAnswer(response.statusCode, text, schema, response.headers['retry-after']);
    } catch (error) {
      return unavailable(null, describe(error), true);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy();
  }
}

function readAnswer<T>(
  status: number,
  text: string,
  schema: z.ZodType<T>,
  retryAfter: string | string[] | undefined,
): Answer<T> {
  const value = parseJson(text);
  if (status === 200) {
    const parsed = parse(schema, value);
    if (parsed.kind === 'ok') return { kind: 'ok', value: parsed.value };
    return unavailable(status, `not an answer of ingest: ${parsed.message}`, true);
  }
  if (status === 409) {
    const parsed = parse(conflict, value);
    if (parsed.kind === 'ok') return { kind: 'conflict', conflict: parsed.value };
  }
  if (status === 413) return { kind: 'tooLarge' };
  const detail = typeof value === 'object' && value !== null && 'detail' in value ? value.detail : text;
  const reason = String(detail).slice(0, 300);
  if (status === 400) return { kind: 'refused', reason };
  const waitMs = Math.min(Number(retryAfter ?? 0) * 1000 || 0, MAX_RETRY_AFTER_MS);
  return unavailable(status, reason, status >= 500, waitMs);
}

function unavailable(
  status: number | null,
  reason: string,
  mayHaveRun: boolean,
  retryAfterMs = 0,
): Answer<never> {
  return { kind: 'unavailable', status, reason, retryAfterMs, mayHaveRun };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return 'code' in error && !error.message ? String(error.code) : error.message;
}
