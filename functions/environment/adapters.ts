import type { Clock, EpochMs } from '../../core/time.ts';
import { createLogger, type Logger } from '../../wire/log.ts';
import type { Bus } from '../bus/bus.ts';
import { createEventBridgeBus, createEventBridgeClient } from '../bus/eventbridge-bus.ts';
import { ServiceRepository } from '../services/repository.ts';
import { createDynamoClient } from '../store/dynamodb-client.ts';
import { createDynamoStore } from '../store/dynamodb-store.ts';
import type { Store } from '../store/store.ts';
import type { Settings } from './settings.ts';

/** What deployed functions reach the world with. */
export interface Adapters {
  readonly store: Store;
  readonly bus: Bus;
  readonly repository: ServiceRepository;
  readonly clock: Clock;
  readonly log: Logger;
}

const systemClock: Clock = {
  now: () => Date.now() as EpochMs,
  monotonic: () => performance.now(),
};

/** Connects a function to its table and bus. @param name of the function, in its log lines. */
export function createAdapters(name: string, { region, tableName, busName, logLevel }: Settings): Adapters {
  const clock = systemClock;
  const store = createDynamoStore({ client: createDynamoClient({ region }), tableName, clock });
  return {
    store,
    bus: createEventBridgeBus({ client: createEventBridgeClient({ region }), busName }),
    repository: new ServiceRepository(store),
    clock,
    log: createLogger({
      level: logLevel,
      clock,
      write: (line) => void process.stdout.write(`${line}\n`),
      fields: { function: name },
    }),
  };
}
