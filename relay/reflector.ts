import type { Dispatcher } from 'undici';
import { compareVersions } from '../core/version.ts';
import type { WatchedKind } from '../wire/envelope.ts';
import type { Logger } from '../wire/log.ts';
import { Backoff } from './backoff.ts';
import type { Compacted } from './compact.ts';
import type { Connection } from './connection.ts';
import { collectionPath, type Resource, type Seen } from './resources.ts';
import type { Timers } from './timers.ts';
import { type Change, type Ending, endingOf, readChanges, readPage } from './watch-protocol.ts';

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
  /**
   * The server does not let the relay read, or has no such resource (403, 404): it is asked again every minute.
   * `mayPass`: it may have just started, and is asked again sooner.
   */
  | {
      readonly kind: 'denied';
      readonly status: number;
      readonly reason: string;
      readonly mayPass: boolean;
    };

/** A list that a watch begins with (W1), from a version on; '' asks for the newest state there is. */
interface WatchList {
  readonly kind: 'watchList';
  readonly from: string;
  readonly cause: ListCause;
}

/** A watch under way. */
interface Stream<T extends Seen> {
  readonly changes: AsyncGenerator<Change, Ending | null, undefined>;
  readonly startedAt: number;
  /** The list that it begins with, so far; null when there is none, or it was told. */
  list: Collected<T> | null;
}

/** What a watch has told of its list. */
interface Collected<T extends Seen> {
  readonly plan: WatchList;
  /** Version up to which everything was seen when the list was asked for. */
  readonly since: string;
  readonly objects: Map<string, T['held']>;
  /** Version of the bookmark that ended the list, or of what came behind it; null before. */
  version: string | null;
}

type Whole<T extends Seen> = Collected<T> & { version: string };

/** What is tried next. */
type Plan<T extends Seen> =
  | WatchList
  /** List by pages (W2). */
  | { readonly kind: 'pages'; readonly cause: ListCause }
  /** Watch from the last version on (W4). */
  | { readonly kind: 'watch' }
  /** Go on with a watch whose list was made beside the former one (W7). */
  | { readonly kind: 'swap'; readonly stream: Stream<T> }
  /** Ask how far the server is, which may come back from a backup: a watch from a version still to come is silent, not refused. */
  | { readonly kind: 'probe' };

const PAGE_LIMIT = 500;
/** Two million objects: more than any cluster has. */
const MAX_PAGES = 4000;
/** The server ends a watch after a random time between these, in seconds (W4). */
const WATCH_SECONDS = { min: 300, max: 600 };
/** A list that takes longer as a watch is made by pages, in milliseconds. */
const MAX_WATCH_LIST_MS = 120_000;
/** What the old watch has yet to tell when the new one has listed, it tells within this time, in milliseconds. */
const SWAP_AFTER_MS = 1000;
const SHORT_WATCH_MS = 1000;
const DENIED_POLL_MS = 60_000;
/** A server that has just started denies everything until it has read its roles: asked again so often before it is polled. */
const QUICK_DENIALS = 3;
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
  readonly #auditBackoff: Backoff;
  #plan: Plan<T> = { kind: 'watchList', from: '', cause: 'start' };
  /** What is to be done instead of the plan. */
  #next: Plan<T> | null = null;
  /** Version up to which everything was seen; '' before the first list. */
  #version = '';
  #isLive = false;
  /** Was the last list made by a watch, so that another can be made beside the present one? */
  #canAuditBeside = false;
  #lastEventAt: number | null = null;
  /** Failures of the server since it last said anything. */
  #errorsInARow = 0;
  #expiriesInARow = 0;
  #denialsInARow = 0;
  #attempt = new AbortController();
  #audit = new AbortController();
  /** Resolves when no audit is under way. */
  #audited: Promise<void> = Promise.resolve();

  constructor(resource: Resource<T, K>, namespace: string | null, deps: ReflectorDeps) {
    this.resource = resource;
    this.namespace = namespace;
    this.#deps = deps;
    this.#backoff = new Backoff(deps.timers, deps.random);
    this.#auditBackoff = new Backoff(deps.timers, deps.random);
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
   * Lists anew, consistently: by a second watch, which takes the place of the live one at its bookmark. A list by pages
   * beside a live watch would make false deletions, so where that is all there is the watch ends first (W7). A list under
   * way is begun again.
   */
  relist(cause: ListCause): void {
    this.#audit.abort();
    if (this.#next?.kind === 'swap') this.#next = null;
    if (this.#isLive && this.#canAuditBeside) this.#startAudit(cause, 0);
    else this.#interrupt({ kind: 'watchList', from: '', cause });
  }

  /** Everything there is to see, until `signal` is aborted. To be pulled without waiting for anything else (W9). */
  async *observations(signal: AbortSignal): AsyncGenerator<Observation<T>, void, undefined> {
    const { timers, log, onEnding } = this.#deps;
    const stop = () => {
      this.#attempt.abort();
      this.#audit.abort();
    };
    signal.addEventListener('abort', stop);
    try {
      while (!signal.aborted) {
        this.#begin();
        const ending = yield* this.#try(this.#plan);
        this.#isLive = this.#next?.kind === 'swap';
        if (signal.aborted) return;
        if (ending === null) {
          this.#plan = { kind: 'watch' };
          continue;
        }
        onEnding(ending.kind);
        const waitMs = this.#follow(ending);
        if (ending.kind === 'denied') yield { ...ending, mayPass: this.#mayPass(ending) };
        const level = this.#isNormal(ending) ? 'debug' : 'warn';
        const { kind: next } = this.#next ?? this.#plan;
        log[level]('watch ended', { ending, next, wait_ms: Math.round(waitMs) });
        if (waitMs > 0) await timers.sleep(waitMs, this.#attempt.signal);
      }
    } finally {
      signal.removeEventListener('abort', stop);
      stop();
      this.#isLive = false;
      await this.#audited;
    }
  }

  /** Turns to what is to be done next. */
  #begin(): void {
    this.#plan = this.#next ?? this.#plan;
    this.#next = null;
    // A list serves whatever an audit was for; a swap ends it, and goes on with its stream.
    if ('cause' in this.#plan) this.#audit.abort();
    this.#attempt = this.#plan.kind === 'swap' ? this.#audit : new AbortController();
    if (this.#plan.kind === 'swap') this.#audit = new AbortController();
  }

  #interrupt(next: Plan<T>): void {
    this.#next = next;
    this.#attempt.abort();
  }

  #isNormal(ending: Ending): boolean {
    if (ending.kind === 'denied') return ending.status === 404 && this.resource.isOptional === true;
    return ending.kind === 'ended' || ending.kind === 'interrupted';
  }

  /** The table of W4: what to do next, and how long to wait before, in milliseconds. */
  #follow(ending: Ending): number {
    if (this.#plan.kind === 'swap') {
      // It broke before it came as far as the old watch was: that one goes on, and the audit is made again.
      const { list } = this.#plan.stream;
      if (list !== null) this.#startAudit(list.plan.cause, this.#auditBackoff.next());
      this.#plan = { kind: 'watch' };
    }
    // A probe that was not answered is asked again: without it, a watch of a version still to come says nothing for ever.
    const plan = this.#plan;
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
      case 'denied':
        this.#denialsInARow++;
        if (this.#mayPass(ending)) return this.#backoff.next();
        return this.#waitAfter(ending, this.#backoff);
      case 'throttled':
        return this.#waitAfter(ending, this.#backoff);
      case 'refused':
      case 'failed':
        if (ending.kind === 'refused' && plan.kind === 'watchList') {
          this.#plan = { kind: 'pages', cause: plan.cause };
          return 0;
        }
        if (plan.kind === 'watch' && ++this.#errorsInARow >= MAX_ERRORS_IN_A_ROW) {
          this.#errorsInARow = 0;
          this.#plan = { kind: 'watchList', from: this.#version, cause: 'errors' };
          return this.#backoff.next();
        }
        // It answers, if no lists: a watch may go on all the same.
        if (plan.kind === 'probe') this.#plan = { kind: 'watch' };
        return this.#retry();
      case 'broken':
        if (plan.kind === 'watch') this.#plan = { kind: 'probe' };
        return this.#retry();
      case 'unauthorized':
        return this.#retry();
      case 'silent':
      case 'endless':
        if (plan.kind === 'watch') this.#plan = { kind: 'probe' };
        if (plan.kind === 'watchList') this.#plan = { kind: 'pages', cause: plan.cause };
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

  /** Is this a denial that may be over in a moment? */
  #mayPass({ status }: Ending & { kind: 'denied' }): boolean {
    return status === 403 && this.#denialsInARow <= QUICK_DENIALS;
  }

  #waitAfter(ending: Ending, backoff: Backoff): number {
    if (ending.kind === 'denied') return DENIED_POLL_MS * (1 + this.#deps.random() / 10);
    return Math.max(ending.kind === 'throttled' ? ending.retryAfterMs : 0, backoff.next());
  }

  async *#try(plan: Plan<T>): AsyncGenerator<Observation<T>, Ending | null, undefined> {
    const { signal } = this.#attempt;
    try {
      switch (plan.kind) {
        case 'watchList':
        case 'watch': {
          const stream = await this.#open(plan, signal);
          return 'changes' in stream ? yield* this.#watch(stream) : stream;
        }
        case 'swap':
          return yield* this.#watch(plan.stream);
        case 'pages':
          return yield* this.#listPages(plan.cause);
        case 'probe':
          return await this.#probe();
        default:
          return plan satisfies never;
      }
    } catch (error) {
      return endingOfError(error, signal);
    }
  }

  async #open(
    plan: WatchList | { readonly kind: 'watch' },
    signal: AbortSignal,
  ): Promise<Stream<T> | Ending> {
    const since = this.#version;
    const response = await this.#get(this.#watchQuery(plan), 'PartialObjectMetadata', signal);
    if (response.statusCode !== 200) return endingOf(response);
    this.#denialsInARow = 0;
    return {
      changes: readChanges(response.body),
      startedAt: this.#deps.timers.monotonic(),
      list: plan.kind === 'watch' ? null : { plan, since, objects: new Map(), version: null },
    };
  }

  /** What a watch tells: its list, as soon as that is as new as what was seen before, then each change. */
  async *#watch(stream: Stream<T>): AsyncGenerator<Observation<T>, Ending, undefined> {
    const { timers } = this.#deps;
    let isQuiet = true;
    // One that was listed beside the former watch goes on from it.
    this.#isLive = stream.list === null || stream.list.version !== null;
    try {
      for (;;) {
        if (stream.list !== null && this.#isWhole(stream.list)) yield this.#endList(stream, stream.list);
        const { value, done } = await stream.changes.next();
        if (done) {
          const isShort = isQuiet && timers.monotonic() - stream.startedAt < SHORT_WATCH_MS;
          return value ?? { kind: 'ended', isShort: isShort || stream.list !== null };
        }
        this.#lastEventAt = timers.monotonic();
        if (value.kind === 'event') isQuiet = false;
        const change = this.#read(value);
        if (change === null) continue;
        if (stream.list !== null) {
          collect(stream.list, change);
          if (this.#isWhole(stream.list) || this.#isInTime(stream)) continue;
          return { kind: 'endless' };
        }
        const isBelow = compareVersions(change.resourceVersion, this.#version) < 0;
        if (change.kind === 'bookmark' && isBelow) return { kind: 'rewound' };
        this.#expiriesInARow = 0;
        this.#errorsInARow = 0;
        if (change.kind === 'event') yield { kind: 'event', type: change.type, ...change.seen };
        this.#version = change.resourceVersion;
      }
    } finally {
      await stream.changes.return(null);
    }
  }

  /** Lists by a second watch, again and again until it succeeds; meanwhile the live one goes on (W7). */
  #startAudit(cause: ListCause, waitMs: number): void {
    this.#audit.abort();
    this.#audit = new AbortController();
    const former = this.#audited;
    this.#audited = this.#runAudit(cause, waitMs, this.#audit.signal).then(() => former);
  }

  async #runAudit(cause: ListCause, waitMs: number, signal: AbortSignal): Promise<void> {
    const { timers, log, onEnding } = this.#deps;
    for (let pauseMs = waitMs; ; ) {
      if (pauseMs > 0) await timers.sleep(pauseMs, signal);
      if (signal.aborted) return;
      const stream = await this.#listBeside({ kind: 'watchList', from: '', cause }, signal);
      if (signal.aborted) return;
      if ('changes' in stream) {
        await timers.sleep(SWAP_AFTER_MS, signal);
        if (!signal.aborted) this.#interrupt({ kind: 'swap', stream });
        return;
      }
      onEnding(stream.kind);
      if (stream.kind === 'refused') return this.#interrupt({ kind: 'pages', cause });
      pauseMs = this.#waitAfter(stream, this.#auditBackoff);
      log.warn('list beside the watch failed', { ending: stream, wait_ms: Math.round(pauseMs) });
    }
  }

  /** A watch that has told all of its list, or how it ended before. */
  async #listBeside(plan: WatchList, signal: AbortSignal): Promise<Stream<T> | Ending> {
    try {
      const stream = await this.#open(plan, signal);
      if (!('changes' in stream)) return stream;
      while (stream.list !== null && stream.list.version === null) {
        const { value, done } = await stream.changes.next();
        if (done) return value ?? { kind: 'ended', isShort: true };
        const change = this.#read(value);
        if (change !== null) collect(stream.list, change);
        if (stream.list.version !== null || this.#isInTime(stream)) continue;
        await stream.changes.return(null);
        return { kind: 'endless' };
      }
      return stream;
    } catch (error) {
      return endingOfError(error, signal);
    }
  }

  #isInTime({ startedAt }: Stream<T>): boolean {
    return this.#deps.timers.monotonic() - startedAt < MAX_WATCH_LIST_MS;
  }

  /** Is a list complete, and as new as what was seen meanwhile? It never will be when the storage went back. */
  #isWhole(list: Collected<T>): list is Whole<T> {
    return list.version !== null && (isRewound(list) || compareVersions(list.version, this.#version) >= 0);
  }

  #endList(stream: Stream<T>, list: Whole<T>): Observation<T> {
    stream.list = null;
    this.#canAuditBeside = true;
    this.#isLive = true;
    this.#errorsInARow = 0;
    this.#expiriesInARow = 0;
    return this.#listed(list.plan.cause, [...list.objects.values()], list.version, isRewound(list));
  }

  #watchQuery(plan: WatchList | { readonly kind: 'watch' }): string {
    const { min, max } = WATCH_SECONDS;
    const seconds = min + Math.floor(this.#deps.random() * (max - min + 1));
    const list = plan.kind === 'watchList' ? '&sendInitialEvents=true&resourceVersionMatch=NotOlderThan' : '';
    const version = plan.kind === 'watchList' ? plan.from : this.#version;
    return `watch=1${list}&allowWatchBookmarks=true&resourceVersion=${version}&timeoutSeconds=${seconds}`;
  }

  /** A list by pages: all of them or nothing (W2). */
  async *#listPages(cause: ListCause): AsyncGenerator<Observation<T>, Ending, undefined> {
    const { signal } = this.#attempt;
    const objects: T['held'][] = [];
    let token = '';
    for (let count = 0; count < MAX_PAGES; count++) {
      const more = token === '' ? '' : `&continue=${encodeURIComponent(token)}`;
      const response = await this.#get(`limit=${PAGE_LIMIT}${more}`, 'PartialObjectMetadataList', signal);
      if (response.statusCode !== 200) return endingOf(response);
      const page = await readPage(response);
      this.#lastEventAt = this.#deps.timers.monotonic();
      if (page === null) return { kind: 'failed', status: 200, reason: 'not a list' };
      for (const item of page.items) {
        const seen = this.#readObject(item, false);
        if (seen !== null) objects.push(seen.held);
      }
      if (page.next === '') {
        const isBack = compareVersions(page.resourceVersion, this.#version) < 0;
        this.#canAuditBeside = false;
        yield this.#listed(cause, objects, page.resourceVersion, isBack);
        return { kind: 'ended', isShort: false };
      }
      if (page.next === token) break;
      token = page.next;
    }
    return { kind: 'failed', status: 200, reason: 'a list whose pages have no end' };
  }

  /** The smallest consistent list tells the server's version. */
  async #probe(): Promise<Ending | null> {
    const response = await this.#get('limit=1', 'PartialObjectMetadataList', this.#attempt.signal);
    if (response.statusCode !== 200) return endingOf(response);
    const page = await readPage(response);
    return compareVersions(page?.resourceVersion ?? '', this.#version) < 0 ? { kind: 'rewound' } : null;
  }

  /** A list is complete: its watch follows. `isBack`: a consistent one is below what was seen before. */
  #listed(cause: ListCause, objects: T['held'][], resourceVersion: string, isBack: boolean): Observation<T> {
    this.#version = resourceVersion;
    this.#plan = { kind: 'watch' };
    return { kind: 'listed', cause, objects, resourceVersion, isRewound: isBack };
  }

  /** Null for an object without identity. */
  #read(change: Change): Read<T> | null {
    if (change.kind === 'bookmark') return change;
    const seen = this.#readObject(change.object, change.type === 'DELETED');
    if (seen === null) return null;
    return { kind: 'event', type: change.type, seen, resourceVersion: seen.held.resourceVersion };
  }

  #readObject(raw: unknown, isDeleted: boolean): T | null {
    const seen = this.resource.read(raw, this.#deps.timers.now(), isDeleted);
    if (seen === null) this.#deps.log.error('object without identity skipped');
    return seen;
  }

  /** `partial`: the kind that leaves out all but metadata. Source: Kubernetes API concepts, "Alternate representations". */
  #get(query: string, partial: string, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
    const path = collectionPath(this.resource, this.namespace);
    const form = this.resource.isMetadataOnly ? `application/json;as=${partial};g=meta.k8s.io;v=v1,` : '';
    return this.#deps.connection.request(`${path}?${query}`, signal, `${form}application/json`);
  }
}

/** A change whose object was read. */
type Read<T extends Seen> =
  | (Change & { readonly kind: 'bookmark' })
  | {
      readonly kind: 'event';
      readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
      readonly resourceVersion: string;
      readonly seen: T;
    };

/** Takes a change into a list, which may be told later than its bookmark. */
function collect<T extends Seen>(list: Collected<T>, change: Read<T>): void {
  if (list.version !== null || (change.kind === 'bookmark' && change.endsList)) {
    list.version = change.resourceVersion;
  }
  if (change.kind === 'bookmark') return;
  const { held } = change.seen;
  const key = `${held.namespace}/${held.name}`;
  if (change.type === 'DELETED') list.objects.delete(key);
  else list.objects.set(key, held);
}

/** A consistent list is below what was seen before it was asked for: the storage went back. */
function isRewound<T extends Seen>({ plan, version, since }: Collected<T>): boolean {
  return plan.from === '' && version !== null && compareVersions(version, since) < 0;
}

function endingOfError(error: unknown, signal: AbortSignal): Ending {
  if (signal.aborted) return { kind: 'interrupted' };
  const code = error instanceof Error && 'code' in error ? error.code : null;
  return code === 'UND_ERR_BODY_TIMEOUT' ? { kind: 'silent' } : { kind: 'broken', error };
}
