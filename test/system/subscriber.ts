import assert from 'node:assert/strict';
import type { DeltaDetail, DeltaType } from '../../wire/delta.ts';
import { deltaDetail, deltaId } from '../../wire/delta.ts';
import { type ReceivedDelta, Replica } from '../replica.ts';

/** An entry as the bus's log shows it. */
export interface LoggedEntry {
  readonly n: number;
  readonly detailType: string;
  readonly detail: unknown;
}

/**
 * A subscriber to one cluster: knows a duplicate by its id, puts split deltas together, and restores the order that a bus
 * does not promise. It holds every delivery to the first of its id (P3).
 */
export class Subscriber {
  readonly #cluster: string;
  /** What came first under an id, and how often it came again. */
  readonly #deliveries = new Map<string, { readonly text: string; again: number }>();
  readonly #parts = new Map<string, { readonly type: DeltaType; readonly details: DeltaDetail[] }>();

  constructor(cluster: string) {
    this.#cluster = cluster;
  }

  /** Takes deliveries in any order; answers the ids that are new. */
  take(entries: readonly LoggedEntry[]): string[] {
    const news: string[] = [];
    for (const { detailType, detail } of entries) {
      if ((detail as { readonly cluster?: unknown }).cluster !== this.#cluster) continue;
      const parsed = deltaDetail.parse(detail);
      const text = `${detailType} ${JSON.stringify(detail)}`;
      const known = this.#deliveries.get(parsed.id);
      if (known !== undefined) {
        assert.equal(text, known.text, `${parsed.id}: delivered again with another content`);
        known.again++;
        continue;
      }
      this.#deliveries.set(parsed.id, { text, again: 0 });
      news.push(parsed.id);
      const whole = deltaId(parsed.group, parsed.sequence);
      const parts = this.#parts.get(whole) ?? { type: detailType as DeltaType, details: [] };
      parts.details.push(parsed);
      this.#parts.set(whole, parts);
    }
    return news;
  }

  /** How often each id came again. */
  duplicates(): ReadonlyMap<string, number> {
    return new Map([...this.#deliveries].map(([id, { again }]) => [id, again]));
  }

  /** All deltas whose parts have all come, by group and sequence. */
  deltas(): ReceivedDelta[] {
    const whole = [...this.#parts.values()].flatMap(({ type, details }) => {
      const detail = joinParts(details);
      return detail === null ? [] : [{ type, detail }];
    });
    return whole.sort((a, b) => a.detail.sequence - b.detail.sequence);
  }

  /** Replays everything from nothing: a gap or a wrong delta fails (P1, P2). */
  replay(): Replica {
    const replica = new Replica();
    for (const delta of this.deltas()) replica.apply(delta);
    assert.equal(this.deltas().length, this.#parts.size, 'parts of a split delta are missing');
    return replica;
  }
}

/** A split delta in one piece; null while a part is missing. */
function joinParts(details: readonly DeltaDetail[]): DeltaDetail | null {
  const [first] = details;
  if (first?.part === undefined) return first ?? null;
  const sorted = details.toSorted((a, b) => (a.part?.index ?? 0) - (b.part?.index ?? 0));
  if (sorted.length < first.part.count) return null;
  const { part: _part, ...shared } = first;
  const id = deltaId(first.group, first.sequence);
  for (const [index, { part, ...detail }] of sorted.entries()) {
    assert.deepEqual(part, { index, count: sorted.length }, id);
    const lists = { added: [], updated: [], removed: [], id };
    assert.deepEqual({ ...detail, ...lists }, { ...shared, ...lists }, `${id}: parts tell different things`);
  }
  const all = <K extends 'added' | 'updated' | 'removed'>(list: K) => sorted.flatMap((it) => [...it[list]]);
  return {
    ...shared,
    id,
    added: all('added') as DeltaDetail['added'],
    updated: all('updated') as DeltaDetail['updated'],
    removed: all('removed') as DeltaDetail['removed'],
  };
}
