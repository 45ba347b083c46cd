import { setTimeout as wait } from 'node:timers/promises';
import * as z from 'zod';
import { ALL_NAMESPACES, type PortSet, portSets, type ServiceSummary, servicesAnswer } from '../wire/api.ts';
import { readBounded } from './bounded-body.ts';

/** Makes the headers that say who reads; for loopback none are needed. */
export type Authorize = (url: URL) => Promise<Readonly<Record<string, string>>>;

/** What the api says of one service. */
export type EndpointsReading =
  | { readonly kind: 'ports'; readonly ports: readonly PortSet[] }
  | { readonly kind: 'externalName' }
  | { readonly kind: 'noService' };

/** Reads the HTTP API as consumers do. Every method throws an Error with one line when it cannot be read. */
export interface ApiReader {
  /** Every service that is stored, also deleted ones until they age out; of the whole cluster when `namespace` is null. */
  services(namespace: string | null, signal: AbortSignal): AsyncIterable<ServiceSummary>;
  endpoints(namespace: string, service: string, signal: AbortSignal): Promise<EndpointsReading>;
  /** JSON from any path of the same origin. */
  read(path: string, signal: AbortSignal): Promise<unknown>;
}

/** Services of one page: the most that is served. */
const PAGE_LIMIT = 1000;
/** A set of 50,000 addresses takes some 15 MB. */
const MAX_ANSWER_BYTES = 256_000_000;
/** Until an answer is complete, in milliseconds. */
const READ_TIMEOUT_MS = 30_000;
/** Tries of one read, and the pause before the second, which doubles. */
const MAX_TRIES = 4;
const FIRST_PAUSE_MS = 200;

const problem = z.object({ title: z.string(), detail: z.string() });

export interface ApiReaderOptions {
  readonly authorize?: Authorize;
  /** Before a read is tried again. */
  readonly pause?: (ms: number, signal: AbortSignal) => Promise<void>;
}

/** A reader of one cluster's part of the API at `base`. */
export function apiReader(base: URL, cluster: string, options: ApiReaderOptions = {}): ApiReader {
  const { authorize = async () => ({}), pause = (ms, signal) => wait(ms, undefined, { signal }) } = options;
  const root = `/v1/clusters/${cluster}/namespaces`;

  const get = async (path: string, signal: AbortSignal): Promise<{ status: number; body: unknown }> => {
    const url = new URL(`${base.pathname.replace(/\/$/, '')}${path}`, base);
    for (let attempt = 1; ; attempt++) {
      const answer = await tryGet(url, await authorize(url), signal);
      const isPassing = answer.kind === 'failed' || answer.status === 429 || answer.status >= 500;
      if (isPassing && attempt < MAX_TRIES) {
        await pause(FIRST_PAUSE_MS * 2 ** (attempt - 1), signal);
        continue;
      }
      if (answer.kind === 'failed')
        throw new Error(`the api ${base.origin} cannot be reached: ${answer.reason}`);
      return answer;
    }
  };

  const getOk = async (path: string, signal: AbortSignal): Promise<unknown> => {
    const { status, body } = await get(path, signal);
    if (status !== 200) throw refusal(path, status, body);
    return body;
  };

  return {
    async *services(namespace, signal) {
      let after: string | null = null;
      do {
        const query: URLSearchParams = new URLSearchParams({
          limit: `${PAGE_LIMIT}`,
          ...(after !== null && { continue: after }),
        });
        const path = `${root}/${namespace ?? ALL_NAMESPACES}/services`;
        const answer = understood(path, servicesAnswer, await getOk(`${path}?${query}`, signal));
        yield* answer.items;
        after = answer.continue;
      } while (after !== null);
    },

    async endpoints(namespace, service, signal) {
      const path = `${root}/${namespace}/services/${service}/endpoints`;
      const { status, body } = await get(path, signal);
      if (status === 404) return { kind: 'noService' };
      if (status === 422) return { kind: 'externalName' };
      if (status !== 200) throw refusal(path, status, body);
      return { kind: 'ports', ports: understood(path, portSets, body).ports };
    },

    read: getOk,
  };
}

type Answer =
  | { readonly kind: 'answered'; readonly status: number; readonly body: unknown }
  | { readonly kind: 'failed'; readonly reason: string; readonly status?: undefined };

async function tryGet(
  url: URL,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Answer> {
  const within = AbortSignal.any([signal, AbortSignal.timeout(READ_TIMEOUT_MS)]);
  try {
    const response = await fetch(url, {
      headers: { ...headers, accept: 'application/json' },
      redirect: 'error',
      signal: within,
    });
    const text = await readBounded(response.body ?? new ReadableStream(), MAX_ANSWER_BYTES);
    return { kind: 'answered', status: response.status, body: parseJson(text) };
  } catch (error) {
    signal.throwIfAborted();
    const { message, cause } = error as Error;
    return { kind: 'failed', reason: cause instanceof Error ? cause.message : message };
  }
}

/** What a proxy answers may be text. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function refusal(path: string, status: number, body: unknown): Error {
  const told = problem.safeParse(body);
  const reason = told.success ? `: ${told.data.detail}` : '';
  return new Error(`the api answers ${status} to GET ${path}${reason}`);
}

function understood<T>(path: string, schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new Error(
    `the api's answer to GET ${path} is not understood: ${issue?.path.join('.')}: ${issue?.message}`,
  );
}
