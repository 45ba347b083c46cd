/**
 * What does a one-pod change cost as its service grows? A warm function's whole computation, store and bus left out:
 * reading the slice, difference, delta. Prints medians, and their ratio to a service of one slice: flat means near 1.
 */
import { performance } from 'node:perf_hooks';
import type { Change } from '../core/changes.ts';
import { endpointObject } from '../core/endpoint-object.ts';
import { readService } from '../core/service.ts';
import { emptyState } from '../core/service-state.ts';
import { readSlice } from '../core/slice.ts';
import type { EpochMs } from '../core/time.ts';
import { ipsOf, transit } from '../core/transition.ts';
import { Membership } from '../functions/services/membership.ts';
import { hashKey } from '../wire/key-hash.ts';

const SLICE_SIZE = 100;
const WARM_UP = 30;
const RUNS = 201;
const NOW = Date.UTC(2026, 10, 30) as EpochMs;

const origin = (name: string) => ({
  index: 0,
  cause: { kind: 'EndpointSlice', name, type: 'MODIFIED', resourceVersion: '1' } as const,
  isStateUnknown: false,
  isConfirmed: false,
  triggeredAt: null,
  observedAt: NOW,
});

function putSlice(slice: number, size: number, version: number): Change {
  const name = `web-${slice}`;
  const { content } = readSlice(
    {
      kind: 'EndpointSlice',
      metadata: { namespace: 'default', name, uid: `uid-${slice}`, resourceVersion: `${version}` },
      addressType: 'IPv4',
      ports: [{ name: 'http', port: 8080 }],
      endpoints: Array.from({ length: size }, (_, index) => ({
        addresses: [`10.${Math.floor(slice / 200)}.${slice % 200}.${index + 1}`],
        nodeName: `node-${index % 60}`,
        zone: `zone-${index % 3}`,
        targetRef: { kind: 'Pod', name: `web-${slice}-${index}` },
      })),
    },
    'web',
  );
  const identity = {
    kind: 'EndpointSlice',
    name,
    uid: `uid-${slice}`,
    version: `${version}`,
    enrichment: null,
  } as const;
  return { kind: 'putObject', object: endpointObject(identity, content), ...origin(name) };
}

function putService(): Change {
  const { service } = readService({
    kind: 'Service',
    metadata: { namespace: 'default', name: 'web', uid: 'svc', resourceVersion: '1' },
    spec: { ports: [{ name: 'http', port: 80 }] },
  });
  return { kind: 'putService', service, ...origin('web') };
}

function medianChangeMs(endpoints: number): number {
  const slices = endpoints / SLICE_SIZE;
  const context = { now: NOW, hash: hashKey, kind: 'EndpointSlice' } as const;
  const puts = Array.from({ length: slices }, (_, slice) => putSlice(slice, SLICE_SIZE, 1));
  let { state } = transit(emptyState('EndpointSlice'), [putService(), ...puts], context);
  const membership = new Membership();
  for (const object of state.objects.values()) membership.add(object.uid, ipsOf(object));
  const times: number[] = [];
  for (let run = 0; run < WARM_UP + RUNS; run++) {
    const start = performance.now();
    const change = putSlice(0, SLICE_SIZE - (run % 2), run + 2);
    const transition = transit(state, [change], { ...context, holders: (ips) => membership.holders(ips) });
    if (run >= WARM_UP) times.push(performance.now() - start);
    if (run > 0 && transition.deltas.length !== 1) throw new Error('a change without a delta');
    ({ state } = transition);
  }
  return times.sort((a, b) => a - b)[Math.floor(RUNS / 2)] ?? Number.NaN;
}

const base = medianChangeMs(SLICE_SIZE);
for (const endpoints of [100, 1_000, 10_000, 50_000]) {
  const median = medianChangeMs(endpoints);
  console.log(
    `${String(endpoints).padStart(6)} endpoints: ${median.toFixed(3)} ms, ${(median / base).toFixed(2)} × one slice`,
  );
}
