import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { startApiServer } from '../../infra/local/cluster/api-server.ts';
import type { Fault } from '../../infra/local/cluster/misbehaviour.ts';
import { createService, createSlice, deleteSlice, updateSlice } from './builders.ts';
import { HastyTimers } from './manual-timers.ts';
import { hit, Rig, until } from './reflector-rig.ts';

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

  const UNLISTED: Record<
    string,
    { readonly fault: Fault; readonly want: readonly string[]; readonly sleeps: number[] }
  > = {
    'W1: a watch-list that is reset before its bookmark is made again': {
      fault: { kind: 'resetMidStream', afterLines: 1 },
      want: ['watchList', 'watchList'],
      sleeps: [800],
    },
    'W1: a watch-list that breaks off within a character is made again': {
      fault: { kind: 'cutLine', afterLines: 1 },
      want: ['watchList', 'watchList'],
      sleeps: [800],
    },
    'W1: a watch-list with an ERROR 410 before its bookmark is made again': {
      fault: { kind: 'errorEvent', code: 410, afterLines: 1 },
      want: ['watchList', 'watchList'],
      sleeps: [800],
    },
    'W1: a watch-list with an ERROR 500 before its bookmark is made again': {
      fault: { kind: 'errorEvent', code: 500, afterLines: 1 },
      want: ['watchList', 'watchList'],
      sleeps: [800],
    },
    'W4: a watch-list that is throttled waits': {
      fault: { kind: 'status', code: 429, retryAfterSeconds: 9 },
      want: ['watchList', 'watchList'],
      sleeps: [9000],
    },
    'W1: a bookmark that does not say that it ends the list does not': {
      fault: {
        kind: 'extraLines',
        lines: ['{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"3"}}}'],
        afterLines: 1,
      },
      want: ['watchList'],
      sleeps: [],
    },
    'W2: a watch-list that falls silent before its bookmark is given up for pages': {
      fault: { kind: 'stallMidStream', afterLines: 1 },
      want: ['watchList', 'list', 'watch V'],
      sleeps: [],
    },
  };
  for (const [name, { fault, want, sleeps }] of Object.entries(UNLISTED)) {
    test(name, async () => {
      await using rig = await Rig.start();
      createSlice(rig.server.objects, { name: 'a', service: 'web' });
      createSlice(rig.server.objects, { name: 'b', service: 'web' });
      await rig.server.misbehave(hit(fault));
      assert.equal(await rig.next(), 'listed start a,b');
      const version = String(rig.server.snapshot().revision);
      const next = rig.next();
      await until(() => rig.requests.length === want.length);
      createSlice(rig.server.objects, { name: 'c', service: 'web' });
      assert.equal(await next, 'ADDED c');
      assert.deepEqual(
        rig.requests.slice(0, want.length),
        want.map((text) => text.replace('V', version)),
      );
      assert.deepEqual(rig.timers.sleeps, sleeps);
    });
  }

  test('W1: what is told of an object before the bookmark is one state, the last', async () => {
    const line = (type: string, name: string, resourceVersion: string) =>
      JSON.stringify({
        type,
        object: {
          metadata: { name, namespace: 'default', uid: `uid-${name}`, resourceVersion },
          endpoints: [],
        },
      });
    await using rig = await Rig.start();
    createSlice(rig.server.objects, { name: 'a', service: 'web' });
    const lines = [
      line('ADDED', 'twice', '7'),
      line('MODIFIED', 'twice', '8'),
      line('ADDED', 'gone', '9'),
      line('DELETED', 'gone', '10'),
      line('DELETED', 'again', '11'),
      line('ADDED', 'again', '12'),
    ];
    await rig.server.misbehave(hit({ kind: 'extraLines', lines, afterLines: 1 }));
    rig.onSeen = (seen) => {
      assert.ok(seen.kind === 'listed');
      assert.deepEqual(
        seen.objects.map(({ name, resourceVersion }) => `${name} ${resourceVersion}`).slice(1),
        ['twice 8', 'again 12'],
      );
    };
    assert.equal(await rig.next(), 'listed start a,again,twice');
  });

  test('W2: a server that does not know watch-lists, and does not say so, is listed by pages', async () => {
    await using rig = await Rig.start({ watchList: 'ignored' });
    createSlice(rig.server.objects, { name: 'a', service: 'web' });
    assert.equal(await rig.next(), 'listed start a');
    assert.deepEqual(rig.requests, ['watchList', 'list']);
    assert.deepEqual(rig.endings, ['silent']);
  });

  test('W2: such a server is found out also while there are changes all the time', async () => {
    await using rig = await Rig.start({ watchList: 'ignored' });
    createSlice(rig.server.objects, { name: 'a', service: 'web' });
    const next = rig.next();
    await until(() => rig.server.watched.length === 1);
    for (let turn = 0; !rig.requests.includes('list'); turn++) {
      updateSlice(rig.server.objects, { name: 'a', service: 'web', ips: [`10.0.0.${turn % 250}`] });
      rig.timers.pass(1000);
      await new Promise(setImmediate);
    }
    assert.equal(await next, 'listed start a');
    assert.deepEqual(rig.endings, ['endless']);
  });

  test('W2: pages without end are not followed for ever, and nothing is deleted', async () => {
    await using rig = await Rig.start({ watchList: false });
    createSlice(rig.server.objects, { name: 'a', service: 'web' });
    await rig.server.misbehave(hit({ kind: 'repeatPage' }, { on: { verb: 'list' }, times: 2 }));
    assert.equal(await rig.next(), 'listed start a');
    assert.deepEqual(rig.requests, ['watchList', 'list', 'list more', 'watchList', 'list']);
  });

  test('W13: what carries no identity is skipped, and said', async () => {
    await using rig = await Rig.start();
    const lines = [
      '{"type":"ADDED","object":{"metadata":{"name":"x"}}}',
      '{"type":"ADDED"}',
      '{"type":"NEW"}',
    ];
    await rig.server.misbehave(hit({ kind: 'extraLines', lines }));
    assert.equal(await rig.next(), 'listed start ');
    assert.equal(rig.lines.filter((line) => line.includes('object without identity skipped')).length, 2);
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
  '429 with a senseless Retry-After is no reason to wait for ever': {
    fault: { kind: 'status', code: 429, retryAfterSeconds: 1e12 },
    want: ['watch V'],
    sleeps: [300_000],
    ending: 'throttled',
  },
  'ERROR 429 waits as long as its details say': {
    fault: { kind: 'errorEvent', code: 429, retryAfterSeconds: 7 },
    want: ['watch V'],
    sleeps: [7000],
    ending: 'throttled',
  },
  'ERROR 401 backs off, and goes on at the same version': {
    fault: { kind: 'errorEvent', code: 401 },
    want: ['watch V'],
    sleeps: [1600],
    ending: 'unauthorized',
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
  'five ERROR events in a row do the same': {
    fault: { kind: 'errorEvent', code: 500 },
    times: 5,
    want: ['watch V', 'watch V', 'watch V', 'watch V', 'watchList V'],
    sleeps: [1600, 3200, 6400, 12_800, 25_600],
    ending: 'failed',
    isListed: 'errors',
  },
  'five refusals in a row, of whatever kind, do the same': {
    fault: { kind: 'status', code: 400 },
    times: 5,
    want: ['watch V', 'watch V', 'watch V', 'watch V', 'watchList V'],
    sleeps: [1600, 3200, 6400, 12_800, 25_600],
    ending: 'refused',
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
  'a line that is JSON but no event does the same': {
    fault: { kind: 'extraLines', lines: ['null'] },
    want: ['probe', 'watch V'],
    sleeps: [1600],
    ending: 'broken',
  },
  'a BOOKMARK below the version of the watch lists again: the history is another one': {
    fault: {
      kind: 'extraLines',
      lines: ['{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"2"}}}'],
    },
    want: ['watchList'],
    sleeps: [1600],
    ending: 'rewound',
    isListed: 'tooLarge',
  },
  'a stream that ends within a character drops the line': {
    fault: { kind: 'cutLine' },
    want: ['watch V'],
    sleeps: [1600],
    ending: 'ended',
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

  const PROBES: Readonly<Record<string, { fault: Fault; times: number; want: string[] }>> = {
    'without an answer it is asked again, since a watch would be silent': {
      fault: { kind: 'resetBeforeHeaders' },
      times: 2,
      want: ['probe', 'probe', 'probe', 'watch V'],
    },
    'of a server that fails at lists it does not keep from watching': {
      fault: { kind: 'status', code: 500 },
      times: 100,
      want: ['probe', 'watch V'],
    },
  };
  for (const [name, { fault, times, want }] of Object.entries(PROBES)) {
    test(`W4: a probe: ${name}`, async () => {
      await using rig = await lost(() => {});
      const version = String(rig.server.snapshot().revision);
      await rig.server.misbehave({ fault, times, on: { verb: 'list' } });
      await rig.server.restart();
      const before = rig.requests.length;
      const next = rig.next();
      await until(() => rig.requests.length >= before + want.length && rig.server.watched.length > 0);
      createSlice(rig.server.objects, { name: 'b', service: 'web' });
      while (!rig.names.has('b')) await (rig.seen.length === 1 ? next : rig.next());
      assert.deepEqual(
        rig.requests.slice(before),
        want.map((request) => request.replace('V', version)),
      );
    });
  }

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

  // A server that has just started denies for a moment, before it has read its roles.
  for (const [code, quick] of [
    [403, [1600, 3200, 6400]],
    [404, []],
  ] as const) {
    test(`W4: ${code} is asked again every minute, and nothing is taken for deleted`, async () => {
      const times = quick.length + 2;
      await using rig = await lost(async ({ server }) => {
        await server.misbehave({ fault: { kind: 'status', code }, times, on: { verb: 'watch' } });
        await server.restart();
      });
      for (let denial = 1; denial <= times; denial++) {
        assert.equal(await rig.next(), `denied ${code}`);
        assert.equal(rig.reflector.isLive, false);
      }
      createSlice(rig.server.objects, { name: 'b', service: 'web' });
      assert.equal(await rig.next(), 'ADDED b');
      assert.deepEqual(rig.timers.sleeps, [800, ...quick, 60_000, 60_000]);
      assert.deepEqual([...rig.names], ['a', 'b']);
    });
  }

  test('storage that went back to a backup is found out by a server that denies the first probe', async () => {
    await using rig = await lost(() => {});
    const backup = rig.server.snapshot();
    createSlice(rig.server.objects, { name: 'b', service: 'web' });
    await rig.next();
    await rig.server.misbehave({ fault: { kind: 'status', code: 403 }, times: 1, on: { verb: 'list' } });
    rig.server.restore(backup);
    assert.equal(await rig.next(), 'denied 403');
    assert.equal(await rig.next(), 'listed tooLarge a rewound');
    assert.deepEqual(rig.endings, ['broken', 'denied', 'rewound']);
  });

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
