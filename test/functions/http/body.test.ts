import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { Hono } from 'hono';
import { readJsonBody, respondBodyFailure } from '../../../functions/http/body.ts';
import { serveApp } from './served-app.ts';

const MAX_BYTES = 1000;

const app = new Hono().post('/', async (context) => {
  const body = await readJsonBody(context.req.raw, MAX_BYTES);
  return body.kind === 'ok' ? context.json({ got: body.value }) : respondBodyFailure(context, body);
});

const JSON_HEADERS = { 'content-type': 'application/json' };
const GZIP_HEADERS = { ...JSON_HEADERS, 'content-encoding': 'gzip' };
/** A JSON string of so many bytes. */
const jsonOf = (bytes: number) => JSON.stringify('x'.repeat(bytes - 2));

interface Sent {
  readonly headers?: Record<string, string>;
  readonly body?: string | Uint8Array<ArrayBuffer>;
}

async function post(url: string, { headers = JSON_HEADERS, body }: Sent): Promise<Response> {
  return fetch(url, { method: 'POST', headers, ...(body !== undefined && { body }) });
}

describe('a JSON body over HTTP', () => {
  const taken: Record<string, Sent & { readonly want: unknown }> = {
    'plain JSON': { body: '{"a":[1]}', want: { a: [1] } },
    'JSON behind a byte order mark': { body: '\uFEFF{}', want: {} },
    'a media type with parameters, in capitals': {
      headers: { 'content-type': 'Application/JSON; charset=utf-8' },
      body: '1',
      want: 1,
    },
    'an encoding that is named identity': {
      headers: { ...JSON_HEADERS, 'content-encoding': 'identity' },
      body: 'null',
      want: null,
    },
    'gzipped JSON': { headers: GZIP_HEADERS, body: gzipSync('{"a":"ü"}'), want: { a: 'ü' } },
    'a body of exactly the bound': { body: jsonOf(MAX_BYTES), want: 'x'.repeat(MAX_BYTES - 2) },
    'a gzipped body of exactly the bound': {
      headers: GZIP_HEADERS,
      body: gzipSync(jsonOf(MAX_BYTES)),
      want: 'x'.repeat(MAX_BYTES - 2),
    },
  };
  for (const [name, { want, ...sent }] of Object.entries(taken)) {
    test(`takes ${name}`, async () => {
      await using server = await serveApp(app);
      const response = await post(server.url, sent);
      assert.equal(response.status, 200);
      assert.deepEqual(await response.json(), { got: want });
    });
  }

  const refused: Record<string, Sent & { readonly status: number; readonly detail: RegExp }> = {
    'no body at all': { status: 400, detail: /^the body is empty$/ },
    'an empty gzipped body': { headers: GZIP_HEADERS, body: gzipSync(''), status: 400, detail: /not JSON/ },
    'text that is no JSON': { body: 'hello', status: 400, detail: /^the body is not JSON in UTF-8$/ },
    'half a document': { body: '{"a":', status: 400, detail: /not JSON/ },
    'bytes that are not UTF-8': { body: Uint8Array.of(0x22, 0xff, 0x22), status: 400, detail: /UTF-8/ },
    'plain JSON that claims to be gzip': {
      headers: GZIP_HEADERS,
      body: '{}',
      status: 400,
      detail: /not gzip/,
    },
    'gzip that ends too early': {
      headers: GZIP_HEADERS,
      body: gzipSync(jsonOf(900)).subarray(0, 20),
      status: 400,
      detail: /not gzip/,
    },
    'one byte more than the bound': {
      body: jsonOf(MAX_BYTES + 1),
      status: 413,
      detail: /more than 1000 bytes/,
    },
    'a gzip bomb': {
      headers: GZIP_HEADERS,
      body: gzipSync(Buffer.alloc(50_000_000)),
      status: 413,
      detail: /more than 1000 bytes/,
    },
    'a bomb that is small while zipped': {
      headers: GZIP_HEADERS,
      body: gzipSync(jsonOf(1_000_000)),
      status: 413,
      detail: /more than 1000 bytes/,
    },
    'another encoding': {
      headers: { ...JSON_HEADERS, 'content-encoding': 'br' },
      body: '{}',
      status: 415,
      detail: /^content-encoding: must be gzip or identity, not "br"$/,
    },
    'what a web page may send unasked': {
      headers: { 'content-type': 'text/plain' },
      body: '{}',
      status: 415,
      detail: /^content-type: must be application\/json, not "text\/plain"$/,
    },
    'no media type': { headers: {}, body: Buffer.from('{}'), status: 415, detail: /not ""$/ },
  };
  for (const [name, { status, detail, ...sent }] of Object.entries(refused)) {
    test(`refuses ${name} with ${status}`, async () => {
      await using server = await serveApp(app);
      const response = await post(server.url, sent);
      assert.equal(response.status, status);
      assert.equal(response.headers.get('content-type'), 'application/problem+json');
      const problem = (await response.json()) as { status: number; detail: string };
      assert.equal(problem.status, status);
      assert.match(problem.detail, detail);
    });
  }

  test('a 415 says what would be taken', async () => {
    await using server = await serveApp(app);
    const encoding = await post(server.url, {
      headers: { ...JSON_HEADERS, 'content-encoding': 'zstd' },
      body: '{}',
    });
    assert.equal(encoding.headers.get('accept-encoding'), 'gzip, identity');
    const type = await post(server.url, { headers: { 'content-type': 'text/xml' }, body: '{}' });
    assert.equal(type.headers.get('accept'), 'application/json');
  });
});

type Controller = Pick<ReadableStreamDefaultController<Uint8Array>, 'enqueue' | 'error'>;

describe('a JSON body in pieces', () => {
  const streamed = (pull: (controller: Controller) => void, headers: Record<string, string>) => {
    const seen = { isCancelled: false };
    const body = new ReadableStream<Uint8Array>({
      pull,
      cancel: () => {
        seen.isCancelled = true;
      },
    });
    const request = new Request('http://127.0.0.1/', {
      method: 'POST',
      headers,
      body,
      duplex: 'half',
    } as RequestInit);
    return { request, seen };
  };

  for (const [name, headers] of Object.entries({ plain: JSON_HEADERS, gzipped: GZIP_HEADERS })) {
    test(`a ${name} one without an end is left as soon as it is too large`, async () => {
      const { request, seen } = streamed((controller) => controller.enqueue(new Uint8Array(500)), headers);
      assert.deepEqual(await readJsonBody(request, MAX_BYTES), { kind: 'tooLarge', maxBytes: MAX_BYTES });
      assert.equal(seen.isCancelled, true);
    });
  }

  test('a connection that breaks is a bad request, not an error of the server', async () => {
    const { request } = streamed((controller) => controller.error(new Error('reset')), JSON_HEADERS);
    assert.deepEqual(await readJsonBody(request, MAX_BYTES), {
      kind: 'invalid',
      reason: 'the body ends too early',
    });
  });
});
