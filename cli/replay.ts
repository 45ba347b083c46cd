import * as z from 'zod';
import type { EpochMs } from '../core/time.ts';
import { createEventBridgeBus, createEventBridgeClient } from '../functions/bus/eventbridge-bus.ts';
import {
  deadLetterId,
  MAX_REPLAYED,
  type Replay,
  replayDeadLetters,
} from '../functions/services/dead-letters.ts';
import { createDynamoClient } from '../functions/store/dynamodb-client.ts';
import { createDynamoStore } from '../functions/store/dynamodb-store.ts';
import { DEFAULT_CALL_BYTES } from '../wire/delta.ts';
import { type CommandIo, parseFlags, UsageError } from './command.ts';

export const USAGE = `usage: endpoints-watcher replay --dead-letters [flags]

Publishes once more what the bus refused for good, with the same ids, in order of sequence within a port, and takes
what the bus accepts off the list of dead letters, which are kept as long as the history. For operators: it takes AWS
credentials that may read and write the table and put events on the bus. Exit status: 0 none is left, 1 some are, 2 it
could not be done.

  --dead-letters     what is replayed
  --table NAME       the DynamoDB table (default: TABLE_NAME)
  --bus NAME         name or ARN of the event bus (default: BUS_NAME)
  --region REGION    region of both (default: AWS_REGION)
  --endpoint URL     another endpoint for both than the region's
  --dry-run          tell what would be published, and change nothing`;

const FLAGS = {
  'dead-letters': { type: 'boolean' },
  table: { type: 'string' },
  bus: { type: 'string' },
  region: { type: 'string' },
  endpoint: { type: 'string' },
  'dry-run': { type: 'boolean' },
} as const;

const name = (what: string) => z.string().min(1, `must name ${what}`).optional();
const flagValues = z.object({
  'dead-letters': z.literal(true, 'must be given: nothing else can be replayed'),
  table: name('a DynamoDB table'),
  bus: name('an event bus'),
  region: name('a region'),
  endpoint: z.url({ protocol: /^https?$/, error: 'must be an http or https URL' }).optional(),
  'dry-run': z.boolean().default(false),
});

export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  const flags = parseFlags(args, FLAGS, flagValues);
  const isRehearsal = flags['dry-run'];
  const given = (flag: 'table' | 'bus' | 'region', variable: string): string => {
    const value = flags[flag] ?? io.env[variable];
    if (!value) throw new UsageError(`--${flag}: required, or ${variable} in the environment`);
    return value;
  };
  const tableName = given('table', 'TABLE_NAME');
  const busName = given('bus', 'BUS_NAME');
  const region = given('region', 'AWS_REGION');
  const { endpoint } = flags;
  const connection = { region, ...(endpoint !== undefined && { endpoint }) };
  await using opened = new AsyncDisposableStack();
  const dynamo = opened.adopt(createDynamoClient(connection), (client) => client.destroy());
  const eventBridge = opened.adopt(createEventBridgeClient(connection), (client) => client.destroy());
  const clock = { now: () => Date.now() as EpochMs, monotonic: () => performance.now() };
  const publisher = {
    store: createDynamoStore({ client: dynamo, tableName, clock }),
    bus: createEventBridgeBus({ client: eventBridge, busName }),
    maxEntryBytes: DEFAULT_CALL_BYTES,
  };
  let told = 0;
  let left = 0;
  for await (const replay of replayDeadLetters(publisher, { isRehearsal })) {
    io.out(`${deadLetterId(replay.letter)}: ${describe(replay)}`);
    told++;
    if (['refused', 'held', 'pending', 'due'].includes(replay.kind)) left++;
    if (io.signal.aborted) throw new Error('interrupted');
  }
  if (told === 0) io.out('there are no dead letters');
  if (told === MAX_REPLAYED) io.err(`there may be more than these ${MAX_REPLAYED}: replay again`);
  return left === 0 && told < MAX_REPLAYED ? 0 : 1;
}

function describe(replay: Replay): string {
  switch (replay.kind) {
    case 'published':
      return 'published';
    case 'due':
      return 'would be published';
    case 'refused':
      return `refused again: ${replay.code}`;
    case 'held':
      return 'left alone, since one before it was refused';
    case 'settled':
      return 'was published meanwhile';
    case 'pending':
      return 'is not given up yet: the next sweep publishes it';
    case 'expired':
      return 'expired: nothing is left to publish';
    default:
      return replay satisfies never;
  }
}
