import type { Logger } from '../../wire/log.ts';
import type { Bus } from '../bus/bus.ts';
import type { Store } from '../store/store.ts';

/** What readiness is about. */
export interface ReadinessDeps {
  readonly store: Store;
  readonly bus: Pick<Bus, 'describe'>;
  readonly log: Logger;
}

/** What keeps the function from answering or deltas from leaving, one sentence each; empty when nothing does. */
export async function findFailures({ store, bus, log }: ReadinessDeps): Promise<string[]> {
  const checks = [
    check(log, 'the table cannot be read', async () => {
      await store.listClusters();
      return [];
    }),
    check(log, 'the event bus cannot be described', async () =>
      (await bus.describe()) ? [] : ['the event bus does not exist'],
    ),
  ];
  return (await Promise.all(checks)).flat();
}

/** Turns an error into its reason: here an error is an answer. */
async function check(log: Logger, reason: string, find: () => Promise<string[]>): Promise<string[]> {
  try {
    return await find();
  } catch (error) {
    log.warn('not ready', { reason, error });
    return [reason];
  }
}
