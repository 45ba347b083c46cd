import assert from 'node:assert/strict';
import { after, before, describe, it, test } from 'node:test';
import {
  type AttributeValue,
  type BatchGetItemCommandInput,
  type BatchGetItemCommandOutput,
  DescribeTableCommand,
  type DynamoDBClient,
  GetItemCommand,
  PutItemCommand,
  ResourceNotFoundException,
  TransactWriteItemsCommand,
} from '@aws-sdk/client-dynamodb';
import { createDynamoClient } from '../../../functions/store/dynamodb-client.ts';
import { createDynamoStore } from '../../../functions/store/dynamodb-store.ts';
import {
  FencedError,
  type Head,
  type Store,
  StoreUnavailableError,
  UnknownFormatError,
} from '../../../functions/store/store.ts';
import { chunkName, clusterRecord, HTTP, head, inlineEntry, serviceKey } from './builders.ts';
import { startTable } from './dynalite-table.ts';
import { FakeClock } from './fake-clock.ts';
import { describeStore } from './store-contract.ts';

describeStore('DynamoStore', async () => {
  const clock = new FakeClock();
  const table = await startTable();
  const client = table.newClient();
  const store = createDynamoStore({ client, tableName: table.tableName, clock });
  return {
    store,
    clock,
    async [Symbol.asyncDispose]() {
      client.destroy();
      await table[Symbol.asyncDispose]();
    },
  };
});

test('the contract holds on a table that knows neither transactions nor streams (P7)', async () => {
  await using table = await startTable();
  const client = table.newClient();
  const Put = { TableName: table.tableName, Item: { pk: { S: 'a' }, sk: { S: 'b' } } };
  await assert.rejects(client.send(new TransactWriteItemsCommand({ TransactItems: [{ Put }] })), {
    name: 'UnknownOperationException',
  });
  const { Table } = await client.send(new DescribeTableCommand({ TableName: table.tableName }));
  assert.equal(Table?.StreamSpecification, undefined);
  client.destroy();
});

/** What happens to one call; `go` makes it. */
type Mishap = (go: () => Promise<Answer>, input: object) => Promise<Answer>;
interface Answer {
  readonly response: unknown;
  output: object;
}

describe('DynamoStore on a network that fails', () => {
  const UID = '8c0d6b52-6c4a-4f5f-9f2e-0d4f2a9e9b11';
  const NO_FENCE = { deadline: Number.POSITIVE_INFINITY };
  const EXPIRY = 4_000_000_000_000 as Head['changedAt'];
  let table: Awaited<ReturnType<typeof startTable>>;
  let count = 0;
  before(async () => {
    table = await startTable();
  });
  after(() => table[Symbol.asyncDispose]());

  /** A test of a store whose calls meet mishaps, one after the other; then they are let through. */
  const survives = (
    sentence: string,
    test: (
      context: ReturnType<typeof setUp> & {
        key: ReturnType<typeof serviceKey>;
        sound: Store;
        soundClient: DynamoDBClient;
      },
    ) => Promise<void>,
  ) => {
    it(sentence, async () => {
      const context = setUp(table.newClient(), table.tableName);
      const soundClient = table.newClient();
      const sound = createDynamoStore({
        client: soundClient,
        tableName: table.tableName,
        clock: context.clock,
      });
      try {
        await test({ ...context, key: serviceKey(`fails-${++count}`), sound, soundClient });
      } finally {
        context.client.destroy();
        soundClient.destroy();
      }
    });
  };

  survives('a commit whose answer got lost counts as committed', async ({ store, key, mishaps, calls }) => {
    mishaps.push(answerLost);
    assert.deepEqual(await store.commit(key, head(), NO_FENCE), { kind: 'committed' });
    assert.deepEqual(calls, ['UpdateItem', 'UpdateItem', 'GetItem']);
    mishaps.push(answerLost);
    assert.deepEqual(await store.commit(key, head({ version: 2 }), NO_FENCE), { kind: 'committed' });
    assert.equal((await store.getHead(key))?.version, 2);
  });

  survives('a commit that got lost itself is made again', async ({ store, key, mishaps }) => {
    mishaps.push(refused, throttled, failed);
    assert.deepEqual(await store.commit(key, head(), NO_FENCE), { kind: 'committed' });
    assert.equal((await store.getHead(key))?.version, 1);
  });

  survives('a commit whose answer got lost and that another overwrote conflicts', async (context) => {
    const { store, sound, key, mishaps } = context;
    mishaps.push(async (go) => {
      await go();
      await sound.commit(key, head({ version: 2 }), NO_FENCE);
      throw socketError();
    });
    assert.deepEqual(await store.commit(key, head(), NO_FENCE), { kind: 'conflict' });
    assert.equal((await store.getHead(key))?.version, 2);
  });

  survives('the item that a failed condition shows saves the read', async (context) => {
    const { store, sound, soundClient, key, mishaps, calls } = context;
    const Key = { pk: { S: `${key.cluster}/default/web` }, sk: { S: 'HEAD' } };
    const read = async () => {
      const { Item } = await soundClient.send(new GetItemCommand({ TableName: table.tableName, Key }));
      return Item ?? {};
    };
    // As DynamoDB answers; the embedded one leaves the item out.
    const allOld: Mishap = async (go) => {
      try {
        return await go();
      } catch (error) {
        throw Object.assign(error as Error, { Item: await read() });
      }
    };
    mishaps.push(answerLost, allOld);
    assert.deepEqual(await store.commit(key, head(), NO_FENCE), { kind: 'committed' });
    await sound.commit(key, head({ version: 2 }), NO_FENCE);
    mishaps.push(allOld);
    assert.deepEqual(await store.commit(key, head({ version: 2 }), NO_FENCE), { kind: 'conflict' });
    assert.deepEqual(calls, ['UpdateItem', 'UpdateItem', 'UpdateItem']);
  });

  survives('no try of a commit starts behind its deadline (P8)', async ({ store, clock, key, ...rest }) => {
    const { mishaps, calls } = rest;
    const late: Mishap = async () => {
      clock.advance(1000);
      throw socketError();
    };
    mishaps.push(late, late, late);
    const fence = { deadline: clock.monotonic() + 1500 };
    await assert.rejects(store.commit(key, head(), fence), FencedError);
    assert.deepEqual(calls, ['UpdateItem', 'UpdateItem']);
  });

  survives(
    'throttled for too long is unavailable, with the cause',
    async ({ store, key, mishaps, pauses }) => {
      mishaps.push(...new Array<Mishap>(5).fill(throttled));
      await assert.rejects(store.commit(key, head(), NO_FENCE), (error: Error) => {
        assert.ok(error instanceof StoreUnavailableError);
        assert.equal((error.cause as Error).name, 'ProvisionedThroughputExceededException');
        return true;
      });
      assert.equal(pauses.length, 4);
      assert.ok(pauses.every((ms) => ms >= 0 && ms <= 50 * 2 ** 4));
      assert.deepEqual(await store.commit(key, head(), NO_FENCE), { kind: 'committed' });
    },
  );

  survives('every other call outlives a lost answer', async ({ store, clock, key, mishaps }) => {
    const lost = () => mishaps.push(answerLost);
    const name = chunkName(UID, 1);
    lost();
    await store.putChunk(key, name, Uint8Array.of(1));
    lost();
    assert.deepEqual(await store.getChunks(key, [name]), new Map([[name, Uint8Array.of(1)]]));
    lost();
    assert.equal((await store.queryChunks(key)).size, 1);
    lost();
    await store.putBody(key, 'b1', 0, Uint8Array.of(1));
    lost();
    await store.putReceipt(key, { entry: inlineEntry(1), expiresAt: EXPIRY, isDead: false });
    lost();
    assert.equal((await store.listReceipts(key, HTTP, 0, 10)).length, 1);
    lost();
    await store.putReceipt(key, { entry: inlineEntry(1), expiresAt: EXPIRY, isDead: true });
    lost();
    assert.equal((await store.getReceipt(key, inlineEntry(1)))?.isDead, true);
    lost();
    const dead = await store.listDeadLetters(1000);
    lost();
    for (const letter of dead) await store.deleteDeadLetter(letter);
    assert.deepEqual(await store.listDeadLetters(1000), []);
    const first = clusterRecord(key.cluster);
    lost();
    assert.equal(await store.putCluster(first, null), true);
    lost();
    assert.equal(await store.putCluster(clusterRecord(key.cluster, { epoch: 2 }), first), true);
    const [now, until] = [clock.now(), (clock.now() + 1) as Head['changedAt']];
    lost();
    assert.notEqual(await store.takeLease('one', until, now), null);
    lost();
    await store.releaseLease('one', { lastPass: now, lastVisit: null });
    assert.deepEqual(await store.takeLease('two', until, now), { lastPass: now, lastVisit: null });
    await store.releaseLease('two', { lastPass: now, lastVisit: null });
    lost();
    await store.deleteChunks(key, [name]);
    assert.equal((await store.queryChunks(key)).size, 0);
  });

  survives('keys that a batch leaves are asked for again', async ({ store, key, mishaps, pauses }) => {
    const names = [1, 2, 3].map((random) => chunkName(UID, random));
    for (const name of names) await store.putChunk(key, name, Uint8Array.of(1));
    mishaps.push(unprocessed(1), unprocessed(0), unprocessed(2));
    assert.deepEqual([...(await store.getChunks(key, names)).keys()].sort(), names);
    assert.equal(pauses.length, 1);
    mishaps.push(...new Array<Mishap>(5).fill(unprocessed(0)));
    await assert.rejects(store.getChunks(key, names), StoreUnavailableError);
  });

  survives('more than one page is read whole', async ({ store, key, calls }) => {
    const bytes = new Uint8Array(300_000);
    const names = [1, 2, 3, 4, 5].map((random) => chunkName(UID, random));
    for (const name of names) await store.putChunk(key, name, bytes);
    calls.length = 0;
    assert.equal((await store.queryChunks(key)).size, names.length);
    assert.deepEqual(calls, ['Query', 'Query']);
  });

  survives('what a later release wrote is not read', async ({ store, key, soundClient }) => {
    const put = (sk: string, attributes: Record<string, AttributeValue>, pk = `${key.cluster}/default/web`) =>
      soundClient.send(
        new PutItemCommand({
          TableName: table.tableName,
          Item: { pk: { S: pk }, sk: { S: sk }, ...attributes },
        }),
      );
    await put('HEAD', { f: { N: '2' }, v: { N: '1' } });
    await assert.rejects(store.getHead(key), UnknownFormatError);
    assert.deepEqual(await store.commit(key, head(), NO_FENCE), { kind: 'conflict' });
    await put(key.cluster, { r: { S: '{"format":2}' } }, 'CLUSTERS');
    await assert.rejects(store.getCluster(key.cluster), UnknownFormatError);
  });

  survives('a table that is not there is no outage', async ({ soundClient, clock, key }) => {
    const store = createDynamoStore({ client: soundClient, tableName: 'missing', clock });
    await assert.rejects(store.getHead(key), ResourceNotFoundException);
  });

  it('an endpoint where nobody listens is unavailable', async () => {
    const credentials = { accessKeyId: 'local', secretAccessKey: 'local' };
    const client = createDynamoClient({ region: 'us-east-1', endpoint: 'http://127.0.0.1:1', credentials });
    const pause = async () => {};
    const store = createDynamoStore({ client, tableName: 'any', clock: new FakeClock(), pause });
    await assert.rejects(store.getHead(serviceKey('any')), StoreUnavailableError);
    client.destroy();
  });
});

function setUp(client: DynamoDBClient, tableName: string) {
  const clock = new FakeClock();
  const mishaps: Mishap[] = [];
  const calls: string[] = [];
  const pauses: number[] = [];
  client.middlewareStack.add(
    (next, context) => async (args) => {
      calls.push((context.commandName ?? '').replace('Command', ''));
      const mishap = mishaps.shift();
      const go = () => next(args);
      return (mishap === undefined ? go() : mishap(go, args.input)) as ReturnType<typeof next>;
    },
    { step: 'initialize', name: 'mishaps' },
  );
  const pause = async (ms: number) => void pauses.push(ms);
  const store = createDynamoStore({ client, tableName, clock, pause });
  return { client, clock, store, mishaps, calls, pauses };
}

function socketError(): Error {
  return Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' });
}

const refused: Mishap = () => Promise.reject(socketError());

const answerLost: Mishap = async (go) => {
  await go();
  throw socketError();
};

const throttled: Mishap = () =>
  Promise.reject(
    Object.assign(new Error('slow down'), {
      name: 'ProvisionedThroughputExceededException',
      $metadata: { httpStatusCode: 400 },
    }),
  );

const failed: Mishap = () =>
  Promise.reject(
    Object.assign(new Error('oops'), { name: 'InternalServerError', $metadata: { httpStatusCode: 500 } }),
  );

/** A batch that answers only the first of the keys it was asked for. */
function unprocessed(answered: number): Mishap {
  return async (go, input) => {
    const answer = await go();
    const [[table, { Keys: keys = [] }] = ['', {}]] = Object.entries(
      (input as BatchGetItemCommandInput).RequestItems ?? {},
    );
    const isAnswered = (item: Key) => keys.findIndex(({ sk }) => sk?.S === item.sk?.S) < answered;
    const { Responses: responses } = answer.output as BatchGetItemCommandOutput;
    const rest = keys.slice(answered);
    answer.output = {
      ...answer.output,
      Responses: { [table]: responses?.[table]?.filter(isAnswered) ?? [] },
      UnprocessedKeys: rest.length === 0 ? {} : { [table]: { Keys: rest } },
    };
    return answer;
  };
}

type Key = Record<string, AttributeValue>;
