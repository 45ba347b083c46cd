import type { Hono } from 'hono';
import type { Change } from '../../../core/changes.ts';
import { endpointObject } from '../../../core/endpoint-object.ts';
import { readEndpoints } from '../../../core/endpoints.ts';
import type { RawEndpoint, Service, WatchedObject } from '../../../core/kubernetes.ts';
import { readService } from '../../../core/service.ts';
import { readSlice } from '../../../core/slice.ts';
import type { Clock, EpochMs } from '../../../core/time.ts';
import { transit } from '../../../core/transition.ts';
import { type ApiDeps, createApiApp } from '../../../functions/api/app.ts';
import type { AuthenticatedEnv } from '../../../functions/http/authentication.ts';
import { ServiceRepository } from '../../../functions/services/repository.ts';
import type { ClusterRecord, ServiceKey } from '../../../functions/store/store.ts';
import { hashKey } from '../../../wire/key-hash.ts';
import { createLogger } from '../../../wire/log.ts';
import { MemoryStore } from '../store/memory-store.ts';

export const START = Date.parse('2026-11-30T10:00:00Z') as EpochMs;
export const CLUSTER = 'prod-eu';

/** A store with clusters and services in it, and the app that reads it. */
export class World {
  now: EpochMs = START;
  readonly clock: Clock = { now: () => this.now, monotonic: () => this.now };
  readonly store = new MemoryStore(this.clock);
  readonly logged: { readonly level: string; readonly message: string }[] = [];
  private version = 100;

  app(over: Partial<ApiDeps> = {}): Hono<AuthenticatedEnv> {
    const store = over.store ?? this.store;
    return createApiApp({
      store,
      repository: new ServiceRepository(store),
      bus: { describe: async () => true },
      clock: this.clock,
      log: createLogger({
        level: 'debug',
        clock: this.clock,
        write: (line) => void this.logged.push(JSON.parse(line)),
      }),
      authentication: { kind: 'none' },
      clusterDomain: 'cluster.local',
      cacheControl: 'no-cache',
      version: '1.2.3',
      ...over,
    });
  }

  async putCluster(over: Partial<ClusterRecord> = {}): Promise<void> {
    const record: ClusterRecord = {
      name: CLUSTER,
      uid: 'uid-of-kube-system',
      epoch: 7,
      epochRaisedAt: START,
      hadFormerEpoch: false,
      mode: 'slices',
      namespaces: null,
      versions: {},
      lastHeartbeat: this.now,
      lastSynced: this.now,
      lostSince: null,
      histograms: {},
      lastEventAges: {},
      resyncs: 0,
      deletion: null,
      ...over,
    };
    await this.store.putCluster(record, await this.store.getCluster(record.name));
  }

  /** Stores objects of one service as ADDED events of one batch would; each call's are newer than the former's. */
  async put(name: string, ...objects: readonly WatchedObject[]): Promise<void> {
    const version = `${this.version++}`;
    await this.change(
      name,
      objects.map((object) => ({
        ...originOf(object, version, this.now),
        ...toRecord(object, name, version),
      })),
    );
  }

  async deleteService(name: string): Promise<void> {
    const service = serviceOf(name);
    const change: Change = {
      ...originOf(service, `${this.version++}`, this.now),
      kind: 'delete',
      objectKind: 'Service',
      name,
      uid: service.metadata.uid,
      version: `${this.version}`,
    };
    await this.change(name, [change]);
  }

  private async change(name: string, changes: readonly Change[]): Promise<void> {
    const repository = new ServiceRepository(this.store);
    const loaded = await repository.load(keyOf(name), 'EndpointSlice');
    const context = { now: this.now, hash: hashKey, kind: 'EndpointSlice' } as const;
    const transition = transit(loaded.state, changes, context);
    await repository.save(
      loaded,
      { ...transition, pending: [], now: this.now },
      { deadline: Number.POSITIVE_INFINITY },
    );
  }
}

/** `web` in namespace default; `other/web` elsewhere; both in the one cluster. */
function keyOf(name: string): ServiceKey {
  const [service = '', namespace = 'default'] = name.split('/').reverse();
  return { cluster: CLUSTER, namespace, name: service };
}

function originOf(object: WatchedObject, version: string, now: EpochMs) {
  const { kind, metadata } = object;
  const cause = { kind, name: metadata.name, type: 'ADDED', resourceVersion: version } as const;
  return { index: 0, cause, isStateUnknown: false, isConfirmed: false, triggeredAt: null, observedAt: now };
}

function toRecord(object: WatchedObject, service: string, version: string) {
  const { kind } = object;
  if (kind === 'Service')
    return { kind: 'putService', service: { ...readService(object).service, version } } as const;
  const { content } = kind === 'Endpoints' ? readEndpoints(object) : readSlice(object, keyOf(service).name);
  const { name, uid } = object.metadata;
  return {
    kind: 'putObject',
    object: endpointObject({ kind, name, uid, version, enrichment: null }, content),
  } as const;
}

function metadataOf(name: string, namespace = 'default') {
  return { name, namespace, uid: `uid-of-${name}`, resourceVersion: '1' };
}

/** A Service on port 80, named http, unless its spec says otherwise. */
export function serviceOf(name: string, spec: Service['spec'] = {}): Service {
  const ports = [{ name: 'http', port: 80, protocol: 'TCP' }];
  return { kind: 'Service', metadata: metadataOf(name), spec: { clusterIP: '10.0.0.1', ports, ...spec } };
}

interface SliceParts {
  readonly endpoints: readonly RawEndpoint[];
  readonly ports?: readonly { readonly name: string; readonly port: number; readonly protocol?: string }[];
  readonly addressType?: string;
}

/** A slice on port 8080, named http, unless told otherwise. */
export function sliceOf(name: string, { endpoints, ports, addressType = 'IPv4' }: SliceParts): WatchedObject {
  return {
    kind: 'EndpointSlice',
    metadata: metadataOf(name),
    addressType,
    ports: ports ?? [{ name: 'http', port: 8080 }],
    endpoints,
  };
}

/** A ready endpoint of a pod. */
export function endpointOf(ip: string, over: Partial<RawEndpoint> = {}): RawEndpoint {
  return { addresses: [ip], conditions: { ready: true }, ...over };
}
