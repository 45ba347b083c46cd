import { setTimeout as pause } from 'node:timers/promises';
import { DEFAULT_CALL_BYTES } from '../../wire/delta.ts';
import { createAdapters } from '../environment/adapters.ts';
import { readSettings } from '../environment/settings.ts';
import { bufferedHandler } from '../http/lambda.ts';
import { createIngestApp } from './app.ts';

const settings = readSettings(process.env);

export const handler = bufferedHandler(
  createIngestApp({
    ...createAdapters('ingest', settings),
    ...settings,
    maxEntryBytes: DEFAULT_CALL_BYTES,
    pause,
  }),
);
