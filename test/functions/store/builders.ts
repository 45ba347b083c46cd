import type { Address } from '../../../core/address.ts';
import type { PortDelta } from '../../../core/delta.ts';
import type { EndpointContent, EndpointEntry } from '../../../core/endpoint-object.ts';
import type { ServiceRecord } from '../../../core/service.ts';
import type { PortId } from '../../../core/service-port.ts';
import type { PortState } from '../../../core/service-state.ts';
import type {
  ChunkName,
  ClusterRecord,
  DeltaEntry,
  Head,
  ServiceKey,
  StoredObject,
} from '../../../functions/store/store.ts';
import { bareAddress } from '../../bare-address.ts';
import { START } from './fake-clock.ts';

export const HTTP = '80' as PortId;

export function serviceKey(cluster: string, name = 'web', namespace = 'default'): ServiceKey {
  return { cluster, namespace, name };
}

export function chunkName(uid: string, random: number): ChunkName {
  return `${uid}#${random.toString(16).padStart(8, '0')}` as ChunkName;
}

export function serviceRecord(part: Partial<ServiceRecord> = {}): ServiceRecord {
  return {
    uid: '0b5a5c1e-3f6c-4a55-8f0a-1f0e1d2c3b4a',
    version: '120',
    type: 'ClusterIP',
    isHeadless: false,
    hasSelector: true,
    isLocal: false,
    externalName: null,
    ports: [{ port: 80, protocol: 'TCP', name: 'http' }],
    ...part,
  };
}

export function portState(part: Partial<PortState> = {}): PortState {
  return {
    ...{ port: 80, protocol: 'TCP', name: 'http', sequence: 1, exists: true, size: 0, digest: 0n },
    ...part,
  };
}

export function storedObject(part: Partial<StoredObject> = {}): StoredObject {
  const uid = part.uid ?? '8c0d6b52-6c4a-4f5f-9f2e-0d4f2a9e9b11';
  return {
    kind: 'EndpointSlice',
    name: 'web-abc12',
    uid,
    version: '123',
    enrichment: null,
    count: 3,
    isTruncated: false,
    body: { kind: 'chunks', names: [chunkName(uid, 1)] },
    ...part,
  };
}

export function inlineEntry(sequence: number, port: PortId = HTTP, byte = sequence % 256): DeltaEntry {
  return { port, sequence, body: { kind: 'inline', bytes: Uint8Array.of(1, 2, byte) } };
}

type HeadPart = Partial<Omit<Head, 'records'>> & { readonly records?: Partial<Head['records']> };

/** The first head of a service with one port and nothing in it. */
export function head(part: HeadPart = {}): Head {
  return {
    version: 1,
    objects: [],
    pending: [],
    garbage: [],
    changedAt: START,
    windowUntil: null,
    isListed: true,
    ...part,
    records: {
      preferredKind: 'EndpointSlice',
      service: serviceRecord(),
      deletions: new Map(),
      ports: new Map([[HTTP, portState()]]),
      windows: new Map(),
      ...part.records,
    },
  };
}

export function clusterRecord(name: string, part: Partial<ClusterRecord> = {}): ClusterRecord {
  return {
    name,
    uid: null,
    epoch: 1,
    epochRaisedAt: START,
    hadFormerEpoch: false,
    mode: 'slices',
    namespaces: null,
    versions: {},
    lastHeartbeat: null,
    lastSynced: null,
    lostSince: null,
    histograms: {},
    lastEventAges: {},
    resyncs: 0,
    deletion: null,
    ...part,
  };
}

export function address(part: Partial<Address> = {}): Address {
  const target = { kind: 'Pod', namespace: 'default', name: 'web-1' };
  return bareAddress({ ip: '10.244.0.5', node: 'n1', zone: 'a', target, ...part });
}

export function portDelta(part: Partial<PortDelta> = {}): PortDelta {
  return {
    port: 80,
    protocol: 'TCP',
    portName: 'http',
    sequence: 42,
    exists: true,
    size: 3,
    digest: 7n,
    isTruncated: false,
    added: [],
    updated: [],
    removed: [],
    cause: { kind: 'EndpointSlice', name: 'web-abc12', type: 'MODIFIED', resourceVersion: '184467441' },
    triggeredAt: '2026-11-30T09:59:59Z',
    observedAt: START,
    ...part,
  };
}

export function endpoint(part: Partial<EndpointEntry> & { readonly ip: string }): EndpointEntry {
  const { ip } = part;
  return {
    ip,
    family: ip.includes(':') ? 'IPv6' : 'IPv4',
    condition: part.condition ?? 'ready',
    hostname: part.hostname ?? null,
    node: part.node ?? null,
    zone: part.zone ?? null,
    hints: part.hints ?? null,
    target: part.target ?? null,
    owner: part.owner ?? null,
    opaqueProtocol: part.opaqueProtocol ?? false,
  };
}

/** The content of a slice with these endpoints. */
export function sliceContent(endpoints: readonly EndpointEntry[]): EndpointContent {
  const ports = [{ name: 'http', protocol: 'TCP', port: 8080, appProtocol: null } as const];
  return { ownerUids: [], mirror: null, isTruncated: false, groups: [{ ports, endpoints }] };
}
