import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Change } from '../../../core/changes.ts';
import { endpointObject } from '../../../core/endpoint-object.ts';
import type { EndpointSlice } from '../../../core/kubernetes.ts';
import { readService } from '../../../core/service.ts';
import { readSlice } from '../../../core/slice.ts';
import type { EpochMs } from '../../../core/time.ts';
import type { Bus } from '../../../functions/bus/bus.ts';
import { changeService, type ServiceChanger } from '../../../functions/services/change-service.ts';
import { DEFAULT_HISTORY_MS, publish } from '../../../functions/services/publication.ts';
import { ServiceRepository } from '../../../functions/services/repository.ts';
import { createDynamoStore } from '../../../functions/store/dynamodb-store.ts';
import { createUsage } from '../../../infra/local/usage.ts';
import { DEFAULT_CALL_BYTES } from '../../../wire/delta.ts';
import { startTable } from '../store/dynalite-table.ts';
import { FakeClock } from '../store/fake-clock.ts';

const KEY = { cluster: 'prod-eu', namespace: 'default', name: 'web' };
const ENDPOINTS_PER_SLICE = 100;
/** Changes of one pod that are measured, so that none is cheap by luck. */
const CHANGES = 5;

/** Takes everything: what is measured is the table. */
const acceptingBus: Bus = {
  publish: async (entries) => entries.map(() => ({ kind: 'accepted' })),
  describe: async () => true,
};

/** Write units that a change of one pod may cost, receipt included, by the number of endpoints of its service. */
const BUDGETS: Readonly<Record<number, number>> = { 10: 3, 100: 4, 1000: 5, 5000: 6, 50000: 20 };

describe('a change of one pod costs no more write units than its budget', () => {
  for (const [size, budget] of Object.entries(BUDGETS)) {
    test(`${budget} at ${size} endpoints`, async (context) => {
      const clock = new FakeClock();
      await using table = await startTable();
      const usage = createUsage();
      const client = table.newClient();
      usage.countTable(client);
      const store = createDynamoStore({ client, tableName: table.tableName, clock });
      const changer: ServiceChanger = {
        store,
        bus: acceptingBus,
        repository: new ServiceRepository(store),
        clock,
        historyMs: DEFAULT_HISTORY_MS,
        maxEntryBytes: DEFAULT_CALL_BYTES,
        pause: async () => {},
      };
      const apply = async (changes: readonly Change[]) => {
        const fence = { deadline: clock.monotonic() + 8_000 };
        const request = { key: KEY, kind: 'EndpointSlice', fence, plan: () => changes } as const;
        await publish(changer, [await changeService(changer, request)]);
      };
      const slices = Math.ceil(Number(size) / ENDPOINTS_PER_SLICE);
      const sliceSize = Math.min(Number(size), ENDPOINTS_PER_SLICE);
      const puts = Array.from({ length: slices }, (_, index) => putSlice(index, sliceSize, '1000'));
      await apply([putService(), ...puts]);

      const units: number[] = [];
      for (let change = 1; change <= CHANGES; change++) {
        const former = usage.report().writeUnits;
        await apply([putSlice(0, sliceSize - (change % 2), `${2_000 + change}`)]);
        units.push(usage.report().writeUnits - former);
      }
      context.diagnostic(`${size} endpoints: ${units.join(', ')} write units`);
      assert(Math.max(...units) <= budget, `${units}`);
    });
  }
});

function putService(): Change {
  const { service } = readService({
    kind: 'Service',
    metadata: { ...KEY, uid: uidOf(0xffff), resourceVersion: '999' },
    spec: { clusterIP: '10.96.0.1', ports: [{ name: 'http', port: 80, protocol: 'TCP' }] },
  });
  return { kind: 'putService', service, ...originOf('Service', 'web', '999') };
}

/** A slice as a large cluster has it: long node names, zones, pods named by their ReplicaSet. */
function putSlice(slice: number, size: number, version: string): Change {
  const name = `web-${suffixOf(slice)}`;
  const raw: EndpointSlice = {
    kind: 'EndpointSlice',
    metadata: {
      ...KEY,
      name,
      uid: uidOf(slice),
      resourceVersion: version,
      labels: { 'kubernetes.io/service-name': 'web' },
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    endpoints: Array.from({ length: size }, (_, index) => {
      const node = (slice * 31 + index * 7) % 60;
      return {
        addresses: [`10.${Math.floor(slice / 200)}.${slice % 200}.${index + 1}`],
        conditions: { ready: true },
        nodeName: `ip-10-0-${node}-${(node * 37) % 250}.eu-west-1.compute.internal`,
        zone: `eu-west-1${'abc'[node % 3]}`,
        targetRef: {
          kind: 'Pod',
          namespace: 'default',
          name: `web-7d4b9c6f5-${suffixOf(slice * 1000 + index)}`,
        },
      };
    }),
  };
  const { content } = readSlice(raw, 'web');
  const object = endpointObject(
    { kind: 'EndpointSlice', name, uid: uidOf(slice), version, enrichment: null },
    content,
  );
  return { kind: 'putObject', object, ...originOf('EndpointSlice', name, version) };
}

function originOf(kind: 'Service' | 'EndpointSlice', name: string, resourceVersion: string) {
  return {
    index: 0,
    cause: { kind, name, type: 'MODIFIED', resourceVersion } as const,
    isStateUnknown: false,
    isConfirmed: false,
    triggeredAt: '2026-11-30T10:00:00.25Z',
    observedAt: Date.parse('2026-11-30T10:00:00.5Z') as EpochMs,
  };
}

/** A UUID whose bits look random, the same for the same number. */
function uidOf(number: number): string {
  const hex = Array.from({ length: 4 }, (_, word) =>
    hash(number * 4 + word)
      .toString(16)
      .padStart(8, '0'),
  ).join('');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20)}`;
}

const SUFFIX_ALPHABET = 'bcdfghjklmnpqrstvwxz2456789';

/** Five characters as controllers make them up. */
function suffixOf(number: number): string {
  let rest = hash(number);
  let suffix = '';
  for (let index = 0; index < 5; index++) {
    suffix += SUFFIX_ALPHABET[rest % SUFFIX_ALPHABET.length];
    rest = Math.floor(rest / SUFFIX_ALPHABET.length);
  }
  return suffix;
}

/** Mixes a number's bits over 32. */
function hash(number: number): number {
  let mixed = (number + 0x9e3779b9) >>> 0;
  for (const factor of [0x21f0aaad, 0x735a2d97]) mixed = Math.imul(mixed ^ (mixed >>> 15), factor) >>> 0;
  return (mixed ^ (mixed >>> 15)) >>> 0;
}
