import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startAdmin } from '../../relay/admin.ts';
import { Metrics } from '../../relay/metrics.ts';
import { histograms } from '../../wire/heartbeat.ts';

test('Prometheus text: help and type once, labels escaped, buckets cumulative', () => {
  const metrics = new Metrics();
  metrics.count('endpoints_watcher_relay_lists_total', { kind: 'Service', cause: 'a"b\\c\nd' });
  metrics.count('endpoints_watcher_relay_lists_total', { kind: 'Service', cause: 'a"b\\c\nd' });
  metrics.observeLag('EndpointSlice', 0.4);
  metrics.observeLag('EndpointSlice', 2);
  metrics.observeLag('EndpointSlice', 5000);
  metrics.onCollect = () => metrics.set('endpoints_watcher_relay_queue_depth', {}, 3);
  const lines = metrics.render().split('\n');
  assert.ok(lines.includes('endpoints_watcher_relay_lists_total{kind="Service",cause="a\\"b\\\\c\\nd"} 2'));
  assert.ok(lines.includes('endpoints_watcher_relay_queue_depth 3'));
  assert.deepEqual(
    lines.filter((line) => line.includes('endpointslices_informer_lag_seconds')),
    [
      "# HELP endpointslices_informer_lag_seconds From an EndpointSlice's last update until the relay saw it.",
      '# TYPE endpointslices_informer_lag_seconds histogram',
      ...[
        '0.5"} 1',
        '1"} 1',
        '2.5"} 2',
        '5"} 2',
        '10"} 2',
        '25"} 2',
        '50"} 2',
        '100"} 2',
        '250"} 2',
        '1000"} 2',
        '+Inf"} 3',
      ].map((rest) => `endpointslices_informer_lag_seconds_bucket{le="${rest}`),
      'endpointslices_informer_lag_seconds_sum 5002.4',
      'endpointslices_informer_lag_seconds_count 3',
    ],
  );
});

test('the histograms are what a heartbeat takes', () => {
  const metrics = new Metrics();
  metrics.observeLag('Service', 3);
  metrics.observeLatency('publish', 0.2);
  const told = metrics.histograms();
  assert.deepEqual(histograms.parse(told), told);
  assert.deepEqual(told.endpoints_watcher_delta_latency_seconds?.[0]?.labels, { stage: 'publish' });
});

test('W16: the admin server is alive, and ready when nothing is in the way', async () => {
  let reasons = ['no watch of Service'];
  const metrics = () => 'x 1\n';
  await using admin = await startAdmin({ host: '127.0.0.1', port: 0, metrics, notReady: () => reasons });
  const get = async (path: string) => {
    const response = await fetch(`http://127.0.0.1:${admin.port}${path}`);
    return `${response.status} ${(await response.text()).trim()}`;
  };
  assert.equal(await get('/healthz'), '200 {"ok":true}');
  assert.equal(await get('/readyz'), '503 {"ok":false,"reasons":["no watch of Service"]}');
  reasons = [];
  assert.equal(await get('/readyz'), '200 {"ok":true,"reasons":[]}');
  assert.equal(await get('/metrics'), '200 x 1');
  assert.match(await get('/other'), /^404 /);
});
