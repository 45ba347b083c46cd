import { open } from 'node:fs/promises';
import * as z from 'zod';
import { type AddressKey, addressKey } from '../core/address.ts';
import type { PublishedAddress } from '../wire/address.ts';
import { type DeltaDetail, deltaDetail } from '../wire/delta.ts';
import { digestOf } from '../wire/key-hash.ts';

/** An entry of a bus: as a laptop stack's log has it, or as EventBridge delivers it. */
const busEntry = z
  .looseObject({
    n: z.int().optional(),
    detailType: z.string().optional(),
    'detail-type': z.string().optional(),
    detail: z.unknown(),
  })
  .transform(({ n, detailType, 'detail-type': delivered, detail }) => ({
    n: n ?? 0,
    type: detailType ?? delivered ?? '',
    detail,
  }));
export type BusEntry = z.infer<typeof busEntry>;

/** Yields the entries that are new since the last time. */
type ReadBus = (signal: AbortSignal) => AsyncIterable<BusEntry>;
/** Begins to read from the first entry on. */
export type OpenBus = () => ReadBus;

const busPage = z.object({ entries: z.array(busEntry), last: z.int() });
/** Entries of one read. */
const PAGE_LIMIT = 1000;

/**
 * Reads a file of entries, one JSON object a line; all of them the first time.
 * @throws the system's error when it cannot be read; an Error that names the line which is none.
 */
export function busFile(file: string): OpenBus {
  return () => {
    let isRead = false;
    return async function* () {
      if (isRead) return;
      isRead = true;
      let number = 0;
      await using opened = await open(file);
      for await (const line of opened.readLines()) {
        number++;
        if (line.trim() === '') continue;
        const parsed = busEntry.safeParse(parseJson(line));
        if (!parsed.success) throw new Error(`${file}, line ${number}: is no entry of a bus, in JSON`);
        yield parsed.data;
      }
    };
  };
}

/**
 * Reads the log of a laptop stack's bus, each time on from where the last read ended.
 * @param read gets the JSON of a query such as `after=41&limit=1000`.
 */
export function busLog(read: (query: string, signal: AbortSignal) => Promise<unknown>): OpenBus {
  return () => {
    let after = 0;
    return async function* (signal) {
      for (;;) {
        const { entries, last } = busPage.parse(await read(`after=${after}&limit=${PAGE_LIMIT}`, signal));
        after = last;
        if (entries.length === 0) return;
        yield* entries;
      }
    };
  };
}

function parseJson(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

/** What the deltas of one service port add up to. */
export interface CopiedPort {
  /** Of the last delta that could be applied. */
  readonly sequence: number;
  readonly exists: boolean;
  readonly addresses: ReadonlyMap<AddressKey, PublishedAddress>;
  /** What deltas said of the copy that was not so; each in a few words. */
  readonly contradictions: readonly string[];
  /**
   * The first deltas that are missing, both ends included: below one that came, or up to `newest`, the last that is known
   * to exist.
   * @returns null when there are all.
   */
  missing(newest: number): { readonly from: number; readonly to: number } | null;
}

/** A subscriber's copy of one cluster's sets, made of deltas that may come twice, split and in any order (P3). */
export class BusCopy {
  readonly #cluster: string;
  readonly #ports = new Map<string, PortCopy>();

  constructor(cluster: string) {
    this.#cluster = cluster;
  }

  /**
   * Takes an entry; one that is no delta of the cluster is passed by.
   * @throws an Error when it should be a delta, but is not understood.
   */
  take({ type, detail, n }: BusEntry): void {
    if (type !== 'EndpointsChanged' && type !== 'NoEndpoints') return;
    if ((detail as { readonly cluster?: unknown } | null)?.cluster !== this.#cluster) return;
    const parsed = deltaDetail.safeParse(detail);
    if (!parsed.success) {
      const [issue] = parsed.error.issues;
      throw new Error(`entry ${n} of the bus: ${issue?.path.join('.')}: ${issue?.message}`);
    }
    this.port(parsed.data.group).take(parsed.data);
  }

  /** By group; a port that never spoke is empty. */
  port(group: string): PortCopy {
    const known = this.#ports.get(group) ?? new PortCopy();
    this.#ports.set(group, known);
    return known;
  }

  groups(): string[] {
    return [...this.#ports.keys()];
  }
}

class PortCopy implements CopiedPort {
  sequence = 0;
  exists = false;
  readonly addresses = new Map<AddressKey, PublishedAddress>();
  readonly contradictions: string[] = [];
  /** Deltas behind a gap, and those of which parts are missing: their parts by sequence and index. */
  readonly #waiting = new Map<number, Map<number, DeltaDetail>>();

  take(detail: DeltaDetail): void {
    if (detail.sequence <= this.sequence) return;
    const parts = this.#waiting.get(detail.sequence) ?? new Map<number, DeltaDetail>();
    this.#waiting.set(detail.sequence, parts.set(detail.part?.index ?? 0, detail));
    for (let next = this.#next(); next !== null; next = this.#next()) this.#apply(next);
  }

  missing(newest: number): { readonly from: number; readonly to: number } | null {
    const from = this.sequence + 1;
    const waiting = [...this.#waiting.keys()];
    const to = waiting.length === 0 ? newest : Math.max(from, Math.min(...waiting) - 1);
    return from <= to ? { from, to } : null;
  }

  /** The parts of the next delta, once all are there. */
  #next(): DeltaDetail[] | null {
    const parts = [...(this.#waiting.get(this.sequence + 1)?.values() ?? [])];
    const [first] = parts;
    return first === undefined || parts.length < (first.part?.count ?? 1) ? null : parts;
  }

  #apply(parts: readonly DeltaDetail[]): void {
    const [first] = parts;
    if (first === undefined) return;
    this.sequence = first.sequence;
    this.exists = first.exists;
    this.#waiting.delete(first.sequence);
    const expect = (isSo: boolean, said: string) => {
      if (!isSo) this.contradictions.push(`#${first.sequence} ${said}`);
    };
    for (const { removed } of parts)
      for (const { ip, port } of removed) {
        const key = addressKey({ ip, port });
        expect(this.addresses.delete(key), `removes ${key}, which was not there`);
      }
    for (const { updated } of parts)
      for (const address of updated) {
        const key = addressKey(address);
        expect(this.addresses.has(key), `updates ${key}, which was not there`);
        this.addresses.set(key, address);
      }
    for (const { added } of parts)
      for (const address of added) {
        const key = addressKey(address);
        expect(!this.addresses.has(key), `adds ${key}, which was there`);
        this.addresses.set(key, address);
      }
    expect(first.size === this.addresses.size, `size ${first.size}, the copy has ${this.addresses.size}`);
    expect(first.digest === digestOf(this.addresses.keys()), "digest is not the copy's");
  }
}
