import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { Hono } from 'hono';
import { bufferedHandler, streamingHandler } from '../../../functions/http/lambda.ts';

interface Prelude {
  readonly statusCode: number;
  readonly headers: Record<string, string>;
}

type StreamHandler = (event: object, stream: PassThrough, context: object) => Promise<void>;

/** What the runtime of Lambda puts into its processes: marks a handler that streams, and takes status and headers. */
const awslambda = {
  preludes: [] as Prelude[],
  streamifyResponse: (handler: StreamHandler) => handler,
  HttpResponseStream: {
    from(stream: PassThrough, prelude: Prelude) {
      awslambda.preludes.push(prelude);
      return stream;
    },
  },
};
Object.assign(globalThis, { awslambda });

const event = (method: string) => ({
  version: '2.0',
  rawPath: '/v1/thing',
  rawQueryString: 'port=53%2FUDP',
  headers: { host: 'x.lambda-url.eu-central-1.on.aws' },
  isBase64Encoded: false,
  requestContext: { http: { method }, authorizer: { iam: { userArn: 'arn:aws:iam::1:user/a' } } },
});

const newContext = () => ({ callbackWaitsForEmptyEventLoop: true });

const app = new Hono().get('/v1/thing', (context) =>
  context.body(`${context.req.query('port')} ${JSON.stringify(context.env)}`, 200, { etag: 'W/"a"' }),
);

describe('a handler whose answer is streamed', () => {
  const handle = streamingHandler(app) as unknown as StreamHandler;

  for (const method of ['GET', 'HEAD']) {
    test(`${method}: status, headers and body come through; an idle connection does not hold it`, async () => {
      const stream = new PassThrough();
      const context = newContext();
      awslambda.preludes.length = 0;
      const [body] = await Promise.all([text(stream), handle(event(method), stream, context)]);
      assert.equal(awslambda.preludes[0]?.statusCode, 200);
      assert.equal(awslambda.preludes[0]?.headers.etag, 'W/"a"');
      assert.equal(body.startsWith('53/UDP '), method === 'GET');
      assert.equal(body.includes('arn:aws:iam::1:user/a'), method === 'GET');
      assert.equal(context.callbackWaitsForEmptyEventLoop, false);
    });
  }
});

test('a handler whose answer is one piece: the same, and the event reaches the app', async () => {
  const context = newContext();
  const answer = await bufferedHandler(app)(event('GET') as never, context as never);
  assert.equal(answer.statusCode, 200);
  assert.match(answer.body, /^53\/UDP .*arn:aws:iam::1:user\/a/);
  assert.equal(context.callbackWaitsForEmptyEventLoop, false);
});
