import { parsePortId, portId, type ServicePort } from '../../core/service-port.ts';
import { type EpochMs, formatInstant } from '../../core/time.ts';
import type { SubscriptionAnswer } from '../../wire/api.ts';
import type { ServiceKey, Store, Subscription } from '../store/store.ts';
import {
  type EndpointsDeps,
  type EndpointsOutcome,
  type FoundEndpoints,
  readEndpoints,
} from './endpoints.ts';

/** Live subscriptions that a service may have: each is read at every scrape, some 40 for a read unit. */
export const MAX_SUBSCRIPTIONS = 1000;
const MS_PER_SECOND = 1000;

/** Which subscription is to live, and how long. */
export interface SubscriptionRequest {
  readonly key: ServiceKey;
  readonly id: string;
  readonly port: Pick<ServicePort, 'port' | 'protocol'>;
  readonly ttlSeconds: number;
}

export type SubscribeOutcome =
  /** The snapshot from which deltas go on. */
  | FoundEndpoints
  | Exclude<EndpointsOutcome, FoundEndpoints>
  /** The service has as many live ones as it may. */
  | { readonly kind: 'tooMany' };

/** Begins or renews a subscription, and reads the set that it begins with. */
export async function subscribe(
  deps: EndpointsDeps,
  { key, id, port, ttlSeconds }: SubscriptionRequest,
): Promise<SubscribeOutcome> {
  const { store, clock } = deps;
  const found = await readEndpoints(deps, { key, port, filter: { tier: 'ready' } });
  if (found.kind !== 'found') return found;
  // A number that the Service does not define has addresses perhaps, but no deltas (S22).
  if (found.ports[0]?.sequence === 0) return { kind: 'noPort', defined: found.defined };
  const isRenewed = (await store.getSubscription(key, id)) !== null;
  if (!isRenewed && (await countLive(store, key, clock.now())) >= MAX_SUBSCRIPTIONS)
    return { kind: 'tooMany' };
  const until = (clock.now() + ttlSeconds * MS_PER_SECOND) as EpochMs;
  await store.putSubscription({ key, id, port: portId(port), until });
  return found;
}

async function countLive(store: Store, key: ServiceKey, now: EpochMs): Promise<number> {
  let live = 0;
  for await (const page of store.listSubscriptions(key))
    live += page.filter(({ until }) => until > now).length;
  return live;
}

/** A live subscription as the API shows it; null for an id that is none, or one of another port than asked for. */
export async function findSubscription(
  store: Store,
  key: ServiceKey,
  id: string,
  port: SubscriptionRequest['port'] | undefined,
): Promise<SubscriptionAnswer | null> {
  const subscription = await store.getSubscription(key, id);
  if (subscription === null || (port !== undefined && portId(port) !== subscription.port)) return null;
  return formatSubscription(subscription);
}

function formatSubscription({ key, id, port, until }: Subscription): SubscriptionAnswer | null {
  const number = parsePortId(port);
  if (number === null) return null;
  const { cluster, namespace, name: service } = key;
  return { id, cluster, namespace, service, ...number, expiresAt: formatInstant(until) };
}
