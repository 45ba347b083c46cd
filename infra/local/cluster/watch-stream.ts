import type { ServerResponse } from 'node:http';
import type { Clock } from '../../../core/time.ts';
import type { Fault, FaultCode } from './misbehaviour.ts';
import { atVersion, type Change, type ObjectStore } from './object-store.ts';
import { apiVersionOf, type KubeObject, type Resource } from './resources.ts';
import type { Status } from './status.ts';

/** How often a watch with bookmarks gets one. Source: kube-apiserver's `defaultBookmarkFrequency`. */
const BOOKMARK_INTERVAL_MS = 60_000;
/** The last bookmark of a watch comes this long before it ends, so that its successor starts close to now. */
const BOOKMARK_BEFORE_END_MS = 2_000;
/** Changes by which a reader may fall behind; real servers buffer 10 to 1,000 events and 100 ms. */
const MAX_PENDING_CHANGES = 1_000;
/** Ends the initial events of a watch-list (W1). */
const INITIAL_EVENTS_END = { 'k8s.io/initial-events-end': 'true' };

export interface WatchRequest {
  readonly resource: Resource;
  readonly selects: (object: KubeObject) => boolean;
  /** Changes after this version are sent. One that is still to come is waited for in silence, as real servers do. */
  readonly from: number;
  /** Objects that are sent as ADDED first. */
  readonly initial: readonly KubeObject[];
  /** True when the bookmark that ends a watch-list is due after them. */
  readonly marksInitialEnd: boolean;
  readonly allowsBookmarks: boolean;
  readonly timeoutMs: number;
  /** What is sent of an object: all of it, or its metadata. */
  readonly render: (object: object) => object;
  readonly fault: Fault | undefined;
}

export interface WatchContext {
  readonly store: ObjectStore;
  readonly clock: Clock;
  readonly response: ServerResponse;
  readonly statusOf: (code: FaultCode, retryAfterSeconds?: number) => Status;
}

/** A watch that is being served. */
export interface OpenWatch {
  readonly resource: string;
  /** Resolves when its connection is closed or its answer has ended. */
  readonly finished: Promise<void>;
  /** Sends what is due by the clock: a bookmark, or the end. */
  tick(): void;
  /** Sends a bookmark now, if the watch asked for bookmarks and has not started from a version still to come. */
  bookmark(): void;
}

/** Answers a watch: headers, initial events, then every change until its time is over or its reader goes or lags. */
export function openWatch(request: WatchRequest, context: WatchContext): OpenWatch {
  const { resource, selects, render, fault } = request;
  const { store, clock, response } = context;
  const maxPending = fault?.kind === 'closeSlowReader' ? fault.pendingChanges : MAX_PENDING_CHANGES;
  const endsAt = clock.monotonic() + request.timeoutMs;
  let nextBookmarkAt = bookmarkTimeAfter(clock.monotonic(), endsAt);
  let cursor = request.from;
  let isBookmarkDue = false;
  let isOver = false;
  let isStalled = false;
  let sentLines = 0;
  let wake = () => {};

  const isOpen = () => !isOver && !response.destroyed;
  const end = () => {
    isOver = true;
    response.end();
    wake();
  };
  const changed = () => {
    if (response.writableNeedDrain && store.revision - cursor > maxPending) end();
    wake();
  };
  const unsubscribe = store.subscribe(changed);
  response.on('close', () => wake());
  response.on('drain', () => wake());

  const write = async (line: string | Uint8Array) => {
    response.write(line);
    while (isOpen() && response.writableNeedDrain) await sleep();
  };
  const send = async (type: string, object: object) => {
    if (!isOpen()) return;
    await write(toLine(type, render(object)));
    sentLines += 1;
    await strike();
  };
  const sleep = () =>
    new Promise<void>((resolve) => {
      wake = resolve;
    });

  const strike = async () => {
    const afterLines = (fault !== undefined && 'afterLines' in fault && fault.afterLines) || 0;
    if (!isOpen() || sentLines !== afterLines) return;
    switch (fault?.kind) {
      case 'resetMidStream':
        await turns();
        response.socket?.resetAndDestroy();
        return;
      case 'stallMidStream':
        isStalled = true;
        while (isOpen()) await sleep();
        return;
      case 'errorEvent':
        await write(toLine('ERROR', context.statusOf(fault.code, fault.retryAfterSeconds)));
        return end();
      case 'shortWatch':
        return end();
      case 'garbageLine':
        return write('{"type":"ADDED","object":{"kind"\n');
      case 'extraLines':
        return write(fault.lines.map((line) => `${line}\n`).join(''));
      case 'cutLine':
        await write(Buffer.from('{"type":"ADDED","object":{"kind":"€').subarray(0, -1));
        return end();
      case 'longLine': {
        const line = toLine('BOOKMARK', render(bookmarkObject(resource, cursor)));
        return write(line.replace(',', `,${' '.repeat(Math.max(0, fault.bytes - line.length))}`));
      }
      default:
        // The other faults do not happen within a stream.
        return;
    }
  };

  const sendChanges = async () => {
    while (isOpen() && cursor < store.revision) {
      const change = store.changeAt(cursor + 1);
      // It fell out of the history: real servers close such a watch, and its successor is told 410.
      if (change === undefined) return end();
      cursor += 1;
      const event = eventOf(change, resource, selects);
      if (event !== undefined) await send(event.type, event.object);
    }
  };

  const run = async () => {
    response.flushHeaders();
    await strike();
    for (const object of request.initial) await send('ADDED', object);
    if (request.marksInitialEnd) await send('BOOKMARK', bookmarkObject(resource, cursor, INITIAL_EVENTS_END));
    while (isOpen()) {
      await sendChanges();
      if (isBookmarkDue) {
        isBookmarkDue = false;
        await send('BOOKMARK', bookmarkObject(resource, cursor));
      } else if (isOpen() && cursor >= store.revision) {
        await sleep();
      }
    }
    unsubscribe();
  };

  return {
    resource: resource.plural,
    finished: run(),
    tick: () => {
      if (isStalled) return;
      const now = clock.monotonic();
      if (now >= endsAt) return end();
      if (now < nextBookmarkAt) return;
      nextBookmarkAt = bookmarkTimeAfter(now, endsAt);
      // As in real servers, a watch that has seen no newer version gets none: on an idle cluster it is silent.
      isBookmarkDue = request.allowsBookmarks && store.revision > request.from;
      wake();
    },
    bookmark: () => {
      isBookmarkDue = request.allowsBookmarks && store.revision >= request.from;
      wake();
    },
  };
}

/** Lets the event loop turn, so that a reader in this process sees the lines before a reset throws them away. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise(setImmediate);
}

function bookmarkTimeAfter(now: number, endsAt: number): number {
  const beforeEnd = endsAt - BOOKMARK_BEFORE_END_MS;
  const next = Math.min(now + BOOKMARK_INTERVAL_MS, beforeEnd);
  return next > now ? next : Number.POSITIVE_INFINITY;
}

/** What a change is to a watch: an object that leaves its selection is DELETED from it, one that enters is ADDED. */
function eventOf(
  { revision, object, previous }: Change,
  resource: Resource,
  selects: (object: KubeObject) => boolean,
): { readonly type: string; readonly object: KubeObject } | undefined {
  const isIn = object?.kind === resource.kind && selects(object);
  const wasIn = previous?.kind === resource.kind && selects(previous);
  if (isIn && object !== null) return { type: wasIn ? 'MODIFIED' : 'ADDED', object };
  if (wasIn && previous !== null) return { type: 'DELETED', object: atVersion(previous, revision) };
  return undefined;
}

function bookmarkObject(
  resource: Resource,
  revision: number,
  annotations?: Readonly<Record<string, string>>,
): object {
  const resourceVersion = String(revision);
  return {
    kind: resource.kind,
    apiVersion: apiVersionOf(resource),
    metadata: annotations === undefined ? { resourceVersion } : { resourceVersion, annotations },
    ...resource.zeroValue,
  };
}

function toLine(type: string, object: object): string {
  return `${JSON.stringify({ type, object })}\n`;
}
