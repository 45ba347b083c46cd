import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { LAG_BOUNDS_SECONDS, parseHeartbeatRequest } from '../../wire/heartbeat.ts';

const heartbeat = (over: object = {}) => ({ cluster: 'prod-eu', epoch: 7, ...over });
const series = (over: object = {}) => ({
  labels: { stage: 'observe' },
  bounds: [0.5, 1],
  buckets: [1, 3],
  count: 4,
  sum: 7.5,
  ...over,
});
const latency = (over: object) => ({
  histograms: { endpoints_watcher_delta_latency_seconds: [series(over)] },
});

describe('a heartbeat', () => {
  test('what is left out has a default', () => {
    assert.deepEqual(parseHeartbeatRequest(heartbeat()), {
      kind: 'ok',
      request: {
        cluster: 'prod-eu',
        clusterUid: null,
        epoch: 7,
        relay: null,
        mode: 'slices',
        namespaces: null,
        synced: false,
        kinds: [],
        histograms: {},
      },
    });
  });

  const accepted: Record<string, object> = {
    'the state of each watch': {
      synced: true,
      kinds: [
        { kind: 'Service', resourceVersion: '150', lastEventAgeMs: 12.5 },
        { kind: 'Pod', resourceVersion: null, lastEventAgeMs: null },
        { kind: 'Node', resourceVersion: '' },
      ],
    },
    'one series for each stage': {
      histograms: {
        endpoints_watcher_delta_latency_seconds: [series(), series({ labels: { stage: 'commit' } })],
        services_informer_lag_seconds: [
          { bounds: LAG_BOUNDS_SECONDS, buckets: LAG_BOUNDS_SECONDS.map(() => 0), count: 0, sum: 0 },
        ],
      },
    },
  };
  for (const [name, over] of Object.entries(accepted))
    test(`takes ${name}`, () => {
      const parsed = parseHeartbeatRequest(heartbeat(over));
      assert.equal(parsed.kind, 'ok', parsed.kind === 'ok' ? '' : parsed.message);
    });

  const refused: Record<string, { over: object; message: RegExp }> = {
    'synced in a string': { over: { synced: 'yes' }, message: /^synced: must be a boolean$/ },
    'a negative age': {
      over: { kinds: [{ kind: 'Service', lastEventAgeMs: -1 }] },
      message: /^kinds\[0\]\.lastEventAgeMs: must be at least 0$/,
    },
    'a kind that is no word': {
      over: { kinds: [{ kind: 'a b' }] },
      message: /^kinds\[0\]\.kind: must be a kind/,
    },
    'bounds that do not rise': { over: latency({ bounds: [1, 1] }), message: /\[0\]\.bounds: must rise$/ },
    'a bucket too few': {
      over: latency({ buckets: [1] }),
      message: /\[0\]\.buckets: must have one count for each/,
    },
    'buckets that fall': {
      over: latency({ buckets: [3, 1] }),
      message: /\[0\]\.buckets: must be cumulative/,
    },
    'a bucket above the count': {
      over: latency({ count: 2 }),
      message: /\[0\]\.buckets: must be cumulative/,
    },
    'a metric name that would break the text format': {
      over: { histograms: { 'a{b="c"}': [] } },
      message: /^histograms\["a\{b=\\"c\\"\}"\]: must be a metric name/,
    },
  };
  for (const [name, { over, message }] of Object.entries(refused))
    test(`refuses ${name} and names the field`, () => {
      const parsed = parseHeartbeatRequest(heartbeat(over));
      assert.equal(parsed.kind, 'invalid');
      assert.match(parsed.kind === 'invalid' ? parsed.message : '', message);
    });
});
