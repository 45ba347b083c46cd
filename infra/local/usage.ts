import type { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import type { EventBridgeClient } from '@aws-sdk/client-eventbridge';

/** Work since the start, as JSON-ready numbers. */
export interface UsageReport {
  /** Write units as answers gave them; dynalite counts no index, and no answer counts a write whose condition failed. */
  readonly writeUnits: number;
  readonly readUnits: number;
  /** DynamoDB calls by operation, such as `UpdateItem`; the SDK's retries are not counted again. */
  readonly calls: Readonly<Record<string, number>>;
  readonly putEvents: { readonly calls: number; readonly entries: number };
}

/** Counts what clients ask of DynamoDB and EventBridge. */
export interface Usage {
  /** Has a client's every answer say its units, and adds them up. */
  countTable(client: DynamoDBClient): void;
  countBus(client: EventBridgeClient): void;
  report(): UsageReport;
}

/** What an item operation's units are; only these take `ReturnConsumedCapacity`. */
const UNITS_OF: Readonly<Record<string, 'read' | 'write'>> = {
  GetItem: 'read',
  BatchGetItem: 'read',
  Query: 'read',
  Scan: 'read',
  TransactGetItems: 'read',
  PutItem: 'write',
  UpdateItem: 'write',
  DeleteItem: 'write',
  BatchWriteItem: 'write',
  TransactWriteItems: 'write',
};

/** A counter of its own for each stack. */
export function createUsage(): Usage {
  const units = { read: 0, write: 0 };
  const calls: Record<string, number> = {};
  const putEvents = { calls: 0, entries: 0 };

  return {
    countTable(client) {
      client.middlewareStack.add(
        (next, context) => async (args) => {
          const operation = operationOf(context.commandName);
          calls[operation] = (calls[operation] ?? 0) + 1;
          const kind = UNITS_OF[operation];
          if (kind === undefined) return next(args);
          const result = await next({ ...args, input: { ...args.input, ReturnConsumedCapacity: 'TOTAL' } });
          units[kind] += consumedUnits(result.output);
          return result;
        },
        { step: 'initialize', name: 'countTableUsage' },
      );
    },

    countBus(client) {
      client.middlewareStack.add(
        (next, context) => async (args) => {
          if (operationOf(context.commandName) === 'PutEvents' && 'Entries' in args.input) {
            putEvents.calls += 1;
            putEvents.entries += args.input.Entries?.length ?? 0;
          }
          return next(args);
        },
        { step: 'initialize', name: 'countBusUsage' },
      );
    },

    report() {
      return {
        writeUnits: units.write,
        readUnits: units.read,
        calls: { ...calls },
        putEvents: { ...putEvents },
      };
    },
  };
}

/** `UpdateItemCommand` is the SDK's class for UpdateItem. */
function operationOf(commandName: string | undefined): string {
  return (commandName ?? 'Unknown').replace(/Command$/, '');
}

/** The units of an answer: one table's, or a batch's list. */
function consumedUnits(output: object): number {
  const consumed = 'ConsumedCapacity' in output ? output.ConsumedCapacity : undefined;
  const tables: unknown[] = Array.isArray(consumed) ? consumed : [consumed];
  return tables.reduce<number>((sum, table) => sum + unitsOf(table), 0);
}

function unitsOf(table: unknown): number {
  if (typeof table !== 'object' || table === null || !('CapacityUnits' in table)) return 0;
  return typeof table.CapacityUnits === 'number' ? table.CapacityUnits : 0;
}
