import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readSettings, SettingsError } from '../../../functions/environment/settings.ts';

const REQUIRED = { AWS_REGION: 'eu-central-1', TABLE_NAME: 'endpoints', BUS_NAME: 'default' };

describe('the environment of a function', () => {
  test('needs region, table and bus; the rest has defaults', () => {
    assert.deepEqual(readSettings({ ...REQUIRED, PATH: '/usr/bin' }), {
      region: 'eu-central-1',
      tableName: 'endpoints',
      busName: 'default',
      authentication: { kind: 'iam', relays: null, admins: [] },
      logLevel: 'info',
      clusterDomain: 'cluster.local',
      cacheControl: 'no-cache',
      historyMs: 7 * 86_400_000,
    });
  });

  test('an empty variable counts as absent', () => {
    assert.equal(readSettings({ ...REQUIRED, LOG_LEVEL: '', RELAYS: '' }).logLevel, 'info');
  });

  test('all settings are taken', () => {
    const settings = readSettings({
      ...REQUIRED,
      AUTH: 'iam',
      RELAYS: '{"arn:aws:iam::123456789012:role/relay":["prod-eu"]}',
      ADMINS: 'arn:aws:iam::123456789012:role/operator, arn:aws:iam::123456789012:user/anna',
      LOG_LEVEL: 'debug',
      CLUSTER_DOMAIN: 'k8s.example.com',
      CACHE_CONTROL: 'max-age=0, s-maxage=5',
      HISTORY_DAYS: '30',
    });
    assert.deepEqual(settings, {
      region: 'eu-central-1',
      tableName: 'endpoints',
      busName: 'default',
      authentication: {
        kind: 'iam',
        relays: { 'arn:aws:iam::123456789012:role/relay': ['prod-eu'] },
        admins: ['arn:aws:iam::123456789012:role/operator', 'arn:aws:iam::123456789012:user/anna'],
      },
      logLevel: 'debug',
      clusterDomain: 'k8s.example.com',
      cacheControl: 'max-age=0, s-maxage=5',
      historyMs: 30 * 86_400_000,
    });
  });

  const wrong: Record<string, { readonly env: Record<string, string>; readonly line: RegExp }> = {
    'no authentication, which a deployed function always has': {
      env: { AUTH: 'none' },
      line: /^AUTH: must be iam;/,
    },
    'a mode of authentication that is not known': { env: { AUTH: 'basic' }, line: /^AUTH: must be iam/ },
    'relays that are no JSON': { env: { RELAYS: 'prod-eu' }, line: /^RELAYS: must be JSON such as/ },
    'relays in the wrong shape': { env: { RELAYS: '{"arn:x":"prod-eu"}' }, line: /^RELAYS: must be JSON/ },
    'relays without ARNs': { env: { RELAYS: '{"relay":["prod-eu"]}' }, line: /^RELAYS: must be JSON/ },
    'admins without ARNs': { env: { ADMINS: 'anna' }, line: /^ADMINS: must be ARNs, comma-separated/ },
    'an unknown level': {
      env: { LOG_LEVEL: 'trace' },
      line: /^LOG_LEVEL: must be one of debug, info, warn, error$/,
    },
    'a domain with a slash': {
      env: { CLUSTER_DOMAIN: 'a/b' },
      line: /^CLUSTER_DOMAIN: must be a DNS domain/,
    },
    'a header with a line feed': { env: { CACHE_CONTROL: 'a\nb' }, line: /^CACHE_CONTROL: must be/ },
    'a history too short': { env: { HISTORY_DAYS: '1' }, line: /^HISTORY_DAYS: must be at least 3$/ },
    'a history that is no number': {
      env: { HISTORY_DAYS: 'week' },
      line: /^HISTORY_DAYS: must be a number of days$/,
    },
  };
  for (const [name, { env, line }] of Object.entries(wrong)) {
    test(`refuses ${name}`, () => {
      assert.throws(
        () => readSettings({ ...REQUIRED, ...env }),
        (error) =>
          error instanceof SettingsError && error.lines.length === 1 && line.test(error.lines[0] ?? ''),
      );
    });
  }

  test('every wrong setting has a line of its own', () => {
    assert.throws(
      () => readSettings({ LOG_LEVEL: 'loud' }),
      (error) => {
        assert(error instanceof SettingsError);
        assert.deepEqual(
          error.lines.map((line) => line.split(':')[0]),
          ['AWS_REGION', 'TABLE_NAME', 'BUS_NAME', 'LOG_LEVEL'],
        );
        return true;
      },
    );
  });
});
