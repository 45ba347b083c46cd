import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import {
  DescribeEventBusCommand,
  EventBridgeClient,
  ListRulesCommand,
  PutEventsCommand,
  type PutEventsRequestEntry,
} from '@aws-sdk/client-eventbridge';
import type { Clock, EpochMs } from '../../../core/time.ts';
import { type BusQuery, CALL_BYTES, type LocalBusOptions, startLocalBus } from '../../../infra/local/bus.ts';
import type { BusEvent } from '../../../infra/local/event-rule.ts';
import { listenOnLoopback } from '../../../infra/local/loopback.ts';
import { createLogger } from '../../../wire/log.ts';
import { startChild } from './child.ts';

const clock: Clock = { now: () => 1_790_000_000_123 as EpochMs, monotonic: () => 0 };
const silent = createLogger({ level: 'error', clock, write: () => undefined });

function startBus(options: Partial<LocalBusOptions> = {}) {
  return startLocalBus({ clock, dataDir: null, logger: silent, retryDelayMs: () => 0, ...options });
}

function clientOf(url: string) {
  const credentials = { accessKeyId: 'test', secretAccessKey: 'test' };
  const client = new EventBridgeClient({ endpoint: url, region: 'us-east-1', credentials, maxAttempts: 1 });
  return Object.assign(client, { [Symbol.dispose]: () => client.destroy() });
}

async function temporaryDirectory() {
  const path = await mkdtemp(join(tmpdir(), 'bus-'));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** An entry that is right; a case names only what it is about. */
function entry(change: PutEventsRequestEntry = {}): PutEventsRequestEntry {
  return { Source: 'endpoints-watcher', DetailType: 'EndpointsChanged', Detail: '{"sequence":1}', ...change };
}

const all: BusQuery = { after: 0, limit: 1000, wait: 0 };

describe('local bus, PutEvents', () => {
  it('appends what it accepts, in order, and answers an id for each', async () => {
    await using bus = await startBus();
    using client = clientOf(bus.url);
    const answer = await client.send(
      new PutEventsCommand({
        Entries: [
          entry({ Resources: ['a/b/c:80', 'x'], Detail: '{"size":3,"nested":{"deep":[1,null]}}' }),
          entry({ DetailType: 'NoEndpoints', Time: new Date('2026-01-02T03:04:05.678Z') }),
        ],
      }),
    );
    assert.equal(answer.FailedEntryCount, 0);
    assert.deepEqual(
      answer.Entries?.map(({ EventId, ErrorCode }) => [EventId?.length, ErrorCode]),
      [
        [36, undefined],
        [36, undefined],
      ],
    );
    await client.send(new PutEventsCommand({ Entries: [entry()] }));
    const base = { eventBusName: 'default', source: 'endpoints-watcher', resources: [] };
    assert.deepEqual(await bus.read(all), {
      entries: [
        {
          ...base,
          n: 1,
          time: '2026-09-21T14:13:20.123Z',
          detailType: 'EndpointsChanged',
          resources: ['a/b/c:80', 'x'],
          detail: { size: 3, nested: { deep: [1, null] } },
        },
        {
          ...base,
          n: 2,
          time: '2026-01-02T03:04:05.678Z',
          detailType: 'NoEndpoints',
          detail: { sequence: 1 },
        },
        {
          ...base,
          n: 3,
          time: '2026-09-21T14:13:20.123Z',
          detailType: 'EndpointsChanged',
          detail: { sequence: 1 },
        },
      ],
      last: 3,
    });
  });

  const failing: Readonly<Record<string, readonly [PutEventsRequestEntry, code: string, message: RegExp]>> = {
    'no Source': [{ DetailType: 'x', Detail: '{}' }, 'InvalidArgument', /Source is a required argument/],
    'an empty Source': [entry({ Source: '' }), 'InvalidArgument', /Source is a required argument/],
    'no DetailType': [{ Source: 'x', Detail: '{}' }, 'InvalidArgument', /DetailType is a required argument/],
    'a long DetailType': [entry({ DetailType: 'x'.repeat(129) }), 'InvalidArgument', /longer than 128/],
    'no Detail': [{ Source: 'x', DetailType: 'x' }, 'InvalidArgument', /Detail is a required argument/],
    'a Detail that is not JSON': [entry({ Detail: '{"a":' }), 'MalformedDetail', /malformed/],
    'a Detail that is an array': [entry({ Detail: '[]' }), 'MalformedDetail', /malformed/],
    'a Detail that is a string': [entry({ Detail: '"x"' }), 'MalformedDetail', /malformed/],
    'a Detail that is null': [entry({ Detail: 'null' }), 'MalformedDetail', /malformed/],
    'a Detail nested too deeply': [
      entry({ Detail: `{"a":${'['.repeat(5000)}${']'.repeat(5000)}}` }),
      'MalformedDetail',
      /malformed/,
    ],
    'a Source of AWS': [entry({ Source: 'aws.ec2' }), 'NotAuthorizedForSourceException', /Not authorized/],
    'an unknown bus': [
      entry({ EventBusName: 'other' }),
      'ResourceNotFoundException',
      /bus other does not exist/,
    ],
  };
  for (const [name, [bad, code, message]] of Object.entries(failing))
    it(`${name}: that entry alone is answered ${code}`, async () => {
      await using bus = await startBus();
      using client = clientOf(bus.url);
      const { Entries = [], FailedEntryCount } = await client.send(
        new PutEventsCommand({ Entries: [entry(), bad, entry()] }),
      );
      const { last } = await bus.read(all);
      assert.equal(FailedEntryCount, 1);
      assert.equal(Entries[1]?.ErrorCode, code);
      assert.match(Entries[1]?.ErrorMessage ?? '', message);
      assert.deepEqual([Entries[0]?.ErrorCode, Entries[2]?.ErrorCode, last], [undefined, undefined, 2]);
    });

  it('takes a bus by name and by ARN', async () => {
    await using bus = await startBus({
      busNames: ['deltas'],
      accountId: '123456789012',
      region: 'eu-west-1',
    });
    using client = clientOf(bus.url);
    const EventBusName = 'arn:aws:events:eu-west-1:123456789012:event-bus/deltas';
    await client.send(
      new PutEventsCommand({ Entries: [entry({ EventBusName }), entry({ EventBusName: 'deltas' })] }),
    );
    const { entries } = await bus.read(all);
    assert.deepEqual(
      entries.map(({ eventBusName }) => eventBusName),
      ['deltas', 'deltas'],
    );
    const described = await client.send(new DescribeEventBusCommand({ Name: 'deltas' }));
    assert.deepEqual([described.Name, described.Arn], ['deltas', EventBusName]);
    await assert.rejects(client.send(new DescribeEventBusCommand({})), { name: 'ResourceNotFoundException' });
  });

  it('refuses a call of no or of more than ten entries', async () => {
    await using bus = await startBus();
    using client = clientOf(bus.url);
    for (const Entries of [[], Array.from({ length: 11 }, () => entry())])
      await assert.rejects(client.send(new PutEventsCommand({ Entries })), { name: 'ValidationException' });
    await client.send(new PutEventsCommand({ Entries: Array.from({ length: 10 }, () => entry()) }));
    assert.equal((await bus.read(all)).last, 10);
  });

  it('counts a call by UTF-8 bytes of source, type, detail and resources, and 14 for a time', async () => {
    await using bus = await startBus({ callBytes: 200 });
    using client = clientOf(bus.url);
    const Time = new Date(0);
    const fixed = { Source: 'sö', DetailType: 't€', Resources: ['12345', 'é'], Time };
    const room = 200 - 3 - 4 - 7 - 14;
    const detailOf = (bytes: number) => JSON.stringify({ a: 'x'.repeat(bytes - 8) });
    const exact = { ...fixed, Detail: detailOf(room) };
    assert.equal((await client.send(new PutEventsCommand({ Entries: [exact] }))).FailedEntryCount, 0);
    await assert.rejects(
      client.send(new PutEventsCommand({ Entries: [{ ...fixed, Detail: detailOf(room + 1) }] })),
      {
        name: 'ValidationException',
        message: 'Total size of the entries in the request is over the limit.',
      },
    );
    const half = entry({ Detail: detailOf(100) });
    await assert.rejects(client.send(new PutEventsCommand({ Entries: [half, half] })), {
      name: 'ValidationException',
    });
    assert.equal((await bus.read(all)).last, 1);
  });

  it('takes a call of exactly the default limit, and not one byte more', async () => {
    await using bus = await startBus();
    using client = clientOf(bus.url);
    const sized = (bytes: number) => ({
      Source: 's',
      DetailType: 't',
      Detail: `{"a":"${'x'.repeat(bytes - 10)}"}`,
    });
    await client.send(new PutEventsCommand({ Entries: [sized(CALL_BYTES)] }));
    await assert.rejects(client.send(new PutEventsCommand({ Entries: [sized(CALL_BYTES + 1)] })), {
      name: 'ValidationException',
    });
  });

  it('answers 413 without a message to a body that no call needs', async () => {
    await using bus = await startBus({ callBytes: 1000 });
    using client = clientOf(bus.url);
    const error = await client
      .send(new PutEventsCommand({ Entries: [entry({ Detail: `{"a":"${'x'.repeat(200_000)}"}` })] }))
      .catch((thrown: unknown) => thrown);
    assert.equal((error as { $metadata?: { httpStatusCode?: number } }).$metadata?.httpStatusCode, 413);
  });

  it('answers UnknownOperationException to any other operation', async () => {
    await using bus = await startBus();
    using client = clientOf(bus.url);
    await assert.rejects(client.send(new ListRulesCommand({})), { name: 'UnknownOperationException' });
  });

  it('ends with the call under way, although its client keeps the connection', async () => {
    await using directory = await temporaryDirectory();
    const bus = await startBus({ dataDir: directory.path });
    using client = clientOf(bus.url);
    await client.send(new PutEventsCommand({ Entries: [entry()] }));
    const request = httpRequest(bus.url, {
      method: 'POST',
      headers: { 'content-type': 'application/x-amz-json-1.1', 'x-amz-target': 'AWSEvents.DescribeEventBus' },
    });
    request.write('{');
    await once(request, 'socket').then(([socket]) => socket.connecting && once(socket, 'connect'));
    await client.send(new PutEventsCommand({ Entries: [entry()] }));
    const ended = bus[Symbol.asyncDispose]();
    request.end('}');
    const [response] = await once(request, 'response');
    response.resume();
    assert.equal(response.statusCode, 200);
    await ended;
  });
});

describe('local bus, what is no call', () => {
  const json = 'application/x-amz-json-1.1';
  const cases: Readonly<
    Record<string, readonly [method: string, headers: Record<string, string>, body: string, number]>
  > = {
    'a body that is not JSON': ['POST', { 'content-type': json }, '{', 400],
    'Entries that are no list': ['POST', { 'content-type': json }, '{"Entries":{}}', 400],
    'an entry with a number for a string': [
      'POST',
      { 'content-type': json },
      '{"Entries":[{"Source":5}]}',
      400,
    ],
    'a time out of range': [
      'POST',
      { 'content-type': json },
      '{"Entries":[{"Source":"s","DetailType":"t","Detail":"{}","Time":1e300}]}',
      200,
    ],
    'the type that a web page may send unasked': [
      'POST',
      { 'content-type': 'text/plain' },
      '{"Entries":[]}',
      415,
    ],
    'a Host that is not the loopback': ['POST', { 'content-type': json, host: 'evil.example' }, '{}', 403],
    'another method': ['GET', {}, '', 405],
  };
  for (const [name, [method, headers, body, status]] of Object.entries(cases))
    it(`${name} is answered ${status}, and nothing is appended`, async () => {
      await using bus = await startBus();
      const request = httpRequest(bus.url, {
        method,
        headers: { ...headers, 'x-amz-target': 'AWSEvents.PutEvents' },
      });
      request.end(body);
      const [response] = await once(request, 'response');
      response.resume();
      assert.equal(response.statusCode, status);
      assert.equal((await bus.read(all)).last, 0);
    });
});

describe('local bus, reading', () => {
  it('pages by the last of each answer', async () => {
    await using bus = await startBus();
    using client = clientOf(bus.url);
    await client.send(new PutEventsCommand({ Entries: Array.from({ length: 5 }, () => entry()) }));
    const pages = [];
    for (let after = 0; after < 5; ) {
      const { entries, last } = await bus.read({ after, limit: 2, wait: 0 });
      pages.push(entries.map(({ n }) => n));
      after = last;
    }
    assert.deepEqual(pages, [[1, 2], [3, 4], [5]]);
  });

  it('says where the log ends when there is nothing to return', async () => {
    await using bus = await startBus();
    using client = clientOf(bus.url);
    await client.send(new PutEventsCommand({ Entries: [entry(), entry()] }));
    for (const query of [
      { after: 2, limit: 1000, wait: 0 },
      { after: 99, limit: 1000, wait: 0 },
      { after: 0, limit: 0, wait: 0 },
      { after: 2, limit: 1000, wait: 1 },
    ])
      assert.deepEqual(await bus.read(query), { entries: [], last: 2 });
  });

  it('waits for an entry when there is none', async () => {
    await using bus = await startBus();
    using client = clientOf(bus.url);
    const first = bus.read({ after: 0, limit: 1000, wait: 60_000 });
    const second = bus.read({ after: 1, limit: 1000, wait: 60_000 });
    await client.send(new PutEventsCommand({ Entries: [entry()] }));
    assert.deepEqual(
      (await first).entries.map(({ n }) => n),
      [1],
    );
    await client.send(new PutEventsCommand({ Entries: [entry()] }));
    assert.deepEqual(
      (await second).entries.map(({ n }) => n),
      [2],
    );
  });

  it('ends a wait when its reader has gone, and when the bus ends', async () => {
    const bus = await startBus();
    const reader = new AbortController();
    const gone = bus.read({ after: 0, limit: 1000, wait: 60_000 }, reader.signal);
    reader.abort();
    assert.deepEqual(await gone, { entries: [], last: 0 });
    const waiting = bus.read({ after: 0, limit: 1000, wait: 60_000 });
    await bus[Symbol.asyncDispose]();
    assert.deepEqual(await waiting, { entries: [], last: 0 });
  });
});

describe('local bus, durable log', () => {
  it('is found again, and goes on with the next number', async () => {
    await using directory = await temporaryDirectory();
    for (const round of [1, 2]) {
      await using bus = await startBus({ dataDir: directory.path });
      using client = clientOf(bus.url);
      await client.send(
        new PutEventsCommand({ Entries: [entry(), entry({ Detail: `{"sequence":${round}}` })] }),
      );
      const { entries, last } = await bus.read({ after: (round - 1) * 2, limit: 1000, wait: 0 });
      assert.deepEqual([entries.map(({ n }) => n), last], [[round * 2 - 1, round * 2], round * 2]);
      assert.deepEqual(entries[1]?.detail, { sequence: round });
    }
  });

  it('loses nothing that it answered when it is killed', async () => {
    await using directory = await temporaryDirectory();
    const answered: number[] = [];
    {
      await using child = await startChild(
        `import { startLocalBus } from '${import.meta.resolve('../../../infra/local/bus.ts')}';
         const clock = { now: () => 0, monotonic: () => 0 };
         const bus = await startLocalBus({ clock, dataDir: process.argv[1], logger: console });
         console.log(bus.url);`,
        directory.path,
      );
      using client = clientOf(child.line);
      const send = async (sequence: number) => {
        await client.send(new PutEventsCommand({ Entries: [entry({ Detail: `{"sequence":${sequence}}` })] }));
        answered.push(sequence);
        if (answered.length === 40) child.kill();
      };
      // Many at a time: the kill meets calls that are under way.
      await Promise.allSettled(Array.from({ length: 100 }, (_, sequence) => send(sequence)));
      await child.ended;
    }
    await using bus = await startBus({ dataDir: directory.path });
    const { entries } = await bus.read(all);
    const kept = new Set(entries.map(({ detail }) => detail.sequence));
    assert.ok(answered.length >= 40);
    assert.deepEqual(
      answered.filter((sequence) => !kept.has(sequence)),
      [],
    );
    assert.deepEqual(
      entries.map(({ n }) => n),
      entries.map((_, i) => i + 1),
    );
  });

  it('drops a last line that a kill tore', async () => {
    await using directory = await temporaryDirectory();
    const file = join(directory.path, 'events.jsonl');
    {
      await using bus = await startBus({ dataDir: directory.path });
      using client = clientOf(bus.url);
      await client.send(new PutEventsCommand({ Entries: [entry(), entry()] }));
    }
    const whole = await readFile(file, 'utf8');
    await writeFile(file, `${whole}{"n":3,"id":"torn`);
    await using bus = await startBus({ dataDir: directory.path });
    using client = clientOf(bus.url);
    assert.equal((await bus.read(all)).last, 2);
    await client.send(new PutEventsCommand({ Entries: [entry({ Detail: '{"after":"tear"}' })] }));
    const { entries } = await bus.read({ after: 2, limit: 1000, wait: 0 });
    assert.deepEqual(
      entries.map(({ n, detail }) => [n, detail]),
      [[3, { after: 'tear' }]],
    );
  });

  it('refuses a file that is not its log, and names it', async () => {
    await using directory = await temporaryDirectory();
    await writeFile(join(directory.path, 'events.jsonl'), '{"n":1,"id":"x"}\n{"n":7}\n{"n":3}\n');
    await assert.rejects(
      startBus({ dataDir: directory.path }),
      /events\.jsonl is not a log of events: line 2/,
    );
    await rm(join(directory.path, 'events.jsonl'));
    await using bus = await startBus({ dataDir: directory.path });
    assert.equal((await bus.read(all)).last, 0);
  });

  it('is one process at a time', async () => {
    await using directory = await temporaryDirectory();
    await using _bus = await startBus({ dataDir: directory.path });
    await assert.rejects(startBus({ dataDir: directory.path }), {
      name: 'DirectoryInUseError',
      message: new RegExp(`^${directory.path} is in use by process ${process.pid}`),
    });
  });
});

/** A target that answers with the statuses given, then 200, and keeps what it received. */
async function startTarget(...statuses: number[]) {
  const received: BusEvent[] = [];
  const arrivals: (() => void)[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    received.push(JSON.parse(Buffer.concat(chunks).toString()));
    const status = statuses.shift() ?? 200;
    response.writeHead(status, status === 302 ? { location: 'http://127.0.0.1:9/' } : {}).end('ignored');
    for (const arrived of arrivals.splice(0)) arrived();
  });
  const url = await listenOnLoopback(server);
  return {
    url,
    received,
    async waitFor(count: number) {
      while (received.length < count) await new Promise<void>((resolve) => arrivals.push(resolve));
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

describe('local bus, rules', () => {
  const anything = { source: [{ exists: true }] };

  it('delivers what matches to its target, as EventBridge shows it', async () => {
    await using target = await startTarget();
    await using bus = await startBus({ accountId: '123456789012', region: 'eu-west-1' });
    using client = clientOf(bus.url);
    await client.send(new PutEventsCommand({ Entries: [entry()] }));
    const eventPattern = { detail: { sequence: [{ numeric: ['>', 5] }] } };
    assert.deepEqual(bus.putRule('big', { eventPattern, target: target.url }), { kind: 'ok' });
    const { Entries } = await client.send(
      new PutEventsCommand({
        Entries: [2, 7, 3, 9].map((n) => entry({ Detail: `{"sequence":${n}}`, Resources: [`r${n}`] })),
      }),
    );
    await target.waitFor(2);
    assert.deepEqual(
      target.received.map((event) => event.detail),
      [{ sequence: 7 }, { sequence: 9 }],
    );
    assert.deepEqual(target.received[0], {
      version: '0',
      id: Entries?.[1]?.EventId,
      'detail-type': 'EndpointsChanged',
      source: 'endpoints-watcher',
      account: '123456789012',
      time: '2026-09-21T14:13:20Z',
      region: 'eu-west-1',
      resources: ['r7'],
      detail: { sequence: 7 },
    });
  });

  it('tries a failing target again, in order, and drops what it refuses', async () => {
    await using target = await startTarget(500, 429, 200, 404, 302, 409, 503);
    await using bus = await startBus();
    using client = clientOf(bus.url);
    bus.putRule('all', { eventPattern: anything, target: target.url });
    await client.send(
      new PutEventsCommand({ Entries: [1, 2, 3, 4, 5].map((n) => entry({ Detail: `{"sequence":${n}}` })) }),
    );
    await target.waitFor(9);
    assert.deepEqual(
      target.received.map(({ detail }) => detail.sequence),
      [1, 1, 1, 2, 3, 4, 4, 4, 5],
    );
  });

  it('delivers once its target is there', async () => {
    const probe = await startTarget();
    await probe[Symbol.asyncDispose]();
    await using bus = await startBus();
    using client = clientOf(bus.url);
    bus.putRule('all', { eventPattern: anything, target: probe.url });
    await client.send(new PutEventsCommand({ Entries: [entry()] }));
    await using target = await startTarget();
    // Replacing a rule takes over what it has not delivered.
    bus.putRule('all', { eventPattern: anything, target: target.url });
    await target.waitFor(1);
  });

  const wrong: Readonly<Record<string, readonly [name: string, body: unknown, message: RegExp]>> = {
    'a wrong pattern': [
      'r',
      { eventPattern: { a: 'x' }, target: 'http://127.0.0.1:1/' },
      /^eventPattern: a must be/,
    ],
    'no pattern': ['r', { target: 'http://127.0.0.1:1/' }, /^eventPattern: required/],
    'no target': ['r', { eventPattern: anything }, /^target: required/],
    'no body': ['r', undefined, /^body: required/],
    'a target elsewhere': [
      'r',
      { eventPattern: anything, target: 'http://example.com/' },
      /^target: must be a URL/,
    ],
    'a target that only begins like the loopback': [
      'r',
      { eventPattern: anything, target: 'http://127.0.0.1.example.com/' },
      /^target: /,
    ],
    'a target with a user': [
      'r',
      { eventPattern: anything, target: 'http://127.0.0.1@example.com/' },
      /^target: /,
    ],
    'a target of another scheme': [
      'r',
      { eventPattern: anything, target: 'file:///etc/passwd' },
      /^target: /,
    ],
    'a name with other characters': [
      'a b',
      { eventPattern: anything, target: 'http://127.0.0.1:1/' },
      /^name: must be/,
    ],
  };
  for (const [name, [rule, body, message]] of Object.entries(wrong))
    it(`${name} is invalid, with the reason`, async () => {
      await using bus = await startBus();
      const result = bus.putRule(rule, body);
      assert.equal(result.kind, 'invalid');
      if (result.kind === 'invalid') assert.match(result.message, message);
    });

  it('has a bounded number of rules', async () => {
    await using bus = await startBus();
    const body = { eventPattern: anything, target: 'http://127.0.0.1:1/' };
    for (let i = 0; i < 300; i++) assert.equal(bus.putRule(`r${i}`, body).kind, 'ok');
    assert.equal(bus.putRule('r0', body).kind, 'ok');
    assert.equal(bus.putRule('r300', body).kind, 'invalid');
  });
});
