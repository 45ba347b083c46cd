import { setTimeout as wait } from 'node:timers/promises';
import {
  DescribeEventBusCommand,
  EventBridgeClient,
  PutEventsCommand,
  type PutEventsResultEntry,
  ResourceNotFoundException,
} from '@aws-sdk/client-eventbridge';
import { DEFAULT_CALL_BYTES, MAX_CALL_ENTRIES, SOURCE } from '../../wire/delta.ts';
import { type Bus, type BusEntry, BusUnavailableError, entryBytes, type PublishResult } from './bus.ts';

/** Tries of an entry; what still fails then stays with its sender, who has it stored. */
const MAX_TRIES = 4;
/** Mean pause before the second try, in milliseconds; it doubles with each. */
const FIRST_PAUSE_MS = 50;
/** Longest time of one call, in milliseconds. */
const CALL_TIMEOUT_MS = 2000;
const CONNECTION_TIMEOUT_MS = 500;

/** Codes of an entry that another try may cure at once. Source: PutEvents, error codes. */
const RETRIABLE_CODES: ReadonlySet<string> = new Set(['InternalFailure', 'ThrottlingException']);
/** Our own code for an entry that is larger than any call. */
const TOO_LARGE = 'EntryTooLarge';
/** Our own code for an entry of a call that got no answer, while others got one. */
const NO_ANSWER = 'NoAnswer';
/** Code of a call of which something is wrong. */
const INVALID_CALL = 'ValidationException';
/** Codes of a call that come and go with the load. */
const THROTTLES: ReadonlySet<string> = new Set(['ThrottlingException', 'TooManyRequestsException']);
/** What is wrong with the entry itself. Every other failure may end: policies, buses and limits change. */
const FINAL_CODES: ReadonlySet<string> = new Set(['InvalidArgument', 'MalformedDetail', TOO_LARGE]);

export interface EventBridgeClientOptions {
  readonly region: string;
  /** Another endpoint than the region's. */
  readonly endpoint?: string;
  /** Found by the SDK's default chain when absent. */
  readonly credentials?: { readonly accessKeyId: string; readonly secretAccessKey: string };
}

/** A client whose calls are single tries with a timeout: the bus retries entries, not calls. */
export function createEventBridgeClient(options: EventBridgeClientOptions): EventBridgeClient {
  const agent = { keepAlive: true };
  return new EventBridgeClient({
    ...options,
    maxAttempts: 1,
    requestHandler: {
      connectionTimeout: CONNECTION_TIMEOUT_MS,
      requestTimeout: CALL_TIMEOUT_MS,
      throwOnRequestTimeout: true,
      httpAgent: agent,
      httpsAgent: agent,
    },
  });
}

export interface EventBridgeBusOptions {
  /** From `createEventBridgeClient`. */
  readonly client: EventBridgeClient;
  /** Name or ARN. */
  readonly busName: string;
  /** Bytes of one call; DEFAULT_CALL_BYTES by default. */
  readonly maxCallBytes?: number;
  /** Waits for so many milliseconds before another try. */
  readonly pause?: (ms: number) => Promise<void>;
}

/** What is known of an entry so far. */
type Answer = PublishResult | { readonly kind: 'unknown'; readonly cause: unknown };

/** The bus port on a classic EventBridge bus. */
export function createEventBridgeBus(options: EventBridgeBusOptions): Bus {
  const { client, busName, maxCallBytes = DEFAULT_CALL_BYTES, pause = wait } = options;

  /** What the bus answers for each entry of one call. */
  async function putEvents(entries: readonly BusEntry[]): Promise<readonly Answer[]> {
    const input = {
      Entries: entries.map(({ detailType, resources, detail }) => ({
        EventBusName: busName,
        Source: SOURCE,
        DetailType: detailType,
        Resources: [...resources],
        Detail: detail,
      })),
    };
    const abortSignal = AbortSignal.timeout(CALL_TIMEOUT_MS);
    try {
      const { Entries: answers = [] } = await client.send(new PutEventsCommand(input), { abortSignal });
      return entries.map((_, index) => toAnswer(answers[index]));
    } catch (error) {
      if (abortSignal.aborted || isUnavailability(error)) return entries.map(() => unknown(error));
      const refusal = toRefusal(error);
      if (refusal.code !== TOO_LARGE && refusal.code !== INVALID_CALL) return entries.map(() => refusal);
      if (entries.length === 1) return [refusal];
      // Too large together, whatever the limit is today, or one of them makes the whole call invalid.
      const middle = Math.ceil(entries.length / 2);
      return [...(await putEvents(entries.slice(0, middle))), ...(await putEvents(entries.slice(middle)))];
    }
  }

  return {
    async publish(entries) {
      const answers = entries.map((entry): Answer => {
        return entryBytes(entry) <= maxCallBytes ? unknown(null) : refused(TOO_LARGE);
      });
      let waiting = [...answers.keys()].filter((index) => isWorthATry(answers[index]));
      for (let tries = 1; waiting.length > 0 && tries <= MAX_TRIES; tries++) {
        if (tries > 1) await pause(Math.random() * FIRST_PAUSE_MS * 2 ** (tries - 1));
        for (const indices of packCalls(waiting, entries, maxCallBytes)) {
          const given = await putEvents(indices.flatMap((index) => entries[index] ?? []));
          for (const [at, index] of indices.entries()) answers[index] = given[at] ?? unknown(null);
          // The next call would fare no better now.
          if (given.every(({ kind }) => kind === 'unknown')) break;
        }
        waiting = waiting.filter((index) => isWorthATry(answers[index]));
      }
      return toResults(answers);
    },

    async describe() {
      const abortSignal = AbortSignal.timeout(CALL_TIMEOUT_MS);
      try {
        await client.send(new DescribeEventBusCommand({ Name: busName }), { abortSignal });
        return true;
      } catch (error) {
        if (error instanceof ResourceNotFoundException) return false;
        throw new BusUnavailableError('the bus cannot be described', { cause: error });
      }
    },
  };
}

/** Fills calls in order, by count and bytes. */
function packCalls(
  indices: readonly number[],
  entries: readonly BusEntry[],
  maxCallBytes: number,
): number[][] {
  const calls: number[][] = [];
  let bytes = Number.POSITIVE_INFINITY;
  for (const index of indices) {
    const entry = entries[index];
    if (entry === undefined) continue;
    const size = entryBytes(entry);
    const call = calls.at(-1);
    if (call !== undefined && call.length < MAX_CALL_ENTRIES && bytes + size <= maxCallBytes) {
      call.push(index);
      bytes += size;
    } else {
      calls.push([index]);
      bytes = size;
    }
  }
  return calls;
}

function toAnswer(answer: PutEventsResultEntry | undefined): Answer {
  if (answer?.ErrorCode !== undefined) return refused(answer.ErrorCode);
  return answer?.EventId === undefined ? unknown(null) : { kind: 'accepted' };
}

function refused(code: string): PublishResult & { readonly kind: 'refused' } {
  return { kind: 'refused', code, isFinal: FINAL_CODES.has(code) };
}

function unknown(cause: unknown): Answer {
  return { kind: 'unknown', cause };
}

/** Throttled as a whole, failing, or not reached. */
function isUnavailability(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const status = statusOf(error);
  if (status !== undefined) return status >= 500 || THROTTLES.has(error.name);
  // No answer: the errors of sockets and name look-ups have a code.
  return 'code' in error || error.name === 'TimeoutError';
}

/** Why a whole call was refused. A call too large may come back as a bare 413 without any message. */
function toRefusal(error: unknown): PublishResult & { readonly kind: 'refused' } {
  const status = statusOf(error);
  if (!(error instanceof Error) || status === undefined) throw error;
  const isTooLarge = status === 413 || (error.name === INVALID_CALL && /\bsize\b/i.test(error.message));
  return refused(isTooLarge ? TOO_LARGE : error.name);
}

function statusOf(error: unknown): number | undefined {
  return (error as { $metadata?: { httpStatusCode?: number } }).$metadata?.httpStatusCode;
}

function isWorthATry(answer: Answer | undefined): boolean {
  return answer?.kind === 'unknown' || (answer?.kind === 'refused' && RETRIABLE_CODES.has(answer.code));
}

function toResults(answers: readonly Answer[]): PublishResult[] {
  const failure = answers.find((answer) => answer.kind === 'unknown');
  if (failure !== undefined && answers.every(({ kind }) => kind === 'unknown')) {
    throw new BusUnavailableError('the bus does not answer', { cause: failure.cause });
  }
  return answers.map((answer) => (answer.kind === 'unknown' ? refused(NO_ANSWER) : answer));
}
