import { rmSync } from 'node:fs';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import {
  type AttributeDefinition,
  type AttributeValue,
  type BillingMode,
  ConditionalCheckFailedException,
  CreateTableCommand,
  DeleteItemCommand,
  DescribeTableCommand,
  DynamoDBClient,
  type GlobalSecondaryIndex,
  type KeySchemaElement,
  ResourceNotFoundException,
  ScanCommand,
  type TableDescription,
} from '@aws-sdk/client-dynamodb';
import { AbstractKeyIterator, AbstractValueIterator } from 'abstract-level';
import dynalite from 'dynalite';
import { lockDirectory } from './directory-lock.ts';
import { isLoopbackHost, listenOnLoopback } from './loopback.ts';

/** The part of an `AWS::DynamoDB::Table`'s properties that dynalite knows; other properties may be there and are ignored. */
export interface TableDefinition {
  readonly KeySchema: readonly KeySchemaElement[];
  readonly AttributeDefinitions: readonly AttributeDefinition[];
  readonly GlobalSecondaryIndexes?: readonly GlobalSecondaryIndex[];
  readonly BillingMode?: BillingMode;
}

export interface LocalTableOptions {
  /** Directory of the table, found again; each answered write survives a kill. null keeps it in memory. */
  readonly dataDir: string | null;
  readonly tableName: string;
  readonly definition: TableDefinition;
}

/** An embedded DynamoDB with one table in it. */
export interface LocalTable extends AsyncDisposable {
  /** The SDK's `endpoint`. Any region and credentials will do. */
  readonly endpoint: string;
  readonly tableName: string;
  /**
   * Deletes what has expired among the next items, as DynamoDB does by itself and dynalite never; after the last item it
   * begins anew. Answers how many went.
   * @param limit items that it looks at.
   */
  removeExpired(now: number, limit?: number): Promise<number>;
}

/**
 * dynalite 4 closes an iterator of its database by `return()`, which these do not have: each query would leave one open,
 * and nothing that it could still see would ever be freed, on disk or in memory.
 */
for (const { prototype } of [AbstractKeyIterator, AbstractValueIterator])
  Object.assign(prototype, {
    return(this: AbstractKeyIterator<unknown, unknown>) {
      return this.close();
    },
  });

/** The attribute by which items expire, in seconds. */
const TTL = 'ttl';
/** Items that one call looks at: a second's work, should all have expired. */
const MAX_LOOKED_AT = 1000;
const MS_PER_SECOND = 1000;

/**
 * Starts dynalite on a free port of 127.0.0.1, and makes the table when it is not there yet.
 * @throws DirectoryInUseError when another process has the directory; Error when its table has another definition.
 */
export async function startLocalTable(options: LocalTableOptions): Promise<LocalTable> {
  const { dataDir, tableName, definition } = options;
  await using opened = new AsyncDisposableStack();
  if (dataDir !== null) opened.use(lockDirectory(dataDir));
  const path = dataDir === null ? null : join(dataDir, 'level');

  let dynamo = await startDynalite(path);
  let existing = await describeTable(dynamo.client, tableName);
  if (path !== null && existing !== null && existing.TableStatus !== 'ACTIVE') {
    // Killed while it made the table, which dynalite never finishes: nothing can be in it.
    await dynamo[Symbol.asyncDispose]();
    rmSync(path, { recursive: true });
    dynamo = await startDynalite(path);
    existing = null;
  }
  const { client, endpoint } = opened.use(dynamo);
  if (existing === null) await createTable(client, tableName, definition);
  else if (!isSameTable(existing, definition))
    throw new Error(`${dataDir} holds a table of another definition: move it away to begin anew`);

  const running = opened.move();
  return {
    endpoint,
    tableName,
    removeExpired: createExpiry(client, tableName, definition),
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

function createExpiry(
  client: DynamoDBClient,
  tableName: string,
  { KeySchema }: TableDefinition,
): LocalTable['removeExpired'] {
  const keys = KeySchema.flatMap(({ AttributeName }) => AttributeName ?? []);
  let start: Record<string, AttributeValue> | undefined;
  return async (now, limit = MAX_LOOKED_AT) => {
    const isExpired = {
      ExpressionAttributeNames: { '#ttl': TTL },
      ExpressionAttributeValues: { ':now': { N: `${Math.floor(now / MS_PER_SECOND)}` } },
    };
    const page = await client.send(
      new ScanCommand({
        ...{ TableName: tableName, Limit: limit, FilterExpression: '#ttl <= :now' },
        ...isExpired,
        ...(start !== undefined && { ExclusiveStartKey: start }),
      }),
    );
    start = page.LastEvaluatedKey;
    for (const item of page.Items ?? []) await deleteExpired(item);
    return page.Items?.length ?? 0;

    /** One that got a later end meanwhile stays. */
    async function deleteExpired(item: Record<string, AttributeValue>): Promise<void> {
      const primary = Object.fromEntries(
        keys.flatMap((key) => (item[key] === undefined ? [] : [[key, item[key]]])),
      );
      const input = { TableName: tableName, Key: primary, ConditionExpression: '#ttl <= :now', ...isExpired };
      try {
        await client.send(new DeleteItemCommand(input));
      } catch (error) {
        if (!(error instanceof ConditionalCheckFailedException)) throw error;
      }
    }
  };
}

interface Dynalite extends AsyncDisposable {
  readonly endpoint: string;
  /** For the table itself. */
  readonly client: DynamoDBClient;
}

async function startDynalite(path: string | null): Promise<Dynalite> {
  const server = dynalite({ createTableMs: 0, ...(path === null ? {} : { path }) });
  guard(server);
  const endpoint = await listenOnLoopback(server);
  const credentials = { accessKeyId: 'local', secretAccessKey: 'local' };
  const client = new DynamoDBClient({ endpoint, region: 'us-east-1', credentials });
  return {
    endpoint,
    client,
    async [Symbol.asyncDispose]() {
      client.destroy();
      await new Promise<void>((resolve, reject) => {
        server.close((error) => (error ? reject(error) : resolve()));
      });
    },
  };
}

/** Keeps from dynalite what it must not see: it lets every web page in, and a client that hangs up ends the process. */
function guard(server: Server): void {
  const handlers = server.listeners('request') as ((
    request: IncomingMessage,
    response: ServerResponse,
  ) => void)[];
  server.removeAllListeners('request');
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    if (request.headers.origin !== undefined || !isLoopbackHost(request.headers.host)) {
      response.writeHead(403, { connection: 'close' }).end();
      request.resume();
      return;
    }
    for (const handle of handlers) handle.call(server, request, response);
    request.removeAllListeners('error').on('error', () => response.destroy());
  });
}

async function createTable(client: DynamoDBClient, name: string, definition: TableDefinition): Promise<void> {
  const { KeySchema, AttributeDefinitions, GlobalSecondaryIndexes, BillingMode } = definition;
  await client.send(
    new CreateTableCommand({
      TableName: name,
      KeySchema: [...KeySchema],
      AttributeDefinitions: [...AttributeDefinitions],
      BillingMode: BillingMode ?? 'PAY_PER_REQUEST',
      ...(GlobalSecondaryIndexes && { GlobalSecondaryIndexes: [...GlobalSecondaryIndexes] }),
    }),
  );
  // Ready a tick later.
  while ((await describeTable(client, name))?.TableStatus !== 'ACTIVE');
}

async function describeTable(client: DynamoDBClient, name: string): Promise<TableDescription | null> {
  try {
    const { Table } = await client.send(new DescribeTableCommand({ TableName: name }));
    return Table ?? null;
  } catch (error) {
    if (error instanceof ResourceNotFoundException) return null;
    throw error;
  }
}

/** Whether a table found has the keys and indexes that are asked for; neither can be changed later. */
function isSameTable(table: TableDescription, definition: TableDefinition): boolean {
  return isDeepStrictEqual(shapeOf(table), shapeOf(definition));
}

function shapeOf(table: TableDescription | TableDefinition) {
  const types = new Map(table.AttributeDefinitions?.map((it) => [it.AttributeName, it.AttributeType]));
  const keysOf = (schema: readonly KeySchemaElement[] = []) =>
    schema.map(({ AttributeName, KeyType }) => [AttributeName, KeyType, types.get(AttributeName)]);
  const indexes = (table.GlobalSecondaryIndexes ?? []).map(({ IndexName, KeySchema, Projection }) => [
    IndexName,
    keysOf(KeySchema),
    Projection?.ProjectionType,
    [...(Projection?.NonKeyAttributes ?? [])].sort(),
  ]);
  return { keys: keysOf(table.KeySchema), indexes: new Set(indexes) };
}
