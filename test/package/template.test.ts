import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import * as z from 'zod';
import { readSettings } from '../../functions/environment/settings.ts';
import { GHOST_MS } from '../../functions/services/fence.ts';
import { idOf, listOf, PACKAGE, packageCopy, Template } from './template.ts';

const ROOT = join(import.meta.dirname, '../..');

const FUNCTION = 'AWS::Lambda::Function';
const QUEUE = 'AWS::SQS::Queue';

const lambda = z.looseObject({
  Handler: z.string(),
  Runtime: z.string(),
  Architectures: z.array(z.string()),
  Timeout: z.number(),
  Role: z.unknown(),
  ReservedConcurrentExecutions: z.number().optional(),
  Environment: z.object({ Variables: z.record(z.string(), z.unknown()) }),
});
const functionUrl = z.looseObject({
  AuthType: z.string(),
  InvokeMode: z.string().default('BUFFERED'),
  TargetFunctionArn: z.unknown(),
});
const permission = z.looseObject({
  Action: z.string(),
  FunctionName: z.unknown(),
  Principal: z.string(),
  SourceArn: z.unknown().optional(),
  FunctionUrlAuthType: z.string().optional(),
  InvokedViaFunctionUrl: z.boolean().optional(),
});
const statement = z.looseObject({
  Effect: z.string(),
  Action: listOf(z.string()),
  Resource: listOf(z.unknown()),
});
const role = z.looseObject({
  Policies: z.array(z.object({ PolicyDocument: z.looseObject({ Statement: z.array(statement) }) })),
});
const rule = z.looseObject({
  Targets: z
    .array(z.looseObject({ Arn: z.unknown(), DeadLetterConfig: z.object({ Arn: z.unknown() }).optional() }))
    .default([]),
});
const queuePolicy = z.looseObject({
  PolicyDocument: z.looseObject({
    Statement: z.array(
      z.looseObject({
        Effect: z.string(),
        Principal: z.looseObject({ Service: z.string().optional() }),
        Resource: listOf(z.unknown()),
        Condition: z.looseObject({ ArnEquals: z.looseObject({ 'aws:SourceArn': z.unknown() }).optional() }),
      }),
    ),
  }),
});
const table = z.looseObject({
  DeletionProtectionEnabled: z.boolean().optional(),
  PointInTimeRecoverySpecification: z.object({ PointInTimeRecoveryEnabled: z.boolean() }).optional(),
  SSESpecification: z.looseObject({ SSEEnabled: z.boolean() }).optional(),
  TimeToLiveSpecification: z.object({ AttributeName: z.string(), Enabled: z.boolean() }).optional(),
  StreamSpecification: z.unknown().optional(),
});
const logGroup = z.looseObject({ RetentionInDays: z.number().optional() });
const metricFilter = z.looseObject({
  FilterPattern: z.string(),
  MetricTransformations: z.array(z.looseObject({ MetricNamespace: z.string(), MetricName: z.string() })),
});
const alarm = z.looseObject({
  Namespace: z.string(),
  MetricName: z.string(),
  Threshold: z.number(),
  Dimensions: z.array(z.object({ Name: z.string(), Value: z.unknown() })).default([]),
  AlarmActions: z.array(z.string()),
});

const RELAY = 'arn:aws:iam::111122223333:role/relay';
const TOPIC = 'arn:aws:sns:us-east-1:111122223333:on-call';
const EVERY_PARAMETER = {
  relays: `${RELAY}, 444455556666`,
  readers: '444455556666',
  relayClusters: JSON.stringify({ [RELAY]: ['prod-eu'] }),
  archiveDays: '30',
  historyDays: '30',
  logDays: '90',
  alarmTopic: TOPIC,
};

describe('as packaged', () => {
  let template: Template;
  before(async () => {
    template = await Template.read(PACKAGE);
  });
  checkTemplate(() => template);

  test('nobody is let in who is not asked for', () => {
    const urlCallers = template
      .all('AWS::Lambda::Permission', permission)
      .filter(([, { Principal }]) => Principal !== 'events.amazonaws.com');
    assert.deepEqual(urlCallers, []);
  });

  test('a zip holds its handler alone', async () => {
    const zips = (await readdir(PACKAGE)).filter((name) => name.endsWith('.zip'));
    assert.deepEqual(zips.sort(), ['api.zip', 'ingest.zip', 'sweep.zip']);
    for (const zip of zips) {
      const handler = `dist/functions/${zip.replace('.zip', '')}/handler.mjs`;
      assert.deepEqual(namesIn(await readFile(join(PACKAGE, zip))), [handler]);
    }
  });
});

describe('with every parameter', () => {
  let directory: string;
  let template: Template;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'package-'));
    template = await Template.read(await packageCopy(directory, EVERY_PARAMETER));
  });
  after(() => rm(directory, { recursive: true, force: true }));
  checkTemplate(() => template);

  test('each caller of a URL may do both that it takes, and nothing by another way', () => {
    const callers = template
      .all('AWS::Lambda::Permission', permission)
      .filter(([, { Principal }]) => Principal !== 'events.amazonaws.com')
      .map(([, it]) => {
        const target = idOf(it.FunctionName);
        return `${it.Principal} ${target} ${it.Action} ${it.FunctionUrlAuthType ?? it.InvokedViaFunctionUrl}`;
      });
    const both = (principal: string, target: string) => [
      `${principal} ${target} lambda:InvokeFunctionUrl AWS_IAM`,
      `${principal} ${target} lambda:InvokeFunction true`,
    ];
    assert.deepEqual(
      callers.sort(),
      [
        ...both(RELAY, 'IngestLambdaFunction'),
        ...both('444455556666', 'IngestLambdaFunction'),
        ...both('444455556666', 'ApiLambdaFunction'),
      ].sort(),
    );
  });

  test('the bus is archived', () => {
    const archives = template.all('AWS::Events::Archive', z.looseObject({ RetentionDays: z.number() }));
    assert.deepEqual(
      archives.map(([, { RetentionDays }]) => RetentionDays),
      [30],
    );
  });

  test('alarms tell the topic', () => {
    for (const [id, { AlarmActions }] of template.all('AWS::CloudWatch::Alarm', alarm))
      assert.deepEqual(AlarmActions, [TOPIC], id);
  });
});

/** What no stand-in for AWS enforces, and a deployment would only show when it is needed. */
function checkTemplate(get: () => Template): void {
  const functions = () => new Map(get().all(FUNCTION, lambda));

  test('functions run on Node 24 and arm64', () => {
    assert.deepEqual([...functions().keys()].sort(), [
      'ApiLambdaFunction',
      'IngestLambdaFunction',
      'SweepLambdaFunction',
    ]);
    for (const [id, { Runtime, Architectures }] of functions())
      assert.deepEqual([Runtime, ...Architectures], ['nodejs24.x', 'arm64'], id);
  });

  test('every URL asks IAM, and only the api streams', () => {
    const urls = get()
      .all('AWS::Lambda::Url', functionUrl)
      .map(([, { AuthType, InvokeMode, TargetFunctionArn }]) => [
        idOf(TargetFunctionArn),
        AuthType,
        InvokeMode,
      ]);
    assert.deepEqual(urls.sort(), [
      ['ApiLambdaFunction', 'AWS_IAM', 'RESPONSE_STREAM'],
      ['IngestLambdaFunction', 'AWS_IAM', 'BUFFERED'],
    ]);
  });

  test('P8: ingest has ended when its writes have landed or are lost', () => {
    assert.equal((functions().get('IngestLambdaFunction')?.Timeout ?? 0) * 1000, GHOST_MS);
  });

  test('one sweep at a time, and no retry but the next', () => {
    const sweep = functions().get('SweepLambdaFunction');
    assert.equal(sweep?.ReservedConcurrentExecutions, 1);
    assert.ok((sweep?.Timeout ?? 60) < 60, 'a sweep ends before the next one starts');
    const retries = get().all(
      'AWS::Lambda::EventInvokeConfig',
      z.looseObject({ MaximumRetryAttempts: z.number() }),
    );
    assert.deepEqual(
      retries.map(([, { MaximumRetryAttempts }]) => MaximumRetryAttempts),
      [0],
    );
  });

  test('a function understands its environment', () => {
    for (const [id, { Environment }] of functions()) {
      const texts = Object.entries(Environment.Variables).map(([name, value]) => [
        name,
        typeof value === 'string' ? value : (idOf(value) ?? ''),
      ]);
      assert.doesNotThrow(() => readSettings({ ...Object.fromEntries(texts), AWS_REGION: 'us-east-1' }), id);
    }
  });

  test('each function has a role of its own', () => {
    const roles = [...functions().values()].map(({ Role }) => idOf(Role));
    assert.equal(new Set(roles).size, roles.length);
    for (const id of roles) assert.equal(get().typeOf(id), 'AWS::IAM::Role', id);
  });

  test('roles name actions and resources, and never all of them', () => {
    for (const [id, action, resource] of grants(get())) {
      assert.doesNotMatch(action, /\*/, id);
      assert.doesNotMatch(JSON.stringify(resource), /\*/, id);
    }
  });

  test('roles grant what the code calls, no more and no less', async () => {
    const actions = (service: string) =>
      grants(get()).flatMap(([, action]) => (action.startsWith(`${service}:`) ? [action] : []));
    assert.deepEqual(sorted(actions('dynamodb')), await callsOf('functions/store', 'dynamodb'));
    assert.deepEqual(sorted(actions('events')), await callsOf('functions/bus', 'events'));
  });

  test('the api touches no service; it writes clusters and subscriptions alone, and deletes subscriptions', () => {
    for (const [id, action, , condition] of grants(get())) {
      const isWrite = /^dynamodb:(Put|Update|Delete)|^events:Put/.test(action);
      if (id === 'ApiRole' && isWrite) assert.deepEqual(condition, API_WRITES[action], action);
      if (id === 'IngestRole') assert.doesNotMatch(action, /Delete/, id);
    }
  });

  test('a rule may invoke the function that it targets', () => {
    const allowed = new Set(
      get()
        .all('AWS::Lambda::Permission', permission)
        .map(([, { SourceArn, FunctionName }]) => `${idOf(SourceArn)} → ${idOf(FunctionName)}`),
    );
    for (const [id, { Targets }] of get().all('AWS::Events::Rule', rule)) {
      for (const target of Targets.map(({ Arn }) => idOf(Arn)))
        if (get().typeOf(target) === FUNCTION)
          assert.ok(allowed.has(`${id} → ${target}`), `${id} → ${target}`);
    }
  });

  test('a rule may send to the queues that it targets, dead letters too', () => {
    const allowed = new Set(
      get()
        .all('AWS::SQS::QueuePolicy', queuePolicy)
        .flatMap(([, { PolicyDocument }]) => PolicyDocument.Statement)
        .filter(({ Effect, Principal }) => Effect === 'Allow' && Principal.Service === 'events.amazonaws.com')
        .flatMap(({ Condition, Resource }) =>
          Resource.map((queue) => `${idOf(Condition.ArnEquals?.['aws:SourceArn'])} → ${idOf(queue)}`),
        ),
    );
    for (const [id, { Targets }] of get().all('AWS::Events::Rule', rule)) {
      for (const target of Targets.flatMap((it) => [idOf(it.Arn), idOf(it.DeadLetterConfig?.Arn)]))
        if (get().typeOf(target) === QUEUE) assert.ok(allowed.has(`${id} → ${target}`), `${id} → ${target}`);
    }
  });

  test('a mistake does not cost the table', () => {
    const tables = get().all('AWS::DynamoDB::Table', table);
    assert.equal(tables.length, 1);
    for (const [id, properties] of tables) {
      assert.deepEqual(get().policiesOf(id), ['Retain', 'Retain']);
      assert.equal(properties.DeletionProtectionEnabled, true);
      assert.equal(properties.PointInTimeRecoverySpecification?.PointInTimeRecoveryEnabled, true);
      assert.equal(properties.SSESpecification?.SSEEnabled, true);
      assert.deepEqual(properties.TimeToLiveSpecification, { AttributeName: 'ttl', Enabled: true });
    }
  });

  test('the table has no stream (P7)', () => {
    for (const [, { StreamSpecification }] of get().all('AWS::DynamoDB::Table', table))
      assert.equal(StreamSpecification, undefined);
  });

  test('logs are not kept for ever', () => {
    const groups = get().all('AWS::Logs::LogGroup', logGroup);
    assert.equal(groups.length, functions().size);
    for (const [id, { RetentionInDays }] of groups) assert.ok(RetentionInDays, id);
  });

  test('an alarm watches a metric that there is', () => {
    const own = new Set(
      get()
        .all('AWS::Logs::MetricFilter', metricFilter)
        .flatMap(([, it]) => it.MetricTransformations)
        .map(({ MetricNamespace, MetricName }) => `${MetricNamespace} ${MetricName}`),
    );
    for (const [id, it] of get().all('AWS::CloudWatch::Alarm', alarm)) {
      if (it.Namespace === 'AWS/Lambda') {
        assert.deepEqual(
          it.Dimensions.map(({ Name, Value }) => [Name, get().typeOf(idOf(Value))]),
          [['FunctionName', FUNCTION]],
          id,
        );
      } else assert.ok(own.has(`${it.Namespace} ${it.MetricName}`), id);
    }
  });

  test('an alarm about durations rings at 80 % of the timeout', () => {
    const slow = get()
      .all('AWS::CloudWatch::Alarm', alarm)
      .filter(([, { MetricName }]) => MetricName === 'Duration');
    assert.equal(slow.length, functions().size);
    for (const [id, { Dimensions, Threshold }] of slow) {
      const watched = functions().get(idOf(Dimensions[0]?.Value) ?? '');
      assert.equal(Threshold, (watched?.Timeout ?? 0) * 800, id);
    }
  });

  test('a log message that is counted is one that the code writes', async () => {
    const sources = await sourcesOf('functions');
    for (const [id, { FilterPattern }] of get().all('AWS::Logs::MetricFilter', metricFilter)) {
      const message = /\$\.message = "([^"]+)"/.exec(FilterPattern)?.[1];
      if (message !== undefined) assert.ok(sources.includes(`'${message}'`), id);
    }
  });
}

/** Under which keys the api may do what changes something. */
const API_WRITES: Readonly<Record<string, unknown>> = {
  'dynamodb:PutItem': {
    'ForAllValues:StringEquals': { 'dynamodb:LeadingKeys': ['CLUSTERS', 'SUBSCRIPTIONS'] },
  },
  'dynamodb:DeleteItem': { 'ForAllValues:StringEquals': { 'dynamodb:LeadingKeys': ['SUBSCRIPTIONS'] } },
};

/** Every action that a role may do, on what, and under which condition. */
function grants(template: Template): [role: string, action: string, resource: unknown, condition: unknown][] {
  return template
    .all('AWS::IAM::Role', role)
    .flatMap(([id, { Policies }]) =>
      Policies.flatMap(({ PolicyDocument }) => PolicyDocument.Statement).flatMap(
        ({ Action, Resource, Condition }) =>
          Action.map((action): [string, string, unknown, unknown] => [id, action, Resource, Condition]),
      ),
    );
}

/** The actions behind the SDK commands that a folder sends. */
async function callsOf(folder: string, service: string): Promise<string[]> {
  const commands = (await sourcesOf(folder)).matchAll(/new (\w+)Command\(/g);
  return sorted([...commands].map(([, name]) => `${service}:${name}`));
}

async function sourcesOf(folder: string): Promise<string> {
  const names = await readdir(join(ROOT, folder), { recursive: true });
  const files = names.filter((name) => name.endsWith('.ts'));
  return (await Promise.all(files.map((name) => readFile(join(ROOT, folder, name), 'utf8')))).join('\n');
}

function sorted(items: Iterable<string>): string[] {
  return [...new Set(items)].sort();
}

/** Names of the files in a zip, from its central directory. Source: APPNOTE 4.3.12. */
function namesIn(zip: Buffer): string[] {
  const names: string[] = [];
  for (let at = zip.indexOf('PK\x01\x02'); at >= 0; at = zip.indexOf('PK\x01\x02', at + 1)) {
    names.push(zip.toString('utf8', at + 46, at + 46 + zip.readUInt16LE(at + 28)));
  }
  return names;
}
