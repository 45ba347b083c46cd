import { type Address, addressKey, type Family } from './address.ts';
import { type Occurrence, resolvePort } from './address-set.ts';
import { advanceDigest, type KeyHash } from './delta.ts';
import { byKey } from './diff.ts';
import { PORTLESS, portId, type ServicePort } from './service-port.ts';
import { countedObjects, definedPorts, isTruncated, lookupOf, type ServiceState } from './service-state.ts';

/** Which addresses a reader wants; it never changes the published set (S33). */
export interface AddressFilter {
  readonly hostname?: string | undefined;
  /** The reader's node: for Local traffic policy and node hints. */
  readonly node?: string | undefined;
  /** The reader's zone: for zone hints. */
  readonly zone?: string | undefined;
  readonly family?: Family | undefined;
  /** `effective`: ready, or draining when the filter leaves nothing ready, as kube-proxy falls back (S27). */
  readonly tier: 'ready' | 'draining' | 'effective';
}

/** The current set of one service port. */
export interface PortAnswer {
  readonly port: ServicePort;
  /** 0 for a raw port, which has no deltas (S22). */
  readonly sequence: number;
  /** Digest of the whole ready set, whatever the filter. */
  readonly digest: bigint;
  /** Size of the whole ready set, whatever the filter. */
  readonly size: number;
  readonly isTruncated: boolean;
  /** The tier asked for, filtered, sorted by key. */
  readonly addresses: readonly Address[];
  /** Serving, terminating and not ready; filtered by hostname, Local policy and family. */
  readonly draining: readonly Address[];
  /** Distinct keys that are neither ready nor draining. */
  readonly notReady: number;
}

/** Every port that the Service defines, sorted by number, then protocol. */
export function queryPorts(state: ServiceState, filter: AddressFilter): PortAnswer[] {
  const ports = [...definedPorts(state).values()];
  ports.sort((a, b) => a.port - b.port || (a.protocol < b.protocol ? -1 : 1));
  return ports.map((port) => queryDefinedPort(state, port, filter));
}

/**
 * One port by number and protocol: a defined one, or a raw number where that has a meaning (S22).
 * @returns null for an undefined port.
 */
export function queryPort(
  state: ServiceState,
  asked: Pick<ServicePort, 'port' | 'protocol'>,
  filter: AddressFilter,
  hash: KeyHash,
): PortAnswer | null {
  const defined = definedPorts(state).get(portId(asked));
  if (defined !== undefined) return queryDefinedPort(state, defined, filter);
  const isRaw = asked.port > 0 && (state.service?.isHeadless || filter.hostname !== undefined);
  return isRaw ? queryRawPort(state, asked, filter, hash) : null;
}

function queryDefinedPort(state: ServiceState, port: ServicePort, filter: AddressFilter): PortAnswer {
  const occurrences = [...resolvePort(countedObjects(state), lookupOf(state, port)).values()];
  const said = state.ports.get(portId(port));
  const sizes = { sequence: said?.sequence ?? 0, size: said?.size ?? 0, digest: said?.digest ?? 0n };
  return toAnswer(state, { port, ...sizes }, occurrences, filter);
}

/** As DNS answers for a headless Service: each ready IP, with the number asked for. */
function queryRawPort(
  state: ServiceState,
  asked: Pick<ServicePort, 'port' | 'protocol'>,
  filter: AddressFilter,
  hash: KeyHash,
): PortAnswer {
  const union = resolvePort(countedObjects(state), { servicePort: PORTLESS, formerNames: [] });
  const occurrences = [...union.values()].map(({ address, ...rest }) => ({
    ...rest,
    // An authority names the port of the service that was asked for (S32).
    address: {
      ...address,
      port: asked.port,
      authority: address.authority?.replace(/\d+$/, `${asked.port}`) ?? null,
    },
  }));
  const added = occurrences
    .filter(({ condition }) => condition === 'ready')
    .map(({ address }) => addressKey(address));
  const digest = advanceDigest(0n, { added, removed: [] }, hash);
  return toAnswer(
    state,
    { port: { ...asked, name: '' }, sequence: 0, size: added.length, digest },
    occurrences,
    filter,
  );
}

function toAnswer(
  state: ServiceState,
  whole: Pick<PortAnswer, 'port' | 'sequence' | 'size' | 'digest'>,
  occurrences: readonly Occurrence[],
  filter: AddressFilter,
): PortAnswer {
  const inCondition = (condition: Occurrence['condition']) =>
    occurrences
      .filter((occurrence) => occurrence.condition === condition)
      .map(({ address }) => address)
      .sort(byKey);
  const isLocal = state.service?.isLocal ?? false;
  const ready = inCondition('ready');
  const allDraining = inCondition('draining');
  const draining = byFamily(byLocality(byHostname(allDraining, filter), filter, isLocal), filter);
  const near = filterReady(ready, filter, isLocal);
  const isDrainingAsked = filter.tier === 'draining' || (filter.tier === 'effective' && near.length === 0);
  return {
    ...whole,
    isTruncated: isTruncated(state),
    addresses: isDrainingAsked ? draining : near,
    draining,
    notReady: occurrences.length - ready.length - allDraining.length,
  };
}

/** Linkerd's order: hostname, then locality or hints, then family (S33). */
function filterReady(ready: readonly Address[], filter: AddressFilter, isLocal: boolean): readonly Address[] {
  const named = byHostname(ready, filter);
  const isNodeBound = isLocal && filter.node !== undefined;
  const near = isNodeBound
    ? byLocality(named, filter, isLocal)
    : (byHint(named, 'forNodes', filter.node) ?? byHint(named, 'forZones', filter.zone) ?? named);
  return byFamily(near, filter);
}

function byHostname(addresses: readonly Address[], { hostname }: AddressFilter): readonly Address[] {
  return hostname === undefined ? addresses : addresses.filter((address) => address.hostname === hostname);
}

function byLocality(
  addresses: readonly Address[],
  { node }: AddressFilter,
  isLocal: boolean,
): readonly Address[] {
  return isLocal && node !== undefined ? addresses.filter((address) => address.node === node) : addresses;
}

/** The addresses hinted for a place; null where hints do not count: not all have one, or none matches. */
function byHint(
  addresses: readonly Address[],
  hint: 'forNodes' | 'forZones',
  place: string | undefined,
): readonly Address[] | null {
  if (place === undefined || addresses.some((address) => (address.hints?.[hint].length ?? 0) === 0))
    return null;
  const near = addresses.filter((address) => address.hints?.[hint].includes(place));
  return near.length === 0 ? null : near;
}

function byFamily(addresses: readonly Address[], { family }: AddressFilter): readonly Address[] {
  return family === undefined ? addresses : addresses.filter((address) => address.family === family);
}
