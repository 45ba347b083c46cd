import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { type ApiServerOptions, startApiServer } from '../../infra/local/cluster/api-server.ts';
import type { Fault } from '../../infra/local/cluster/misbehaviour.ts';
import { createSlice, deleteSlice, updateSlice } from './builders.ts';
import { HastyTimers } from './manual-timers.ts';
import { hit, Rig, until } from './reflector-rig.ts';

/** A watch may be quiet for as long as any test lasts, in milliseconds of real time. */
const QUIET_MS = 60_000;

/** A live watch that has listed `a`; whatever it sees is in `seen`. */
async function live(options: Partial<ApiServerOptions> = {}): Promise<Rig> {
  const server = await startApiServer({ clock: new HastyTimers(), ...options });
  const rig = new Rig(server, null, QUIET_MS);
  createSlice(rig.server.objects, { name: 'a', service: 'web' });
  assert.equal(await rig.next(), 'listed start a');
  rig.seen.length = 0;
  void rig.drain();
  return rig;
}

/** An audit that has its list, in the second before it takes the watch's place. */
async function collected(rig: Rig): Promise<void> {
  rig.timers.hold();
  rig.reflector.relist('audit');
  await until(() => rig.timers.sleeps.includes(1000));
}

suite('W7: an audit lists beside the live watch', { concurrency: true }, () => {
  test('the watch goes on meanwhile, then its successor does, and each event is told once', async () => {
    await using rig = await live();
    const { objects } = rig.server;
    await collected(rig);
    createSlice(objects, { name: 'b', service: 'web' });
    updateSlice(objects, { name: 'b', service: 'web', ips: [] });
    deleteSlice(objects, 'a');
    await until(() => rig.seen.length === 3);
    assert.equal(rig.reflector.isLive, true);
    rig.timers.release();
    await until(() => rig.seen.length === 4);
    assert.equal(rig.reflector.isLive, true);
    createSlice(objects, { name: 'c', service: 'web' });
    await until(() => rig.seen.length === 5 && rig.server.watched.length === 1);
    assert.deepEqual(rig.seen, ['ADDED b', 'MODIFIED b', 'DELETED a', 'listed audit b', 'ADDED c']);
    assert.deepEqual(rig.requests, ['watchList', 'watchList']);
    assert.equal(rig.reflector.resourceVersion, String(rig.server.snapshot().revision));
  });

  test('what the watch missed is in the list', async () => {
    await using rig = await live();
    const object = { metadata: { name: 'x', namespace: 'default', uid: 'x', resourceVersion: '7' } };
    const lines = [JSON.stringify({ type: 'ADDED', object })];
    await rig.server.misbehave(hit({ kind: 'extraLines', lines }));
    rig.reflector.relist('audit');
    await until(() => rig.seen.length === 1);
    assert.deepEqual(rig.seen, ['listed audit a,x']);
  });

  const FAULTS: Record<string, { readonly fault: Fault; readonly sleeps?: readonly number[] }> = {
    'an error': { fault: { kind: 'status', code: 500 } },
    'a 410': { fault: { kind: 'status', code: 410 } },
    'a 429': { fault: { kind: 'status', code: 429, retryAfterSeconds: 7 }, sleeps: [7000, 1000] },
    'a 403': { fault: { kind: 'status', code: 403 }, sleeps: [60_000, 1000] },
    'an ERROR event': { fault: { kind: 'errorEvent', code: 410, afterLines: 1 } },
    'an end before the bookmark': { fault: { kind: 'shortWatch', afterLines: 1 } },
    'an end within a character': { fault: { kind: 'cutLine', afterLines: 1 } },
    'a line that is no JSON': { fault: { kind: 'garbageLine' } },
    'a reset': { fault: { kind: 'resetMidStream', afterLines: 1 } },
    'no answer': { fault: { kind: 'resetBeforeHeaders' } },
    'no headers': { fault: { kind: 'stallBeforeHeaders' } },
  };
  for (const [name, { fault, sleeps = [800, 1000] }] of Object.entries(FAULTS)) {
    test(`${name} leaves the watch alone, deletes nothing, and the audit is made again`, async () => {
      await using rig = await live();
      rig.timers.hold();
      await rig.server.misbehave(hit(fault));
      rig.reflector.relist('audit');
      createSlice(rig.server.objects, { name: 'b', service: 'web' });
      await until(() => rig.endings.length === 1 && rig.seen.length === 1);
      assert.equal(rig.reflector.isLive, true);
      await until(() => rig.server.watched.length <= 1);
      rig.timers.release();
      await until(() => rig.seen.length === 2);
      createSlice(rig.server.objects, { name: 'c', service: 'web' });
      await until(() => rig.seen.length === 3);
      assert.deepEqual(rig.seen, ['ADDED b', 'listed audit a,b', 'ADDED c']);
      assert.deepEqual(rig.requests, ['watchList', 'watchList', 'watchList']);
      assert.deepEqual(rig.timers.sleeps, sleeps);
    });
  }

  test('a successor that breaks before its time is up leaves the rest to the watch, and is made again', async () => {
    await using rig = await live();
    await rig.server.misbehave(hit({ kind: 'resetMidStream', afterLines: 2 }));
    await collected(rig);
    createSlice(rig.server.objects, { name: 'b', service: 'web' });
    await until(() => rig.seen.length === 1);
    rig.timers.release();
    await until(() => rig.seen.length === 2);
    assert.deepEqual(rig.seen, ['ADDED b', 'listed audit a,b']);
    createSlice(rig.server.objects, { name: 'c', service: 'web' });
    await until(() => rig.seen.length === 3);
  });

  test('a server that does not take watch-lists any more is listed by pages, and the watch ends first', async () => {
    await using rig = await live();
    await rig.server.misbehave(hit({ kind: 'status', code: 400 }));
    rig.reflector.relist('audit');
    await until(() => rig.seen.length === 1 && rig.requests.length === 4);
    const version = String(rig.server.snapshot().revision);
    assert.deepEqual(rig.seen, ['listed audit a']);
    assert.deepEqual(rig.requests, ['watchList', 'watchList', 'list', `watch ${version}`]);
    assert.deepEqual(rig.endings, ['refused', 'interrupted', 'ended']);
  });

  test('without watch-lists the watch ends before the pages', async () => {
    await using rig = await live({ watchList: false });
    await until(() => rig.reflector.isLive);
    const ended = rig.endings.length;
    rig.reflector.relist('audit');
    assert.equal(rig.server.watched.length, 1);
    await until(() => rig.seen.length === 1 && rig.reflector.isLive);
    assert.deepEqual(rig.seen, ['listed audit a']);
    assert.deepEqual(rig.endings.slice(ended), ['interrupted', 'refused', 'ended']);
    await until(() => rig.server.watched.length === 1);
  });

  test('a watch whose time is up meanwhile goes on from its version, until its successor is there', async () => {
    const clock = new HastyTimers();
    await using rig = await live({ clock });
    const version = String(rig.server.snapshot().revision);
    clock.pass(200_000);
    await collected(rig);
    clock.pass(150_000);
    await until(() => rig.requests.length === 3);
    createSlice(rig.server.objects, { name: 'b', service: 'web' });
    await until(() => rig.seen.length === 1);
    rig.timers.release();
    await until(() => rig.seen.length === 2);
    assert.deepEqual(rig.seen, ['ADDED b', 'listed audit a,b']);
    assert.deepEqual(rig.requests, ['watchList', 'watchList', `watch ${version}`]);
  });

  test('a watch that is told 410 meanwhile is listed, and that is the audit', async () => {
    const clock = new HastyTimers();
    await using rig = await live({ clock });
    clock.pass(200_000);
    await collected(rig);
    createSlice(rig.server.objects, { name: 'b', service: 'web' });
    await until(() => rig.seen.length === 1);
    await rig.server.misbehave(hit({ kind: 'status', code: 410 }));
    clock.pass(150_000);
    await until(() => rig.seen.length === 2);
    rig.timers.release();
    createSlice(rig.server.objects, { name: 'c', service: 'web' });
    await until(() => rig.seen.length === 3);
    assert.deepEqual(rig.seen, ['ADDED b', 'listed expired a,b', 'ADDED c']);
  });

  test('another cause begins the audit again, and there is one list', async () => {
    await using rig = await live();
    await collected(rig);
    rig.reflector.relist('guard');
    await until(() => rig.timers.sleeps.length === 2);
    rig.timers.release();
    await until(() => rig.seen.length === 1);
    createSlice(rig.server.objects, { name: 'b', service: 'web' });
    await until(() => rig.seen.length === 2 && rig.server.watched.length === 1);
    assert.deepEqual(rig.seen, ['listed guard a', 'ADDED b']);
  });

  test('storage that went back under a live watch is found out', async () => {
    await using rig = await live();
    const line =
      '{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"2","annotations":{"k8s.io/initial-events-end":"true"}}}}';
    await rig.server.misbehave(hit({ kind: 'extraLines', lines: [line] }));
    rig.reflector.relist('audit');
    await until(() => rig.seen.length >= 1);
    assert.equal(rig.seen[0], 'listed audit  rewound');
  });

  test('a reader that stops ends the audit too', async () => {
    await using rig = await live();
    await rig.server.misbehave({ fault: { kind: 'stallMidStream' } });
    rig.reflector.relist('audit');
    await until(() => rig.server.watched.length === 2);
    await rig.stop();
    await until(() => rig.server.watched.length === 0);
  });
});
