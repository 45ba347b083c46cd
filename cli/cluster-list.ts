import { request as requestHttp } from 'node:http';
import { type RequestOptions, request as requestHttps } from 'node:https';
import type { KubeConfig } from '@kubernetes/client-node/dist/config.js';
import * as z from 'zod';
import type { EndpointSlice, Endpoints, Service } from '../core/kubernetes.ts';
import type { Mode } from '../wire/envelope.ts';
import { endpointSlice, endpoints, service } from '../wire/kubernetes.ts';
import { readBounded } from './bounded-body.ts';

/** Where a cluster's address and credentials are. */
export interface ClusterAccess {
  /** A kubeconfig file; undefined: where kubectl looks for one. */
  readonly kubeconfig?: string | undefined;
  /** A context of the file; undefined: its current one. */
  readonly context?: string | undefined;
}

/** What one LIST of Services and one of their slices, or Endpoints, found. */
export interface ListedObjects {
  readonly services: readonly Service[];
  readonly objects: readonly (EndpointSlice | Endpoints)[];
  /** Objects of a shape that is refused alone (P6), each in one line with the reason: they say nothing. */
  readonly rejected: readonly string[];
}

/** Lists the objects that make address sets, as they are now. */
export type ListObjects = (signal: AbortSignal) => Promise<ListedObjects>;

/** Objects of one page: what client-go asks for. */
const PAGE_LIMIT = 500;
/** A page of objects of 1.5 MB each, at the worst a few hundred of them. */
const MAX_PAGE_BYTES = 512_000_000;
/** Until an answer is complete, in milliseconds: the API server's own limit for a request. */
const LIST_TIMEOUT_MS = 60_000;
/** Lists that are begun anew when the pages of one have expired (410). */
const MAX_LISTS = 3;

const KINDS = {
  Service: { root: '/api/v1', plural: 'services', apiVersion: 'v1', schema: service },
  EndpointSlice: {
    root: '/apis/discovery.k8s.io/v1',
    plural: 'endpointslices',
    apiVersion: 'discovery.k8s.io/v1',
    schema: endpointSlice,
  },
  Endpoints: { root: '/api/v1', plural: 'endpoints', apiVersion: 'v1', schema: endpoints },
} as const;
type Kind = keyof typeof KINDS;

const page = z.object({
  metadata: z.object({ continue: z.string().nullish() }),
  items: z.array(z.record(z.string(), z.unknown())).nullish(),
});

/**
 * Makes a reader of a cluster.
 * @param namespaces null is the whole cluster.
 * @throws an Error with one line for people when there is no usable configuration.
 */
export async function clusterList(
  access: ClusterAccess,
  mode: Mode,
  namespaces: readonly string[] | null,
): Promise<ListObjects> {
  const config = await loadConfig(access);
  return async (signal) => {
    const rejected: string[] = [];
    const services: Service[] = [];
    const objects: (EndpointSlice | Endpoints)[] = [];
    for (const namespace of namespaces ?? [null]) {
      services.push(...(await listKind(config, { kind: 'Service', namespace, rejected, signal })));
      const kind = mode === 'slices' ? 'EndpointSlice' : 'Endpoints';
      objects.push(...(await listKind(config, { kind, namespace, rejected, signal })));
    }
    return { services, objects, rejected };
  };
}

interface ListRequest<K extends Kind> {
  readonly kind: K;
  readonly namespace: string | null;
  readonly rejected: string[];
  readonly signal: AbortSignal;
}

type ObjectOf<K extends Kind> = z.infer<(typeof KINDS)[K]['schema']>;

async function listKind<K extends Kind>(config: KubeConfig, request: ListRequest<K>): Promise<ObjectOf<K>[]> {
  const { kind, namespace, rejected, signal } = request;
  const { root, plural, apiVersion, schema } = KINDS[kind];
  const path = namespace === null ? `${root}/${plural}` : `${root}/namespaces/${namespace}/${plural}`;
  const found: ObjectOf<K>[] = [];
  for (const item of await listItems(config, path, signal)) {
    const parsed = schema.safeParse({ ...item, kind, apiVersion });
    if (parsed.success) {
      found.push(parsed.data as ObjectOf<K>);
      continue;
    }
    const { namespace: of, name } = (item.metadata ?? {}) as { namespace?: string; name?: string };
    const [issue] = parsed.error.issues;
    rejected.push(`${kind} ${of}/${name}: ${issue?.path.join('.')}: ${issue?.message}`);
  }
  return found;
}

async function listItems(
  config: KubeConfig,
  path: string,
  signal: AbortSignal,
): Promise<Readonly<Record<string, unknown>>[]> {
  for (let list = 1; ; list++) {
    const items: Readonly<Record<string, unknown>>[] = [];
    let token = '';
    do {
      const query = new URLSearchParams({ limit: `${PAGE_LIMIT}`, ...(token !== '' && { continue: token }) });
      const { status, text } = await get(config, `${path}?${query}`, signal);
      // The rest of these pages is of a version that is forgotten.
      if (status === 410 && list < MAX_LISTS) break;
      if (status !== 200) throw new Error(`the API server answers ${status} to GET ${path}`);
      const { metadata, items: more } = page.parse(JSON.parse(text));
      items.push(...(more ?? []));
      token = metadata.continue ?? '';
      if (token === '') return items;
    } while (token !== '');
  }
}

async function get(
  config: KubeConfig,
  path: string,
  signal: AbortSignal,
): Promise<{ readonly status: number; readonly text: string }> {
  const options: RequestOptions = {};
  await config.applyToHTTPSOptions(options);
  const server = config.getCurrentCluster()?.server ?? '';
  const url = new URL(`${server.replace(/\/$/, '')}${path}`);
  const request = url.protocol === 'http:' ? requestHttp : requestHttps;
  const headers = { accept: 'application/json', 'user-agent': 'endpoints-watcher', ...options.headers };
  const within = AbortSignal.any([signal, AbortSignal.timeout(LIST_TIMEOUT_MS)]);
  const { promise, resolve, reject } = Promise.withResolvers<{ status: number; text: string }>();
  const sent = request(url, { ...options, headers, signal: within }, (response) => {
    readBounded(response, MAX_PAGE_BYTES).then(
      (text) => resolve({ status: response.statusCode ?? 0, text }),
      reject,
    );
  });
  sent.on('error', reject);
  sent.end();
  return promise.catch((error: Error) => {
    throw new Error(`the API server ${url.origin} cannot be reached: ${error.message}`, { cause: error });
  });
}

/** client-node is loaded only where it is needed: it takes half a second. */
async function loadConfig({ kubeconfig, context }: ClusterAccess): Promise<KubeConfig> {
  const { KubeConfig } = await import('@kubernetes/client-node/dist/config.js');
  const loaded = new KubeConfig();
  try {
    if (kubeconfig !== undefined) loaded.loadFromFile(kubeconfig);
    else loaded.loadFromDefault();
  } catch (error) {
    const [reason] = (error instanceof Error ? error.message : String(error)).split('\n');
    throw new Error(`kubeconfig ${kubeconfig ?? ''}: ${reason}`, { cause: error });
  }
  const name = context ?? loaded.currentContext;
  const names = loaded.contexts.map((known) => known.name);
  // client-node makes this context up, for localhost:8080, where it finds no configuration.
  if (name === 'loaded-context') throw new Error('kubeconfig: none found; set KUBECONFIG or --kubeconfig');
  if (!names.includes(name))
    throw new Error(`kubeconfig: no context "${name ?? ''}"; it has: ${names.join(', ') || 'none'}`);
  loaded.setCurrentContext(name);
  const cluster = loaded.getCurrentCluster();
  if (!cluster?.server) throw new Error(`kubeconfig: context "${name}" names no cluster with a server`);
  // client-node reads a CA only beside a user, and speaks plain HTTP only where TLS is not verified.
  const skipTLSVerify = cluster.skipTLSVerify || cluster.server.startsWith('http:');
  const config = new KubeConfig();
  config.loadFromClusterAndUser(
    { ...cluster, skipTLSVerify },
    loaded.getCurrentUser() ?? { name: 'anonymous' },
  );
  return config;
}
