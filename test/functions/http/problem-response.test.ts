import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Hono } from 'hono';
import type { EpochMs } from '../../../core/time.ts';
import { BusUnavailableError } from '../../../functions/bus/bus.ts';
import { createErrorHandler, respondNotFound } from '../../../functions/http/problem-response.ts';
import { FencedError, StoreUnavailableError, UnknownFormatError } from '../../../functions/store/store.ts';
import { createLogger } from '../../../wire/log.ts';

/** Answers a request whose route throws, with what was logged. */
async function answerTo(error: Error) {
  const lines: { level: string; message: string; error: { message: string } }[] = [];
  const clock = { now: () => 0 as EpochMs, monotonic: () => 0 };
  const log = createLogger({ level: 'debug', clock, write: (line) => void lines.push(JSON.parse(line)) });
  const app = new Hono().get('/', () => {
    throw error;
  });
  app.onError(createErrorHandler(log));
  const response = await app.request('/');
  return { response, body: await response.text(), lines };
}

describe('an error that no route decided', () => {
  const unavailable = [
    new StoreUnavailableError('inside 1'),
    new FencedError('inside 2'),
    new UnknownFormatError('inside 3'),
    new BusUnavailableError('inside 4'),
  ];
  for (const error of unavailable) {
    test(`${error.name} is 503, to be tried again`, async () => {
      const { response, body, lines } = await answerTo(error);
      assert.equal(response.status, 503);
      assert.equal(response.headers.get('retry-after'), '1');
      assert.equal(response.headers.get('content-type'), 'application/problem+json');
      assert.equal(body.includes(error.message), false);
      assert.deepEqual(
        lines.map(({ level, message }) => ({ level, message })),
        [{ level: 'warn', message: 'unavailable' }],
      );
    });
  }

  test('anything else is 500, logged once, and shows nothing of its inside', async () => {
    const { response, body, lines } = await answerTo(new TypeError('secret of the inside'));
    assert.equal(response.status, 500);
    assert.equal(response.headers.get('retry-after'), null);
    assert.equal(body.includes('secret'), false);
    assert.deepEqual(
      lines.map(({ level, error }) => ({ level, text: error.message })),
      [{ level: 'error', text: 'secret of the inside' }],
    );
  });
});

test('a path that nothing serves is a 404 problem', async () => {
  const response = await new Hono().notFound(respondNotFound).request('/nothing', { method: 'POST' });
  assert.equal(response.status, 404);
  assert.deepEqual(await response.json(), {
    type: 'about:blank',
    title: 'Not found',
    status: 404,
    detail: 'nothing is served at POST /nothing',
  });
});
