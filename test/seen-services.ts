import { serviceNameOf } from '../core/slice.ts';

/** What a relay remembers of slices that change their service: under which ones it has sent each (S10). */
export class SeenServices {
  readonly #byUid = new Map<string, Set<string>>();

  /** The other services under which a slice was sent so far; remembers the one that it is sent under now. */
  formerOf(slice: unknown): string[] {
    const { kind, metadata } = (slice ?? {}) as {
      readonly kind?: string;
      readonly metadata?: { readonly uid?: string } & Parameters<typeof serviceNameOf>[0];
    };
    if (kind !== 'EndpointSlice' || metadata?.uid === undefined) return [];
    const seen = this.#byUid.get(metadata.uid) ?? new Set();
    const service = serviceNameOf(metadata);
    const former = [...seen].filter((name) => name !== service);
    if (service !== null) this.#byUid.set(metadata.uid, seen.add(service));
    return former;
  }
}
