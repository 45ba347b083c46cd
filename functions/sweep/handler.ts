import { setTimeout as pause } from 'node:timers/promises';
import { DEFAULT_CALL_BYTES } from '../../wire/delta.ts';
import { createAdapters } from '../environment/adapters.ts';
import { readSettings } from '../environment/settings.ts';
import { type Sweeper, type SweepReport, sweepAlone } from './sweep.ts';

const settings = readSettings(process.env);
const sweeper: Sweeper = {
  ...createAdapters('sweep', settings),
  ...settings,
  maxEntryBytes: DEFAULT_CALL_BYTES,
  pause,
  collected: new Set(),
};

/** Answers what the sweep did; null when it left that to another one. */
export function handler(): Promise<SweepReport | null> {
  return sweepAlone(sweeper);
}
