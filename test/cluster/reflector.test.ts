import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { endingOf, readChanges } from '../../relay/watch-protocol.ts';
import { eventually } from '../eventually.ts';
import { ControlPlane } from './control-plane.ts';
import { Follower, type FollowerSettings, LooseSlices, RelayConnection, SLICES_PATH } from './follower.ts';
import { Gate } from './gate.ts';
import { allowRelay } from './world.ts';

let plane: ControlPlane;
let spaces = 0;

/** One control plane for the tests of a suite. */
function onPlane(flags: readonly string[]): void {
  before(async () => {
    plane = await ControlPlane.start(flags);
    await allowRelay(plane.client);
  });
  after(() => plane[Symbol.asyncDispose]());
}

/** Slices in a namespace of their own, and somebody who follows them through a gate. */
async function startFollowing(count: number, onRequest: FollowerSettings['onRequest'] = () => {}) {
  await using opened = new AsyncDisposableStack();
  const namespace = `space-${++spaces}`;
  await plane.client.create('Namespace', { name: namespace });
  const slices = new LooseSlices(plane.client, namespace);
  await slices.createMany(count);
  const gate = opened.use(await Gate.to(plane.server));
  const settings = { server: gate.url, onRequest };
  const follower = opened.use(new Follower(plane, (name) => slices.gone.has(name), settings));
  const running = opened.move();
  return { slices, gate, follower, [Symbol.asyncDispose]: () => running.disposeAsync() };
}

/** Waits until a follower holds what one list says; all the while it was told nothing wrong. */
async function isTrue(follower: Follower): Promise<void> {
  await eventually(async () => {
    const listed = await plane.client.list('EndpointSlice');
    const truth = listed.map(({ metadata }) => [metadata.name, metadata.resourceVersion] as const);
    assert.deepEqual([...follower.held].sort(), truth.sort());
  });
  assert.deepEqual(follower.wrong, []);
}

/** What an answer says, in the words of `watch-protocol.ts`; then how it ended. */
async function ask(connection: RelayConnection, path: string): Promise<string[]> {
  const response = await connection.request(path, AbortSignal.timeout(30_000));
  if (response.statusCode !== 200) {
    const ending = await endingOf(response);
    return [
      `${response.statusCode}: ${ending.kind}`,
      ...('retryAfterMs' in ending ? [`${ending.retryAfterMs} ms`] : []),
    ];
  }
  const said: string[] = [];
  const changes = readChanges(response.body);
  for (;;) {
    const { value, done } = await changes.next();
    if (done) return [...said, value?.kind ?? 'end'];
    if (value.kind === 'event') said.push(value.type);
    else said.push(value.endsList ? 'end of the list' : 'bookmark');
  }
}

async function versionOf(path: string): Promise<string> {
  const { metadata } = JSON.parse((await plane.client.status('GET', path)).text);
  return metadata.resourceVersion;
}

const LIST = 'sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true';
const TO_COME = '999999999';

describe('what a real API server says', () => {
  onPlane([]);
  before(() => new LooseSlices(plane.client, 'default').create());
  const ANSWERS: Readonly<Record<string, { path: string; token?: string | null; want: string[] }>> = {
    'a version still to come is waited for without a word: only a probe tells (W4)': {
      path: `${SLICES_PATH}?watch=1&allowWatchBookmarks=true&resourceVersion=${TO_COME}&timeoutSeconds=1`,
      want: ['end'],
    },
    'a list by a watch from a version still to come is refused (W4)': {
      path: `${SLICES_PATH}?watch=1&${LIST}&resourceVersion=${TO_COME}&timeoutSeconds=5`,
      want: ['tooLarge'],
    },
    'a page that nobody gave out is refused': {
      path: `${SLICES_PATH}?limit=1&continue=none`,
      want: ['400: refused'],
    },
    'a version that is none is a failure of the server': {
      path: `${SLICES_PATH}?watch=1&resourceVersion=none`,
      want: ['500: failed'],
    },
    'an unknown token is unauthorized (W4)': {
      path: `${SLICES_PATH}?limit=1`,
      token: 'unknown',
      want: ['401: unauthorized'],
    },
    'without a token one is anonymous, and denied (W4)': {
      path: `${SLICES_PATH}?limit=1`,
      token: null,
      want: ['403: denied'],
    },
    'what the roles do not allow is denied (W4)': { path: '/api/v1/secrets?limit=1', want: ['403: denied'] },
    'a resource that is not installed is denied (W4)': {
      path: '/apis/policy.linkerd.io/v1beta3/servers?limit=1',
      want: ['404: denied'],
    },
  };
  for (const [name, { path, token, want }] of Object.entries(ANSWERS)) {
    test(name, async () => {
      await using connection = new RelayConnection(plane, {}, token);
      assert.deepEqual(await ask(connection, path), want);
    });
  }

  test('a list by a watch ends with its bookmark, and the stream goes on (W1)', async () => {
    await using connection = new RelayConnection(plane);
    const [added, endOfList, ...more] = await ask(
      connection,
      `${SLICES_PATH}?watch=1&${LIST}&resourceVersion=&timeoutSeconds=1`,
    );
    assert.deepEqual([added, endOfList, more.at(-1)], ['ADDED', 'end of the list', 'end']);
    // Shortly before it ends a watch, the server tells by a bookmark how far it was, unless its cache was busy.
    assert(
      more.slice(0, -1).every((said) => said === 'bookmark'),
      `${more}`,
    );
  });

  test('a quiet watch is told by a bookmark how far other kinds have gone (S46, W6)', async () => {
    const from = await versionOf(SLICES_PATH);
    await plane.client.create('Namespace', { name: 'other-kind' });
    // A consistent list makes the server's cache as new as all kinds are.
    await versionOf(SLICES_PATH);
    await using connection = new RelayConnection(plane);
    const path = `${SLICES_PATH}?watch=1&allowWatchBookmarks=true&resourceVersion=${from}&timeoutSeconds=4`;
    assert.deepEqual([...new Set(await ask(connection, path))], ['bookmark', 'end']);
  });

  test('lists made beside the live watch, while slices come and go, take nothing for deleted that lives (W7, W8)', async () => {
    await using world = await startFollowing(60);
    const { slices, follower } = world;
    await eventually(() => assert.equal(follower.lists.length, 1));
    {
      await using _churn = slices.churn();
      for (let audits = 1; audits <= 8; audits++) {
        follower.reflector.relist('audit');
        await eventually(() => assert.equal(follower.lists.length, 1 + audits));
        assert.equal(follower.reflector.isLive, true);
      }
    }
    await isTrue(follower);
    assert.deepEqual([...new Set(follower.endings)], ['interrupted']);
  });

  test('the way to it breaks time and again, while slices come and go: each change comes once, in order, without a list (W4, W8)', async () => {
    await using world = await startFollowing(60);
    const { slices, gate, follower } = world;
    await eventually(() => assert.equal(follower.lists.length, 1));
    {
      await using _churn = slices.churn();
      for (let breaks = 1; breaks <= 5; breaks++) {
        gate.shut();
        await eventually(() => assert.equal(follower.reflector.isLive, false));
        gate.open();
        await eventually(() => assert.equal(follower.reflector.isLive, true));
      }
    }
    await isTrue(follower);
    assert.deepEqual(follower.lists, ['start']);
  });

  test('it has no seat for the relay: 429 with Retry-After, then the watch goes on at its version (W4)', async () => {
    await using world = await startFollowing(20);
    const { slices, gate, follower } = world;
    await eventually(() => assert.equal(follower.reflector.isLive, true));
    gate.shut();
    await eventually(() => assert.equal(follower.reflector.isLive, false));
    await leaveOneSeat();
    const seat = takeSeat();
    try {
      // It takes a while until the server goes by its new rules, and between two that sit down the seat is free.
      await using connection = new RelayConnection(plane);
      await eventually(async () =>
        assert.deepEqual(await ask(connection, `${SLICES_PATH}?limit=1`), ['429: throttled', '1000 ms']),
      );
      gate.open();
      await eventually(() => {
        if (follower.reflector.isLive) gate.breakAll();
        assert(follower.endings.includes('throttled'));
      });
    } finally {
      await seat.leave();
    }
    assert(seat.answers.has('504: tooLarge'));
    await slices.delete();
    await isTrue(follower);
    assert.deepEqual(follower.lists, ['start']);
  });
});

/** Sits in the one seat until told to leave: a version still to come is waited for some seconds, in the seat. */
function takeSeat() {
  const answers = new Set<string>();
  const leaving = new AbortController();
  const sitting = (async () => {
    await using connection = new RelayConnection(plane);
    const path = `${SLICES_PATH}?resourceVersion=${TO_COME}&resourceVersionMatch=NotOlderThan`;
    while (!leaving.signal.aborted) for (const answer of await ask(connection, path)) answers.add(answer);
  })();
  return {
    answers,
    leave: () => {
      leaving.abort();
      return sitting;
    },
  };
}

/** Gives all requests of the relay's user one seat, which a watch has while it begins. Source: API Priority and Fairness. */
async function leaveOneSeat(): Promise<void> {
  const metadata = { name: 'one-seat' };
  const limited = {
    nominalConcurrencyShares: 0,
    borrowingLimitPercent: 0,
    limitResponse: { type: 'Reject' },
  };
  const all = { verbs: ['*'], apiGroups: ['*'], resources: ['*'], clusterScope: true, namespaces: ['*'] };
  const subjects = [{ kind: 'User', user: { name: 'relay' } }];
  const specs = {
    prioritylevelconfigurations: { type: 'Limited', limited },
    flowschemas: {
      priorityLevelConfiguration: metadata,
      matchingPrecedence: 2,
      rules: [{ subjects, resourceRules: [all] }],
    },
  };
  for (const [plural, spec] of Object.entries(specs)) {
    const path = `/apis/flowcontrol.apiserver.k8s.io/v1/${plural}`;
    const { status, text } = await plane.client.status('POST', path, { metadata, spec });
    assert.equal(status, 201, text);
  }
}

describe('a real API server without lists by watches', () => {
  onPlane(['--feature-gates=WatchList=false']);

  test('refuses one: the list is made by pages, and the watch begins at its version (W2)', async () => {
    const paths: string[] = [];
    await using world = await startFollowing(1050, (path) => void paths.push(path));
    const { slices, follower } = world;
    await eventually(() => assert.equal(follower.reflector.isLive, true));
    await slices.create();
    await slices.delete();
    await isTrue(follower);
    assert.deepEqual(follower.endings.slice(0, 1), ['refused']);
    assert.deepEqual(follower.lists, ['start']);
    assert.equal(paths.filter((path) => path.includes('limit=500')).length, 3);
    assert.equal(paths.filter((path) => path.includes('&continue=')).length, 2);
  });

  test('has forgotten the version of the pages half-way: 410, the list begins again, nothing is deleted (W2)', async () => {
    let isForgotten = false;
    await using world = await startFollowing(510, async (path) => {
      if (isForgotten || !path.includes('&continue=')) return;
      isForgotten = true;
      // What is compacted is in a cache still, until that begins anew.
      await plane.client.create('Namespace', { name: 'later' });
      await plane.compact();
      await plane.killApiServer();
      await plane.startApiServer();
    });
    await isTrue(world.follower);
    assert(isForgotten);
    assert(world.follower.endings.includes('expired'), `${world.follower.endings}`);
    assert.deepEqual(world.follower.lists, ['start']);
  });

  test('has forgotten the version of the watch: 410, pages, and what went meanwhile is gone (W2, W4)', async () => {
    await using world = await startFollowing(30);
    const { slices, gate, follower } = world;
    await eventually(() => assert.equal(follower.reflector.isLive, true));
    gate.shut();
    for (let count = 0; count < 10; count++) await slices.delete();
    await slices.createMany(5);
    await plane.killApiServer();
    await plane.startApiServer();
    gate.open();
    await isTrue(follower);
    assert.deepEqual(follower.lists, ['start', 'expired']);
  });

  test('is asked for a list beside its watch: the watch ends first, since pages beside it would delete what lives (W7)', async () => {
    await using world = await startFollowing(60);
    const { slices, follower } = world;
    await eventually(() => assert.equal(follower.reflector.isLive, true));
    {
      await using _churn = slices.churn();
      for (let audits = 1; audits <= 3; audits++) {
        follower.reflector.relist('audit');
        await eventually(() => assert.equal(follower.lists.length, 1 + audits));
      }
    }
    await isTrue(follower);
  });
});
