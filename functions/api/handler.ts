import release from '../../package.json' with { type: 'json' };
import { createAdapters } from '../environment/adapters.ts';
import { readSettings } from '../environment/settings.ts';
import { streamingHandler } from '../http/lambda.ts';
import { createApiApp } from './app.ts';

const settings = readSettings(process.env);

export const handler = streamingHandler(
  createApiApp({ ...createAdapters('api', settings), ...settings, version: release.version }),
);
