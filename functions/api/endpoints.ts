import { type AddressFilter, type PortAnswer, queryPort, queryPorts } from '../../core/query.ts';
import type { PortId, ServicePort } from '../../core/service-port.ts';
import { definedPorts, type ServiceState } from '../../core/service-state.ts';
import type { Clock, EpochMs } from '../../core/time.ts';
import { hashKey } from '../../wire/key-hash.ts';
import { isGone } from '../services/cluster.ts';
import type { ServiceRepository } from '../services/repository.ts';
import type { ServiceKey, Store } from '../store/store.ts';
import { type Freshness, freshnessOf } from './freshness.ts';

/** What reading endpoints needs. */
export interface EndpointsDeps {
  readonly store: Store;
  readonly repository: ServiceRepository;
  readonly clock: Clock;
}

/** Which endpoints are asked for. */
export interface EndpointsRequest {
  readonly key: ServiceKey;
  /** Undefined: every port that the Service defines. */
  readonly port?: Pick<ServicePort, 'port' | 'protocol'> | undefined;
  readonly filter: AddressFilter;
}

/** The endpoints of a Service, as they stand. */
export interface FoundEndpoints extends Freshness {
  readonly kind: 'found';
  readonly key: ServiceKey;
  /** A Service whose addresses have names of their own (S39). */
  readonly isHeadless: boolean;
  /** The service's last commit. */
  readonly changedAt: EpochMs;
  readonly ports: readonly PortAnswer[];
  /** Ports of the Service. */
  readonly defined: readonly PortId[];
}

export type EndpointsOutcome =
  | FoundEndpoints
  /** Never there, or deleted (S34, S35). */
  | { readonly kind: 'noService' }
  /** Not a port of the Service, and its number has no meaning by itself (S22). */
  | { readonly kind: 'noPort'; readonly defined: readonly PortId[] }
  /** A name instead of addresses (S36). */
  | { readonly kind: 'externalName'; readonly externalName: string };

/** Reads the current endpoints of a service. */
export async function readEndpoints(
  { store, repository, clock }: EndpointsDeps,
  { key, port, filter }: EndpointsRequest,
): Promise<EndpointsOutcome> {
  const cluster = await store.getCluster(key.cluster);
  if (cluster !== null && isGone(cluster)) return { kind: 'noService' };
  const { head, state } = await repository.load(
    key,
    cluster?.mode === 'endpoints' ? 'Endpoints' : 'EndpointSlice',
  );
  if (head === null || state.service === null) return { kind: 'noService' };
  const { isHeadless, externalName } = state.service;
  if (externalName !== null) return { kind: 'externalName', externalName };
  const ports = port === undefined ? queryPorts(state, filter) : queryOne(state, port, filter);
  const defined = [...definedPorts(state).keys()];
  if (ports.length === 0 && port !== undefined) return { kind: 'noPort', defined };
  const freshness = freshnessOf(cluster, head.changedAt, clock.now());
  return { kind: 'found', key, isHeadless, changedAt: head.changedAt, ports, defined, ...freshness };
}

function queryOne(
  state: ServiceState,
  port: Pick<ServicePort, 'port' | 'protocol'>,
  filter: AddressFilter,
): PortAnswer[] {
  const answer = queryPort(state, port, filter, hashKey);
  return answer === null ? [] : [answer];
}
