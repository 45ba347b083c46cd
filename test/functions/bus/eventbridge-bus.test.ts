import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import type { PutEventsRequestEntry } from '@aws-sdk/client-eventbridge';
import type { Clock, EpochMs } from '../../../core/time.ts';
import { BusUnavailableError, entryBytes } from '../../../functions/bus/bus.ts';
import { createEventBridgeBus, createEventBridgeClient } from '../../../functions/bus/eventbridge-bus.ts';
import { startLocalBus } from '../../../infra/local/bus.ts';
import { listenOnLoopback } from '../../../infra/local/loopback.ts';
import { createLogger } from '../../../wire/log.ts';
import { busEntry, describeBus } from './bus-contract.ts';

const CREDENTIALS = { accessKeyId: 'local', secretAccessKey: 'local' };

describeBus('EventBridgeBus', async () => {
  const clock: Clock = { now: () => 1_790_000_000_123 as EpochMs, monotonic: () => 0 };
  const logger = createLogger({ level: 'error', clock, write: () => {} });
  const local = await startLocalBus({ clock, dataDir: null, logger, busNames: ['events'] });
  const client = createEventBridgeClient({
    region: 'us-east-1',
    endpoint: local.url,
    credentials: CREDENTIALS,
  });
  const nowhere = createEventBridgeClient({
    region: 'us-east-1',
    endpoint: 'http://127.0.0.1:1',
    credentials: CREDENTIALS,
  });
  const pause = async () => {};
  return {
    bus: createEventBridgeBus({ client, busName: 'events', pause }),
    missing: createEventBridgeBus({ client, busName: 'missing', pause }),
    away: createEventBridgeBus({ client: nowhere, busName: 'events', pause }),
    async published() {
      const { entries } = await local.read({ after: 0, limit: 1000, wait: 0 });
      return entries.map(({ detail }) => detail);
    },
    async [Symbol.asyncDispose]() {
      client.destroy();
      nowhere.destroy();
      await local[Symbol.asyncDispose]();
    },
  };
});

describe('EventBridgeBus, call by call', () => {
  it('fills calls by count', async () => {
    await using server = await startScripted();
    await server.bus().publish(numbered(23));
    assert.deepEqual(server.calls, [range(0, 10), range(10, 20), range(20, 23)]);
  });

  it('fills calls by bytes, as EventBridge counts them', async () => {
    await using server = await startScripted();
    const entries = numbered(6, 'ü'.repeat(100));
    const [first] = entries;
    assert.ok(first !== undefined);
    assert.equal(
      entryBytes(first),
      Buffer.byteLength(`endpoints-watcherEndpointsChangedprod/default/web:80${first.detail}`),
    );
    await server.bus({ maxCallBytes: 2 * entryBytes(first) }).publish(entries);
    assert.deepEqual(server.calls, [
      [0, 1],
      [2, 3],
      [4, 5],
    ]);
  });

  it('sends only the failed entries again, and those that another try can cure', async () => {
    await using server = await startScripted([
      failing({ 1: 'InternalFailure', 2: 'ThrottlingException', 4: 'AccessDeniedException' }),
      failing({ 2: 'ThrottlingException' }),
    ]);
    const results = await server.bus().publish(numbered(5));
    assert.deepEqual(server.calls, [[0, 1, 2, 3, 4], [1, 2], [2]]);
    assert.deepEqual(
      results.map((result) => (result.kind === 'refused' ? `${result.code} ${result.isFinal}` : 'accepted')),
      ['accepted', 'accepted', 'accepted', 'accepted', 'AccessDeniedException false'],
    );
    assert.equal(server.pauses.length, 2);
  });

  const codes: Readonly<Record<string, boolean>> = {
    InvalidArgument: true,
    MalformedDetail: true,
    AccessDeniedException: false,
    NotAuthorizedForSourceException: false,
    NotAuthorizedForDetailTypeException: false,
    ResourceNotFoundException: false,
    LimitExceededException: false,
    InvalidAccountIdException: false,
  };
  for (const [code, isFinal] of Object.entries(codes))
    it(`${code} of an entry is ${isFinal ? 'for good' : 'for now'}, and not sent again at once`, async () => {
      await using server = await startScripted([failing({ 1: code })]);
      const results = await server.bus().publish(numbered(2));
      assert.deepEqual(results, [{ kind: 'accepted' }, { kind: 'refused', code, isFinal }]);
      assert.deepEqual(server.calls, [[0, 1]]);
    });

  it('gives up on an entry after some tries, with its code', async () => {
    await using server = await startScripted(new Array(9).fill(failing({ 0: 'InternalFailure' })));
    const results = await server.bus().publish(numbered(2));
    assert.deepEqual(results, [
      { kind: 'refused', code: 'InternalFailure', isFinal: false },
      { kind: 'accepted' },
    ]);
    assert.deepEqual(server.calls, [[0, 1], [0], [0], [0]]);
  });

  it('halves a call that is too large, down to the entry that is', async () => {
    for (const tooLarge of [bare413, tooLargeException]) {
      const refuseThird: Script = (entries) => (entries.includes(3) ? tooLarge(entries) : accept(entries));
      await using server = await startScripted(new Array(20).fill(refuseThird));
      const results = await server.bus().publish(numbered(5));
      assert.deepEqual(server.calls, [[0, 1, 2, 3, 4], [0, 1, 2], [3, 4], [3], [4]]);
      assert.deepEqual(results[3], { kind: 'refused', code: 'EntryTooLarge', isFinal: true });
      assert.equal(results.filter(({ kind }) => kind === 'accepted').length, 4);
    }
  });

  it('finds the entry that makes a whole call invalid, which may wait', async () => {
    const refuseThird: Script = (entries) =>
      entries.includes(1) ? exception(400, 'ValidationException', 'no such thing')(entries) : accept(entries);
    await using server = await startScripted(new Array(20).fill(refuseThird));
    const results = await server.bus().publish(numbered(3));
    assert.deepEqual(results[1], { kind: 'refused', code: 'ValidationException', isFinal: false });
    assert.equal(results.filter(({ kind }) => kind === 'accepted').length, 2);
  });

  it('a call that is denied is refused for now, and not sent again', async () => {
    const denied = exception(400, 'AccessDeniedException', 'not you');
    await using server = await startScripted(new Array(9).fill(denied));
    assert.deepEqual(await server.bus().publish(numbered(1)), [
      { kind: 'refused', code: 'AccessDeniedException', isFinal: false },
    ]);
    assert.equal(server.calls.length, 1);
  });

  const outages: Record<string, Script> = {
    'throttled as a whole': exception(400, 'ThrottlingException', 'slow down'),
    'failing by itself': exception(500, 'InternalException', 'oops'),
    'without an answer': () => null,
  };
  for (const [name, outage] of Object.entries(outages)) {
    it(`a bus ${name} is tried again`, async () => {
      await using server = await startScripted([outage, outage]);
      assert.deepEqual(await server.bus().publish(numbered(1)), [{ kind: 'accepted' }]);
      assert.equal(server.calls.length, 3);
    });

    it(`a bus ${name} for too long is unavailable, and no call goes after the first`, async () => {
      await using server = await startScripted(new Array(99).fill(outage));
      await assert.rejects(server.bus().publish(numbered(25)), BusUnavailableError);
      assert.deepEqual(server.calls, new Array(4).fill(range(0, 10)));
    });
  }

  it('what was accepted before the bus went away is told', async () => {
    const away = exception(503, 'ServiceUnavailable', 'later');
    await using server = await startScripted([accept, ...new Array<Script>(9).fill(away)]);
    const results = await server.bus().publish(numbered(12));
    assert.equal(results.filter(({ kind }) => kind === 'accepted').length, 10);
    assert.deepEqual(results.slice(10), [
      { kind: 'refused', code: 'NoAnswer', isFinal: false },
      { kind: 'refused', code: 'NoAnswer', isFinal: false },
    ]);
  });
});

/** What the server answers to a call with these entries; null hangs up. */
type Script = (entries: readonly number[]) => { status: number; body: string } | null;

const accept: Script = (entries) => failing({})(entries);
const bare413: Script = () => ({ status: 413, body: '' });
const tooLargeException: Script = (entries) =>
  exception(
    400,
    'ValidationException',
    'Total size of the entries in the request is over the limit.',
  )(entries);

/** Some entries fail, by number. */
function failing(codes: Readonly<Record<number, string>>): Script {
  return (entries) => {
    const answers = entries.map((number) => {
      const code = codes[number];
      return code === undefined ? { EventId: `id-${number}` } : { ErrorCode: code, ErrorMessage: 'no' };
    });
    const failed = entries.filter((number) => codes[number] !== undefined).length;
    return { status: 200, body: JSON.stringify({ FailedEntryCount: failed, Entries: answers }) };
  };
}

function exception(status: number, type: string, message: string): Script {
  return () => ({ status, body: JSON.stringify({ __type: type, message }) });
}

/** A PutEvents server that follows a script, then accepts everything. */
async function startScripted(scripts: readonly Script[] = []) {
  const rest = [...scripts];
  const calls: number[][] = [];
  const pauses: number[] = [];
  const server = createServer(async (request, response) => {
    const { Entries } = JSON.parse(await text(request)) as { Entries: PutEventsRequestEntry[] };
    const entries = Entries.map(({ Detail = '' }) => (JSON.parse(Detail) as { number: number }).number);
    calls.push(entries);
    const answer = (rest.shift() ?? accept)(entries);
    if (answer === null) response.destroy();
    else response.writeHead(answer.status, { 'content-type': 'application/x-amz-json-1.1' }).end(answer.body);
  });
  const endpoint = await listenOnLoopback(server);
  const client = createEventBridgeClient({ region: 'us-east-1', endpoint, credentials: CREDENTIALS });
  const pause = async (ms: number) => void pauses.push(ms);
  return {
    calls,
    pauses,
    bus: (options: { maxCallBytes?: number } = {}) =>
      createEventBridgeBus({ client, busName: 'events', pause, ...options }),
    async [Symbol.asyncDispose]() {
      client.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function numbered(count: number, padding = '') {
  return range(0, count).map((number) => busEntry({ detail: JSON.stringify({ number, padding }) }));
}

function range(start: number, end: number): number[] {
  return Array.from({ length: end - start }, (_, index) => start + index);
}
