import type { Dispatcher } from 'undici';
import { compareVersions } from '../core/version.ts';
import type { WatchedKind } from '../wire/envelope.ts';
import type { Logger } from '../wire/log.ts';
import { Backoff } from './backoff.ts';
import type { Compacted } from './compact.ts';
import type { Connection } from './connection.ts';
import { readLines, readText } from './json-lines.ts';
import { collectionPath, type Resource, type Seen } from './resources.ts';
import type { Timers } from './timers.ts';

/** Why a list was made. */
export type ListCause =
  | 'start'
  /** The watch's version is too old (410). */
  | 'expired'
  /** The watch's version is higher than any the server has: its storage went back. */
  | 'tooLarge'
  /** The server failed several times in a row. */
  | 'errors'
  /** Asked for: the periodic check, or a doubt about the cloud's copy. */
  | 'audit'
  | 'guard'
  | 'overflow'
  | 'restored';

/** What a reflector saw, in order. */
export type Observation<T extends Seen = Compacted> =
  /** A whole list: what it does not name is gone. */
  | {
      readonly kind: 'listed';
      readonly cause: ListCause;
      readonly objects: readonly T['held'][];
      readonly resourceVersion: string;
      /** A consistent list came back below a version that was seen before: the storage went back. */
      readonly isRewound: boolean;
    }
  | (T & { readonly kind: 'event'; readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' })
  /** The server does not let the relay read, or has no such resource (403, 404): it is asked again every minute. */
  | { readonly kind: 'denied'; readonly status: number; readonly reason: string };

/** How an attempt to list or watch ended. */
type Ending =
  /** As it should; `isShort`: within a second and without an event. */
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
  | { readonly kind: 'broken'; readonly error: unknown }
  /** `relist` was called. */
  | { readonly kind: 'interrupted' };

/** A way to list. */
type Listing =
  /** By a watch (W1), from a version on; '' asks for the newest state there is. */
  | { readonly kind: 'watchList'; readonly from: string; readonly cause: ListCause }
  /** By pages (W2). */
  | { readonly kind: 'pages'; readonly cause: ListCause };

/** What is tried next. */
type Plan =
  | Listing
  /** Watch from the last version on (W4). */
  | { readonly kind: 'watch' }
  /** Ask how far the server is, which may come back from a backup: a watch from a version still to come is silent, not refused. */
  | { readonly kind: 'probe' };

const PAGE_LIMIT = 500;
/** etcd holds objects of 1.5 MB, which JSON makes a few times larger. */
const MAX_LINE_BYTES = 16_000_000;
const MAX_PAGE_BYTES = 256_000_000;
const MAX_STATUS_BYTES = 64_000;
/** The server ends a watch after a random time between these, in seconds (W4). */
const WATCH_SECONDS = { min: 300, max: 600 };
const SHORT_WATCH_MS = 1000;
const DENIED_POLL_MS = 60_000;
const MAX_ERRORS_IN_A_ROW = 5;

export interface ReflectorDeps {
  readonly connection: Connection;
  readonly timers: Timers;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  readonly log: Logger;
  /** Counts the ends of attempts, by kind. */
  readonly onEnding: (kind: string) => void;
}

/** Follows one resource, in one namespace or all: one list, then every change in order, through every fault (W1–W9). */
export class Reflector<T extends Seen = Compacted, K extends string = WatchedKind> {
  readonly resource: Resource<T, K>;
  readonly namespace: string | null;
  readonly #deps: ReflectorDeps;
  readonly #backoff: Backoff;
  #plan: Plan = { kind: 'watchList', from: '', cause: 'start' };
  /** Version up to which everything was seen; '' before the first list. */
  #version = '';
  #isLive = false;
  #lastEventAt: number | null = null;
  /** Failures of the server since it last said anything. */
  #errorsInARow = 0;
  #expiriesInARow = 0;
  #wanted: ListCause | null = null;
  #attempt = new AbortController();

  constructor(resource: Resource<T, K>, namespace: string | null, deps: ReflectorDeps) {
    this.resource = resource;
    this.namespace = namespace;
    this.#deps = deps;
    this.#backoff = new Backoff(deps.timers, deps.random);
  }

  /** Version up to which everything was seen; null before the first list. */
  get resourceVersion(): string | null {
    return this.#version || null;
  }

  /** Is there a watch, behind a complete list? */
  get isLive(): boolean {
    return this.#isLive;
  }

  /** Milliseconds since the server last said anything; null before it did. */
  get lastEventAgeMs(): number | null {
    return this.#lastEventAt === null ? null : this.#deps.timers.monotonic() - this.#lastEventAt;
  }

  /**
   * Ends the watch and lists anew, consistently; nothing runs beside the list, so it cannot make false deletions (W7).
   * A list under way is begun again.
   */
  relist(cause: ListCause): void {
    this.#wanted = cause;
    this.#attempt.abort();
  }

  /** Everything there is to see, until `signal` is aborted. To be pulled without waiting for anything else (W9). */
  async *observations(signal: AbortSignal): AsyncGenerator<Observation<T>, void, undefined> {
    const { timers, log, onEnding } = this.#deps;
    const stop = () => this.#attempt.abort();
    signal.addEventListener('abort', stop);
    try {
      while (!signal.aborted) {
        this.#attempt = new AbortController();
        if (this.#wanted !== null) {
          this.#plan = { kind: 'watchList', from: '', cause: this.#wanted };
          this.#wanted = null;
        }
        const ending = yield* this.#try(this.#plan);
        this.#isLive = false;
        if (signal.aborted) return;
        if (ending === null) {
          this.#plan = { kind: 'watch' };
          continue;
        }
        onEnding(ending.kind);
        if (ending.kind === 'denied') yield ending;
        const waitMs = this.#follow(ending);
        const level = this.#isNormal(ending) ? 'debug' : 'warn';
        log[level]('watch ended', { ending, next: this.#plan.kind, wait_ms: Math.round(waitMs) });
        if (waitMs > 0) await timers.sleep(waitMs, this.#attempt.signal);
      }
    } finally {
      signal.removeEventListener('abort', stop);
    }
  }

  #isNormal(ending: Ending): boolean {
    if (ending.kind === 'denied') return ending.status === 404 && this.resource.isOptional === true;
    return ending.kind === 'ended' || ending.kind === 'interrupted';
  }

  /** The table of W4: what to do next, and how long to wait before, in milliseconds. */
  #follow(ending: Ending): number {
    const plan = this.#plan;
    if (plan.kind === 'probe') this.#plan = { kind: 'watch' };
    switch (ending.kind) {
      case 'ended':
        this.#errorsInARow = 0;
        return plan.kind !== 'watchList' && !ending.isShort ? 0 : this.#retry();
      case 'expired':
        if (plan.kind !== 'watch') return this.#retry();
        this.#plan = { kind: 'watchList', from: this.#version, cause: 'expired' };
        return this.#expiriesInARow++ === 0 ? 0 : this.#backoff.next();
      case 'tooLarge':
      case 'rewound':
        this.#plan = { kind: 'watchList', from: '', cause: 'tooLarge' };
        return this.#backoff.next();
      case 'throttled':
        return Math.max(ending.retryAfterMs, this.#backoff.next());
      case 'denied':
        return DENIED_POLL_MS * (1 + this.#deps.random() / 10);
      case 'refused':
        if (plan.kind !== 'watchList') return this.#retry();
        this.#plan = { kind: 'pages', cause: plan.cause };
        return 0;
      case 'failed':
        if (plan.kind === 'watch' && ++this.#errorsInARow >= MAX_ERRORS_IN_A_ROW) {
          this.#errorsInARow = 0;
          this.#plan = { kind: 'watchList', from: this.#version, cause: 'errors' };
          return this.#backoff.next();
        }
        return this.#retry();
      case 'broken':
        if (plan.kind === 'watch') this.#plan = { kind: 'probe' };
        return this.#retry();
      case 'unauthorized':
        return this.#retry();
      case 'silent':
        if (plan.kind === 'watch') this.#plan = { kind: 'probe' };
        return 0;
      case 'interrupted':
        return 0;
      default:
        return ending satisfies never;
    }
  }

  /** The same again, after a back-off; but a list that failed asks for no version any more. */
  #retry(): number {
    const plan = this.#plan;
    if ('cause' in plan) this.#plan = { kind: 'watchList', from: '', cause: plan.cause };
    return this.#backoff.next();
  }

  async *#try(plan: Plan): AsyncGenerator<Observation<T>, Ending | null, undefined> {
    try {
      switch (plan.kind) {
        case 'watchList':
        case 'watch':
          return yield* this.#watch(plan);
        case 'pages':
          return yield* this.#listPages(plan.cause);
        case 'probe':
          return await this.#probe();
        default:
          return plan satisfies never;
      }
    } catch (error) {
      if (this.#attempt.signal.aborted) return { kind: 'interrupted' };
      const code = error instanceof Error && 'code' in error ? error.code : null;
      if (code === 'UND_ERR_BODY_TIMEOUT') return { kind: 'silent' };
      return { kind: 'broken', error };
    }
  }

  /** One watch; one that begins as a list goes on behind it. */
  async *#watch(
    plan: Plan & { kind: 'watchList' | 'watch' },
  ): AsyncGenerator<Observation<T>, Ending, undefined> {
    const { timers } = this.#deps;
    let list: Map<string, T['held']> | null = plan.kind === 'watchList' ? new Map() : null;
    let isQuiet = true;
    const startedAt = timers.monotonic();
    const response = await this.#get(this.#watchQuery(plan), 'PartialObjectMetadata');
    if (response.statusCode !== 200) return this.#endingOf(response);
    this.#isLive = list === null;
    for await (const line of readLines(response.body, MAX_LINE_BYTES)) {
      const { type, object } = JSON.parse(line) as WatchLine;
      if (type === 'ERROR') return endingOfStatus(object.code ?? 500, object, null);
      this.#lastEventAt = timers.monotonic();
      if (type === 'BOOKMARK') {
        const version = object.metadata?.resourceVersion;
        if (!version) continue;
        if (list === null && compareVersions(version, this.#version) < 0) return { kind: 'rewound' };
        this.#expiriesInARow = 0;
        this.#errorsInARow = 0;
        if (list === null) this.#version = version;
        else if (object.metadata?.annotations?.['k8s.io/initial-events-end'] === 'true') {
          if (plan.kind === 'watchList') yield this.#listed([...list.values()], version, plan);
          list = null;
        }
        continue;
      }
      if (type !== 'ADDED' && type !== 'MODIFIED' && type !== 'DELETED') continue;
      isQuiet = false;
      const seen = this.#read(object, type === 'DELETED');
      if (seen === null) continue;
      const { held } = seen;
      if (list === null) {
        this.#expiriesInARow = 0;
        this.#errorsInARow = 0;
        yield { kind: 'event', type, ...seen };
        this.#version = held.resourceVersion;
      } else if (type === 'DELETED') list.delete(`${held.namespace}/${held.name}`);
      else list.set(`${held.namespace}/${held.name}`, held);
    }
    const isShort = list !== null || (isQuiet && timers.monotonic() - startedAt < SHORT_WATCH_MS);
    return { kind: 'ended', isShort };
  }

  #watchQuery(plan: Plan & { kind: 'watchList' | 'watch' }): string {
    const { min, max } = WATCH_SECONDS;
    const seconds = min + Math.floor(this.#deps.random() * (max - min + 1));
    const list = plan.kind === 'watchList' ? '&sendInitialEvents=true&resourceVersionMatch=NotOlderThan' : '';
    const version = plan.kind === 'watchList' ? plan.from : this.#version;
    return `watch=1${list}&allowWatchBookmarks=true&resourceVersion=${version}&timeoutSeconds=${seconds}`;
  }

  /** A list by pages: all of them or nothing (W2). */
  async *#listPages(cause: ListCause): AsyncGenerator<Observation<T>, Ending, undefined> {
    const objects: T['held'][] = [];
    let token = '';
    do {
      const more = token === '' ? '' : `&continue=${encodeURIComponent(token)}`;
      const response = await this.#get(`limit=${PAGE_LIMIT}${more}`, 'PartialObjectMetadataList');
      if (response.statusCode !== 200) return this.#endingOf(response);
      const page = JSON.parse(await readText(response.body, MAX_PAGE_BYTES)) as ListPage;
      this.#lastEventAt = this.#deps.timers.monotonic();
      if (!page.metadata?.resourceVersion || !Array.isArray(page.items ?? []))
        return { kind: 'failed', status: 200, reason: 'not a list' };
      for (const item of page.items ?? []) {
        const seen = this.#read(item, false);
        if (seen !== null) objects.push(seen.held);
      }
      token = page.metadata.continue ?? '';
      if (token === '') yield this.#listed(objects, page.metadata.resourceVersion, { kind: 'pages', cause });
    } while (token !== '');
    return { kind: 'ended', isShort: false };
  }

  /** The smallest consistent list tells the server's version. */
  async #probe(): Promise<Ending | null> {
    const response = await this.#get('limit=1', 'PartialObjectMetadataList');
    if (response.statusCode !== 200) return this.#endingOf(response);
    const { metadata } = JSON.parse(await readText(response.body, MAX_PAGE_BYTES)) as ListPage;
    const isBelow = compareVersions(metadata?.resourceVersion ?? '', this.#version) < 0;
    return isBelow ? { kind: 'rewound' } : null;
  }

  /** A list is complete: its watch follows. */
  #listed(objects: T['held'][], resourceVersion: string, plan: Listing): Observation<T> {
    const isConsistent = plan.kind === 'pages' || plan.from === '';
    const isRewound = isConsistent && compareVersions(resourceVersion, this.#version) < 0;
    this.#version = resourceVersion;
    this.#isLive = plan.kind === 'watchList';
    this.#plan = { kind: 'watch' };
    return { kind: 'listed', cause: plan.cause, objects, resourceVersion, isRewound };
  }

  #read(raw: unknown, isDeleted: boolean): T | null {
    const seen = this.resource.read(raw, this.#deps.timers.now(), isDeleted);
    if (seen === null) this.#deps.log.error('object without identity skipped');
    return seen;
  }

  /** `partial`: the kind that leaves out all but metadata. Source: Kubernetes API concepts, "Alternate representations". */
  #get(query: string, partial: string): Promise<Dispatcher.ResponseData> {
    const path = collectionPath(this.resource, this.namespace);
    const form = this.resource.isMetadataOnly ? `application/json;as=${partial};g=meta.k8s.io;v=v1,` : '';
    return this.#deps.connection.request(`${path}?${query}`, this.#attempt.signal, `${form}application/json`);
  }

  async #endingOf({ statusCode, headers, body }: Dispatcher.ResponseData): Promise<Ending> {
    const text = await readText(body, MAX_STATUS_BYTES);
    const retryAfter = Number(headers['retry-after']);
    return endingOfStatus(statusCode, parseStatus(text), retryAfter > 0 ? retryAfter : null);
  }
}

/** A Kubernetes Status, or an object; whichever the line's type says. */
interface WatchLine {
  readonly type: string;
  readonly object: Status & {
    readonly metadata?: {
      readonly resourceVersion?: string;
      readonly annotations?: Readonly<Record<string, string>>;
    };
  };
}

interface ListPage {
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

function endingOfStatus(code: number, status: Status, retryAfterSeconds: number | null): Ending {
  const reason = status.message ?? status.reason ?? `status ${code}`;
  if (code === 410 || status.reason === 'Expired' || status.reason === 'Gone') return { kind: 'expired' };
  if (code === 504 && isVersionTooLarge(status)) return { kind: 'tooLarge' };
  if (code === 429) {
    const seconds = retryAfterSeconds ?? status.details?.retryAfterSeconds ?? 0;
    return { kind: 'throttled', retryAfterMs: seconds * 1000 };
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
