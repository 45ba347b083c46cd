import * as z from 'zod';
import type { EpochMs } from '../core/time.ts';

/** An RFC 3339 instant as data comes in; parts of a millisecond are dropped. */
export const instant = z.iso
  .datetime({ offset: true, error: 'must be an RFC 3339 instant, such as 2026-11-30T10:00:00Z' })
  .transform((text) => Date.parse(text) as EpochMs);

/** Characters of an instant with nanoseconds and an offset. */
const MAX_INSTANT_LENGTH = 35;

/** An RFC 3339 instant as data goes out: `formatInstant`, or what a controller wrote with up to nanoseconds (S47). */
export const instantText = z.iso.datetime({ offset: true }).max(MAX_INSTANT_LENGTH);
