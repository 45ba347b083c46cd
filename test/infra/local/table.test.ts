import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import {
  DescribeTableCommand,
  DynamoDBClient,
  GetItemCommand,
  PutItemCommand,
  QueryCommand,
  UpdateItemCommand,
} from '@aws-sdk/client-dynamodb';
import { startLocalTable, type TableDefinition } from '../../../infra/local/table.ts';
import { eventually } from '../../eventually.ts';
import { startChild } from './child.ts';

const definition: TableDefinition = {
  BillingMode: 'PAY_PER_REQUEST',
  KeySchema: [
    { AttributeName: 'pk', KeyType: 'HASH' },
    { AttributeName: 'sk', KeyType: 'RANGE' },
  ],
  AttributeDefinitions: ['pk', 'sk', 'gpk', 'gsk'].map((AttributeName) => ({
    AttributeName,
    AttributeType: 'S',
  })),
  GlobalSecondaryIndexes: [
    {
      IndexName: 'services',
      KeySchema: [
        { AttributeName: 'gpk', KeyType: 'HASH' },
        { AttributeName: 'gsk', KeyType: 'RANGE' },
      ],
      Projection: { ProjectionType: 'INCLUDE', NonKeyAttributes: ['summary', 'changedAt'] },
    },
  ],
};
const tableName = 'state';

function clientOf(endpoint: string) {
  const credentials = { accessKeyId: 'test', secretAccessKey: 'test' };
  const client = new DynamoDBClient({ endpoint, region: 'eu-west-1', credentials, maxAttempts: 1 });
  return Object.assign(client, { [Symbol.dispose]: () => client.destroy() });
}

async function temporaryDirectory() {
  const path = await mkdtemp(join(tmpdir(), 'table-'));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

const put = (pk: string) =>
  new PutItemCommand({
    TableName: tableName,
    Item: { pk: { S: pk }, sk: { S: 'HEAD' }, gpk: { S: 'prod' }, gsk: { S: pk }, summary: { S: 'x' } },
  });
const get = (pk: string) =>
  new GetItemCommand({
    TableName: tableName,
    Key: { pk: { S: pk }, sk: { S: 'HEAD' } },
    ConsistentRead: true,
  });

/** A process that serves the table of its directory. */
const server = `
  import { startLocalTable } from '${import.meta.resolve('../../../infra/local/table.ts')}';
  const definition = ${JSON.stringify(definition)};
  const table = await startLocalTable({ dataDir: process.argv[1], tableName: 'state', definition });
  console.log(table.endpoint);`;

describe('local table', () => {
  it('deletes what has expired when it is told to, and nothing else', async () => {
    await using table = await startLocalTable({ dataDir: null, tableName, definition });
    using client = clientOf(table.endpoint);
    const expiring = (pk: string, ttl: number) =>
      new PutItemCommand({
        TableName: tableName,
        Item: { pk: { S: pk }, sk: { S: 'HEAD' }, ttl: { N: `${ttl}` } },
      });
    await client.send(put('lasting'));
    for (const [pk, ttl] of [
      ['past', 99],
      ['now', 100],
      ['later', 101],
    ] as const)
      await client.send(expiring(pk, ttl));
    const left = async () => {
      const found = await Promise.all(['lasting', 'past', 'now', 'later'].map((pk) => client.send(get(pk))));
      return found.flatMap(({ Item }) => Item?.pk?.S ?? []);
    };
    assert.equal(await table.removeExpired(100_999), 2);
    assert.deepEqual(await left(), ['lasting', 'later']);
    assert.equal(await table.removeExpired(100_999), 0);
    assert.equal(await table.removeExpired(101_000), 1);
    assert.deepEqual(await left(), ['lasting']);
  });

  it('looks at a bounded number at a time, and goes on behind them', async () => {
    await using table = await startLocalTable({ dataDir: null, tableName, definition });
    using client = clientOf(table.endpoint);
    const expired = (_: unknown, index: number) =>
      client.send(
        new PutItemCommand({
          TableName: tableName,
          Item: { pk: { S: `s-${index}` }, sk: { S: 'HEAD' }, ttl: { N: '1' } },
        }),
      );
    await Promise.all(Array.from({ length: 7 }, expired));
    const removed: number[] = [];
    for (let call = 0; call < 4; call++) removed.push(await table.removeExpired(2000, 3));
    assert.deepEqual(removed, [3, 3, 1, 0]);
  });

  it('lets go of what was overwritten, although queries have seen it', async () => {
    await using directory = await temporaryDirectory();
    await using table = await startLocalTable({ dataDir: directory.path, tableName, definition });
    using client = clientOf(table.endpoint);
    for (let count = 0; count < 300; count++) {
      const Item = { pk: { S: 'a' }, sk: { S: 'HEAD' }, bytes: { B: randomBytes(64 * 1024) } };
      await client.send(new PutItemCommand({ TableName: tableName, Item }));
      const { Items } = await client.send(
        new QueryCommand({
          ...{ TableName: tableName, Limit: 1, KeyConditionExpression: 'pk = :pk' },
          ExpressionAttributeValues: { ':pk': { S: 'a' } },
        }),
      );
      assert.equal(Items?.length, 1);
    }
    await eventually(async () => {
      const files = await readdir(join(directory.path, 'level'), { withFileTypes: true });
      const sizes = files.map(async ({ name }) => (await stat(join(directory.path, 'level', name))).size);
      const bytes = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
      // Of the 25 MB that were written; LevelDB gathers 4 MB, twice, before it sorts them out.
      assert.ok(bytes < 12_000_000, `${bytes} bytes`);
    });
  });

  it('is ready for items and its index when it has started', async () => {
    await using table = await startLocalTable({ dataDir: null, tableName, definition });
    using client = clientOf(table.endpoint);
    await client.send(put('a'));
    const { Items } = await client.send(
      new QueryCommand({
        TableName: tableName,
        IndexName: 'services',
        KeyConditionExpression: 'gpk = :c',
        ExpressionAttributeValues: { ':c': { S: 'prod' } },
      }),
    );
    assert.deepEqual(
      Items?.map((item) => item.gsk?.S),
      ['a'],
    );
    const { Table } = await client.send(new DescribeTableCommand({ TableName: table.tableName }));
    assert.equal(Table?.BillingModeSummary?.BillingMode, 'PAY_PER_REQUEST');
  });

  it('in a directory is found again', async () => {
    await using directory = await temporaryDirectory();
    for (const round of [1, 2]) {
      await using table = await startLocalTable({ dataDir: directory.path, tableName, definition });
      using client = clientOf(table.endpoint);
      const { Item } = await client.send(get('a'));
      assert.equal(Item?.pk?.S, round === 1 ? undefined : 'a');
      await client.send(put('a'));
    }
  });

  it('loses no answered write when it is killed', async () => {
    await using directory = await temporaryDirectory();
    const answered: string[] = [];
    {
      await using child = await startChild(server, directory.path);
      using client = clientOf(child.line);
      const send = async (i: number) => {
        await client.send(put(`s${i}`));
        answered.push(`s${i}`);
        if (answered.length === 60) child.kill();
      };
      await Promise.allSettled(Array.from({ length: 120 }, (_, i) => send(i)));
      await child.ended;
    }
    await using table = await startLocalTable({ dataDir: directory.path, tableName, definition });
    using client = clientOf(table.endpoint);
    const found = await Promise.all(answered.map((pk) => client.send(get(pk))));
    assert.ok(answered.length >= 60);
    assert.deepEqual(
      found.map(({ Item }) => Item?.pk?.S),
      answered,
    );
  });

  it('of another process is refused with one error that names the directory', async () => {
    await using directory = await temporaryDirectory();
    await using child = await startChild(server, directory.path);
    await assert.rejects(startLocalTable({ dataDir: directory.path, tableName, definition }), {
      name: 'DirectoryInUseError',
      message: `${directory.path} is in use by process ${child.pid}: end that process, or choose another directory`,
    });
    using client = clientOf(child.line);
    await client.send(put('a'));
  });

  it('that was killed while it was made is made anew', async () => {
    await using directory = await temporaryDirectory();
    {
      await using child = await startChild(
        `import dynalite from '${import.meta.resolve('dynalite')}';
         import { CreateTableCommand, DynamoDBClient } from '${import.meta.resolve('@aws-sdk/client-dynamodb')}';
         const server = dynalite({ path: process.argv[1] + '/level', createTableMs: 1e9 });
         server.listen(0, '127.0.0.1', async () => {
           const endpoint = 'http://127.0.0.1:' + server.address().port;
           const credentials = { accessKeyId: 'a', secretAccessKey: 'b' };
           const client = new DynamoDBClient({ endpoint, region: 'us-east-1', credentials });
           await client.send(new CreateTableCommand({ TableName: 'state', ...${JSON.stringify(definition)} }));
           console.log('half made');
         });`,
        directory.path,
      );
      assert.equal(child.line, 'half made');
    }
    await using table = await startLocalTable({ dataDir: directory.path, tableName, definition });
    using client = clientOf(table.endpoint);
    await client.send(put('a'));
  });

  it('of another definition is refused, the same in another order is not', async () => {
    await using directory = await temporaryDirectory();
    const dataDir = directory.path;
    await (await startLocalTable({ dataDir, tableName, definition }))[Symbol.asyncDispose]();
    const [index] = definition.GlobalSecondaryIndexes ?? [];
    const reordered: TableDefinition = {
      ...definition,
      AttributeDefinitions: definition.AttributeDefinitions.toReversed(),
      GlobalSecondaryIndexes: [
        { ...index, Projection: { ProjectionType: 'INCLUDE', NonKeyAttributes: ['changedAt', 'summary'] } },
      ] as NonNullable<TableDefinition['GlobalSecondaryIndexes']>,
    };
    await (await startLocalTable({ dataDir, tableName, definition: reordered }))[Symbol.asyncDispose]();
    const { GlobalSecondaryIndexes: _, ...plain } = definition;
    const other = { ...plain, AttributeDefinitions: plain.AttributeDefinitions.slice(0, 2) };
    await assert.rejects(startLocalTable({ dataDir, tableName, definition: other }), {
      message: `${dataDir} holds a table of another definition: move it away to begin anew`,
    });
    // The refusal let go of the directory.
    await (await startLocalTable({ dataDir, tableName, definition }))[Symbol.asyncDispose]();
  });

  it('lets no web page in', async () => {
    await using table = await startLocalTable({ dataDir: null, tableName, definition });
    for (const headers of [{ origin: 'http://evil.example' }, { host: 'evil.example' }])
      for (const method of ['OPTIONS', 'POST', 'GET']) {
        const request = httpRequest(table.endpoint, { method, headers });
        request.end();
        const [response] = await once(request, 'response');
        response.resume();
        assert.equal(response.statusCode, 403);
        assert.equal(response.headers['access-control-allow-origin'], undefined);
      }
  });

  it('survives clients that hang up', async () => {
    await using table = await startLocalTable({ dataDir: null, tableName, definition });
    using client = clientOf(table.endpoint);
    const port = Number(new URL(table.endpoint).port);
    const body = '{"TableName":"state","Key":{"pk":{"S":"a"},"sk":{"S":"HEAD"}}}';
    const head = `POST / HTTP/1.1\r\nhost: 127.0.0.1\r\nx-amz-target: DynamoDB_20120810.GetItem\r\n`;
    for (const rest of [
      'content-length: 500\r\n\r\n{"half',
      `content-length: ${body.length}\r\n\r\n${body}`,
    ]) {
      const socket = connect(port, '127.0.0.1');
      await once(socket, 'connect');
      socket.write(head + rest, () => socket.resetAndDestroy());
      await once(socket, 'close');
    }
    const aborted = new AbortController();
    const sent = client.send(put('a'), { abortSignal: aborted.signal });
    setImmediate(() => aborted.abort());
    await Promise.allSettled([sent]);
    for (let i = 0; i < 20; i++) await client.send(put('b'));
  });

  it('ends with a request under way, although its client keeps the connection', async () => {
    const table = await startLocalTable({ dataDir: null, tableName, definition });
    using client = clientOf(table.endpoint);
    await client.send(put('a'));
    const sent = client.send(
      new UpdateItemCommand({
        TableName: tableName,
        Key: { pk: { S: 'a' }, sk: { S: 'HEAD' } },
        UpdateExpression: 'SET summary = :s',
        ExpressionAttributeValues: { ':s': { S: 'y' } },
      }),
    );
    await Promise.allSettled([sent, table[Symbol.asyncDispose]()]);
  });
});
