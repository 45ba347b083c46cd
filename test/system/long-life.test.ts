import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { StackClock } from '../../infra/local/stack-clock.ts';
import { createLogger } from '../../wire/log.ts';
import { startQuietStack } from '../quiet-stack.ts';
import { Replica } from '../replica.ts';
import { StackCluster } from './stack-cluster.ts';

const CLUSTER = 'prod-eu';
const WEB = { namespace: 'default', name: 'web' };
const GROUP = `${CLUSTER}/default/web:80`;

const service = (
  uid: string,
  resourceVersion: string,
  ports = [{ name: 'http', port: 80, protocol: 'TCP' }],
) => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { ...WEB, uid, resourceVersion },
  spec: { clusterIP: '10.96.0.1', ports },
});

const slice = (resourceVersion: string, ...ips: string[]) => ({
  apiVersion: 'discovery.k8s.io/v1',
  kind: 'EndpointSlice',
  metadata: {
    ...WEB,
    name: 'web-abc',
    uid: 'es-1',
    resourceVersion,
    labels: { 'kubernetes.io/service-name': 'web' },
  },
  addressType: 'IPv4',
  ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
  endpoints: ips.map((ip) => ({ addresses: [ip], conditions: { ready: true } })),
});

/** What happens between two starts of the stack, and where the port's sequence stands then. */
const LIVES: readonly {
  readonly events: readonly object[];
  readonly sequence: number;
  readonly size: number;
}[] = [
  {
    events: [
      { type: 'ADDED', object: service('svc-1', '1') },
      { type: 'ADDED', object: slice('2', '10.0.0.1') },
    ],
    sequence: 1,
    size: 1,
  },
  { events: [{ type: 'MODIFIED', object: slice('3', '10.0.0.1', '10.0.0.2') }], sequence: 2, size: 2 },
  { events: [{ type: 'DELETED', object: service('svc-1', '4') }], sequence: 3, size: 0 },
  { events: [{ type: 'ADDED', object: service('svc-2', '5') }], sequence: 4, size: 2 },
  { events: [{ type: 'MODIFIED', object: service('svc-2', '6', []) }], sequence: 5, size: 0 },
  { events: [{ type: 'MODIFIED', object: service('svc-2', '7') }], sequence: 6, size: 2 },
];

describe('a long life', () => {
  test('sequence and updates go on over restarts, a deletion, a recreation, and a port that went and came back (S38, P2)', async () => {
    const dataDir = mkdtempSync(join(tmpdir(), 'long-life-'));
    const replica = new Replica();
    let taken = 0;
    try {
      for (const { events, sequence, size } of LIVES) {
        const lines: string[] = [];
        const clock = new StackClock();
        const logger = createLogger({ level: 'debug', clock, write: (line) => void lines.push(line) });
        await using stack = await startQuietStack({ dataDir, logger, clock });
        const cluster = new StackCluster(stack, CLUSTER, 'slices');
        assert.equal((await cluster.post(events)).status, 200);
        const deltas = await cluster.takeDeltas();
        for (const delta of deltas.slice(taken)) replica.apply(delta);
        taken = deltas.length;
        const copy = replica.port(GROUP);
        assert.deepEqual([copy.sequence, copy.addresses.size], [sequence, size]);
        const metrics = await (await fetch(`${stack.url}/metrics`)).text();
        const series = `endpoints_updates{cluster="${CLUSTER}",hostname="",namespace="default",port="80",service="web"} `;
        assert.equal(
          metrics.split('\n').find((line) => line.startsWith(series)),
          `${series}${sequence}`,
        );
      }
    } finally {
      rmSync(dataDir, { recursive: true });
    }
  });

  test("at debug ingest says what happens in Linkerd's words", async () => {
    const lines: { message: string; ns?: string; svc?: string; component?: string }[] = [];
    const clock = new StackClock();
    const logger = createLogger({
      level: 'debug',
      clock,
      write: (line) => void lines.push(JSON.parse(line)),
    });
    await using stack = await startQuietStack({ logger, clock });
    const cluster = new StackCluster(stack, CLUSTER, 'slices');
    await cluster.post([
      { type: 'ADDED', object: service('svc-1', '1') },
      { type: 'ADDED', object: slice('2', '10.0.0.1') },
    ]);
    await cluster.post([{ type: 'MODIFIED', object: slice('3', '10.0.0.2') }]);
    await cluster.post([{ type: 'DELETED', object: slice('4') }]);
    await cluster.post([{ type: 'DELETED', object: service('svc-1', '5') }]);
    const said = lines
      .filter(({ svc }) => svc === 'web')
      .map(({ component, ns, message }) => `${component} ${ns} ${message}`);
    assert.deepEqual(said, [
      'service-publisher default Updating service for default/web',
      'service-publisher default Adding ES default/web-abc',
      'endpoints-watcher default Establishing watch on endpoint [default/web:80]',
      'service-publisher default Updating ES default/web-abc',
      'service-publisher default Deleting ES default/web-abc',
      'service-publisher default Deleting service for default/web',
      'endpoints-watcher default Stopping watch on endpoint [default/web:80]',
    ]);
  });
});
