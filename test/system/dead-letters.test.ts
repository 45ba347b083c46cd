import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, test } from 'node:test';
import { run } from '../../cli/replay.ts';
import type { DeltaDetail } from '../../wire/delta.ts';
import { type Cloud, type CloudOptions, startCloud } from './cloud.ts';
import { Subscriber } from './subscriber.ts';

const CLUSTER = 'prod-eu';
const GROUP = `${CLUSTER}/default/web:80`;
const MAIN = new URL('../../cli/main.ts', import.meta.url).pathname;
/** Any will do. */
const CREDENTIALS = { AWS_ACCESS_KEY_ID: 'local', AWS_SECRET_ACCESS_KEY: 'local' };
Object.assign(process.env, CREDENTIALS);

function service(name: string, version: number) {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { namespace: 'default', name, uid: `uid-${name}`, resourceVersion: `${version}` },
    spec: { clusterIP: '10.96.0.1', ports: [{ name: 'http', port: 80 }] },
  };
}

function slice(service: string, version: number, ...ips: readonly string[]) {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      ...{
        namespace: 'default',
        name: `${service}-a`,
        uid: `slice-${service}`,
        resourceVersion: `${version}`,
      },
      labels: { 'kubernetes.io/service-name': service },
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080 }],
    endpoints: ips.map((ip) => ({ addresses: [ip] })),
  };
}

/** A cloud, and a cluster in it. */
class World implements AsyncDisposable {
  readonly cloud: Cloud;
  #version = 10;

  private constructor(cloud: Cloud) {
    this.cloud = cloud;
  }

  static async start(options?: CloudOptions): Promise<World> {
    return new World(await startCloud(options));
  }

  async tell(...objects: readonly object[]): Promise<number> {
    const events = objects.map((object) => ({ type: 'MODIFIED', object }));
    const { status } = await this.cloud.post('/v1/events', { cluster: CLUSTER, epoch: 1, events });
    return status;
  }

  /** Sets a service's addresses, in an object of a new version. */
  set(service: string, ...ips: readonly string[]): Promise<number> {
    return this.tell(slice(service, this.#version++, ...ips));
  }

  /** Refuses what is chosen, by a code. */
  refuse(code: string, isRefused: (detail: DeltaDetail) => boolean): void {
    this.cloud.mood = { kind: 'picky', codeOf: (detail) => (isRefused(detail) ? code : null) };
  }

  async subscriber(): Promise<Subscriber> {
    const subscriber = new Subscriber(CLUSTER);
    subscriber.take(await this.cloud.entries());
    return subscriber;
  }

  /** Ids on the bus, in order. */
  async ids(): Promise<string[]> {
    return (await this.cloud.entries()).map(({ detail }) => (detail as DeltaDetail).id);
  }

  /** Replays, as an operator does. */
  async replay(...flags: readonly string[]) {
    const { endpoint, tableName, busName } = this.cloud;
    const out: string[] = [];
    const err: string[] = [];
    const io = {
      out: (line: string) => void out.push(line),
      err: (line: string) => void err.push(line),
      env: { AWS_REGION: 'us-east-1' },
      signal: new AbortController().signal,
    };
    const named = ['--table', tableName, '--bus', busName, '--endpoint', endpoint];
    const status = await run(['--dead-letters', ...named, ...flags], io);
    return { status, out, err };
  }

  /** How many dead letters the last sweep told of. */
  async swept(): Promise<unknown> {
    this.cloud.lines.splice(0);
    await this.cloud.sweep();
    const line = this.cloud.lines.find(({ message }) => message === 'dead letters wait for a replay');
    return line?.dead_letters ?? 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cloud[Symbol.asyncDispose]();
  }
}

describe('what the bus refuses for good', () => {
  for (const code of ['InvalidArgument', 'MalformedDetail'])
    test(`${code} is a dead letter: told by each sweep until it was replayed with its id`, async () => {
      await using world = await World.start();
      await world.tell(service('web', 1));
      world.refuse(code, ({ id }) => id === `${GROUP}#2`);
      assert.equal(await world.set('web', '10.0.0.1'), 200, 'the relay has nothing to send again');
      assert.equal(await world.swept(), 1);
      assert.equal(await world.swept(), 1);
      assert.deepEqual(await world.ids(), [`${GROUP}#1`]);

      assert.deepEqual(await world.replay(), {
        status: 1,
        out: [`${GROUP}#2: refused again: ${code}`],
        err: [],
      });
      assert.equal(await world.swept(), 1);
      world.cloud.mood = { kind: 'well' };
      assert.deepEqual(await world.replay('--dry-run'), {
        status: 1,
        out: [`${GROUP}#2: would be published`],
        err: [],
      });
      assert.deepEqual(await world.ids(), [`${GROUP}#1`]);
      assert.deepEqual(await world.replay(), { status: 0, out: [`${GROUP}#2: published`], err: [] });
      assert.deepEqual(await world.ids(), [`${GROUP}#1`, `${GROUP}#2`]);
      assert.equal(await world.swept(), 0);
      assert.deepEqual(await world.replay(), { status: 0, out: ['there are no dead letters'], err: [] });
    });

  for (const code of [
    'AccessDeniedException',
    'ResourceNotFoundException',
    'NotAuthorizedForSourceException',
  ])
    test(`${code} is none: it stays pending, and is published once that ends`, async () => {
      await using world = await World.start();
      await world.tell(service('web', 1));
      world.refuse(code, () => true);
      assert.equal(await world.set('web', '10.0.0.1'), 503);
      assert.equal(await world.swept(), 0);
      world.cloud.mood = { kind: 'well' };
      assert.equal((await world.cloud.sweep())?.published, 1);
      assert.equal((await world.subscriber()).replay().port(GROUP).addresses.size, 1);
    });

  test('what follows it in its port goes on: subscribers see the gap, and the replay fills it (P2)', async () => {
    await using world = await World.start();
    await world.tell(service('web', 1));
    world.refuse('InvalidArgument', ({ sequence }) => sequence === 2 || sequence === 4);
    for (const ips of [['10.0.0.1'], ['10.0.0.1', '10.0.0.2'], ['10.0.0.2'], ['10.0.0.3']])
      assert.equal(await world.set('web', ...ips), 200);
    assert.deepEqual(
      (await world.ids()).map((id) => id.split('#')[1]),
      ['1', '3', '5'],
    );
    await assert.rejects(async () => (await world.subscriber()).replay(), /the sequence has a gap/);
    assert.equal(await world.swept(), 2);

    world.cloud.mood = { kind: 'well' };
    const { status, out } = await world.replay();
    assert.deepEqual([status, out], [0, [`${GROUP}#2: published`, `${GROUP}#4: published`]]);
    const replica = (await world.subscriber()).replay();
    assert.deepEqual([...replica.port(GROUP).addresses.keys()], ['10.0.0.3:8080']);
    assert.equal(replica.port(GROUP).sequence, 5);
  });

  test('a replay goes by port and sequence; a port whose first is refused for now waits, the others do not', async () => {
    await using world = await World.start();
    await world.tell(service('web', 1), service('api', 2));
    world.refuse('InvalidArgument', ({ sequence }) => sequence > 1);
    for (const name of ['web', 'api']) for (const ip of ['10.0.0.1', '10.0.0.2']) await world.set(name, ip);
    world.refuse('AccessDeniedException', ({ service }) => service === 'api');
    const api = `${CLUSTER}/default/api:80`;
    assert.deepEqual(await world.replay(), {
      status: 1,
      out: [
        `${api}#2: refused again: AccessDeniedException`,
        `${api}#3: left alone, since one before it was refused`,
        `${GROUP}#2: published`,
        `${GROUP}#3: published`,
      ],
      err: [],
    });
    world.cloud.mood = { kind: 'well' };
    assert.equal((await world.replay()).status, 0);
    for (const group of [api, GROUP])
      assert.equal((await world.subscriber()).replay().port(group).sequence, 3);
  });

  test('one part of a split delta makes a dead letter of it, which is replayed with all of its parts', async () => {
    await using world = await World.start();
    await world.tell(service('web', 1));
    world.refuse('MalformedDetail', ({ part }) => part?.index === 1);
    const ips = Array.from({ length: 10_000 }, (_, index) => `10.0.${index >> 8}.${index & 255}`);
    assert.equal(await world.set('web', ...ips), 200);
    assert.deepEqual(await world.ids(), [`${GROUP}#1`, `${GROUP}#2/0`, `${GROUP}#2/2`]);
    await assert.rejects(
      async () => (await world.subscriber()).replay(),
      /parts of a split delta are missing/,
    );
    assert.equal(await world.swept(), 1);
    world.cloud.mood = { kind: 'well' };
    assert.deepEqual(await world.replay(), { status: 0, out: [`${GROUP}#2: published`], err: [] });
    const subscriber = await world.subscriber();
    assert.equal(subscriber.replay().port(GROUP).addresses.size, ips.length);
    assert.deepEqual(
      [...subscriber.duplicates()].filter(([, again]) => again > 0),
      [
        [`${GROUP}#2/0`, 1],
        [`${GROUP}#2/2`, 1],
      ],
    );
  });

  const mistakes: Readonly<Record<string, readonly [args: readonly string[], says: RegExp]>> = {
    'what is to be replayed must be said': [[], /^--dead-letters: must be given/],
    'a table must be named': [['--dead-letters'], /^--table: required, or TABLE_NAME in the environment$/],
    'a bus must be named': [['--dead-letters', '--table', 't'], /^--bus: required, or BUS_NAME/],
    'a region must be named': [
      ['--dead-letters', '--table', 't', '--bus', 'b'],
      /^--region: required, or AWS_REGION/,
    ],
    'an endpoint must be a URL': [['--dead-letters', '--endpoint', 'there'], /^--endpoint: must be an http/],
    'no flag is made up': [['--dead-letters', '--force'], /'--force'.*--help lists the flags$/],
  };
  for (const [sentence, [args, says]] of Object.entries(mistakes))
    test(`of a replay ${sentence}`, async () => {
      const io = { out: assert.fail, err: assert.fail, env: {}, signal: new AbortController().signal };
      await assert.rejects(run(args, io), (error: Error) => says.test(error.message));
    });

  test('the command line itself, with credentials from the environment', async () => {
    await using world = await World.start();
    world.refuse('InvalidArgument', () => true);
    await world.tell(service('web', 1));
    world.cloud.mood = { kind: 'well' };
    const { endpoint, tableName, busName } = world.cloud;
    const env = {
      ...process.env,
      ...CREDENTIALS,
      AWS_REGION: 'us-east-1',
      TABLE_NAME: tableName,
      BUS_NAME: busName,
    };
    const stdout = await new Promise((resolve, reject) => {
      const args = [MAIN, 'replay', '--dead-letters', '--endpoint', endpoint];
      execFile(process.execPath, args, { env }, (error, text) => (error ? reject(error) : resolve(text)));
    });
    assert.equal(stdout, `${GROUP}#1: published\n`);
  });
});
