import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { readConfig } from '../../relay/config.ts';

const ENV = { INGEST_URL: 'https://x.lambda-url.eu-west-1.on.aws', CLUSTER: 'prod', AWS_REGION: 'eu-west-1' };

function configOf(args: readonly string[], env: Record<string, string> = ENV) {
  const parsed = readConfig(args, env);
  assert.equal(parsed.kind, 'ok', JSON.stringify(parsed));
  return parsed.config;
}

test('the least that must be told, and what is chosen without a word', () => {
  const { ingestUrl, relay, ...rest } = configOf([]);
  assert.equal(ingestUrl.href, 'https://x.lambda-url.eu-west-1.on.aws/');
  assert.notEqual(relay, '');
  assert.deepEqual(rest, {
    cluster: 'prod',
    mode: 'slices',
    namespaces: null,
    enrich: [],
    kubeconfig: null,
    context: null,
    settleMs: 25,
    auth: 'sigv4',
    tokenFile: null,
    awsRegion: 'eu-west-1',
    maxRemoved: 0.5,
    logLevel: 'info',
    adminHost: '0.0.0.0',
    adminPort: 8080,
    lease: null,
    leaseNamespace: null,
    leaseDurationMs: 15_000,
    renewDeadlineMs: 10_000,
    retryPeriodMs: 2000,
  });
});

suite('whether relays elect one of them', () => {
  const POD = { ...ENV, KUBERNETES_SERVICE_HOST: '10.96.0.1' };
  const CASES: Record<
    string,
    {
      readonly args?: string[];
      readonly env?: Record<string, string>;
      readonly want: (string | null)[];
    }
  > = {
    'in a pod, in its namespace': { env: POD, want: ['endpoints-watcher-relay', null] },
    'in a pod that is told its namespace': {
      env: { ...POD, POD_NAMESPACE: 'linkerd' },
      want: ['endpoints-watcher-relay', 'linkerd'],
    },
    'in a pod, a Lease of another name': { args: ['--lease=mine'], env: POD, want: ['mine', null] },
    'not in a pod that is told so': { args: ['--lease='], env: POD, want: [null, null] },
    'not in a pod that watches another cluster': { args: ['--kubeconfig=x'], env: POD, want: [null, null] },
    'not elsewhere': { want: [null, null] },
    'elsewhere when a Lease is named': {
      args: ['--lease=mine', '--lease-namespace=default'],
      want: ['mine', 'default'],
    },
  };
  for (const [name, { args = [], env = ENV, want }] of Object.entries(CASES)) {
    test(name, () => {
      const { lease, leaseNamespace } = configOf(args, env);
      assert.deepEqual([lease, leaseNamespace], want);
    });
  }
});

suite("the mode, in Linkerd's words", () => {
  const MODES: Record<
    string,
    { readonly args?: string[]; readonly env?: Record<string, string>; readonly want: string }
  > = {
    'nothing said': { want: 'slices' },
    'one dash': { args: ['-enable-endpoint-slices=false'], want: 'endpoints' },
    'two dashes': { args: ['--enable-endpoint-slices=false'], want: 'endpoints' },
    'value as the next argument': { args: ['--enable-endpoint-slices', 'false'], want: 'endpoints' },
    'a flag alone is true': {
      args: ['--enable-endpoint-slices'],
      env: { ENABLE_ENDPOINT_SLICES: 'false' },
      want: 'slices',
    },
    variable: { env: { ENABLE_ENDPOINT_SLICES: 'false' }, want: 'endpoints' },
    "variable named as the chart's value": { env: { enableEndpointSlices: 'false' }, want: 'endpoints' },
  };
  for (const [name, { args = [], env = {}, want }] of Object.entries(MODES)) {
    test(name, () => assert.equal(configOf(args, { ...ENV, ...env }).mode, want));
  }
});

test('a flag goes before its variable; an empty variable is none', () => {
  const { cluster, namespaces, settleMs } = configOf(['--cluster=dev', '-namespaces', 'a, b'], {
    ...ENV,
    SETTLE_MS: '',
  });
  assert.deepEqual([cluster, namespaces, settleMs], ['dev', ['a', 'b'], 25]);
});

test('what enriches addresses is a list, by flag or variable', () => {
  assert.deepEqual(configOf(['--enrich', 'pods, servers']).enrich, ['pods', 'servers']);
  assert.deepEqual(configOf([], { ...ENV, ENRICH: 'pods' }).enrich, ['pods']);
  assert.deepEqual(configOf(['--enrich='], { ...ENV, ENRICH: 'pods' }).enrich, []);
});

suite('one line for each wrong setting', () => {
  const WRONG: Record<
    string,
    { readonly args?: string[]; readonly env?: Record<string, string>; readonly want: string[] }
  > = {
    'nothing told': {
      env: {},
      want: ['--ingest-url (or INGEST_URL): required', '--cluster (or CLUSTER): required'],
    },
    'no URL': {
      args: ['--ingest-url=here'],
      want: [
        '--ingest-url (or INGEST_URL): must be the URL of ingest, such as https://ID.lambda-url.REGION.on.aws',
      ],
    },
    'credentials over plain HTTP': {
      args: ['--ingest-url=http://example.org'],
      want: ['--ingest-url (or INGEST_URL): must be https: credentials go with each request'],
    },
    several: {
      args: [
        '--settle-ms=-1',
        '--max-removed=2',
        '--enable-endpoint-slices=no',
        '--log-level=loud',
        '--auth=basic',
      ],
      want: [
        '--enable-endpoint-slices (or ENABLE_ENDPOINT_SLICES): must be true or false',
        '--settle-ms (or SETTLE_MS): must be a number from 0 to 60000',
        '--auth (or AUTH): must be sigv4, token or none',
        '--max-removed (or MAX_REMOVED): must be a number from 0 to 1',
        '--log-level (or LOG_LEVEL): must be debug, info, warn, error',
      ],
    },
    'tokens without a file': {
      args: ['--auth=token'],
      want: ['--token-file (or TOKEN_FILE): required for tokens'],
    },
    'Servers without the pods that they say something of': {
      args: ['--enrich=servers'],
      want: ['--enrich (or ENRICH): servers say something of pods alone: write pods,servers'],
    },
    'to be enriched by something else': {
      args: ['--enrich=pods,nodes'],
      want: ['--enrich (or ENRICH): must be of pods, servers'],
    },
    'a Lease that is nowhere': {
      args: ['--lease=relay'],
      want: ['--lease-namespace (or POD_NAMESPACE): required for --lease outside a pod'],
    },
    'no name of a Lease': {
      args: ['--lease=Mine!', '--lease-namespace=default'],
      want: [
        '--lease (or LEASE): must be a name of a-z, 0-9, "-" and ".", and begin and end with a letter or digit',
      ],
    },
    'a deadline behind the end of the Lease': {
      args: ['--lease-duration-ms=5000'],
      want: ['--lease-duration-ms (or LEASE_DURATION_MS): must be more than --renew-deadline-ms (10000)'],
    },
    'no time for a second try': {
      args: ['--retry-period-ms=9000'],
      want: [
        '--renew-deadline-ms (or RENEW_DEADLINE_MS): must be more than 1.2 times --retry-period-ms (9000)',
      ],
    },
    'signatures without a region': {
      env: { ...ENV, AWS_REGION: '' },
      want: ['--aws-region (or AWS_REGION): required for sigv4'],
    },
  };
  for (const [name, { args = [], env = ENV, want }] of Object.entries(WRONG)) {
    test(name, () => assert.deepEqual(readConfig(args, env), { kind: 'invalid', lines: want }));
  }

  test('an unknown flag is named, with those that exist', () => {
    const parsed = readConfig(['--ingest=x'], ENV);
    assert.ok(parsed.kind === 'invalid');
    assert.match(parsed.lines[0] ?? '', /^--ingest=x: not a flag; there are --ingest-url --cluster /);
  });
});
