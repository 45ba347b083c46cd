import type { ListOptions } from './list-options.ts';
import { keyOf, type ObjectStore } from './object-store.ts';
import { apiVersionOf, type KubeObject, type Resource } from './resources.ts';
import { type ApiError, badRequest, expiredContinue, expiredList, versionTooLarge } from './status.ts';

/** Where a list goes on: at which key, of which revision; revision -1 means "of whatever is there now". */
interface ContinueToken {
  readonly v: 'meta.k8s.io/v1';
  readonly rv: number;
  readonly start: string;
}

/** A list, or a page of it, as its `kind: XList` object. */
export interface ListBody {
  readonly kind: string;
  readonly apiVersion: string;
  readonly metadata: {
    readonly resourceVersion: string;
    readonly continue?: string;
    /** Absent on the last page, and when a selector filters. */
    readonly remainingItemCount?: number;
  };
  /** Without `kind` and `apiVersion`, as in every list of typed objects. */
  readonly items: readonly unknown[];
}

const CURRENT_REVISION = -1;

/**
 * Reads one page. All pages of a list show the revision of the first.
 *
 * @throws ApiError 410 when that revision, or the exact one asked for, is forgotten; 504 when an exact one is still to
 * come; 400 on a token that is none. The caller has waited for a version that the list must not be older than.
 */
export function readPage(store: ObjectStore, resource: Resource, options: ListOptions): ListBody {
  const token = options.continueToken === null ? null : parseToken(options.continueToken);
  const { resourceVersion, match } = options;
  if (token !== null && resourceVersion !== null && resourceVersion !== 0) {
    throw badRequest('specifying resource version is not allowed when using continue');
  }
  // Version 0 is answered from the watch cache, which knows no pages.
  const limit = resourceVersion === 0 && match === null ? 0 : options.limit;
  const isExact = match === 'Exact' || (match === null && limit > 0);
  const wanted = isExact && resourceVersion !== null && resourceVersion > 0 ? resourceVersion : null;
  const revision = token !== null && token.rv > 0 ? token.rv : (wanted ?? store.revision);
  if (revision > store.revision) throw versionTooLarge(revision, store.revision, 0);
  if (revision < store.compactedRevision) throw expiredPage(options.continueToken);

  const isDue = (object: KubeObject) => token === null || keyOf(object) >= token.start;
  const all = store
    .listAt(resource.kind, revision)
    .filter((object) => options.selects(object) && isDue(object));
  const page = limit > 0 ? all.slice(0, limit) : all;
  const last = page.at(-1);
  const hasMore = last !== undefined && page.length < all.length;
  return {
    kind: `${resource.kind}List`,
    apiVersion: apiVersionOf(resource),
    metadata: {
      resourceVersion: String(revision),
      // A zero byte makes the smallest key after the last one.
      ...(hasMore ? { continue: formatToken(revision, `${keyOf(last)}\0`) } : {}),
      ...(hasMore && !options.isFiltered ? { remainingItemCount: all.length - page.length } : {}),
    },
    items: page.map(withoutType),
  };
}

/** The error of a page, or of a list (null), whose revision is forgotten; its token goes on with what is there now. */
export function expiredPage(continueToken: string | null): ApiError {
  if (continueToken === null) return expiredList();
  return expiredContinue(formatToken(CURRENT_REVISION, parseToken(continueToken).start));
}

/** A token that begins a list of a revision anew. */
export function firstPageToken(revision: number): string {
  return formatToken(revision, '');
}

function withoutType({ kind: _kind, apiVersion: _apiVersion, ...item }: KubeObject): unknown {
  return item;
}

function formatToken(rv: number, start: string): string {
  const token: ContinueToken = { v: 'meta.k8s.io/v1', rv, start };
  return Buffer.from(JSON.stringify(token)).toString('base64url');
}

function parseToken(text: string): ContinueToken {
  try {
    const { v, rv, start } = JSON.parse(Buffer.from(text, 'base64url').toString());
    if (v === 'meta.k8s.io/v1' && Number.isSafeInteger(rv) && rv !== 0 && typeof start === 'string') {
      return { v, rv, start };
    }
  } catch {
    // Not ours: answered below like any other text that is no token.
  }
  throw badRequest('invalid continue token: continue key is not valid');
}
