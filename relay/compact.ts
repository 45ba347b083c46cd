import { deflateRawSync, inflateRawSync } from 'node:zlib';
import type { EndpointSlice } from '../core/kubernetes.ts';
import { isIpSlice, serviceNameOf } from '../core/slice.ts';
import type { EpochMs } from '../core/time.ts';
import { serviceName, type WatchedKind } from '../wire/envelope.ts';

/** One state of an object, as the relay keeps it: its identity, and the fields that somebody reads as text (W13). */
export interface Held {
  readonly kind: WatchedKind;
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  /** Name of the service it counts for; null for a slice that is nobody's (S8), holds no IPs (S13) or names no possible one (P6). */
  readonly service: string | null;
  /** When the relay saw this state. */
  readonly observedAt: EpochMs;
  /**
   * The rest of its JSON, behind the version, deflated to a tenth, which keeps the heap small. Equal bytes mean that nothing
   * anybody reads has changed.
   */
  readonly content: Buffer;
  /** Length of that JSON, in characters. */
  readonly size: number;
}

/** A state, and the times that it tells of. */
export interface Compacted {
  readonly held: Held;
  /** When a controller last updated the object; null when it does not say. Source: metadata.managedFields, as for Linkerd. */
  readonly lastUpdate: EpochMs | null;
  /** When the change behind it happened; null when unknown (S47). */
  readonly triggeredAt: EpochMs | null;
}

/** What is kept of a value: all of it, of each item, or of each named field. A value of another form is left to ingest to refuse. */
type Shape = true | readonly [Shape] | { readonly [field: string]: Shape };

const API_VERSIONS: Readonly<Record<WatchedKind, string>> = {
  Service: 'v1',
  EndpointSlice: 'discovery.k8s.io/v1',
  Endpoints: 'v1',
};

const PORTS = [{ name: true, protocol: true, port: true, appProtocol: true }] as const;
const TARGET = { kind: true, namespace: true, name: true } as const;
const HINTS = [{ name: true }] as const;
const ADDRESSES = [{ ip: true, hostname: true, nodeName: true, targetRef: TARGET }] as const;

const SHAPES: Readonly<Record<WatchedKind, Shape>> = {
  Service: {
    spec: {
      type: true,
      clusterIP: true,
      selector: true,
      ports: [{ name: true, port: true, protocol: true }],
      internalTrafficPolicy: true,
      publishNotReadyAddresses: true,
      externalName: true,
    },
  },
  EndpointSlice: {
    addressType: true,
    ports: PORTS,
    endpoints: [
      {
        addresses: true,
        conditions: { ready: true, serving: true, terminating: true },
        hostname: true,
        nodeName: true,
        zone: true,
        hints: { forZones: HINTS, forNodes: HINTS },
        targetRef: TARGET,
      },
    ],
  },
  Endpoints: { subsets: [{ addresses: ADDRESSES, notReadyAddresses: ADDRESSES, ports: PORTS }] },
};

const OWNERS = [{ kind: true, name: true, uid: true }] as const;
const LABELS =
  /^(kubernetes\.io\/service-name|endpointslice\.kubernetes\.io\/managed-by|mirror\.linkerd\.io\/.*)$/;
const ANNOTATIONS =
  /^(endpoints\.kubernetes\.io\/.*|mirror\.linkerd\.io\/.*|config\.linkerd\.io\/opaque-ports)$/;

type Fields = Readonly<Record<string, unknown>>;

/**
 * What is kept of an object from a list or an event, and when it was last written. Of a deleted one only the identity is
 * kept: what it held is known from state.
 * @returns null for what has no identity, which no API server sends.
 */
export function compact(
  kind: WatchedKind,
  raw: unknown,
  observedAt: EpochMs,
  isDeleted = false,
): Compacted | null {
  if (!isFields(raw) || !isFields(raw.metadata)) return null;
  const { name, namespace, uid, resourceVersion, managedFields } = raw.metadata;
  if (!isText(name) || !isText(namespace) || !isText(uid) || !isText(resourceVersion)) return null;
  const metadata = {
    namespace,
    name,
    uid,
    labels: pick(raw.metadata.labels, LABELS),
    annotations: pick(raw.metadata.annotations, ANNOTATIONS),
    ownerReferences: project(raw.metadata.ownerReferences, OWNERS),
  };
  const rest = isDeleted ? {} : project(raw, SHAPES[kind]);
  const json = JSON.stringify({ metadata, ...(rest as Fields) }).slice('{"metadata":{'.length);
  const held: Held = {
    kind,
    namespace,
    name,
    uid,
    resourceVersion,
    service: kind === 'EndpointSlice' ? serviceOf(raw) : name,
    observedAt,
    content: deflate(json),
    size: json.length,
  };
  return {
    held,
    lastUpdate: lastUpdateOf(managedFields),
    triggeredAt: parseTime(metadata.annotations?.['endpoints.kubernetes.io/last-change-trigger-time']),
  };
}

/** The JSON of an object in one of its states. */
export function objectJson({ kind, resourceVersion, content }: Held): string {
  const version = JSON.stringify(resourceVersion);
  const rest = inflateRawSync(content).toString();
  return `{"apiVersion":"${API_VERSIONS[kind]}","kind":"${kind}","metadata":{"resourceVersion":${version},${rest}`;
}

/** Little memory for each run: contents are some 20 kB. */
const DEFLATE = { level: 1, windowBits: 13, memLevel: 6, chunkSize: 4096 };

/** In memory of its own: zlib's result is a view of a larger buffer. */
function deflate(text: string): Buffer {
  const view = deflateRawSync(text, DEFLATE);
  const copy = Buffer.allocUnsafeSlow(view.length);
  view.copy(copy);
  return copy;
}

/** An object whose fields are not what its kind says is passed on, for ingest to refuse alone (P6). */
function serviceOf(raw: Fields): string | null {
  const slice = raw as Fields & EndpointSlice;
  const { ownerReferences } = slice.metadata;
  const owners = Array.isArray(ownerReferences) ? ownerReferences : null;
  const name = isIpSlice(slice) ? serviceNameOf({ ...slice.metadata, ownerReferences: owners }) : null;
  // Ingest refuses the slice alone, but for such a name in an inventory it would refuse the page.
  return serviceName.safeParse(name).success ? name : null;
}

function project(value: unknown, shape: Shape): unknown {
  if (shape === true) return value;
  if (isList(shape)) return Array.isArray(value) ? value.map((item) => project(item, shape[0])) : value;
  if (!isFields(value)) return value;
  const kept: Record<string, unknown> = {};
  for (const field in shape) {
    const inner = shape[field];
    if (inner !== undefined && value[field] != null) kept[field] = project(value[field], inner);
  }
  return kept;
}

function isList(shape: Exclude<Shape, true>): shape is readonly [Shape] {
  return Array.isArray(shape);
}

function pick(values: unknown, names: RegExp): Fields | undefined {
  if (!isFields(values)) return undefined;
  const kept = Object.entries(values).filter(([name]) => names.test(name));
  return kept.length === 0 ? undefined : Object.fromEntries(kept);
}

/** Newest time of an operation Update. */
function lastUpdateOf(managedFields: unknown): EpochMs | null {
  let newest: EpochMs | null = null;
  for (const entry of Array.isArray(managedFields) ? managedFields : []) {
    const at = isFields(entry) && entry.operation === 'Update' ? parseTime(entry.time) : null;
    if (at !== null && (newest === null || at > newest)) newest = at;
  }
  return newest;
}

function parseTime(text: unknown): EpochMs | null {
  const at = typeof text === 'string' ? Date.parse(text) : Number.NaN;
  return Number.isNaN(at) ? null : (at as EpochMs);
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
