import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { describe, test } from 'node:test';
import { apiReader } from '../../cli/api-reader.ts';
import { awsAuthorization } from '../../cli/signing.ts';
import { listenOnLoopback } from '../../infra/local/loopback.ts';

type Respond = (request: IncomingMessage, response: ServerResponse) => void;

/** A server that answers as it is told, request by request; the last answer is for all that follow. */
async function startServer(...answers: readonly Respond[]) {
  const seen: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    answers[Math.min(seen.length, answers.length - 1)]?.(request, response);
    seen.push(request);
  });
  const url = await listenOnLoopback(server);
  return {
    url: new URL(url),
    seen,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

const json =
  (status: number, body: unknown): Respond =>
  (_request, response) =>
    void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
const reset: Respond = (request) => void request.socket.resetAndDestroy();

const { signal } = new AbortController();
const summary = (name: string) => ({
  namespace: 'default',
  name,
  type: 'ClusterIP',
  exists: true,
  changedAt: null,
  ports: [],
});

describe('reading the api', () => {
  test('a list is read to its last page', async () => {
    await using server = await startServer(
      json(200, { items: [summary('a')], continue: 'bmV4dA-_' }),
      json(200, { items: [summary('b')], continue: null }),
    );
    const names: string[] = [];
    for await (const { name } of apiReader(server.url, 'prod-eu').services(null, signal)) names.push(name);
    assert.deepEqual(names, ['a', 'b']);
    assert.deepEqual(
      server.seen.map(({ url }) => url),
      [
        '/v1/clusters/prod-eu/namespaces/_all/services?limit=1000',
        '/v1/clusters/prod-eu/namespaces/_all/services?limit=1000&continue=bmV4dA-_',
      ],
    );
  });

  test('what passes is tried again: a reset, 429, 503', async () => {
    await using server = await startServer(reset, json(429, {}), json(503, {}), json(200, { ports: [] }));
    const pauses: number[] = [];
    const pause = async (ms: number) => void pauses.push(ms);
    const reading = await apiReader(server.url, 'prod-eu', { pause }).endpoints('default', 'web', signal);
    assert.deepEqual(reading, { kind: 'ports', ports: [] });
    assert.equal(server.seen.length, 4);
    assert.deepEqual(pauses, [200, 400, 800]);
  });

  const answers: Readonly<Record<string, { readonly respond: Respond; readonly said: RegExp }>> = {
    'a refusal': {
      respond: json(403, { type: 'about:blank', title: 'Forbidden', detail: 'another cluster', status: 403 }),
      said: /^the api answers 403 to GET \/v1\/.*\/endpoints: another cluster$/,
    },
    'an answer of something else': {
      respond: (_request, response) => void response.end('<html>'),
      said: /^the api's answer to GET \/v1\/.* is not understood: /,
    },
  };
  for (const [title, { respond, said }] of Object.entries(answers)) {
    test(`${title}: one line`, async () => {
      await using server = await startServer(respond);
      await assert.rejects(apiReader(server.url, 'prod-eu').endpoints('default', 'web', signal), {
        message: said,
      });
    });
  }

  test('a function URL is read with a signature over its query', async () => {
    const keys = {
      AWS_ACCESS_KEY_ID: 'AKIDEXAMPLE',
      AWS_SECRET_ACCESS_KEY: 'secret',
      AWS_SESSION_TOKEN: 'session',
    };
    const former = Object.keys(keys).map((name) => [name, process.env[name]] as const);
    Object.assign(process.env, keys);
    try {
      await using server = await startServer(json(200, { items: [], continue: null }));
      const reader = apiReader(server.url, 'prod-eu', { authorize: awsAuthorization('eu-west-1') });
      for await (const _none of reader.services('default', signal)) assert.fail();
      const { authorization, 'x-amz-security-token': session, host } = server.seen[0]?.headers ?? {};
      assert.match(
        authorization ?? '',
        /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\/\d{8}\/eu-west-1\/lambda\/aws4_request, SignedHeaders=host;/,
      );
      assert.deepEqual([session, host], ['session', server.url.host]);
    } finally {
      for (const [name, value] of former) {
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
      }
    }
  });
});
