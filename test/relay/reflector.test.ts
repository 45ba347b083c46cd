import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { type ApiServer, startApiServer } from '../../infra/local/cluster/api-server.ts';
import type { Fault, Misbehaviour } from '../../infra/local/cluster/misbehaviour.ts';
import { Connection } from '../../relay/connection.ts';
import { type Observation, Reflector } from '../../relay/reflector.ts';
import { watchedResources } from '../../relay/resources.ts';
import { createService, createSlice, deleteSlice, testLog, updateSlice } from './builders.ts';
import { HastyTimers } from './manual-timers.ts';

const [, SLICES] = watchedResources('slices');
/** What a server says of a stream that neither ends nor says anything, in milliseconds of real time. */
const SILENCE_MS = 60;

/** A reflector of slices on a demo server, and what it saw. */
class Rig implements AsyncDisposable {
  readonly server: ApiServer;
  readonly timers = new HastyTimers();
  readonly endings: string[] = [];
  readonly reflector: Reflector;
  readonly #connection: Connection;
  readonly #stop = new AbortController();
  readonly #observations: AsyncGenerator<Observation, void, undefined>;
  /** Names that are there, by what was seen. */
  readonly names = new Set<string>();
  readonly seen: string[] = [];
  token: string | null = null;
  reads = 0;

  constructor(server: ApiServer, namespace: string | null = null) {
    this.server = server;
    this.#connection = new Connection({
      timers: this.timers,
      log: testLog(),
      timeouts: { headersMs: SILENCE_MS, silenceMs: SILENCE_MS },
      readAccess: async () => {
        this.reads++;
        const headers = this.token === null ? {} : { authorization: `Bearer ${this.token}` };
        return { server: server.url, tls: {}, proxy: null, headers };
      },
    });
    this.reflector = new Reflector(SLICES, namespace, {
      connection: this.#connection,
      timers: this.timers,
      random: () => 0,
      log: testLog(),
      onEnding: (kind) => this.endings.push(kind),
    });
    this.#observations = this.reflector.observations(this.#stop.signal);
  }

  static async start(options: Partial<Parameters<typeof startApiServer>[0]> = {}): Promise<Rig> {
    const server = await startApiServer({ clock: new HastyTimers(), ...options });
    return new Rig(server);
  }

  /** The next thing that is seen, as text. */
  async next(): Promise<string> {
    const { value } = await this.#observations.next();
    if (!value) return 'end';
    const text = this.#note(value);
    this.seen.push(text);
    return text;
  }

  #note(seen: Observation): string {
    switch (seen.kind) {
      case 'listed':
        this.names.clear();
        for (const { name } of seen.objects) this.names.add(name);
        return `listed ${seen.cause} ${[...this.names].sort().join(',')}${seen.isRewound ? ' rewound' : ''}`;
      case 'event':
        if (seen.type === 'DELETED') this.names.delete(seen.held.name);
        else this.names.add(seen.held.name);
        return `${seen.type} ${seen.held.name}`;
      case 'denied':
        return `denied ${seen.status}`;
      default:
        return seen satisfies never;
    }
  }

  /** Requests of slices so far: `watchList FROM`, `watch`, `list`, `probe`. */
  get requests(): string[] {
    return this.server.requests.map(({ url }) => {
      const query = new URL(url, 'http://localhost').searchParams;
      if (query.get('limit') === '1') return 'probe';
      if (!query.has('watch')) return `list${query.has('continue') ? ' more' : ''}`;
      if (query.get('sendInitialEvents') === 'true')
        return `watchList ${query.get('resourceVersion')}`.trim();
      return `watch ${query.get('resourceVersion')}`;
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#observations.return();
    await this.#connection[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
  }
}

/** Lets real I/O go on until a condition holds. */
async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 10_000;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`never: ${condition}`);
    await new Promise(setImmediate);
  }
}

function hit(fault: Fault, rest: Omit<Misbehaviour, 'fault'> = {}): Misbehaviour {
  return { fault, times: 1, ...rest };
}

suite('list', { concurrency: true }, () => {
  test('W1: a watch-list ends at its bookmark, and the same stream goes on', async () => {
    await using rig = await Rig.start();
    createSlice(rig.server.objects, { name: 'a', service: 'web' });
    assert.equal(await rig.next(), 'listed start a');
    createSlice(rig.server.objects, { name: 'b', service: 'web' });
    updateSlice(rig.server.objects, { name: 'a', service: 'web', ips: ['10.0.0.2'] });
    deleteSlice(rig.server.objects, 'b');
    assert.deepEqual(
      [await rig.next(), await rig.next(), await rig.next()],
      ['ADDED b', 'MODIFIED a', 'DELETED b'],
    );
    assert.deepEqual(rig.requests, ['watchList']);
    const [{ url } = { url: '' }] = rig.server.requests;
    assert.equal(
      url,
      '/apis/discovery.k8s.io/v1/endpointslices?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan' +
        '&allowWatchBookmarks=true&resourceVersion=&timeoutSeconds=300',
    );
  });

  test('W1: an end before the bookmark is discarded and tried again', async () => {
    await using rig = await Rig.start();
    createSlice(rig.server.objects, { name: 'a', service: 'web' });
    createSlice(rig.server.objects, { name: 'b', service: 'web' });
    await rig.server.misbehave(hit({ kind: 'shortWatch', afterLines: 1 }));
    assert.equal(await rig.next(), 'listed start a,b');
    assert.deepEqual(rig.timers.sleeps, [800]);
  });

  test('W2: a server without watch-list is listed by pages, and watched from there', async () => {
    await using rig = await Rig.start({ watchList: false });
    for (let index = 0; index < 1001; index++) {
      createSlice(rig.server.objects, { name: `s${index}`, service: 'web' });
    }
    assert.match(await rig.next(), /^listed start s0,s1,/);
    assert.equal(rig.names.size, 1001);
    updateSlice(rig.server.objects, { name: 's7', service: 'web', ips: [] });
    assert.equal(await rig.next(), 'MODIFIED s7');
    const version = rig.server.snapshot().revision - 1;
    assert.deepEqual(rig.requests, ['watchList', 'list', 'list more', 'list more', `watch ${version}`]);
  });

  const PARTIAL: Record<string, Fault> = {
    'W2: 410 within the pages': { kind: 'status', code: 410 },
    'W2: a page that is cut short': { kind: 'cutList' },
    'W2: a page that stalls': { kind: 'stallMidStream' },
    'W2: a page that fails': { kind: 'status', code: 500 },
  };
  for (const [name, fault] of Object.entries(PARTIAL)) {
    test(`${name} begins the list again, and deletes nothing`, async () => {
      await using rig = await Rig.start({ watchList: false });
      for (let index = 0; index < 600; index++) {
        createSlice(rig.server.objects, { name: `s${index}`, service: 'web' });
      }
      await rig.server.misbehave(hit(fault, { on: { verb: 'list' }, skip: 1 }));
      assert.match(await rig.next(), /^listed start /);
      assert.equal(rig.names.size, 600);
      assert.equal(rig.requests.filter((request) => request === 'list').length, 2);
    });
  }

  test('W14: a relay for one namespace watches that namespace', async () => {
    const server = await startApiServer({ clock: new HastyTimers() });
    await using rig = new Rig(server, 'kube-public');
    createSlice(server.objects, { name: 'a', service: 'web' });
    createSlice(server.objects, { name: 'b', service: 'web', namespace: 'kube-public' });
    assert.equal(await rig.next(), 'listed start b');
    assert.match(
      server.requests[0]?.url ?? '',
      /^\/apis\/discovery\.k8s\.io\/v1\/namespaces\/kube-public\/endpointslices\?/,
    );
  });

  test('W7: a new list that is asked for ends the watch first', async () => {
    await using rig = await Rig.start();
    createSlice(rig.server.objects, { name: 'a', service: 'web' });
    await rig.next();
    rig.reflector.relist('audit');
    assert.equal(await rig.next(), 'listed audit a');
    assert.deepEqual(rig.requests, ['watchList', 'watchList']);
    createSlice(rig.server.objects, { name: 'b', service: 'web' });
    assert.equal(await rig.next(), 'ADDED b');
    assert.deepEqual(rig.server.watched, ['endpointslices']);
  });
});

/** One row of W4: what goes wrong with the watch behind a list, and what is asked for then. */
interface Row {
  readonly fault: Fault;
  readonly times?: number;
  /** What follows the watch that fails; V is its version. */
  readonly want: readonly string[];
  /** In milliseconds, without jitter; the restart before has taken the first, of 800. */
  readonly sleeps: readonly number[];
  readonly ending: string;
  readonly isListed?: string;
}

const ROWS: Record<string, Row> = {
  'ERROR 410 lists again, not older than the last version': {
    fault: { kind: 'errorEvent', code: 410 },
    want: ['watchList V'],
    sleeps: [],
    ending: 'expired',
    isListed: 'expired',
  },
  'HTTP 410 does the same': {
    fault: { kind: 'status', code: 410 },
    want: ['watchList V'],
    sleeps: [],
    ending: 'expired',
    isListed: 'expired',
  },
  'HTTP 410 for that list too asks for no version any more': {
    fault: { kind: 'status', code: 410 },
    times: 2,
    want: ['watchList V', 'watchList'],
    sleeps: [1600],
    ending: 'expired',
    isListed: 'expired',
  },
  'ERROR ResourceVersionTooLarge asks for no version any more': {
    fault: { kind: 'errorEvent', code: 504 },
    want: ['watchList'],
    sleeps: [1600],
    ending: 'tooLarge',
    isListed: 'tooLarge',
  },
  'HTTP ResourceVersionTooLarge does the same': {
    fault: { kind: 'status', code: 504 },
    want: ['watchList'],
    sleeps: [1600],
    ending: 'tooLarge',
    isListed: 'tooLarge',
  },
  '429 waits as long as Retry-After says, and goes on at the same version': {
    fault: { kind: 'status', code: 429, retryAfterSeconds: 7 },
    want: ['watch V'],
    sleeps: [7000],
    ending: 'throttled',
  },
  '429 with a short Retry-After backs off': {
    fault: { kind: 'status', code: 429, retryAfterSeconds: 0 },
    times: 2,
    want: ['watch V', 'watch V'],
    sleeps: [1600, 3200],
    ending: 'throttled',
  },
  'ERROR 500 backs off, and goes on at the same version': {
    fault: { kind: 'errorEvent', code: 500 },
    want: ['watch V'],
    sleeps: [1600],
    ending: 'failed',
  },
  'HTTP 503 does the same': {
    fault: { kind: 'status', code: 503 },
    times: 2,
    want: ['watch V', 'watch V'],
    sleeps: [1600, 3200],
    ending: 'failed',
  },
  'five errors in a row list again': {
    fault: { kind: 'status', code: 500 },
    times: 5,
    want: ['watch V', 'watch V', 'watch V', 'watch V', 'watchList V'],
    sleeps: [1600, 3200, 6400, 12_800, 25_600],
    ending: 'failed',
    isListed: 'errors',
  },
  'a watch that ends at once without an event backs off': {
    fault: { kind: 'shortWatch' },
    want: ['watch V'],
    sleeps: [1600],
    ending: 'ended',
  },
  'a connection that is reset within the stream backs off, same version, behind a look how far the server is':
    {
      fault: { kind: 'resetMidStream' },
      want: ['probe', 'watch V'],
      sleeps: [1600],
      ending: 'broken',
    },
  'a line that is no JSON does the same': {
    fault: { kind: 'garbageLine' },
    want: ['probe', 'watch V'],
    sleeps: [1600],
    ending: 'broken',
  },
  'W8: a line without end does the same': {
    fault: { kind: 'longLine', bytes: 17_000_000 },
    want: ['probe', 'watch V'],
    sleeps: [1600],
    ending: 'broken',
  },
  'a connection without any answer does the same': {
    fault: { kind: 'resetBeforeHeaders' },
    want: ['probe', 'watch V'],
    sleeps: [1600],
    ending: 'broken',
  },
  'W6: no headers in time is the same': {
    fault: { kind: 'stallBeforeHeaders' },
    want: ['probe', 'watch V'],
    sleeps: [1600],
    ending: 'broken',
  },
  'W6: a half-open stream is cut, and goes on at the same version at once': {
    fault: { kind: 'stallMidStream' },
    want: ['probe', 'watch V'],
    sleeps: [],
    ending: 'silent',
  },
};

suite('W4', { concurrency: true }, () => {
  for (const [name, { fault, times = 1, want, sleeps, ending, isListed }] of Object.entries(ROWS)) {
    test(name, async () => {
      await using rig = await Rig.start();
      const { objects } = rig.server;
      createSlice(objects, { name: 'a', service: 'web' });
      await rig.next();
      // The list's own stream ends, so that the watch that goes wrong is one from a version.
      createSlice(objects, { name: 'b', service: 'web' });
      await rig.next();
      const version = String(rig.server.snapshot().revision);
      await rig.server.misbehave({ fault, times, on: { verb: 'watch' } });
      await rig.server.restart();
      const before = rig.requests.length;
      const { length: slept } = rig.timers.sleeps;
      const next = rig.next();
      const isBack = () => rig.requests.length >= before + 2 + want.length && rig.server.watched.length > 0;
      await until(isBack);
      createSlice(objects, { name: 'c', service: 'web' });
      if (isListed !== undefined) assert.match(await next, new RegExp(`^listed ${isListed} a,b`));
      while (!rig.names.has('c')) await (isListed === undefined ? next : rig.next());
      // The first sleep, of 800 ms, is that of the stream that the restart broke.
      assert.deepEqual(rig.timers.sleeps.slice(slept + 1), sleeps);
      assert.deepEqual(rig.requests.slice(before), [
        'probe',
        `watch ${version}`,
        ...want.map((request) => request.replace('V', version)),
      ]);
      assert.equal(rig.endings[1], ending);
      assert.deepEqual([...rig.names].sort(), ['a', 'b', 'c']);
    });
  }
});

suite('watch', { concurrency: true }, () => {
  /** A watch that has listed `a`, whose connection was then lost. */
  async function lost(break_: (rig: Rig) => void | Promise<void>): Promise<Rig> {
    const rig = await Rig.start();
    createSlice(rig.server.objects, { name: 'a', service: 'web' });
    await rig.next();
    await break_(rig);
    return rig;
  }

  test('W4: a bookmark moves the version from which a watch goes on', async () => {
    await using rig = await lost(() => {});
    const next = rig.next();
    createService(rig.server.objects, 'other');
    const version = String(rig.server.snapshot().revision);
    rig.server.bookmark();
    await until(() => rig.reflector.resourceVersion === version);
    await rig.server.restart();
    await until(() => rig.requests.length >= 3);
    assert.deepEqual(rig.requests.slice(1), ['probe', `watch ${version}`]);
    createSlice(rig.server.objects, { name: 'b', service: 'web' });
    assert.equal(await next, 'ADDED b');
  });

  test('W4: a server that is away for a while is asked until it is back, with growing delays', async () => {
    await using rig = await lost(() => {});
    const outage = await rig.server.misbehave({ fault: { kind: 'refuse' } });
    const next = rig.next();
    await until(() => rig.timers.sleeps.length >= 8);
    assert.deepEqual(rig.timers.sleeps.slice(0, 8), [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
    assert.equal(rig.reflector.isLive, false);
    await outage[Symbol.asyncDispose]();
    createSlice(rig.server.objects, { name: 'b', service: 'web' });
    assert.equal(await next, 'ADDED b');
    assert.equal(rig.names.size, 2);
  });

  test('W5: after two minutes without a failure the delays start anew', async () => {
    await using rig = await lost(async ({ server }) => server.restart());
    const next = rig.next();
    await until(() => rig.reflector.isLive && rig.requests.length >= 3);
    rig.timers.pass(120_000);
    await rig.server.restart();
    await until(() => rig.requests.length >= 5);
    createSlice(rig.server.objects, { name: 'b', service: 'web' });
    await next;
    assert.deepEqual(rig.timers.sleeps, [800, 800]);
  });

  test('W12: a 401 reads the token again and is tried at once', async () => {
    const server = await startApiServer({ clock: new HastyTimers(), token: 'old' });
    await using rig = new Rig(server);
    rig.token = 'old';
    createSlice(server.objects, { name: 'a', service: 'web' });
    await rig.next();
    rig.token = 'new';
    server.setToken('new');
    const next = rig.next();
    await server.restart();
    createSlice(server.objects, { name: 'b', service: 'web' });
    assert.equal(await next, 'ADDED b');
    assert.deepEqual([rig.reads, rig.timers.sleeps], [2, [800]]);
  });

  test('W12: a token that is refused again backs off', async () => {
    const server = await startApiServer({ clock: new HastyTimers(), token: 'right' });
    await using rig = new Rig(server);
    rig.token = 'wrong';
    const next = rig.next();
    await until(() => rig.timers.sleeps.length >= 2);
    rig.token = 'right';
    assert.equal(await next, 'listed start ');
    assert.deepEqual([rig.endings[0], ...rig.timers.sleeps.slice(0, 2)], ['unauthorized', 800, 1600]);
  });

  for (const code of [403, 404] as const) {
    test(`W4: ${code} is asked again every minute, and nothing is taken for deleted`, async () => {
      await using rig = await lost(async ({ server }) => {
        await server.misbehave({ fault: { kind: 'status', code }, times: 2, on: { verb: 'watch' } });
        await server.restart();
      });
      assert.equal(await rig.next(), `denied ${code}`);
      assert.equal(rig.reflector.isLive, false);
      assert.equal(await rig.next(), `denied ${code}`);
      createSlice(rig.server.objects, { name: 'b', service: 'web' });
      assert.equal(await rig.next(), 'ADDED b');
      assert.deepEqual(rig.timers.sleeps, [800, 60_000, 60_000]);
      assert.deepEqual([...rig.names], ['a', 'b']);
    });
  }

  test('storage that went back to a backup is found out, although a watch of it would say nothing', async () => {
    await using rig = await lost(() => {});
    const backup = rig.server.snapshot();
    createSlice(rig.server.objects, { name: 'b', service: 'web' });
    await rig.next();
    rig.server.restore(backup);
    assert.equal(await rig.next(), 'listed tooLarge a rewound');
    assert.deepEqual(rig.endings, ['broken', 'rewound']);
  });

  test('W6: a quiet cluster is not listed again', async () => {
    await using rig = await lost(() => {});
    const next = rig.next();
    await until(() => rig.requests.length >= 5);
    const version = String(rig.server.snapshot().revision);
    createSlice(rig.server.objects, { name: 'b', service: 'web' });
    assert.equal(await next, 'ADDED b');
    assert.deepEqual(rig.requests.slice(0, 5), [
      'watchList',
      'probe',
      `watch ${version}`,
      'probe',
      `watch ${version}`,
    ]);
    assert.deepEqual(rig.timers.sleeps, []);
  });

  test('S46: a BOOKMARK is never an object', async () => {
    await using rig = await lost(({ server }) => server.bookmark());
    createSlice(rig.server.objects, { name: 'b', service: 'web' });
    assert.equal(await rig.next(), 'ADDED b');
  });
});
