import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import * as z from 'zod';
import { type Clock, type EpochMs, formatInstant } from '../../core/time.ts';
import type { Logger } from '../../wire/log.ts';
import { type Invalid, invalid, parse } from '../../wire/parse.ts';
import { type EventLog, type LogEntry, type NewLogEntry, openEventLog } from './event-log.ts';
import { compilePattern } from './event-pattern.ts';
import { type BusEvent, backOffMs, type Delivery, type EventRule, startDelivery } from './event-rule.ts';
import { isLoopbackHost, listenOnLoopback, parseLoopbackUrl } from './loopback.ts';

/** Entries of one PutEvents call. Source: PutEvents, `Entries`. */
const MAX_ENTRIES = 10;
/** Bytes of one PutEvents call, by `entrySize`; one more is refused. 256 KB until January 2026. Source: EventBridge, PutEvents entry size. */
export const CALL_BYTES = 1024 * 1024;
/** Source: PutEventsRequestEntry, `DetailType`. */
const MAX_DETAIL_TYPE_CHARS = 128;
/** Levels of a Detail that are processed. Source: PutEvents. */
const MAX_DETAIL_DEPTH = 1100;
/** Source: EventBridge quotas, rules of a bus. */
const MAX_RULES = 300;
/** Longest time that one read waits, in milliseconds. */
const MAX_WAIT_MS = 300_000;

export interface LocalBusOptions {
  readonly clock: Clock;
  /** Directory of the log, which is durable at each answer and found again; null keeps it in memory (MEMORY_LOG_BYTES). */
  readonly dataDir: string | null;
  readonly logger: Logger;
  /** Buses that exist; only `default` by default, as in a new account. */
  readonly busNames?: readonly string[];
  /** `account` of the delivered events. */
  readonly accountId?: string;
  readonly region?: string;
  /** CALL_BYTES by default. */
  readonly callBytes?: number;
  /** Wait before a rule tries its target again; `backOffMs` by default. */
  readonly retryDelayMs?: (attempt: number) => number;
}

/** An entry as readers see it. */
export type BusEntry = Omit<LogEntry, 'id'>;

/** Query of a read, from strings as from numbers. */
export const busQuery = z.object({
  /** Entries behind this `n`. */
  after: z.coerce.number().int().min(0).default(0),
  limit: z.coerce.number().int().min(0).max(10_000).default(1000),
  /** Milliseconds to wait for an entry when there is none. */
  wait: z.coerce.number().int().min(0).max(MAX_WAIT_MS).default(0),
});
export type BusQuery = z.infer<typeof busQuery>;

/** Body that makes a rule. */
const ruleBody = z.object({ eventPattern: z.record(z.string(), z.unknown()), target: z.string() });
const ruleName = z
  .string()
  .regex(/^[-._A-Za-z0-9]{1,64}$/, 'must be 1 to 64 letters, digits, "-", "_" and "."');

/** A bus on the loopback that EventBridge's SDK talks to, with what only a local one has: its log can be read. */
export interface LocalBus extends AsyncDisposable {
  /** The SDK's `endpoint`. */
  readonly url: string;
  /**
   * What was accepted, in order. `last` is where the next read goes on: the last entry's `n`, or the newest's when there
   * is none to return. An `n` above `after + 1` at the start means that a log in memory has forgotten what lay between.
   */
  read(query: BusQuery, signal?: AbortSignal): Promise<{ entries: BusEntry[]; last: number }>;
  /** Makes or replaces a rule with an HTTP target, for entries of all buses from now on. Rules live in memory. */
  putRule(name: string, body: unknown): { readonly kind: 'ok' } | Invalid;
}

/**
 * Starts a bus that speaks PutEvents and DescribeEventBus (AWS JSON 1.1) on a free port of 127.0.0.1.
 * @throws DirectoryInUseError when another process has the directory.
 */
export async function startLocalBus(options: LocalBusOptions): Promise<LocalBus> {
  const { clock, logger, busNames = ['default'], accountId = '000000000000', region = 'us-east-1' } = options;
  const { callBytes = CALL_BYTES, retryDelayMs = backOffMs } = options;
  const log = await openEventLog(options.dataDir);
  const closing = new AbortController();
  const rules = new Map<string, Delivery>();

  const context: CallContext = {
    ...{ clock, log, busNames, callBytes },
    busArn: (name) => `arn:aws:events:${region}:${accountId}:event-bus/${name}`,
  };
  const server = createServer((request, response) => {
    answer(request, response, context).catch((error: unknown) => {
      logger.error('bus request failed', { error });
      if (response.headersSent) response.destroy();
      else send(response, 500, { __type: 'InternalException', message: 'The bus failed; its log says why.' });
    });
  });
  const url = await listenOnLoopback(server);

  const toEvent = (entry: LogEntry): BusEvent => ({
    version: '0',
    id: entry.id,
    'detail-type': entry.detailType,
    source: entry.source,
    account: accountId,
    time: entry.time.replace(/\.\d+Z$/, 'Z'),
    region,
    resources: entry.resources,
    detail: entry.detail,
  });

  return {
    url,

    async read({ after, limit, wait }, signal) {
      if (wait > 0) {
        const limits = [AbortSignal.timeout(wait), closing.signal, ...(signal === undefined ? [] : [signal])];
        await log.waitBeyond(after, AbortSignal.any(limits));
      }
      const found = await log.read(after, limit);
      return { entries: found.map(({ id, ...entry }) => entry), last: found.at(-1)?.n ?? log.last };
    },

    putRule(name, body) {
      const rule = parseRule(name, body);
      if (rule.kind === 'invalid') return rule;
      const former = rules.get(name);
      if (former === undefined && rules.size >= MAX_RULES)
        return invalid('name', `is one too many: a bus has at most ${MAX_RULES} rules`);
      const options = { log, toEvent, logger, retryDelayMs };
      // A former rule's undelivered entries are the new one's to judge.
      rules.set(name, startDelivery(rule.value, former?.position ?? log.last, options));
      void former?.[Symbol.asyncDispose]();
      return { kind: 'ok' };
    },

    async [Symbol.asyncDispose]() {
      closing.abort();
      const closed = new Promise((resolve) => server.close(resolve));
      await Promise.all([...rules.values()].map((rule) => rule[Symbol.asyncDispose]()));
      await closed;
      await log[Symbol.asyncDispose]();
    },
  };
}

function parseRule(
  name: string,
  body: unknown,
): { readonly kind: 'ok'; readonly value: EventRule } | Invalid {
  const parsedName = parse(ruleName, name, 'name');
  if (parsedName.kind === 'invalid') return parsedName;
  const parsed = parse(ruleBody, body);
  if (parsed.kind === 'invalid') return parsed;
  const target = parseLoopbackUrl(parsed.value.target);
  if (target === null)
    return invalid('target', 'must be a URL that begins with http://127.0.0.1 or http://localhost');
  const pattern = compilePattern(parsed.value.eventPattern);
  if (pattern.kind === 'invalid') return invalid('eventPattern', pattern.reason);
  return { kind: 'ok', value: { name, target, matches: pattern.matches } };
}

interface CallContext {
  readonly clock: Clock;
  readonly log: EventLog;
  readonly busNames: readonly string[];
  readonly callBytes: number;
  readonly busArn: (name: string) => string;
}

/** An answer of the protocol: 200 with the output, or an error's name and message. */
type CallResult =
  | { readonly kind: 'output'; readonly body: object }
  | { readonly kind: 'error'; readonly type: string; readonly message: string };

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  context: CallContext,
): Promise<void> {
  // A page in a browser can neither name the loopback as its host nor send this type without being asked first.
  if (!isLoopbackHost(request.headers.host)) return refuse(request, response, 403);
  if (request.method !== 'POST') return refuse(request, response, 405);
  if (request.headers['content-type'] !== 'application/x-amz-json-1.1') return refuse(request, response, 415);
  // Each byte may come as a six-byte escape; the rest is keys.
  const text = await readText(request, context.callBytes * 6 + 64 * 1024);
  if (text === null) return refuse(request, response, 413);
  const result = await call(String(request.headers['x-amz-target']), text, context);
  if (result.kind === 'output') send(response, 200, result.body);
  else send(response, 400, { __type: result.type, message: result.message });
}

/** A bare answer; what is still to come of the request is read and thrown away, so that the client gets to read it. */
function refuse(request: IncomingMessage, response: ServerResponse, status: number): void {
  response.writeHead(status, { connection: 'close', 'content-length': 0 }).end();
  request.resume();
}

function send(response: ServerResponse, status: number, body: object): void {
  const headers = { 'content-type': 'application/x-amz-json-1.1', 'x-amzn-requestid': randomUUID() };
  response.writeHead(status, headers).end(JSON.stringify(body));
}

/** The body, or null when it is longer than `maxBytes`. */
async function readText(request: IncomingMessage, maxBytes: number): Promise<string | null> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    size += (chunk as Buffer).length;
    if (size > maxBytes) return null;
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks).toString();
}

async function call(target: string, text: string, context: CallContext): Promise<CallResult> {
  let input: unknown;
  try {
    input = JSON.parse(text);
  } catch {
    return failure('SerializationException', 'The body is not JSON.');
  }
  switch (target) {
    case 'AWSEvents.PutEvents':
      return putEvents(input, context);
    case 'AWSEvents.DescribeEventBus':
      return describeEventBus(input, context);
    default:
      return failure('UnknownOperationException', `The local bus does not know ${target.slice(0, 100)}.`);
  }
}

function failure(type: string, message: string): CallResult {
  return { kind: 'error', type, message };
}

const describeEventBusInput = z.object({ Name: z.string().nullish() });

function describeEventBus(input: unknown, { busNames, busArn }: CallContext): CallResult {
  const parsed = parse(describeEventBusInput, input);
  if (parsed.kind === 'invalid') return failure('SerializationException', parsed.message);
  const name = busNameOf(parsed.value.Name);
  if (!busNames.includes(name))
    return failure('ResourceNotFoundException', `Event bus ${name} does not exist.`);
  return { kind: 'output', body: { Name: name, Arn: busArn(name) } };
}

const requestEntry = z.object({
  /** Seconds since the epoch. */
  Time: z.number().nullish(),
  Source: z.string().nullish(),
  Resources: z.array(z.string()).nullish(),
  DetailType: z.string().nullish(),
  Detail: z.string().nullish(),
  EventBusName: z.string().nullish(),
});
type RequestEntry = z.infer<typeof requestEntry>;
const putEventsInput = z.object({ Entries: z.array(requestEntry).nullish() });

/** The size that limits count: UTF-8 bytes, 14 for a time. Source: EventBridge, calculating PutEvents entry size. */
export function entrySize({ Time, Source, DetailType, Detail, Resources }: RequestEntry): number {
  const texts = [Source, DetailType, Detail, ...(Resources ?? [])];
  return texts.reduce((sum, text) => sum + Buffer.byteLength(text ?? ''), typeof Time === 'number' ? 14 : 0);
}

async function putEvents(input: unknown, context: CallContext): Promise<CallResult> {
  const parsed = parse(putEventsInput, input);
  if (parsed.kind === 'invalid') return failure('SerializationException', parsed.message);
  const entries = parsed.value.Entries ?? [];
  if (entries.length < 1 || entries.length > MAX_ENTRIES)
    return failure(
      'ValidationException',
      `Value at 'entries' failed to satisfy constraint: Member must have length from 1 to ${MAX_ENTRIES}`,
    );
  if (entries.reduce((sum, entry) => sum + entrySize(entry), 0) > context.callBytes)
    return failure('ValidationException', 'Total size of the entries in the request is over the limit.');

  const checked = entries.map((entry) => checkEntry(entry, context));
  const accepted = checked.flatMap((entry) => (entry.kind === 'accepted' ? [entry.entry] : []));
  if (accepted.length > 0) await context.log.append(accepted);
  const body = {
    FailedEntryCount: checked.length - accepted.length,
    Entries: checked.map((entry) =>
      entry.kind === 'accepted'
        ? { EventId: entry.entry.id }
        : { ErrorCode: entry.code, ErrorMessage: entry.message },
    ),
  };
  return { kind: 'output', body };
}

type CheckedEntry =
  | { readonly kind: 'accepted'; readonly entry: NewLogEntry }
  | { readonly kind: 'failed'; readonly code: string; readonly message: string };

function checkEntry(entry: RequestEntry, { clock, busNames }: CallContext): CheckedEntry {
  const { Source: source, DetailType: detailType, Detail: text } = entry;
  if (!source) return invalidArgument('Source', 'Source is a required argument.');
  if (!detailType) return invalidArgument('DetailType', 'DetailType is a required argument.');
  if (detailType.length > MAX_DETAIL_TYPE_CHARS)
    return invalidArgument('DetailType', `DetailType is longer than ${MAX_DETAIL_TYPE_CHARS} characters.`);
  if (!text) return invalidArgument('Detail', 'Detail is a required argument.');
  const detail = parseDetail(text);
  if (detail === null) return { kind: 'failed', code: 'MalformedDetail', message: 'Detail is malformed.' };
  if (source.startsWith('aws.'))
    return {
      kind: 'failed',
      code: 'NotAuthorizedForSourceException',
      message: 'Not authorized for the source.',
    };
  const eventBusName = busNameOf(entry.EventBusName);
  if (!busNames.includes(eventBusName))
    return {
      kind: 'failed',
      code: 'ResourceNotFoundException',
      message: `Event bus ${eventBusName} does not exist.`,
    };
  const at = entry.Time == null ? clock.now() : ((entry.Time * 1000) as EpochMs);
  if (Number.isNaN(new Date(at).getTime())) return invalidArgument('Time', 'Time is out of range.');
  const resources = entry.Resources ?? [];
  return {
    kind: 'accepted',
    entry: { id: randomUUID(), time: formatInstant(at), eventBusName, source, detailType, resources, detail },
  };
}

function invalidArgument(parameter: string, reason: string): CheckedEntry {
  return {
    kind: 'failed',
    code: 'InvalidArgument',
    message: `Parameter ${parameter} is not valid. Reason: ${reason}`,
  };
}

/** The JSON object that a Detail must be, or null. */
function parseDetail(text: string): Readonly<Record<string, unknown>> | null {
  let detail: unknown;
  try {
    detail = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof detail !== 'object' || detail === null || Array.isArray(detail)) return null;
  let level: unknown[] = [detail];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_DETAIL_DEPTH) return null;
    level = level.flatMap((value) =>
      typeof value === 'object' && value !== null ? Object.values(value) : [],
    );
  }
  return detail as Readonly<Record<string, unknown>>;
}

/** A bus is named by its name or its ARN. */
function busNameOf(nameOrArn: string | null | undefined): string {
  return (nameOrArn ?? 'default').replace(/^arn:[^/]*:event-bus\//, '');
}
