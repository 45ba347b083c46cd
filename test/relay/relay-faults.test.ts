import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import type { Relay } from '../../relay/relay.ts';
import { anyFault } from './any-fault.ts';
import { createService, createSlice, deleteSlice, testLog, updateSlice } from './builders.ts';
import { populate, Rig } from './relay-rig.ts';

const SEED = Number(process.env.SEED ?? Date.now() % 2 ** 31);
const RUNS = Number(process.env.RUNS ?? 20);

/** Values of a metric, by its labels. */
function valuesOf(relay: Relay, name: string): Record<string, string> {
  const prefix = `endpoints_watcher_relay_${name}`;
  const lines = relay.metrics.render().split('\n');
  const samples = lines
    .map((line) => line.match(/^(\w+)(?:\{(.*)\})? (.*)$/))
    .filter((match) => match?.[1] === prefix);
  return Object.fromEntries(samples.map((match) => [match?.[2] ?? '', match?.[3] ?? '']));
}

/** Has the relay seen nothing beyond a version? */
function isWithin(relay: Relay, revision: number): boolean {
  return Object.values(valuesOf(relay, 'resource_version')).every((version) => Number(version) <= revision);
}

suite('relay', { concurrency: true }, () => {
  test('W9: while ingest hangs, 10,000 events are read as fast as they come, by the same watch', async () => {
    await using rig = await Rig.start();
    const { objects } = rig.server;
    populate(rig.server);
    for (let index = 0; index < 20; index++) createSlice(objects, { name: `s${index}`, service: 'web' });
    const relay = await rig.synced();
    // A reader that waits for anything is cut off, as a loaded server does.
    await rig.server.misbehave({ fault: { kind: 'closeSlowReader', pendingChanges: 100 } });
    const before = rig.server.requests.length;
    rig.ingest.outage = 'hang';
    for (let index = 0; index < 10_000; index++) {
      updateSlice(objects, { name: `s${index % 20}`, service: 'web', ips: [`10.0.${index % 200}.1`] });
      if (index % 50 === 49) await new Promise(setImmediate);
    }
    const revision = String(rig.server.snapshot().revision);
    await rig.timers.until(
      () => valuesOf(relay, 'resource_version')['kind="EndpointSlice"'] === revision,
      'read',
    );
    assert.equal(rig.server.requests.length, before, 'the same watch');
    const { waiting, inFlight } = {
      waiting: valuesOf(relay, 'queue_depth')[''],
      inFlight: valuesOf(relay, 'in_flight')[''],
    };
    assert.ok(Number(waiting) <= 25 && Number(inFlight) <= 25, `${waiting} waiting, ${inFlight} in flight`);
    assert.ok(Number(valuesOf(relay, 'coalesced_total')['kind="merged"']) > 9000);
    rig.ingest.outage = null;
    rig.ingest.hangUp();
    await rig.settled(500);
  });

  test('W15: each metric, by kind and cause', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    const relay = await rig.synced();
    const { objects } = rig.server;
    const version = () => String(rig.server.snapshot().revision);
    assert.deepEqual(valuesOf(relay, 'lists_total'), {
      'kind="Service",cause="start"': '1',
      'kind="EndpointSlice",cause="start"': '1',
    });
    assert.deepEqual(valuesOf(relay, 'watch_live'), { 'kind="Service"': '1', 'kind="EndpointSlice"': '1' });
    await rig.timers.advance(7000);
    assert.deepEqual(Object.keys(valuesOf(relay, 'last_event_age_seconds')), [
      'kind="Service"',
      'kind="EndpointSlice"',
    ]);
    assert.ok(Number(valuesOf(relay, 'last_event_age_seconds')['kind="Service"']) >= 7);
    rig.server.bookmark();
    await rig.timers.until(
      () => Object.values(valuesOf(relay, 'resource_version')).every((at) => at === version()),
      'bookmarks',
    );

    rig.ingest.outage = 'hang';
    updateSlice(objects, { name: 'web-1', service: 'web', ips: ['10.0.0.2'] });
    await rig.timers.until(() => valuesOf(relay, 'in_flight')[''] === '1', 'in flight');
    updateSlice(objects, { name: 'web-1', service: 'web', ips: ['10.0.0.3'] });
    updateSlice(objects, { name: 'web-1', service: 'web', ips: ['10.0.0.4'] });
    await rig.timers.until(() => valuesOf(relay, 'queue_depth')[''] === '1', 'waiting');
    await rig.timers.until(() => valuesOf(relay, 'coalesced_total')['kind="merged"'] === '1', 'merged');
    rig.ingest.outage = null;
    rig.ingest.hangUp();
    await rig.settled(500);
    assert.ok(Number(valuesOf(relay, 'retries_total')['path="events"']) >= 1);
    assert.ok(Number(valuesOf(relay, 'results_total')['status="applied"']) >= 5);
    const latency = /endpoints_watcher_delta_latency_seconds_count\{stage="publish"\} (\d+)/.exec(
      relay.metrics.render(),
    );
    assert.ok(Number(latency?.[1]) >= 5);

    const outage = await rig.server.misbehave({ fault: { kind: 'refuse' } });
    deleteSlice(objects, 'web-2');
    rig.server.compact();
    await outage[Symbol.asyncDispose]();
    await rig.settled(500);
    const lists = () => valuesOf(relay, 'lists_total');
    await rig.timers.until(() => lists()['kind="Service",cause="expired"'] === '1', 'lists', 500);
    assert.equal(lists()['kind="EndpointSlice",cause="expired"'], '1');
    const ends = valuesOf(relay, 'watch_ends_total');
    assert.ok(Number(ends['kind="EndpointSlice",cause="broken"']) >= 1);
    assert.equal(ends['kind="EndpointSlice",cause="expired"'], '1');
    assert.ok(Number(valuesOf(relay, 'inventories_total')['outcome="done"']) >= 2);
  });

  for (const code of [403, 404] as const) {
    test(`W4, W16: Services that are denied with ${code} from the start are asked for every minute, with jitter, and the relay is not ready`, async () => {
      await using rig = await Rig.start();
      populate(rig.server);
      const denial = await rig.server.misbehave({
        fault: { kind: 'status', code },
        on: { resource: 'services' },
      });
      const lines: string[] = [];
      const relay = rig.relay({ random: () => 0.5, log: testLog(lines) });
      const asked = () => rig.server.requests.filter(({ resource }) => resource === 'services').length;
      await rig.timers.until(() => asked() === 6, 'asked six times', 1000);
      const waits = lines.map((line) => JSON.parse(line)).filter(({ ending }) => ending?.kind === 'denied');
      // What is forbidden may be allowed in a moment, when the server has just started: three times it is asked for sooner.
      const sooner = waits.filter(({ wait_ms }) => wait_ms < 60_000).length;
      assert.equal(sooner, code === 403 ? 3 : 0);
      assert.deepEqual(
        waits.slice(sooner).map(({ wait_ms }) => wait_ms),
        Array(waits.length - sooner).fill(63_000),
      );
      assert.ok(waits.length - sooner >= 2);
      assert.deepEqual(relay.notReady(), ['no watch of Service', 'the first inventory is not done']);
      assert.deepEqual([rig.ingest.bodies('/v1/events'), rig.ingest.bodies('/v1/inventory')], [[], []]);
      await denial[Symbol.asyncDispose]();
      await rig.settled(1000);
    });
  }

  test('W4: Services that are denied in mid-life are not taken for deleted', async () => {
    await using rig = await Rig.start();
    populate(rig.server);
    const relay = await rig.synced();
    rig.ingest.received.length = 0;
    await using _denial = await rig.server.misbehave({
      fault: { kind: 'status', code: 403 },
      on: { resource: 'services' },
    });
    await rig.server.restart();
    updateSlice(rig.server.objects, { name: 'web-1', service: 'web', ips: ['10.0.0.9'] });
    await rig.settled(1000);
    await rig.timers.advance(180_000);
    assert.deepEqual(relay.notReady(), ['no watch of Service']);
    assert.deepEqual(rig.ingest.events, ['MODIFIED web-1']);
    assert.deepEqual(rig.ingest.bodies('/v1/inventory'), []);
    assert.deepEqual(rig.ingest.objects, rig.truth);
  });
});

const SERVICES = ['web', 'db', 'mq'];

const step = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({ do: fc.constant('put' as const), name: fc.nat(4), service: fc.nat(2) }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('delete' as const), name: fc.nat(4) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('service' as const), service: fc.nat(2) }) },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('wait' as const),
      ms: fc.constantFrom(0, 1, 20, 50, 1000, 5000, 40_000),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constantFrom('audit' as const, 'bookmark' as const, 'compact' as const) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom('restart' as const, 'restore' as const) }) },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('fault' as const), fault: anyFault, skip: fc.nat(2) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('mishap' as const),
      path: fc.constantFrom('/v1/events', '/v1/events', '/v1/inventory', '/v1/heartbeat'),
      status: fc.constantFrom(429, 500, 503, 'hangUp' as const),
      isApplied: fc.boolean(),
    }),
  },
);

test(`any history, any faults of the API server and of ingest: in the end ingest has the cluster's state (seed ${SEED})`, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 30 }), async (steps) => {
      await using rig = await Rig.start();
      const { server, ingest, timers } = rig;
      const { objects } = server;
      populate(server);
      const relay = await rig.synced({ settleMs: 25 });
      const backup = server.snapshot();
      for (const [index, step] of steps.entries()) {
        switch (step.do) {
          case 'put': {
            const slice = {
              name: `s${step.name}`,
              service: SERVICES[step.service] ?? '',
              ips: [`10.1.0.${index}`],
            };
            const isThere = objects.get({ kind: 'EndpointSlice', namespace: 'default', name: slice.name });
            (isThere ? updateSlice : createSlice)(objects, slice);
            break;
          }
          case 'delete': {
            const name = `s${step.name}`;
            if (objects.get({ kind: 'EndpointSlice', namespace: 'default', name }))
              deleteSlice(objects, name);
            break;
          }
          case 'service': {
            const name = SERVICES[step.service] ?? '';
            const ref = { kind: 'Service', namespace: 'default', name } as const;
            if (objects.get(ref)) objects.delete(ref);
            else createService(objects, name);
            break;
          }
          case 'wait':
            for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
            await timers.advance(step.ms);
            break;
          case 'audit':
            await timers.advance(33 * 60_000);
            break;
          case 'bookmark':
            server.bookmark();
            break;
          case 'compact':
            server.compact();
            break;
          case 'restart':
            await server.restart();
            break;
          case 'restore':
            server.restore(backup);
            // A server that has written as much again before anybody looks cannot be told from one that did not go back.
            await timers.until(() => isWithin(relay, server.snapshot().revision), 'found out', 1000);
            break;
          case 'fault':
            await server.misbehave({ fault: step.fault, skip: step.skip, times: 1 });
            break;
          case 'mishap': {
            const { path, status, isApplied } = step;
            ingest.mishaps.push({ path, status, isApplied: isApplied && status !== 429 });
            break;
          }
          default:
            step satisfies never;
        }
      }
      ingest.mishaps.length = 0;
      await rig.settled(1000);
      await timers.until(() => relay.notReady().length === 0, 'ready', 1000);
      // Nothing that is still under way takes anything back.
      await timers.advance(60_000);
      assert.deepEqual(ingest.objects, rig.truth);
    }),
    { numRuns: RUNS, seed: SEED, endOnFailure: process.env.SHRINK === undefined },
  );
});
