import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import * as z from 'zod';
import { type Authorize, noAuthorization, tokenAuthorization } from '../../relay/authorization.ts';
import { type Answer, IngestClient } from '../../relay/ingest-client.ts';
import { awsAuthorization } from '../../relay/signing.ts';
import { HastyTimers } from './manual-timers.ts';

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** One client on a server that answers as told. */
async function posting(
  handler: Handler,
  authorize: Authorize = noAuthorization,
  posts = 1,
): Promise<Answer<unknown>[]> {
  const server = createServer((request, response) => {
    request.resume().on('end', () => handler(request, response));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/base/`);
  const schema = z.object({ deltas: z.number() });
  try {
    await using client = new IngestClient({ url, authorize, timers: new HastyTimers(), timeoutMs: 50 });
    const answers: Answer<unknown>[] = [];
    for (let index = 0; index < posts; index++) {
      answers.push(await client.post('/v1/events', ['{', '}'], schema, AbortSignal.timeout(5000)));
    }
    return answers;
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

function answering(status: number, body = '', headers: Record<string, string> = {}): Handler {
  return (_request, response) => response.writeHead(status, headers).end(body);
}

const FAILED = { kind: 'unavailable', retryAfterMs: 0 };

const CASES: Record<string, { readonly handler: Handler; readonly want: object }> = {
  '200': { handler: answering(200, '{"deltas":1}'), want: { kind: 'ok', value: { deltas: 1 } } },
  '200 of another shape is no answer': {
    handler: answering(200, '{}'),
    want: { ...FAILED, status: 200, mayHaveRun: true, reason: 'not an answer of ingest: deltas: required' },
  },
  '400 with its reason': {
    handler: answering(400, '{"detail":"cluster: required"}'),
    want: { kind: 'refused', reason: 'cluster: required' },
  },
  '409': {
    handler: answering(409, '{"error":"epoch","current":8}'),
    want: { kind: 'conflict', conflict: { error: 'epoch', current: 8 } },
  },
  '413': { handler: answering(413), want: { kind: 'tooLarge' } },
  '429 did not run': {
    handler: answering(429, 'slow', { 'retry-after': '3' }),
    want: { kind: 'unavailable', status: 429, reason: 'slow', retryAfterMs: 3000, mayHaveRun: false },
  },
  '503 may have run': {
    handler: answering(503, '', { 'retry-after': 'soon' }),
    want: { ...FAILED, status: 503, reason: '', mayHaveRun: true },
  },
  '404 is a wrong address, which may be mended': {
    handler: answering(404, 'none'),
    want: { ...FAILED, status: 404, reason: 'none', mayHaveRun: false },
  },
  'a connection that ends may have run': {
    handler: ({ socket }) => socket.destroy(),
    want: { ...FAILED, status: null, reason: 'other side closed', mayHaveRun: true },
  },
};

test('W17: nothing is sent while that is not allowed, which is looked at when credentials are there', async () => {
  let allowed = true;
  const requests: string[] = [];
  const server = createServer((request, response) => {
    requests.push(request.url ?? '');
    request.resume().on('end', () => response.end('{}'));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    await using client = new IngestClient({
      url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`),
      timers: new HastyTimers(),
      authorize: async () => {
        allowed = false;
        return {};
      },
      maySend: () => allowed,
    });
    const answer = await client.post('/v1/events', ['{}'], z.object({}), AbortSignal.timeout(5000));
    assert.deepEqual(answer, {
      ...FAILED,
      status: null,
      mayHaveRun: false,
      reason: 'not sent: the Lease was not renewed in time',
    });
    assert.deepEqual(requests, []);
  } finally {
    server.close();
  }
});

suite('an answer of ingest', { concurrency: true }, () => {
  for (const [name, { handler, want }] of Object.entries(CASES)) {
    test(name, async () => assert.deepEqual(await posting(handler), [want]));
  }

  test('none in time may have run', async () => {
    const [answer] = await posting(() => {});
    assert.ok(answer?.kind === 'unavailable' && answer.mayHaveRun && answer.status === null);
  });
});

suite('credentials', { concurrency: true }, () => {
  test('W12: a token that is refused is read again and tried once more', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'token-'));
    const file = join(folder, 'token');
    await writeFile(file, 'old\n');
    const seen: (string | undefined)[] = [];
    const handler: Handler = ({ headers }, response) => {
      seen.push(headers.authorization);
      void writeFile(file, 'new\n').then(() => {
        const isGood = headers.authorization === 'Bearer new';
        response.writeHead(isGood ? 200 : 401).end('{"deltas":0}');
      });
    };
    const answers = await posting(handler, tokenAuthorization(file, new HastyTimers()), 2);
    assert.deepEqual(
      answers.map(({ kind }) => kind),
      ['ok', 'ok'],
    );
    assert.deepEqual(seen, ['Bearer old', 'Bearer new', 'Bearer new']);
    await rm(folder, { recursive: true });
  });

  test('a token file that is not there: nothing is sent', async () => {
    let requests = 0;
    const count: Handler = (_request, response) => {
      requests++;
      response.end();
    };
    const [answer] = await posting(count, tokenAuthorization('/nowhere', new HastyTimers()));
    assert.ok(
      answer?.kind === 'unavailable' &&
        !answer.mayHaveRun &&
        answer.reason.startsWith('no credentials: ENOENT'),
    );
    assert.equal(requests, 0);
  });

  test('a function URL gets a signature for service lambda over host, path and body', async (context) => {
    const env = { AWS_ACCESS_KEY_ID: 'AKID', AWS_SECRET_ACCESS_KEY: 'secret', AWS_SESSION_TOKEN: 'session' };
    const former = Object.keys(env).map((name) => [name, process.env[name]] as const);
    Object.assign(process.env, env);
    context.after(() => {
      for (const [name, value] of former) {
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
      }
    });
    let seen: IncomingMessage['headers'] = {};
    const handler: Handler = (request, response) => {
      seen = request.headers;
      assert.equal(request.url, '/base/v1/events');
      response.end('{"deltas":0}');
    };
    const [answer] = await posting(handler, awsAuthorization('eu-west-1'));
    assert.equal(answer?.kind, 'ok');
    assert.match(
      seen.authorization ?? '',
      /^AWS4-HMAC-SHA256 Credential=AKID\/\d{8}\/eu-west-1\/lambda\/aws4_request, SignedHeaders=[^,]*content-encoding;content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token, Signature=[0-9a-f]{64}$/,
    );
    assert.equal(seen['x-amz-security-token'], 'session');
  });
});
