import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import {
  BatchGetItemCommand,
  BatchWriteItemCommand,
  DeleteItemCommand,
  DescribeTableCommand,
  DynamoDBClient,
  GetItemCommand,
  PutItemCommand,
  QueryCommand,
  UpdateItemCommand,
} from '@aws-sdk/client-dynamodb';
import { DescribeEventBusCommand, EventBridgeClient, PutEventsCommand } from '@aws-sdk/client-eventbridge';
import type { EpochMs } from '../../../core/time.ts';
import { type LocalBus, startLocalBus } from '../../../infra/local/bus.ts';
import { type LocalTable, startLocalTable } from '../../../infra/local/table.ts';
import { createUsage, type Usage } from '../../../infra/local/usage.ts';
import { createLogger } from '../../../wire/log.ts';

const TableName = 'state';
const Key = { pk: { S: 'a' } };
const config = { region: 'us-east-1', credentials: { accessKeyId: 'test', secretAccessKey: 'test' } };

describe('usage', () => {
  let table: LocalTable;
  let bus: LocalBus;
  before(async () => {
    const clock = { now: () => 0 as EpochMs, monotonic: () => 0 };
    const logger = createLogger({ level: 'error', clock, write: () => undefined });
    bus = await startLocalBus({ clock, dataDir: null, logger });
    table = await startLocalTable({
      dataDir: null,
      tableName: TableName,
      definition: {
        KeySchema: [{ AttributeName: 'pk', KeyType: 'HASH' }],
        AttributeDefinitions: [{ AttributeName: 'pk', AttributeType: 'S' }],
      },
    });
  });
  after(async () => {
    await table[Symbol.asyncDispose]();
    await bus[Symbol.asyncDispose]();
  });

  /** A table's client that a usage counts, until the end of the case. */
  function countedTable(usage: Usage) {
    const client = new DynamoDBClient({ ...config, endpoint: table.endpoint });
    usage.countTable(client);
    return Object.assign(client, { [Symbol.dispose]: () => client.destroy() });
  }

  it('adds up the units that answers give, writes and reads apart', async () => {
    const usage = createUsage();
    using client = countedTable(usage);
    const body = { S: 'x'.repeat(5000) };
    await client.send(new PutItemCommand({ TableName, Item: { ...Key, body } }));
    assert.deepEqual(usage.report(), {
      writeUnits: 5,
      readUnits: 0,
      calls: { PutItem: 1 },
      putEvents: { calls: 0, entries: 0 },
    });
    await client.send(new GetItemCommand({ TableName, Key, ConsistentRead: true }));
    await client.send(new GetItemCommand({ TableName, Key }));
    assert.deepEqual([usage.report().writeUnits, usage.report().readUnits], [5, 3]);
  });

  it('counts each operation by its name, batches by their list of units', async () => {
    const usage = createUsage();
    using client = countedTable(usage);
    await client.send(
      new BatchWriteItemCommand({
        RequestItems: { [TableName]: ['b', 'c'].map((pk) => ({ PutRequest: { Item: { pk: { S: pk } } } })) },
      }),
    );
    await client.send(
      new BatchGetItemCommand({ RequestItems: { [TableName]: { Keys: [{ pk: { S: 'b' } }] } } }),
    );
    await client.send(
      new QueryCommand({
        TableName,
        KeyConditionExpression: 'pk = :p',
        ExpressionAttributeValues: { ':p': { S: 'b' } },
      }),
    );
    await client.send(new DeleteItemCommand({ TableName, Key: { pk: { S: 'b' } } }));
    await client.send(new DescribeTableCommand({ TableName }));
    const { calls, writeUnits, readUnits } = usage.report();
    assert.deepEqual(calls, {
      BatchWriteItem: 1,
      BatchGetItem: 1,
      Query: 1,
      DeleteItem: 1,
      DescribeTable: 1,
    });
    assert.deepEqual([writeUnits, readUnits], [3, 1]);
  });

  it('counts a call whose condition failed, for which no answer tells units', async () => {
    const usage = createUsage();
    using client = countedTable(usage);
    const update = new UpdateItemCommand({
      TableName,
      Key,
      UpdateExpression: 'SET v = :v',
      ConditionExpression: 'v = :old',
      ExpressionAttributeValues: { ':v': { N: '2' }, ':old': { N: '1' } },
    });
    await assert.rejects(client.send(update), { name: 'ConditionalCheckFailedException' });
    assert.deepEqual([usage.report().calls, usage.report().writeUnits], [{ UpdateItem: 1 }, 0]);
  });

  it('counts PutEvents calls and entries', async () => {
    const usage = createUsage();
    const client = new EventBridgeClient({ ...config, endpoint: bus.url });
    usage.countBus(client);
    const entry = { Source: 's', DetailType: 't', Detail: '{}' };
    await client.send(new PutEventsCommand({ Entries: [entry, entry, entry] }));
    await client.send(new PutEventsCommand({ Entries: [entry] }));
    await client.send(new DescribeEventBusCommand({}));
    client.destroy();
    assert.deepEqual(usage.report(), {
      writeUnits: 0,
      readUnits: 0,
      calls: {},
      putEvents: { calls: 2, entries: 4 },
    });
  });
});
