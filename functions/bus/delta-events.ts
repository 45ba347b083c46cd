import type { PortDelta } from '../../core/delta.ts';
import type { EpochMs } from '../../core/time.ts';
import { type DeltaDetail, deltaId, deltaTypeOf, formatDelta, groupOf } from '../../wire/delta.ts';
import { type BusEntry, entryBytes } from './bus.ts';

/** A delta of some service, and when it was committed. */
export interface ServiceDelta {
  readonly key: { readonly cluster: string; readonly namespace: string; readonly name: string };
  readonly delta: PortDelta;
  readonly committedAt: EpochMs;
}

/**
 * A delta as the bus carries it: one entry, or as many parts as it takes, with one sequence and every address in one of
 * them. The same delta gives the same entries with the same ids at every call (P3). A single address that is too large
 * for an entry gets one of its own nevertheless: nothing is left out in silence.
 * @param maxEntryBytes largest entry, as `entryBytes` counts.
 */
export function toBusEntries({ key, delta, committedAt }: ServiceDelta, maxEntryBytes: number): BusEntry[] {
  const { cluster, namespace, name: service } = key;
  const group = groupOf({ cluster, namespace, service, port: delta.port, protocol: delta.protocol });
  const toEntry = (detail: DeltaDetail): BusEntry => ({
    detailType: deltaTypeOf(delta),
    resources: [group],
    detail: JSON.stringify(detail),
  });
  const detail = formatDelta({ cluster, namespace, service }, delta, committedAt);
  const whole = toEntry(detail);
  if (entryBytes(whole) <= maxEntryBytes) return [whole];

  const partOf = (lists: Lists, index: number, count: number): DeltaDetail => ({
    ...detail,
    ...lists,
    id: deltaId(group, delta.sequence, index),
    part: { index, count },
  });
  const { added, updated, removed } = detail;
  const most = added.length + updated.length + removed.length;
  const room = maxEntryBytes - entryBytes(toEntry(partOf(emptyLists(), most, most)));
  const parts = cut({ added, updated, removed }, room);
  return parts.length < 2
    ? [whole]
    : parts.map((lists, index) => toEntry(partOf(lists, index, parts.length)));
}

type Lists = Pick<DeltaDetail, 'added' | 'updated' | 'removed'>;

function emptyLists(): Lists {
  return { added: [], updated: [], removed: [] };
}

/** Fills one part after the other, in order. */
function cut({ added, updated, removed }: Lists, room: number): Lists[] {
  const parts: Lists[] = [];
  let left = 0;
  const nextPart = (item: object): Lists => {
    const bytes = Buffer.byteLength(JSON.stringify(item)) + 1;
    const last = parts.at(-1);
    left -= bytes;
    if (last !== undefined && left >= 0) return last;
    const part = emptyLists();
    parts.push(part);
    left = room - bytes;
    return part;
  };
  for (const address of added) nextPart(address).added.push(address);
  for (const address of updated) nextPart(address).updated.push(address);
  for (const address of removed) nextPart(address).removed.push(address);
  return parts;
}
