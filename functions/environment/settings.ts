import * as z from 'zod';
import { LOG_LEVELS } from '../../wire/log.ts';
import type { Authentication } from '../http/authentication.ts';
import { DEFAULT_HISTORY_MS } from '../services/publication.ts';

/** Principals, and clusters of each. */
const MAX_RELAYS = 1000;
const MAX_ADMINS = 100;
const DAY_MS = 24 * 3_600_000;
/** Shorter, and a delta's receipt might go before the daily visit has cleared the delta from its head. */
const MIN_HISTORY_DAYS = 3;
const MAX_HISTORY_DAYS = 3650;

/** What the environment of a function says, typed. */
export interface Settings {
  /** Region of the table and the bus; Lambda sets it. */
  readonly region: string;
  /** Name of the DynamoDB table. */
  readonly tableName: string;
  /** Name or ARN of the event bus. */
  readonly busName: string;
  readonly authentication: Authentication;
  readonly logLevel: (typeof LOG_LEVELS)[number];
  /** DNS domain of the clusters, for names of addresses (S39). */
  readonly clusterDomain: string;
  /** Cache-Control of answers that have an ETag. */
  readonly cacheControl: string;
  /** How long deltas are kept, in milliseconds. */
  readonly historyMs: number;
}

/** Environment variables that are not what they should be. */
export class SettingsError extends Error {
  override readonly name = 'SettingsError';
  /** One line for each wrong variable: its name and what it should be. */
  readonly lines: readonly string[];

  constructor(lines: readonly string[]) {
    super(`wrong settings:\n${lines.join('\n')}`);
    this.lines = lines;
  }
}

const relays = z.record(z.string().regex(/^arn:/), z.array(z.string().min(1)).max(MAX_RELAYS));

const relaysText = z.string().transform((text, context) => {
  const parsed = relays.safeParse(parseJson(text));
  if (parsed.success && Object.keys(parsed.data).length <= MAX_RELAYS) return parsed.data;
  context.addIssue({
    code: 'custom',
    message: 'must be JSON such as {"arn:aws:iam::123456789012:role/relay":["prod-eu"]}',
  });
  return z.NEVER;
});

const ADMINS = 'must be ARNs, comma-separated, such as arn:aws:iam::123456789012:role/operator';
const adminsText = z
  .string()
  .transform((text) => text.split(',').map((arn) => arn.trim()))
  .pipe(z.array(z.string().regex(/^arn:/, ADMINS)).max(MAX_ADMINS, `at most ${MAX_ADMINS}`));

const environment = z.object({
  AWS_REGION: z.string('must be the region of the table and the bus').min(1),
  TABLE_NAME: z.string('must be the name of the DynamoDB table').min(1),
  BUS_NAME: z.string('must be the name or ARN of the event bus').min(1),
  AUTH: z
    .enum(['iam'], 'must be iam; without authentication only the laptop stack runs, on loopback')
    .default('iam'),
  RELAYS: relaysText.optional(),
  ADMINS: adminsText.default([]),
  LOG_LEVEL: z.enum(LOG_LEVELS, `must be one of ${LOG_LEVELS.join(', ')}`).default('info'),
  CLUSTER_DOMAIN: z
    .string()
    .regex(/^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$/, 'must be a DNS domain such as cluster.local')
    .default('cluster.local'),
  CACHE_CONTROL: z
    .string()
    .regex(/^[\x20-\x7e]+$/, 'must be a Cache-Control header such as no-cache or max-age=0, s-maxage=5')
    .default('no-cache'),
  HISTORY_DAYS: z.coerce
    .number('must be a number of days')
    .min(MIN_HISTORY_DAYS, `must be at least ${MIN_HISTORY_DAYS}`)
    .max(MAX_HISTORY_DAYS, `must be at most ${MAX_HISTORY_DAYS}`)
    .default(DEFAULT_HISTORY_MS / DAY_MS),
});

/**
 * Reads the environment of a deployed function. An empty variable counts as absent: templates write what is not set so.
 * @throws SettingsError with a line for each variable that is wrong.
 */
export function readSettings(env: Readonly<Record<string, string | undefined>>): Settings {
  const present = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ''));
  const parsed = environment.safeParse(present);
  if (!parsed.success)
    throw new SettingsError(
      parsed.error.issues.map(({ path, message }) => `${path[0]?.toString()}: ${message}`),
    );
  const { data } = parsed;
  return {
    region: data.AWS_REGION,
    tableName: data.TABLE_NAME,
    busName: data.BUS_NAME,
    authentication: { kind: data.AUTH, relays: data.RELAYS ?? null, admins: data.ADMINS },
    logLevel: data.LOG_LEVEL,
    clusterDomain: data.CLUSTER_DOMAIN,
    cacheControl: data.CACHE_CONTROL,
    historyMs: data.HISTORY_DAYS * DAY_MS,
  };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
