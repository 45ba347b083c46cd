import { readFile } from 'node:fs/promises';
import type { Timers } from './timers.ts';

/** A request that is to carry credentials. */
export interface UnsignedRequest {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/**
 * Makes the headers that say who sends a POST. `isRefused`: those of a moment ago were not taken, so cached ones will not do.
 * @throws an Error when there are no credentials.
 */
export type Authorize = (
  request: UnsignedRequest,
  isRefused: boolean,
) => Promise<Readonly<Record<string, string>>>;

/** On loopback nobody asks. */
export const noAuthorization: Authorize = async () => ({});

/** How long a token is used before its file is read again, in milliseconds (W12). */
const TOKEN_MAX_AGE_MS = 60_000;

/** A bearer token from a file, which may be replaced at any time; the old one is kept while it cannot be read (W12). */
export function tokenAuthorization(file: string, timers: Timers): Authorize {
  let token: string | null = null;
  let readAt = 0;
  return async (_request, isRefused) => {
    const isFresh = token !== null && timers.monotonic() - readAt < TOKEN_MAX_AGE_MS;
    if (!isFresh || isRefused) {
      readAt = timers.monotonic();
      try {
        token = (await readFile(file, 'utf8')).trim();
      } catch (error) {
        if (token === null) throw error;
      }
    }
    return { authorization: `Bearer ${token}` };
  };
}
