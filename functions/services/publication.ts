import { randomBytes } from 'node:crypto';
import type { PortDelta } from '../../core/delta.ts';
import { portId } from '../../core/service-port.ts';
import type { Clock, EpochMs } from '../../core/time.ts';
import { type Bus, BusUnavailableError, type PublishResult } from '../bus/bus.ts';
import { toBusEntries } from '../bus/delta-events.ts';
import { BODY_PART_BYTES, INLINE_DELTA_BYTES, packDelta, unpackDelta } from '../store/delta-entry.ts';
import type { DeltaEntry, ServiceKey, Store } from '../store/store.ts';
import { inParallel } from './in-parallel.ts';
import type { ServiceRepository } from './repository.ts';
import { serviceId } from './service-cache.ts';

/** How long receipts, which are the history, are kept by default: 7 days, in milliseconds. */
export const DEFAULT_HISTORY_MS = 7 * 24 * 3_600_000;
/** Deltas that a head may hold beside its objects, packed together, in bytes; what is more goes into bodies. */
const MAX_INLINE_PENDING_BYTES = 64_000;
/** Ports whose receipts are put at the same time; those of one port follow each other. */
const MAX_PARALLEL_PORTS = 16;

/** What publishing needs. */
export interface Publisher {
  readonly store: Store;
  readonly bus: Bus;
  readonly repository: ServiceRepository;
  readonly clock: Clock;
  readonly historyMs: number;
  /** Largest entry that the bus takes, in bytes. */
  readonly maxEntryBytes: number;
}

/** Deltas of one service that wait for their publication, in order of commit. */
export interface Unpublished {
  readonly key: ServiceKey;
  readonly entries: readonly DeltaEntry[];
}

/** Packs new deltas for a head; what is too big for it is stored beside, before the head names it. */
export async function storeDeltas(
  store: Store,
  key: ServiceKey,
  deltas: readonly PortDelta[],
  committedAt: EpochMs,
): Promise<DeltaEntry[]> {
  const entries: DeltaEntry[] = [];
  let inlineBytes = 0;
  for (const delta of deltas) {
    const bytes = packDelta({ delta, committedAt });
    const identity = { port: portId(delta), sequence: delta.sequence };
    if (
      bytes.byteLength <= INLINE_DELTA_BYTES &&
      inlineBytes + bytes.byteLength <= MAX_INLINE_PENDING_BYTES
    ) {
      inlineBytes += bytes.byteLength;
      entries.push({ ...identity, body: { kind: 'inline', bytes } });
    } else {
      entries.push({ ...identity, body: await storeBody(store, key, bytes) });
    }
  }
  return entries;
}

async function storeBody(store: Store, key: ServiceKey, bytes: Uint8Array): Promise<DeltaEntry['body']> {
  const name = randomBytes(8).toString('hex');
  let parts = 0;
  for (let start = 0; start < bytes.byteLength; start += BODY_PART_BYTES) {
    await store.putBody(key, name, parts++, bytes.subarray(start, start + BODY_PART_BYTES));
  }
  return { kind: 'stored', name, parts };
}

interface Outgoing {
  readonly key: ServiceKey;
  readonly entry: DeltaEntry;
  /** Positions of its parts among the entries of the call. */
  readonly from: number;
  readonly to: number;
}

/**
 * Publishes deltas and puts their receipts, in order of sequence within a port: an entry is published if and only if its
 * receipt exists. Duplicates may leave after a crash; they have the same ids (P3).
 * @returns the number of deltas published.
 * @throws BusUnavailableError when at least one must wait; those before it in its port have their receipts.
 */
export async function publish(publisher: Publisher, services: readonly Unpublished[]): Promise<number> {
  const outgoing: Outgoing[] = [];
  const busEntries = [];
  for (const { key, entries } of services) {
    for (const entry of entries) {
      const bytes = await bytesOf(publisher.store, key, entry);
      if (bytes === null) {
        // A body is only given an end once the bus has taken its delta: it was published, and both have expired.
        publisher.repository.markPublished(key, [entry]);
        continue;
      }
      const from = busEntries.length;
      busEntries.push(...toBusEntries({ key, ...unpackDelta(bytes) }, publisher.maxEntryBytes));
      outgoing.push({ key, entry, from, to: busEntries.length });
    }
  }
  if (outgoing.length === 0) return 0;
  const results = await publisher.bus.publish(busEntries);
  const held = await putReceipts(publisher, outgoing, results);
  if (held !== null) throw new BusUnavailableError(`the bus refused a delta for now: ${held}`);
  return outgoing.length;
}

/** Receipts of what the bus took or refused for good. Answers the code of one that must wait, or null. */
async function putReceipts(
  { store, repository, clock, historyMs }: Publisher,
  outgoing: readonly Outgoing[],
  results: readonly PublishResult[],
): Promise<string | null> {
  const ports = Map.groupBy(outgoing, ({ key, entry }) => `${serviceId(key)}:${entry.port}`);
  const expiresAt = (clock.now() + historyMs) as EpochMs;
  let waiting: string | null = null;
  await inParallel(MAX_PARALLEL_PORTS, ports.values(), async (deltas) => {
    for (const { key, entry, from, to } of deltas) {
      const refusals = results.slice(from, to).filter((result) => result.kind === 'refused');
      const retriable = refusals.find((result) => !result.isFinal);
      if (retriable !== undefined) {
        // A receipt never overtakes its port's former one, so that history has no holes.
        waiting ??= retriable.code;
        return;
      }
      await store.putReceipt(key, { entry, expiresAt, isDead: refusals.length > 0 });
      repository.markPublished(key, [entry]);
    }
  });
  return waiting;
}

/** The packed delta, wherever it is; null when its body is gone. */
export async function bytesOf(
  store: Store,
  key: ServiceKey,
  { body }: DeltaEntry,
): Promise<Uint8Array | null> {
  return body.kind === 'inline' ? body.bytes : store.getBody(key, body.name, body.parts);
}
