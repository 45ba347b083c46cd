import { type DetailType, SOURCE } from '../../wire/delta.ts';

/** One event, as the bus carries it. Its source is always `SOURCE`. */
export interface BusEntry {
  readonly detailType: DetailType;
  /** What the event is about; rules match on it. */
  readonly resources: readonly string[];
  /** JSON. */
  readonly detail: string;
}

/** What became of an entry. */
export type PublishResult =
  | { readonly kind: 'accepted' }
  | {
      readonly kind: 'refused';
      /** The bus's word for it, such as `ThrottlingException`. */
      readonly code: string;
      /** No later try can succeed: a dead letter. */
      readonly isFinal: boolean;
    };

/** Where deltas go: at least once, in no order. */
export interface Bus {
  /**
   * Publishes entries, however many. An accepted one is durable on the bus; what is worth another try has had some.
   * @returns one result an entry, in their order.
   * @throws BusUnavailableError when nothing is known of any of them: the bus is away, throttles or times out.
   */
  publish(entries: readonly BusEntry[]): Promise<readonly PublishResult[]>;

  /**
   * Does the bus exist? A missing one may answer success to whoever publishes.
   * @throws BusUnavailableError when that cannot be told.
   */
  describe(): Promise<boolean>;
}

/** The bus cannot answer now. Trying again later may help. */
export class BusUnavailableError extends Error {
  override readonly name = 'BusUnavailableError';
}

/** Size of an entry in bytes as the bus counts it. Source: EventBridge, PutEvents entry size. */
export function entryBytes({ detailType, resources, detail }: BusEntry): number {
  const texts = [SOURCE, detailType, detail, ...resources];
  return texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
}
