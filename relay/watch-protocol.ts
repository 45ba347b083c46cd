import type { Dispatcher } from 'undici';
import { readLines, readText } from './json-lines.ts';

/** How a list or a watch ended. */
export type Ending =
  /** As it should; `isShort`: within a second and without an event, or before the end of its list. */
  | { readonly kind: 'ended'; readonly isShort: boolean }
  | { readonly kind: 'expired' }
  | { readonly kind: 'tooLarge' }
  /** The server is below the watch's version: its history is another one. */
  | { readonly kind: 'rewound' }
  | { readonly kind: 'throttled'; readonly retryAfterMs: number }
  | { readonly kind: 'denied'; readonly status: number; readonly reason: string }
  | { readonly kind: 'unauthorized' }
  /** Another 4xx: the server does not take this form of request. */
  | { readonly kind: 'refused'; readonly reason: string }
  | { readonly kind: 'failed'; readonly status: number; readonly reason: string }
  | { readonly kind: 'silent' }
  /** The list that a watch was to begin with had no end in time: the server may not know such watches at all. */
  | { readonly kind: 'endless' }
  | { readonly kind: 'broken'; readonly error: unknown }
  /** Something else is to be done. */
  | { readonly kind: 'interrupted' };

/** What one line of a watch says. */
export type Change =
  | { readonly kind: 'event'; readonly type: 'ADDED' | 'MODIFIED' | 'DELETED'; readonly object: unknown }
  /** `endsList`: the objects before it were the list that the watch began with (W1). */
  | { readonly kind: 'bookmark'; readonly resourceVersion: string; readonly endsList: boolean };

/** One page of a list. */
export interface ListPage {
  readonly resourceVersion: string;
  readonly items: readonly unknown[];
  /** Where the next page begins; '' when there is none. */
  readonly next: string;
}

/** etcd holds objects of 1.5 MB, which JSON makes a few times larger. */
const MAX_LINE_BYTES = 16_000_000;
const MAX_PAGE_BYTES = 256_000_000;
const MAX_STATUS_BYTES = 64_000;
/** No server means to be left alone for longer, whatever it says. */
const MAX_RETRY_AFTER_MS = 300_000;

/**
 * What a watch says, line by line.
 * @returns the ending that the server gave, or null when the stream just ended.
 * @throws an error of undici when the stream breaks, of `readLines` at a line too long, of JSON at one that is none.
 */
export async function* readChanges(
  body: AsyncIterable<Uint8Array>,
): AsyncGenerator<Change, Ending | null, undefined> {
  for await (const line of readLines(body, MAX_LINE_BYTES)) {
    const { type, object } = JSON.parse(line) as WatchLine;
    switch (type) {
      case 'ERROR':
        return endingOfStatus(object?.code ?? 500, object ?? {}, null);
      case 'BOOKMARK': {
        const { resourceVersion, annotations } = object?.metadata ?? {};
        const endsList = annotations?.['k8s.io/initial-events-end'] === 'true';
        if (resourceVersion) yield { kind: 'bookmark', resourceVersion, endsList };
        break;
      }
      case 'ADDED':
      case 'MODIFIED':
      case 'DELETED':
        yield { kind: 'event', type, object };
        break;
      default:
        // A type that is still to be invented says nothing to this reader.
        break;
    }
  }
  return null;
}

/**
 * A page of a list; null when the answer is no list.
 * @throws an error of undici, `readText` or JSON when the answer cannot be read.
 */
export async function readPage({ body }: Dispatcher.ResponseData): Promise<ListPage | null> {
  const { metadata, items } = JSON.parse(await readText(body, MAX_PAGE_BYTES)) as ListAnswer;
  if (!metadata?.resourceVersion || !Array.isArray(items ?? [])) return null;
  return {
    resourceVersion: metadata.resourceVersion,
    items: items ?? [],
    next: metadata.continue ?? '',
  };
}

/** The meaning of an answer other than 200. */
export async function endingOf({ statusCode, headers, body }: Dispatcher.ResponseData): Promise<Ending> {
  const text = await readText(body, MAX_STATUS_BYTES);
  return endingOfStatus(statusCode, parseStatus(text), Number(headers['retry-after']));
}

/** A Kubernetes Status, or an object; whichever the line's type says. */
interface WatchLine {
  readonly type: string;
  readonly object?: Status & {
    readonly metadata?: {
      readonly resourceVersion?: string;
      readonly annotations?: Readonly<Record<string, string>>;
    };
  };
}

interface ListAnswer {
  readonly metadata?: { readonly resourceVersion?: string; readonly continue?: string };
  readonly items?: readonly unknown[] | null;
}

/** Source: meta/v1 Status. */
interface Status {
  readonly code?: number;
  readonly reason?: string;
  readonly message?: string;
  readonly details?: {
    readonly retryAfterSeconds?: number;
    readonly causes?: readonly { readonly reason?: string }[];
  };
}

function parseStatus(text: string): Status {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null) return value;
  } catch {
    // A proxy's answer is text.
  }
  return { message: text.slice(0, 200) };
}

/** `retryAfterSeconds`: of the header; null or no number when there is none. */
function endingOfStatus(code: number, status: Status, retryAfterSeconds: number | null): Ending {
  const reason = status.message ?? status.reason ?? `status ${code}`;
  if (code === 410 || status.reason === 'Expired' || status.reason === 'Gone') return { kind: 'expired' };
  if (code === 504 && isVersionTooLarge(status)) return { kind: 'tooLarge' };
  if (code === 429) {
    const ms = 1000 * (retryAfterSeconds || Number(status.details?.retryAfterSeconds) || 0);
    return { kind: 'throttled', retryAfterMs: Math.min(Math.max(ms, 0), MAX_RETRY_AFTER_MS) };
  }
  if (code === 401) return { kind: 'unauthorized' };
  if (code === 403 || code === 404) return { kind: 'denied', status: code, reason };
  if (code >= 400 && code < 500) return { kind: 'refused', reason };
  return { kind: 'failed', status: code, reason };
}

/** The cause is told since Kubernetes 1.20; before, only the message. */
function isVersionTooLarge({ details, message }: Status): boolean {
  const isCause = details?.causes?.some(({ reason }) => reason === 'ResourceVersionTooLarge') ?? false;
  return isCause || (message ?? '').includes('Too large resource version');
}
