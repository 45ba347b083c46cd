import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { listedObjects, readTrace, traceFiles } from '../trace.ts';
import { CoreCluster } from './core-cluster.ts';
import { naiveSets } from './naive-model.ts';
import { ObservedSets } from './observed-sets.ts';

const WINDOWS_CLOSED_MS = 15_000;

for (const mode of ['slices', 'endpoints'] as const)
  describe(`recorded streams in ${mode} mode end in what the last lists say`, () => {
    for (const file of traceFiles())
      test(file, async () => {
        const trace = readTrace(file);
        const whole = new CoreCluster(mode);
        const warm = new CoreCluster(mode, { usesHolders: true });
        const sets = new ObservedSets(whole);
        const statuses = [];
        let now = 0;
        for (const { t, event } of trace.events) {
          for (const cluster of [whole, warm]) await cluster.advance(t - now);
          now = t;
          sets.check(`at ${t} ms, time passed`, warm.drain());
          statuses.push(...whole.post([event]));
          warm.post([event]);
          sets.check(`at ${t} ms`, warm.drain());
        }
        for (const cluster of [whole, warm]) await cluster.advance(WINDOWS_CLOSED_MS);
        sets.check('at the end', warm.drain());
        assert.equal(statuses.includes('rejected'), false);
        assert.equal(statuses.includes('stale'), false, 'in order, nothing is stale');
        assert.deepEqual(sets.current(), naiveSets(trace.final.services, listedObjects(trace, mode)));
      });
  });
