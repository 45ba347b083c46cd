import { randomBytes } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import {
  type AttributeValue,
  BatchGetItemCommand,
  ConditionalCheckFailedException,
  DeleteItemCommand,
  type DynamoDBClient,
  GetItemCommand,
  PutItemCommand,
  type PutItemCommandInput,
  QueryCommand,
  type QueryCommandInput,
  UpdateItemCommand,
  type UpdateItemCommandInput,
} from '@aws-sdk/client-dynamodb';
import type { PortId } from '../../core/service-port.ts';
import type { Clock, EpochMs } from '../../core/time.ts';
import { packCluster } from './cluster-item.ts';
import {
  fromHeadItem,
  fromListItem,
  HEAD,
  type Item,
  listRange,
  packEntry,
  toHeadItem,
} from './head-item.ts';
import { createRetry, pauseMs, type Retry, type Try } from './retry.ts';
import {
  type ChunkName,
  type ClusterRecord,
  type CommitOutcome,
  type DeadLetter,
  type DeltaEntry,
  type Fence,
  type Garbage,
  type Head,
  type Receipt,
  type ServiceKey,
  type ServiceRange,
  type ServiceSummary,
  type Store,
  type StoredBody,
  StoreUnavailableError,
  type Subscription,
  type SweepMemory,
} from './store.ts';
import {
  BODY,
  BYTES,
  bodySk,
  bytesOf,
  CHUNK,
  CLUSTER,
  CLUSTERS_PK,
  chunkOf,
  DEAD_LETTERS_PK,
  deadLetterKey,
  ENTRY,
  HEAD_SK,
  HOLDER,
  INDEX,
  IS_DEAD,
  keyOf,
  LEASE_KEY,
  MADE_AT,
  MEMORY,
  MS_PER_SECOND,
  madeAt,
  PK,
  PORT,
  pkOf,
  receiptSk,
  SK,
  SUBSCRIPTIONS_PK,
  skOf,
  subscriptionKey,
  TTL,
  toChunks,
  toCluster,
  toDeadLetter,
  toReceipt,
  toSubscription,
  UNTIL,
} from './table-items.ts';

export interface DynamoStoreOptions {
  /** From `createDynamoClient`: one that retries by itself would not see the fence, though a try ends in time. */
  readonly client: DynamoDBClient;
  readonly tableName: string;
  readonly clock: Clock;
  /** Waits for so many milliseconds before another try. */
  readonly pause?: (ms: number) => Promise<void>;
}

/** The store in one DynamoDB table, without transactions or streams (P7); which items are there: see `table-items.ts`. */
export function createDynamoStore(options: DynamoStoreOptions): Store {
  return new DynamoStore(options);
}

/** Source: BatchGetItem. */
const MAX_BATCH_KEYS = 100;
/** Answers in a row that got nothing of what a batch still lacks. */
const MAX_IDLE_BATCHES = 5;
/** Deletions at a time. */
const MAX_PARALLEL = 16;
const BY_BYTES = 8;

type Condition = Pick<
  PutItemCommandInput,
  'ConditionExpression' | 'ExpressionAttributeNames' | 'ExpressionAttributeValues'
>;
const IS_NEW: Condition = {
  ConditionExpression: 'attribute_not_exists(#pk)',
  ExpressionAttributeNames: { '#pk': PK },
};
const IS_THERE: Condition = {
  ConditionExpression: 'attribute_exists(#pk)',
  ExpressionAttributeNames: { '#pk': PK },
};
const IS_LASTING: Condition = {
  ConditionExpression: 'attribute_exists(#pk) AND attribute_not_exists(#ttl)',
  ExpressionAttributeNames: { '#pk': PK, '#ttl': TTL },
};

class DynamoStore implements Store {
  private readonly client: DynamoDBClient;
  private readonly tableName: string;
  private readonly clock: Clock;
  private readonly pause: (ms: number) => Promise<void>;
  private readonly retry: Retry;

  constructor({ client, tableName, clock, pause = wait }: DynamoStoreOptions) {
    this.client = client;
    this.tableName = tableName;
    this.clock = clock;
    this.pause = pause;
    this.retry = createRetry({ clock, pause });
  }

  async getHead(key: ServiceKey): Promise<Head | null> {
    const item = await this.get(keyOf(key, HEAD_SK));
    return item === null ? null : fromHeadItem(key, item);
  }

  async getChunks(key: ServiceKey, names: readonly ChunkName[]): Promise<Map<ChunkName, Uint8Array>> {
    const sks = names.map((name) => `${CHUNK}${name}`);
    const items = await this.batchGet(key, sks, { isConsistent: true, attributes: [BYTES] });
    return toChunks(items);
  }

  async queryChunks(key: ServiceKey): Promise<Map<ChunkName, Uint8Array>> {
    return toChunks(await this.queryPrefix(key, CHUNK, [BYTES]));
  }

  async putChunk(key: ServiceKey, name: ChunkName, bytes: Uint8Array): Promise<void> {
    const primary = keyOf(key, `${CHUNK}${name}`);
    const isNew = await this.put(
      { ...primary, [BYTES]: { B: bytes }, [MADE_AT]: { N: `${this.clock.now()}` } },
      IS_NEW,
    );
    if (isNew) return;
    // An earlier try may have succeeded without an answer.
    const stored = (await this.get(primary))?.[BYTES]?.B;
    if (stored === undefined || Buffer.compare(stored, bytes) !== 0) {
      throw new StoreUnavailableError(`the random name of chunk ${name} is in use`);
    }
  }

  async putBody(key: ServiceKey, name: string, part: number, bytes: Uint8Array): Promise<void> {
    const primary = keyOf(key, bodySk(name, part));
    await this.put({ ...primary, [BYTES]: { B: bytes }, [MADE_AT]: { N: `${this.clock.now()}` } });
  }

  async getBody(key: ServiceKey, name: string, parts: number): Promise<Uint8Array | null> {
    const sks = Array.from({ length: parts }, (_, part) => bodySk(name, part));
    const items = await this.batchGet(key, sks, { isConsistent: true, attributes: [BYTES, TTL] });
    const pieces = new Map(items.filter((item) => !this.isExpired(item)).map((item) => [skOf(item), item]));
    if (pieces.size < parts) return null;
    return Buffer.concat(sks.map((sk) => bytesOf(pieces.get(sk))));
  }

  async commit(key: ServiceKey, head: Head, fence: Fence): Promise<CommitOutcome> {
    const by = randomBytes(BY_BYTES);
    const primary = keyOf(key, HEAD_SK);
    const isFirst = head.version === 1;
    const input: UpdateItemCommandInput = {
      TableName: this.tableName,
      Key: primary,
      ...replaceAttributes(toHeadItem(key, head, by)),
      ConditionExpression: isFirst ? 'attribute_not_exists(#v)' : '#v = :former',
      ReturnValuesOnConditionCheckFailure: 'ALL_OLD',
    };
    if (!isFirst) {
      input.ExpressionAttributeValues = {
        ...input.ExpressionAttributeValues,
        ':former': { N: `${head.version - 1}` },
      };
    }
    try {
      await this.retry((options) => this.client.send(new UpdateItemCommand(input), options), fence);
      return { kind: 'committed' };
    } catch (error) {
      if (!(error instanceof ConditionalCheckFailedException)) throw error;
      // A try whose answer got lost may have succeeded: then the condition fails because of ourselves.
      const stored = error.Item ?? (await this.get(primary));
      const isOurs = Buffer.compare(stored?.[HEAD.by]?.B ?? new Uint8Array(), by) === 0;
      return { kind: isOurs ? 'committed' : 'conflict' };
    }
  }

  /** Eventually consistent, at half the price: a receipt that is missed yet only causes a duplicate on the bus. */
  async findReceipts(key: ServiceKey, entries: readonly DeltaEntry[]): Promise<Set<DeltaEntry>> {
    const sks = entries.map(({ port, sequence }) => receiptSk(port, sequence));
    const items = await this.batchGet(key, sks, { isConsistent: false, attributes: [] });
    const found = new Set(items.map(skOf));
    return new Set(entries.filter((_, index) => found.has(sks[index] ?? '')));
  }

  async putReceipt(key: ServiceKey, { entry, expiresAt, isDead }: Receipt): Promise<void> {
    const ttl = { N: `${Math.ceil(expiresAt / MS_PER_SECOND)}` };
    if (entry.body.kind === 'stored') {
      const { name, parts } = entry.body;
      const sks = Array.from({ length: parts }, (_, part) => bodySk(name, part));
      await Promise.all(sks.map((sk) => this.expire(keyOf(key, sk), ttl)));
    }
    if (isDead) await this.put({ ...deadLetterKey({ key, ...entry }), [TTL]: ttl });
    await this.put({
      ...keyOf(key, receiptSk(entry.port, entry.sequence)),
      [ENTRY]: packEntry(entry),
      [TTL]: ttl,
      ...(isDead && { [IS_DEAD]: { BOOL: true } }),
    });
  }

  async getReceipt(
    key: ServiceKey,
    { port, sequence }: Pick<DeltaEntry, 'port' | 'sequence'>,
  ): Promise<Receipt | null> {
    const item = await this.get(keyOf(key, receiptSk(port, sequence)));
    return item === null || this.isExpired(item) ? null : toReceipt(item);
  }

  async listDeadLetters(limit: number): Promise<DeadLetter[]> {
    const pages = this.query({
      KeyConditionExpression: '#pk = :pk',
      ExpressionAttributeNames: { '#pk': PK },
      ExpressionAttributeValues: { ':pk': { S: DEAD_LETTERS_PK } },
      Limit: limit,
    });
    const letters: DeadLetter[] = [];
    for await (const items of pages) {
      for (const item of items) {
        if (!this.isExpired(item)) letters.push(toDeadLetter(skOf(item)));
        if (letters.length === limit) return letters;
      }
    }
    return letters;
  }

  async deleteDeadLetter(letter: DeadLetter): Promise<void> {
    await this.deleteAll([deadLetterKey(letter)], IS_THERE);
  }

  /**
   * Strongly consistent: who reads HEAD first, and finds a delta there no more, must find its receipt here, else the
   * history would have a hole.
   */
  async listReceipts(key: ServiceKey, port: PortId, after: number, limit: number): Promise<Receipt[]> {
    const pages = this.query({
      KeyConditionExpression: '#pk = :pk AND #sk BETWEEN :first AND :last',
      ExpressionAttributeNames: { '#pk': PK, '#sk': SK },
      ExpressionAttributeValues: {
        ':pk': { S: pkOf(key) },
        ':first': { S: receiptSk(port, after + 1) },
        ':last': { S: receiptSk(port, Number.MAX_SAFE_INTEGER) },
      },
      ConsistentRead: true,
      Limit: limit,
    });
    const receipts: Receipt[] = [];
    for await (const items of pages) {
      for (const item of items) {
        if (!this.isExpired(item)) receipts.push(toReceipt(item));
        if (receipts.length === limit) return receipts;
      }
    }
    return receipts;
  }

  async *listServices(cluster: string, range: ServiceRange): AsyncIterable<readonly ServiceSummary[]> {
    const { first, last } = listRange(range);
    if (first > last) return;
    const pages = this.query({
      IndexName: INDEX,
      KeyConditionExpression: '#c = :c AND #n BETWEEN :first AND :last',
      ExpressionAttributeNames: { '#c': HEAD.cluster, '#n': HEAD.name },
      ExpressionAttributeValues: { ':c': { S: cluster }, ':first': { S: first }, ':last': { S: last } },
    });
    for await (const items of pages) if (items.length > 0) yield items.map(fromListItem);
  }

  async getCluster(name: string): Promise<ClusterRecord | null> {
    const item = await this.get({ [PK]: { S: CLUSTERS_PK }, [SK]: { S: name } });
    return item === null ? null : toCluster(item);
  }

  async listClusters(): Promise<ClusterRecord[]> {
    const pages = this.query({
      KeyConditionExpression: '#pk = :pk',
      ExpressionAttributeNames: { '#pk': PK },
      ExpressionAttributeValues: { ':pk': { S: CLUSTERS_PK } },
    });
    const clusters: ClusterRecord[] = [];
    for await (const items of pages) clusters.push(...items.map(toCluster));
    return clusters;
  }

  async putCluster(record: ClusterRecord, expected: ClusterRecord | null): Promise<boolean> {
    const primary = { [PK]: { S: CLUSTERS_PK }, [SK]: { S: record.name } };
    const text = packCluster(record);
    const isPut = await this.put(
      { ...primary, [CLUSTER]: { S: text } },
      expected === null
        ? IS_NEW
        : {
            ConditionExpression: '#r = :expected',
            ExpressionAttributeNames: { '#r': CLUSTER },
            ExpressionAttributeValues: { ':expected': { S: packCluster(expected) } },
          },
    );
    // An earlier try may have succeeded without an answer.
    return isPut || (await this.get(primary))?.[CLUSTER]?.S === text;
  }

  async putSubscription({ key, id, port, until }: Subscription): Promise<void> {
    await this.put({
      ...subscriptionKey(key, id),
      [PORT]: { S: port },
      [UNTIL]: { N: `${until}` },
      [TTL]: { N: `${Math.ceil(until / MS_PER_SECOND)}` },
    });
  }

  async getSubscription(key: ServiceKey, id: string): Promise<Subscription | null> {
    const item = await this.get(subscriptionKey(key, id));
    const subscription = item === null ? null : toSubscription(item);
    return subscription !== null && subscription.until > this.clock.now() ? subscription : null;
  }

  async *listSubscriptions(key: ServiceKey | null): AsyncIterable<readonly Subscription[]> {
    const pages = this.query({
      KeyConditionExpression: key === null ? '#pk = :pk' : '#pk = :pk AND begins_with(#sk, :service)',
      ExpressionAttributeNames: { '#pk': PK, ...(key !== null && { '#sk': SK }) },
      ExpressionAttributeValues: {
        ':pk': { S: SUBSCRIPTIONS_PK },
        ...(key !== null && { ':service': { S: `${pkOf(key)}#` } }),
      },
    });
    for await (const items of pages) if (items.length > 0) yield items.map(toSubscription);
  }

  async deleteSubscription(key: ServiceKey, id: string, endedBy: EpochMs | null): Promise<boolean> {
    const hasEnded: Condition = {
      ConditionExpression: '#u <= :now',
      ExpressionAttributeNames: { '#u': UNTIL },
      ExpressionAttributeValues: { ':now': { N: `${endedBy}` } },
    };
    return (await this.deleteAll([subscriptionKey(key, id)], endedBy === null ? IS_THERE : hasEnded)) === 1;
  }

  async deleteChunks(key: ServiceKey, names: readonly ChunkName[]): Promise<number> {
    return this.deleteAll(
      names.map((name) => keyOf(key, `${CHUNK}${name}`)),
      IS_THERE,
    );
  }

  async listLeftovers(key: ServiceKey): Promise<{ chunks: Garbage[]; bodies: StoredBody[] }> {
    const chunks = await this.queryPrefix(key, CHUNK, [MADE_AT]);
    const pieces = await this.queryPrefix(key, BODY, [MADE_AT, TTL]);
    const lasting = pieces.filter((item) => item[TTL] === undefined);
    const bodies = Map.groupBy(lasting, (item) => skOf(item).split('#')[1] ?? '');
    return {
      chunks: chunks.map((item) => ({ chunk: chunkOf(item), at: madeAt(item) })),
      bodies: [...bodies].map(([name, items]) => ({
        name,
        // A crash may have left a later piece without a former one.
        parts: Math.max(...items.map((item) => Number(skOf(item).split('#')[2]))) + 1,
        at: Math.max(...items.map(madeAt)) as EpochMs,
      })),
    };
  }

  async deleteBody(key: ServiceKey, { name, parts }: StoredBody): Promise<number> {
    return this.deleteAll(
      Array.from({ length: parts }, (_, part) => keyOf(key, bodySk(name, part))),
      IS_LASTING,
    );
  }

  async takeLease(holder: string, until: EpochMs, now: EpochMs): Promise<SweepMemory | null> {
    const item = await this.updateLease({
      UpdateExpression: 'SET #h = :h, #u = :u',
      ConditionExpression: 'attribute_not_exists(#h) OR #h = :h OR #u <= :now',
      ExpressionAttributeNames: { '#h': HOLDER, '#u': UNTIL },
      ExpressionAttributeValues: {
        ':h': { S: holder },
        ':u': { N: `${until}` },
        ':now': { N: `${now}` },
      },
    });
    if (item === null) return null;
    const memory = item[MEMORY]?.S;
    return memory === undefined ? { lastPass: null, lastVisit: null } : (JSON.parse(memory) as SweepMemory);
  }

  async releaseLease(holder: string, { lastPass, lastVisit }: SweepMemory): Promise<void> {
    await this.updateLease({
      UpdateExpression: 'SET #m = :m REMOVE #h, #u',
      ConditionExpression: '#h = :h',
      ExpressionAttributeNames: { '#h': HOLDER, '#u': UNTIL, '#m': MEMORY },
      ExpressionAttributeValues: {
        ':h': { S: holder },
        ':m': { S: JSON.stringify({ lastPass, lastVisit }) },
      },
    });
  }

  /** The lease item afterwards; null when the condition fails. */
  private async updateLease(
    update: Omit<UpdateItemCommandInput, 'TableName' | 'Key' | 'ReturnValues'>,
  ): Promise<Item | null> {
    return this.ifConditionHolds(async (options) => {
      const input = {
        TableName: this.tableName,
        Key: LEASE_KEY,
        ReturnValues: 'ALL_NEW',
        ...update,
      } as const;
      return (await this.client.send(new UpdateItemCommand(input), options)).Attributes ?? {};
    });
  }

  /** Gives an item its expiry; one that is gone stays gone. */
  private async expire(primary: Item, ttl: AttributeValue): Promise<void> {
    const input = {
      TableName: this.tableName,
      Key: primary,
      UpdateExpression: 'SET #ttl = :ttl',
      ConditionExpression: 'attribute_exists(#pk)',
      ExpressionAttributeNames: { '#pk': PK, '#ttl': TTL },
      ExpressionAttributeValues: { ':ttl': ttl },
    };
    await this.ifConditionHolds((options) => this.client.send(new UpdateItemCommand(input), options));
  }

  /** Reads an item, strongly consistent. */
  private async get(primary: Item): Promise<Item | null> {
    const input = { TableName: this.tableName, Key: primary, ConsistentRead: true };
    const { Item: item } = await this.retry((options) =>
      this.client.send(new GetItemCommand(input), options),
    );
    return item ?? null;
  }

  /** Answers false when the condition does not hold. */
  private async put(item: Item, condition: Condition = {}): Promise<boolean> {
    const input = { TableName: this.tableName, Item: item, ...condition };
    const answer = await this.ifConditionHolds((options) =>
      this.client.send(new PutItemCommand(input), options),
    );
    return answer !== null;
  }

  /** Answers how many were deleted; one for which the condition does not hold was not. */
  private async deleteAll(keys: readonly Item[], condition: Condition): Promise<number> {
    let deleted = 0;
    for (let start = 0; start < keys.length; start += MAX_PARALLEL) {
      const answers = await Promise.all(
        keys.slice(start, start + MAX_PARALLEL).map((primary) => {
          const input = { TableName: this.tableName, Key: primary, ...condition };
          return this.ifConditionHolds((options) => this.client.send(new DeleteItemCommand(input), options));
        }),
      );
      deleted += answers.filter((answer) => answer !== null).length;
    }
    return deleted;
  }

  private async ifConditionHolds<T>(attempt: Try<T>): Promise<T | null> {
    try {
      return await this.retry(attempt);
    } catch (error) {
      if (error instanceof ConditionalCheckFailedException) return null;
      throw error;
    }
  }

  private async queryPrefix(key: ServiceKey, prefix: string, attributes: readonly string[]): Promise<Item[]> {
    const projection = project([SK, ...attributes]);
    const pages = this.query({
      KeyConditionExpression: '#pk = :pk AND begins_with(#sk, :prefix)',
      ...projection,
      ExpressionAttributeNames: { ...projection.ExpressionAttributeNames, '#pk': PK },
      ExpressionAttributeValues: { ':pk': { S: pkOf(key) }, ':prefix': { S: prefix } },
    });
    const found: Item[] = [];
    for await (const items of pages) found.push(...items);
    return found;
  }

  private async *query(input: Omit<QueryCommandInput, 'TableName'>): AsyncIterable<Item[]> {
    let start: Item | undefined;
    do {
      const page = { TableName: this.tableName, ...input, ...(start && { ExclusiveStartKey: start }) };
      const answer = await this.retry((options) => this.client.send(new QueryCommand(page), options));
      yield answer.Items ?? [];
      start = answer.LastEvaluatedKey;
    } while (start !== undefined);
  }

  /** Items of a service that are there, in any order. An answer may leave some for the next call. */
  private async batchGet(
    key: ServiceKey,
    sks: readonly string[],
    { isConsistent, attributes }: { readonly isConsistent: boolean; readonly attributes: readonly string[] },
  ): Promise<Item[]> {
    const wanted = [...new Set(sks)];
    const found: Item[] = [];
    for (let start = 0; start < wanted.length; start += MAX_BATCH_KEYS) {
      let keys = wanted.slice(start, start + MAX_BATCH_KEYS).map((sk) => keyOf(key, sk));
      let idle = 0;
      while (keys.length > 0) {
        if (idle > 0) await this.pause(pauseMs(idle));
        const request = { Keys: keys, ConsistentRead: isConsistent, ...project([SK, ...attributes]) };
        const input = { RequestItems: { [this.tableName]: request } };
        const answer = await this.retry((options) =>
          this.client.send(new BatchGetItemCommand(input), options),
        );
        found.push(...(answer.Responses?.[this.tableName] ?? []));
        const rest = answer.UnprocessedKeys?.[this.tableName]?.Keys ?? [];
        idle = rest.length < keys.length ? 0 : idle + 1;
        if (idle === MAX_IDLE_BATCHES) throw new StoreUnavailableError('DynamoDB leaves keys unprocessed');
        keys = rest;
      }
    }
    return found;
  }

  private isExpired(item: Item): boolean {
    const ttl = item[TTL]?.N;
    return ttl !== undefined && Number(ttl) * MS_PER_SECOND <= this.clock.now();
  }
}

/** Names attributes to read; each under an alias, since many words are reserved. */
function project(attributes: readonly string[]) {
  return {
    ProjectionExpression: attributes.map((attribute) => `#${attribute}`).join(', '),
    ExpressionAttributeNames: Object.fromEntries(attributes.map((attribute) => [`#${attribute}`, attribute])),
  };
}

/** Sets the attributes of a HEAD that are there, and removes the others. */
function replaceAttributes(item: Item) {
  const names = Object.values(HEAD);
  const sets = Object.keys(item).map((name) => `#${name} = :${name}`);
  const removes = names.filter((name) => item[name] === undefined).map((name) => `#${name}`);
  return {
    UpdateExpression: `SET ${sets.join(', ')}${removes.length > 0 ? ` REMOVE ${removes.join(', ')}` : ''}`,
    ExpressionAttributeNames: Object.fromEntries(names.map((name) => [`#${name}`, name])),
    ExpressionAttributeValues: Object.fromEntries(
      Object.entries(item).map(([name, value]) => [`:${name}`, value]),
    ),
  };
}
