import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import type { Context } from 'hono';
import { MAX_REQUEST_BYTES } from '../../wire/events.ts';
import { respondProblem } from './problem-response.ts';

/** What reading a JSON body comes to. */
export type JsonBody = { readonly kind: 'ok'; readonly value: unknown } | BodyFailure;

/** Why a body cannot be used; `respondBodyFailure` answers it. */
export type BodyFailure =
  | { readonly kind: 'tooLarge'; readonly maxBytes: number }
  | { readonly kind: 'unsupportedEncoding'; readonly encoding: string }
  | { readonly kind: 'unsupportedMediaType'; readonly mediaType: string }
  | { readonly kind: 'invalid'; readonly reason: string };

/** Encodings of a request's body, in the form of an Accept-Encoding header. */
const ENCODINGS = 'gzip, identity';
const JSON_TYPE = 'application/json';
/** What gzip may add to data that it cannot shrink: its header, and 5 bytes to each stored block of at most 64 KiB. */
const GZIP_OVERHEAD_BYTES = 16_384;
const MAX_HEADER_ECHO = 80;

const unzip = promisify(gunzip);

/**
 * Reads a JSON body, plain or gzipped. Neither the bytes received nor those unzipped are ever held beyond the bound.
 * The media type must be said: a web page cannot send it to another origin without asking.
 */
export async function readJsonBody(
  request: Request,
  maxBytes: number = MAX_REQUEST_BYTES,
): Promise<JsonBody> {
  const foreign = foreignMediaType(request);
  if (foreign !== null) return foreign;
  const encoding = headerValue(request, 'content-encoding') || 'identity';
  if (encoding !== 'gzip' && encoding !== 'identity')
    return { kind: 'unsupportedEncoding', encoding: echo(encoding) };
  const isGzip = encoding === 'gzip';
  const received = await receive(request, isGzip ? maxBytes + GZIP_OVERHEAD_BYTES : maxBytes);
  if (received === 'tooLarge') return { kind: 'tooLarge', maxBytes };
  if (received === 'broken') return { kind: 'invalid', reason: 'the body ends too early' };
  if (received.byteLength === 0) return { kind: 'invalid', reason: 'the body is empty' };
  return isGzip ? decompress(received, maxBytes) : parseJson(received);
}

/** The failure that a body of any other media type than JSON, or of none, is. */
export function foreignMediaType(request: Request): BodyFailure | null {
  const mediaType = headerValue(request, 'content-type').split(';', 1)[0]?.trim() ?? '';
  return mediaType === JSON_TYPE ? null : { kind: 'unsupportedMediaType', mediaType: echo(mediaType) };
}

/** 400, 413 or 415. */
export function respondBodyFailure(context: Context, failure: BodyFailure): Response {
  switch (failure.kind) {
    case 'tooLarge': {
      const detail = `the body has more than ${failure.maxBytes} bytes decoded; send less at once`;
      return respondProblem(context, 413, 'Too large', detail);
    }
    case 'unsupportedEncoding': {
      context.header('accept-encoding', ENCODINGS);
      const detail = `content-encoding: must be gzip or identity, not ${JSON.stringify(failure.encoding)}`;
      return respondProblem(context, 415, 'Unsupported encoding', detail);
    }
    case 'unsupportedMediaType': {
      context.header('accept', JSON_TYPE);
      const detail = `content-type: must be ${JSON_TYPE}, not ${JSON.stringify(failure.mediaType)}`;
      return respondProblem(context, 415, 'Unsupported media type', detail);
    }
    case 'invalid':
      return respondProblem(context, 400, 'Bad request', failure.reason);
    default:
      return failure satisfies never;
  }
}

function headerValue(request: Request, name: string): string {
  return (request.headers.get(name) ?? '').trim().toLowerCase();
}

function echo(value: string): string {
  return value.slice(0, MAX_HEADER_ECHO);
}

/** The bytes as sent; reading stops once there are too many. `broken`: the connection ended first. */
async function receive(request: Request, maxBytes: number): Promise<Buffer | 'tooLarge' | 'broken'> {
  if (Number(request.headers.get('content-length')) > maxBytes) return 'tooLarge';
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  try {
    for await (const chunk of request.body ?? []) {
      bytes += chunk.byteLength;
      if (bytes > maxBytes) return 'tooLarge';
      chunks.push(chunk);
    }
  } catch {
    return 'broken';
  }
  return Buffer.concat(chunks, bytes);
}

/** Unzips piece by piece and stops at the bound, however much more a gzip bomb would come to. */
async function decompress(zipped: Buffer, maxBytes: number): Promise<JsonBody> {
  try {
    return parseJson(await unzip(zipped, { maxOutputLength: maxBytes }));
  } catch (error) {
    const isTooLarge = error instanceof Error && 'code' in error && error.code === 'ERR_BUFFER_TOO_LARGE';
    return isTooLarge
      ? { kind: 'tooLarge', maxBytes }
      : { kind: 'invalid', reason: 'the body is not gzip, though its content-encoding says so' };
  }
}

function parseJson(bytes: Uint8Array): JsonBody {
  try {
    return { kind: 'ok', value: JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes)) };
  } catch {
    return { kind: 'invalid', reason: 'the body is not JSON in UTF-8' };
  }
}
