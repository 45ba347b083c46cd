import assert from 'node:assert/strict';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import * as z from 'zod';
import type { EpochMs } from '../../core/time.ts';
import { type LocalBus, startLocalBus } from '../../infra/local/bus.ts';
import { type LocalTable, startLocalTable, type TableDefinition } from '../../infra/local/table.ts';
import { createLogger } from '../../wire/log.ts';
import { PACKAGE, Template } from './template.ts';

const DIST = join(import.meta.dirname, '../../dist/functions');
const BUS_NAME = 'endpoints-watcher-test';

/** What a bundle exports: an event in, an answer out. */
type Handler = (...args: unknown[]) => Promise<unknown>;

const tableDefinition = z.custom<TableDefinition>((it) => it !== undefined);
const answer = z.object({ statusCode: z.number(), body: z.string() });
type Answer = z.infer<typeof answer>;

const resources = new AsyncDisposableStack();
let table: LocalTable;
let bus: LocalBus;
let ingest: Handler;
let api: Handler;
let sweep: Handler;

before(async () => {
  const clock = { now: () => Date.now() as EpochMs, monotonic: () => performance.now() };
  const logger = createLogger({ level: 'error', clock, write: (line) => console.error(line) });
  const template = await Template.read(PACKAGE);
  const [[, definition] = assert.fail('no table')] = template.all('AWS::DynamoDB::Table', tableDefinition);
  table = resources.use(await startLocalTable({ dataDir: null, tableName: 'state', definition }));
  bus = resources.use(await startLocalBus({ dataDir: null, clock, logger, busNames: [BUS_NAME] }));
  Object.assign(process.env, {
    AWS_REGION: 'us-east-1',
    AWS_ACCESS_KEY_ID: 'test',
    AWS_SECRET_ACCESS_KEY: 'test',
    AWS_ENDPOINT_URL_DYNAMODB: table.endpoint,
    AWS_ENDPOINT_URL_EVENTBRIDGE: bus.url,
    TABLE_NAME: table.tableName,
    BUS_NAME,
    AUTH: 'iam',
  });
  Object.assign(globalThis, { awslambda: streamingRuntime });
  ingest = await load('ingest');
  api = await load('api');
  sweep = await load('sweep');
});

after(() => resources.disposeAsync());

test('ingest answers for its health', async () => {
  const { statusCode, body } = await callIngest('GET', '/healthz', { isSigned: false });
  assert.deepEqual([statusCode, JSON.parse(body).status], [200, 'ok']);
});

test('the api answers for its health', async () => {
  const { statusCode } = await callApi('/healthz', { isSigned: false });
  assert.equal(statusCode, 200);
});

test('the api is ready when table and bus are there', async () => {
  const { statusCode, body } = await callApi('/readyz', { isSigned: false });
  assert.equal(statusCode, 200, body);
});

test('neither answers a caller whom IAM did not check', async () => {
  const sent = await callIngest('POST', '/v1/events', { isSigned: false, body: {} });
  const read = await callApi('/v1/clusters', { isSigned: false });
  assert.deepEqual([sent.statusCode, read.statusCode], [401, 401]);
});

test('an event goes in by ingest, out to the bus, and is read by the api', async () => {
  const sent = await callIngest('POST', '/v1/events', { isSigned: true, body: EVENTS });
  assert.equal(sent.statusCode, 200, sent.body);
  assert.equal(JSON.parse(sent.body).deltas, 1);

  const { entries } = await bus.read({ after: 0, limit: 10, wait: 0 });
  assert.deepEqual(
    entries.map(({ detailType, resources: about }) => [detailType, about]),
    [['EndpointsChanged', ['prod/default/web:80']]],
  );

  const path = '/v1/clusters/prod/namespaces/default/services/web/endpoints';
  const read = await callApi(path, { isSigned: true });
  assert.equal(read.statusCode, 200, read.body);
  const [port] = JSON.parse(read.body).ports;
  assert.deepEqual([port.size, port.addresses[0].ip], [1, '10.0.0.1']);
});

test('the sweep passes over what is there', async () => {
  const report = z.looseObject({ published: z.number() }).parse(await sweep({}, {}));
  assert.equal(report.published, 0);
});

async function load(name: string): Promise<Handler> {
  const bundle: { handler: Handler } = await import(pathToFileURL(join(DIST, name, 'handler.mjs')).href);
  return bundle.handler;
}

interface Call {
  /** Did IAM check the caller? */
  readonly isSigned: boolean;
  readonly body?: unknown;
}

/** A call of a function URL. Source: Lambda function URLs, request payload. */
function urlEvent(method: string, path: string, { isSigned, body }: Call): object {
  const iam = { userArn: 'arn:aws:sts::111122223333:assumed-role/relay/session', accountId: '111122223333' };
  return {
    version: '2.0',
    routeKey: '$default',
    rawPath: path,
    rawQueryString: '',
    headers: { host: 'id.lambda-url.us-east-1.on.aws', 'content-type': 'application/json' },
    requestContext: {
      domainName: 'id.lambda-url.us-east-1.on.aws',
      http: { method, path, protocol: 'HTTP/1.1', sourceIp: '192.0.2.1', userAgent: 'test' },
      ...(isSigned && { authorizer: { iam } }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
    isBase64Encoded: false,
  };
}

async function callIngest(method: string, path: string, call: Call): Promise<Answer> {
  return answer.parse(await ingest(urlEvent(method, path, call), {}));
}

async function callApi(path: string, call: Call): Promise<Answer> {
  const stream = new ResponseStream();
  await api(urlEvent('GET', path, call), stream, {});
  return { statusCode: stream.statusCode, body: await new Response(stream).text() };
}

/** Where a streaming function writes; its status comes before. */
class ResponseStream extends PassThrough {
  statusCode = 0;
}

/** The global by which Lambda's Node runtime offers response streaming. */
const streamingRuntime = {
  streamifyResponse: (handler: Handler) => handler,
  HttpResponseStream: {
    from(stream: ResponseStream, metadata: { readonly statusCode: number }): ResponseStream {
      stream.statusCode = metadata.statusCode;
      return stream;
    },
  },
};

const EVENTS = {
  cluster: 'prod',
  epoch: 1,
  events: [
    {
      type: 'ADDED',
      object: {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: {
          namespace: 'default',
          name: 'web',
          uid: '00000000-0000-4000-8000-000000000001',
          resourceVersion: '1',
        },
        spec: { type: 'ClusterIP', ports: [{ name: 'http', port: 80, protocol: 'TCP', targetPort: 8080 }] },
      },
    },
    {
      type: 'ADDED',
      object: {
        apiVersion: 'discovery.k8s.io/v1',
        kind: 'EndpointSlice',
        metadata: {
          namespace: 'default',
          name: 'web-1',
          uid: '00000000-0000-4000-8000-000000000002',
          resourceVersion: '2',
          labels: { 'kubernetes.io/service-name': 'web' },
        },
        addressType: 'IPv4',
        ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
        endpoints: [{ addresses: ['10.0.0.1'], conditions: { ready: true } }],
      },
    },
  ],
};
