import * as z from 'zod';
import { parsePortId } from '../../core/service-port.ts';
import { formatInstant } from '../../core/time.ts';
import { ALL_NAMESPACES, type ServiceSummary, type ServicesAnswer } from '../../wire/api.ts';
import { objectName, serviceName } from '../../wire/envelope.ts';
import { formatDigest } from '../../wire/key-hash.ts';
import { type Invalid, invalid } from '../../wire/parse.ts';
import { isGone } from '../services/cluster.ts';
import type { ServiceKey, Store, ServiceSummary as StoredSummary } from '../store/store.ts';

/** Which services are asked for. */
export interface ServicesRequest {
  readonly cluster: string;
  /** `_all` for those of all namespaces. */
  readonly namespace: string;
  /** Services of one page. */
  readonly limit: number;
  /** The former page's `continue`. */
  readonly after: string | undefined;
}

export type ServicesOutcome =
  | { readonly kind: 'found'; readonly answer: ServicesAnswer }
  | { readonly kind: 'noCluster' }
  | Invalid;

/** One page of a cluster's services, in the order of namespace and name; deleted ones until they age out. */
export async function listServices(
  store: Store,
  { cluster, namespace, limit, after: token }: ServicesRequest,
): Promise<ServicesOutcome> {
  const after = token === undefined ? undefined : parseContinue(token);
  const isOtherNamespace = namespace !== ALL_NAMESPACES && namespace !== (after?.namespace ?? namespace);
  if (after === null || isOtherNamespace)
    return invalid('continue', 'must be the continue of a former page of the same list');
  const known = await store.getCluster(cluster);
  if (known === null || isGone(known)) return { kind: 'noCluster' };
  const range = {
    ...(namespace !== ALL_NAMESPACES && { namespace }),
    ...(after !== undefined && { after }),
  };
  const found: StoredSummary[] = [];
  for await (const page of store.listServices(cluster, range)) {
    found.push(...page.slice(0, limit + 1 - found.length));
    if (found.length > limit) break;
  }
  const shown = found.slice(0, limit);
  const last = shown.at(-1);
  const isMore = found.length > limit && last !== undefined;
  return {
    kind: 'found',
    answer: { items: shown.map(formatSummary), continue: isMore ? formatContinue(last.key) : null },
  };
}

function formatSummary({ key, type, exists, changedAt, ports }: StoredSummary): ServiceSummary {
  return {
    namespace: key.namespace,
    name: key.name,
    type,
    exists,
    changedAt: formatInstant(changedAt),
    ports: ports.flatMap(({ id, name, size, sequence, digest }) => {
      const port = parsePortId(id);
      if (port === null) return [];
      return { ...port, portName: name, size, sequence, digest: formatDigest(digest) };
    }),
  };
}

/** Where the next page begins: behind this service. Opaque to clients. */
function formatContinue({ namespace, name }: Pick<ServiceKey, 'namespace' | 'name'>): string {
  return Buffer.from(JSON.stringify([namespace, name])).toString('base64url');
}

const continuation = z.tuple([objectName, serviceName]);

function parseContinue(token: string): Pick<ServiceKey, 'namespace' | 'name'> | null {
  try {
    const [namespace, name] = continuation.parse(JSON.parse(Buffer.from(token, 'base64url').toString()));
    return { namespace, name };
  } catch {
    return null;
  }
}
