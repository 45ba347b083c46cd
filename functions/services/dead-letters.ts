import { deltaId } from '../../wire/delta.ts';
import { toBusEntries } from '../bus/delta-events.ts';
import { unpackDelta } from '../store/delta-entry.ts';
import type { DeadLetter } from '../store/store.ts';
import { bytesOf, type Publisher } from './publication.ts';
import { serviceId } from './service-cache.ts';

/** Dead letters of one replay; what is more waits for the next. */
export const MAX_REPLAYED = 10_000;

/** What a replay made of one dead letter. */
export type Replay = { readonly letter: DeadLetter } & (
  | { readonly kind: 'published' }
  /** To be published, were this no rehearsal. */
  | { readonly kind: 'due' }
  /** By the bus, with its word for it; it stays a dead letter. */
  | { readonly kind: 'refused'; readonly code: string }
  /** One before it in its port was refused for now. */
  | { readonly kind: 'held' }
  /** Somebody published it meanwhile. */
  | { readonly kind: 'settled' }
  /** Its receipt is not written yet: it is for the sweep to publish. */
  | { readonly kind: 'pending' }
  /** Its content is gone. */
  | { readonly kind: 'expired' }
);

/** Id of the delta, as it is on the bus. */
export function deadLetterId({ key, port, sequence }: DeadLetter): string {
  return deltaId(`${serviceId(key)}:${port}`, sequence);
}

/**
 * Publishes dead letters once more, with the same ids, in order of sequence within a port: the gaps that subscribers have
 * seen are filled. One that the bus takes is none any more.
 * @throws BusUnavailableError, StoreUnavailableError: those told of before are done.
 */
export async function* replayDeadLetters(
  publisher: Pick<Publisher, 'store' | 'bus' | 'maxEntryBytes'>,
  { isRehearsal }: { readonly isRehearsal: boolean },
): AsyncIterable<Replay> {
  const held = new Set<string>();
  for (const letter of await publisher.store.listDeadLetters(MAX_REPLAYED)) {
    const port = `${serviceId(letter.key)}:${letter.port}`;
    if (held.has(port)) {
      yield { letter, kind: 'held' };
      continue;
    }
    const replay = await replayOne(publisher, letter, isRehearsal);
    if (replay.kind === 'refused' && !replay.isFinal) held.add(port);
    yield replay.kind === 'refused'
      ? { letter, kind: 'refused', code: replay.code }
      : { letter, kind: replay.kind };
  }
}

type Outcome =
  | { readonly kind: Exclude<Replay['kind'], 'refused' | 'held'> }
  | { readonly kind: 'refused'; readonly code: string; readonly isFinal: boolean };

async function replayOne(
  { store, bus, maxEntryBytes }: Pick<Publisher, 'store' | 'bus' | 'maxEntryBytes'>,
  letter: DeadLetter,
  isRehearsal: boolean,
): Promise<Outcome> {
  const { key } = letter;
  const receipt = await store.getReceipt(key, letter);
  if (receipt === null) return { kind: 'pending' };
  const bytes = receipt.isDead ? await bytesOf(store, key, receipt.entry) : null;
  if (isRehearsal && bytes !== null) return { kind: 'due' };
  if (bytes !== null) {
    const results = await bus.publish(toBusEntries({ key, ...unpackDelta(bytes) }, maxEntryBytes));
    const refusals = results.filter((result) => result.kind === 'refused');
    const refusal = refusals.find(({ isFinal }) => !isFinal) ?? refusals[0];
    if (refusal !== undefined) return refusal;
    await store.putReceipt(key, { ...receipt, isDead: false });
  }
  if (!isRehearsal) await store.deleteDeadLetter(letter);
  if (bytes !== null) return { kind: 'published' };
  return { kind: receipt.isDead ? 'expired' : 'settled' };
}
