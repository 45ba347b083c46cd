import assert from 'node:assert/strict';
import { request } from 'node:http';
import { test } from 'node:test';
import type { ApiServer } from '../../../../infra/local/cluster/api-server.ts';
import type { FaultCode } from '../../../../infra/local/cluster/misbehaviour.ts';
import { breakage, get, service, testServer, until, watch } from './cluster-builders.ts';

const SERVICES = '/api/v1/services';

async function threeServices(): Promise<ApiServer> {
  const server = await testServer();
  for (const name of ['a', 'b', 'c']) server.objects.create(service(name));
  return server;
}

const STATUSES: Readonly<Record<FaultCode, { reason: string | null; message: RegExp }>> = {
  400: { reason: 'BadRequest', message: /^invalid resource version: / },
  401: { reason: 'Unauthorized', message: /^Unauthorized$/ },
  403: {
    reason: 'Forbidden',
    message:
      /^services is forbidden: User "system:serviceaccount:endpoints-watcher:relay" cannot list resource "services" in API group "" at the cluster scope$/,
  },
  404: { reason: null, message: /^404 page not found\n$/ },
  410: { reason: 'Expired', message: /^The resourceVersion for the provided list is too old.$/ },
  429: { reason: null, message: /^Too many requests, please try again later.\n$/ },
  500: { reason: 'InternalError', message: /^Internal error occurred: / },
  503: { reason: 'ServiceUnavailable', message: /^the server is currently unable to handle the request$/ },
  504: { reason: 'Timeout', message: /^Timeout: Too large resource version: 9, current: 8$/ },
};

for (const [text, { reason, message }] of Object.entries(STATUSES)) {
  const code = Number(text) as FaultCode;
  test(`a request can be answered ${code} the way Kubernetes does, and the next goes well`, async () => {
    await using server = await threeServices();
    await server.misbehave({ fault: { kind: 'status', code, retryAfterSeconds: 7 }, times: 1 });
    const answer = await get(server, SERVICES);
    assert.equal(answer.code, code);
    assert.equal(answer.body?.reason ?? null, reason);
    assert.match(answer.body?.message ?? answer.text, message);
    assert.equal(answer.headers.get('retry-after'), code === 429 || code === 504 ? '7' : null);
    assert.equal((await get(server, SERVICES)).code, 200);
  });

  test(`an accepted watch can end with an ERROR event ${code}`, async () => {
    await using server = await threeServices();
    await server.misbehave({ fault: { kind: 'errorEvent', code, afterLines: 2 } });
    await using stream = await watch(server, SERVICES);
    assert.equal(stream.code, 200);
    const [first, second, error, ...others] = await stream.rest();
    assert.deepEqual([first, second, others], ['ADDED a 6', 'ADDED b 7', []]);
    assert.match(error ?? '', new RegExp(`^ERROR ${code} `));
  });
}

test('misbehaviour hits what it names, after what it skips, as often as it says', async () => {
  await using server = await threeServices();
  await using _unavailable = await server.misbehave({
    fault: { kind: 'status', code: 503 },
    on: { verb: 'list', resource: 'services' },
    skip: 1,
    times: 2,
  });
  const codes = [];
  for (const path of [SERVICES, '/api/v1/pods', SERVICES, '/version', SERVICES, SERVICES]) {
    codes.push((await get(server, path)).code);
  }
  assert.deepEqual(codes, [200, 200, 503, 200, 503, 200]);
});

test('misbehaviour ends when it is disposed of', async () => {
  await using server = await threeServices();
  const misbehaviour = await server.misbehave({ fault: { kind: 'status', code: 500 } });
  assert.equal((await get(server, SERVICES)).code, 500);
  assert.equal((await get(server, SERVICES)).code, 500);
  await misbehaviour[Symbol.asyncDispose]();
  assert.equal((await get(server, SERVICES)).code, 200);
});

test('410 in the middle of the pages of a list (W2)', async () => {
  await using server = await threeServices();
  await server.misbehave({ fault: { kind: 'status', code: 410 }, skip: 1 });
  const first = await get(server, `${SERVICES}?limit=1`);
  const second = await get(server, `${SERVICES}?limit=1&continue=${first.body.metadata.continue}`);
  assert.equal(second.code, 410);
  assert.match(second.body.message, /^The provided continue parameter is too old/);
  assert.ok(second.body.metadata.continue);
});

test('refuse: connects are refused and open watches break, until it is over', async () => {
  await using server = await threeServices();
  await using stream = await watch(server, `${SERVICES}?resourceVersion=8`);
  const refusal = await server.misbehave({ fault: { kind: 'refuse' } });
  assert.equal(await breakage(stream.next()), 'UND_ERR_SOCKET');
  assert.equal(await breakage(get(server, SERVICES)), 'ECONNREFUSED');
  await refusal[Symbol.asyncDispose]();
  assert.equal((await get(server, SERVICES)).code, 200);
});

test('refuse outlives the server without bringing it back', async () => {
  const server = await threeServices();
  const refusal = await server.misbehave({ fault: { kind: 'refuse' } });
  await server[Symbol.asyncDispose]();
  await refusal[Symbol.asyncDispose]();
  assert.equal(await breakage(get(server, SERVICES)), 'ECONNREFUSED');
});

test('resetBeforeHeaders: the connection is reset without an answer', async () => {
  await using server = await threeServices();
  await server.misbehave({ fault: { kind: 'resetBeforeHeaders' }, times: 1 });
  assert.equal(await breakage(get(server, SERVICES)), 'ECONNRESET');
});

test('resetMidStream: a watch is reset after some lines, a list in its middle', async () => {
  await using server = await threeServices();
  await server.misbehave({ fault: { kind: 'resetMidStream', afterLines: 2 }, times: 2 });
  await using stream = await watch(server, SERVICES);
  assert.deepEqual(await stream.take(2), ['ADDED a 6', 'ADDED b 7']);
  assert.equal(await breakage(stream.next()), 'ECONNRESET');
  assert.equal(await breakage(get(server, SERVICES)), 'ECONNRESET');
});

test('stallBeforeHeaders: the request is taken and nothing comes', async () => {
  await using server = await threeServices();
  await server.misbehave({ fault: { kind: 'stallBeforeHeaders' }, times: 1 });
  const abort = new AbortController();
  const answer = fetch(server.url + SERVICES, { signal: abort.signal });
  const outcome = answer.then(
    () => 'answered',
    (error: Error) => error.name,
  );
  await until(() => server.requests.length === 1);
  assert.equal((await get(server, SERVICES)).code, 200);
  abort.abort();
  assert.equal(await outcome, 'AbortError');
});

test('stallMidStream: a watch falls silent after some lines and stays open', async () => {
  await using server = await threeServices();
  await server.misbehave({ fault: { kind: 'stallMidStream', afterLines: 1 }, times: 1 });
  await using stalled = await watch(server, SERVICES);
  await using lively = await watch(server, SERVICES);
  assert.deepEqual(await stalled.take(1), ['ADDED a 6']);
  const next = stalled.next();
  server.objects.create(service('d'));
  server.bookmark();
  assert.deepEqual(await lively.take(4), ['ADDED a 6', 'ADDED b 7', 'ADDED c 8', 'ADDED d 9']);
  assert.deepEqual(server.watched, ['services', 'services']);
  await stalled[Symbol.asyncDispose]();
  assert.equal(await next, null);
});

test('shortWatch: a watch ends cleanly at once', async () => {
  await using server = await threeServices();
  await server.misbehave({ fault: { kind: 'shortWatch' }, times: 1 });
  await using stream = await watch(server, `${SERVICES}?resourceVersion=8`);
  assert.deepEqual(await stream.rest(), []);
});

test('cutList: the connection closes in the middle of the body', async () => {
  await using server = await threeServices();
  await server.misbehave({ fault: { kind: 'cutList' }, on: { verb: 'list' }, times: 1 });
  assert.equal(await breakage(get(server, SERVICES)), 'UND_ERR_SOCKET');
  assert.equal((await get(server, SERVICES)).body.items.length, 3);
});

test('omitContinue: the first page looks like the last', async () => {
  await using server = await threeServices();
  await server.misbehave({ fault: { kind: 'omitContinue' }, times: 1 });
  const { body } = await get(server, `${SERVICES}?limit=1`);
  assert.deepEqual([body.items.length, body.metadata], [1, { resourceVersion: '8' }]);
});

test('repeatPage: each page leads to itself', async () => {
  await using server = await threeServices();
  await server.misbehave({ fault: { kind: 'repeatPage' } });
  const first = await get(server, `${SERVICES}?limit=1`);
  const again = await get(server, `${SERVICES}?limit=1&continue=${first.body.metadata.continue}`);
  assert.deepEqual(again.body, first.body);
  assert.equal(first.body.items[0].metadata.name, 'a');
});

test('extraLines: a watch says what it is told to say, then goes on', async () => {
  await using server = await threeServices();
  await server.misbehave({ fault: { kind: 'extraLines', lines: ['null', '{}'], afterLines: 1 } });
  await using stream = await watch(server, SERVICES);
  assert.deepEqual(await stream.take(1), ['ADDED a 6']);
  assert.deepEqual([await stream.line(), await stream.line()], ['null', '{}']);
  assert.deepEqual(await stream.take(2), ['ADDED b 7', 'ADDED c 8']);
});

test('cutLine: a watch ends within a character', async () => {
  await using server = await threeServices();
  await server.misbehave({ fault: { kind: 'cutLine', afterLines: 1 } });
  const response = await fetch(`${server.url}${SERVICES}?watch=1`);
  const bytes = Buffer.from(await response.arrayBuffer());
  assert.deepEqual(bytes.subarray(-2), Buffer.from('€').subarray(0, 2));
});

test('garbageLine: a line that is no JSON, then the watch goes on', async () => {
  await using server = await threeServices();
  await server.misbehave({ fault: { kind: 'garbageLine', afterLines: 1 } });
  await using stream = await watch(server, SERVICES);
  assert.deepEqual(await stream.take(1), ['ADDED a 6']);
  assert.throws(() => JSON.parse('{"type":"ADDED","object":{"kind"'));
  assert.equal(await stream.line(), '{"type":"ADDED","object":{"kind"');
  assert.deepEqual(await stream.take(2), ['ADDED b 7', 'ADDED c 8']);
});

test('longLine: a bookmark of the size that is asked for, then the watch goes on', async () => {
  await using server = await threeServices();
  await server.misbehave({ fault: { kind: 'longLine', bytes: 3_000_000 } });
  await using stream = await watch(server, `${SERVICES}?resourceVersion=7`);
  const line = (await stream.line()) ?? '';
  assert.equal(line.length + 1, 3_000_000);
  assert.equal(JSON.parse(line).type, 'BOOKMARK');
  assert.deepEqual(await stream.take(1), ['ADDED c 8']);
});

test('closeSlowReader: a watch ends when its reader lags, whatever is in its buffers comes first', async () => {
  await using server = await threeServices();
  await server.misbehave({ fault: { kind: 'closeSlowReader', pendingChanges: 3 } });
  const response = await new Promise<import('node:http').IncomingMessage>((resolve, reject) => {
    request(`${server.url}${SERVICES}?watch=1&resourceVersion=8`, resolve).once('error', reject).end();
  });
  response.pause();
  const annotations = { big: 'x'.repeat(1_000_000) };
  let written = 0;
  for (; server.watched.length > 0 && written < 100; written += 1) {
    server.objects.update({
      ...service('a'),
      metadata: { ...service('a').metadata, annotations: { ...annotations, n: String(written) } },
    });
    await new Promise(setImmediate);
  }
  response.resume();
  let lines = 0;
  for await (const chunk of response) lines += String(chunk).split('\n').length - 1;
  assert.ok(response.complete, 'the answer ends cleanly');
  assert.ok(lines >= 1 && lines < written, `${lines} of ${written} changes arrived`);
});
