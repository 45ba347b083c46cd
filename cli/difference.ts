import { isDeepStrictEqual } from 'node:util';
import { type AddressKey, addressKey, compareText } from '../core/address.ts';
import type { Occurrence } from '../core/address-set.ts';
import type { Condition } from '../core/endpoint-object.ts';
import { type PortId, portId } from '../core/service-port.ts';
import { formatAddress, type PublishedAddress, parseAddress } from '../wire/address.ts';
import type { PortSet, ServiceSummary } from '../wire/api.ts';
import { digestOf } from '../wire/key-hash.ts';
import type { EndpointsReading } from './api-reader.ts';
import type { CopiedPort } from './bus-copy.ts';
import type { ListedPort, ListedService } from './listed-services.ts';

/** What is wrong with a copy. `missing` is in the cluster alone, `extra` in the copy alone. */
type DifferenceKind =
  | 'missingService'
  | 'extraService'
  | 'missingPort'
  | 'extraPort'
  | 'missingAddress'
  | 'extraAddress'
  | 'wrongTier'
  | 'wrongField'
  /** Deltas that the bus's copy lacks (P2): from `expected` to `actual`, the sequences at both ends included. */
  | 'gap'
  /** A delta that contradicts those before it; `field` tells how. */
  | 'wrongDelta';

/** One way in which a copy is not what the cluster's objects say. */
export interface Difference {
  /** Whose copy: what the api serves, or what the deltas on the bus add up to. */
  readonly in: 'api' | 'bus';
  readonly kind: DifferenceKind;
  readonly namespace: string;
  readonly service: string;
  /** `80`, `53/UDP`. */
  readonly port?: PortId;
  /** `ip:port` of an address. */
  readonly key?: AddressKey;
  /** What of the address, or without `key` of the port or service, is different. */
  readonly field?: string;
  /** What the cluster says; of `size` and `digest`, what the addresses that are served come to. */
  readonly expected?: unknown;
  /** What the copy says. */
  readonly actual?: unknown;
}

type Place = Pick<Difference, 'in' | 'namespace' | 'service'> & { readonly port?: PortId };

/** One line for people. */
export function describeDifference(difference: Difference): string {
  const { in: copy, kind, namespace, service, port, key, field, expected, actual } = difference;
  const where = `${copy}  ${namespace}/${service}${port === undefined ? '' : `:${port}`}`;
  const values = `${JSON.stringify(expected) ?? 'nothing'} is right, ${JSON.stringify(actual) ?? 'nothing'} is told`;
  switch (kind) {
    case 'missingService':
      return `${where}  the Service is missing`;
    case 'extraService':
      return `${where}  the cluster has no such Service`;
    case 'missingPort':
      return `${where}  the port is missing`;
    case 'extraPort':
      return `${where}  the Service has no such port`;
    case 'missingAddress':
      return `${where}  ${key} is missing, ${expected} in the cluster`;
    case 'extraAddress':
      return `${where}  ${key} is not in the cluster, ${actual} here`;
    case 'wrongTier':
      return `${where}  ${key} is ${expected} in the cluster, ${actual} here`;
    case 'wrongField':
      return `${where}  ${key === undefined ? '' : `${key} `}${field}: ${values}`;
    case 'gap':
      return `${where}  the deltas from sequence ${expected} to ${actual} are missing`;
    case 'wrongDelta':
      return `${where}  ${field}`;
    default:
      return kind satisfies never;
  }
}

/**
 * Compares a service with what the api says of it.
 * @param listed null: the cluster has no such Service. `summary` undefined: the api's list does not have it.
 */
export function compareService(
  id: { readonly namespace: string; readonly service: string },
  listed: ListedService | null,
  summary: ServiceSummary | undefined,
  reading: EndpointsReading,
): Difference[] {
  const place: Place = { in: 'api', ...id };
  const isServed = reading.kind !== 'noService';
  if (listed === null) {
    return isServed || summary?.exists ? [{ ...place, kind: 'extraService' }] : [];
  }
  if (!isServed || summary === undefined) return [{ ...place, kind: 'missingService' }];
  const found = [
    ...compareField(place, 'type', listed.type, summary.type),
    ...compareField(place, 'exists', true, summary.exists),
  ];
  if (reading.kind === 'externalName' || listed.isExternalName) {
    const isSame = (reading.kind === 'externalName') === listed.isExternalName;
    return isSame || found.length > 0
      ? found
      : [{ ...place, kind: 'wrongField', field: 'type', expected: listed.type, actual: reading.kind }];
  }
  return [...found, ...comparePorts(place, listed, summary, reading.ports)];
}

function comparePorts(
  place: Place,
  listed: ListedService,
  summary: ServiceSummary,
  sets: readonly PortSet[],
): Difference[] {
  const served = new Map(sets.map((set) => [portId(set), set]));
  const summaries = new Map(summary.ports.map((port) => [portId(port), port]));
  const found: Difference[] = [];
  for (const [port, truth] of listed.ports) {
    const at = { ...place, port };
    const set = served.get(port);
    if (set === undefined) found.push({ ...at, kind: 'missingPort' });
    else found.push(...comparePort(at, truth, set, { listed, digest: summaries.get(port)?.digest }));
  }
  for (const port of served.keys())
    if (!listed.ports.has(port)) found.push({ ...place, port, kind: 'extraPort' });
  return found;
}

type Tier = 'ready' | 'draining' | 'notReady';

interface ServedAddress {
  readonly tier: Tier;
  readonly address: PublishedAddress;
}

function comparePort(
  at: Place,
  truth: ListedPort,
  set: PortSet,
  { listed, digest }: { readonly listed: ListedService; readonly digest: string | undefined },
): Difference[] {
  const copied = new Map<AddressKey, ServedAddress>();
  for (const tier of ['draining', 'ready'] as const)
    for (const address of tier === 'ready' ? set.addresses : set.draining)
      copied.set(addressKey(address), { tier, address });
  const served = [...copied].filter(([, { tier }]) => tier === 'ready').map(([key]) => key);
  // The others have no keys: one that is served in a wrong tier is told once.
  const notReady = [...truth.occurrences].filter(
    ([key, { condition }]) => tierOf(condition) === 'notReady' && !copied.has(key),
  );
  return [
    ...compareField(at, 'exists', true, set.exists),
    ...compareField(at, 'portName', truth.port.name, set.portName),
    ...compareAddresses(at, truth, copied, ['ready', 'draining']),
    ...compareField(at, 'notReady', notReady.length, set.notReady),
    ...compareField(at, 'size', served.length, set.size),
    ...compareField(at, 'digest', digestOf(served), set.digest),
    ...compareField(at, 'truncated', listed.isTruncated, set.truncated),
    ...compareField(at, 'listed digest', set.digest, digest),
  ];
}

/** Compares what the deltas of a port add up to. `sequence` is the api's, null where it serves no such port. */
export function compareCopy(
  id: { readonly namespace: string; readonly service: string; readonly port: PortId },
  listed: ListedService | null,
  sequence: number | null,
  copy: CopiedPort,
): Difference[] {
  const at: Place = { in: 'bus', ...id };
  const truth = listed?.ports.get(id.port);
  const missing = copy.missing(sequence ?? 0);
  // What a copy with a hole holds means nothing.
  if (missing !== null) return [{ ...at, kind: 'gap', expected: missing.from, actual: missing.to }];
  const copied = new Map(
    [...copy.addresses].map(([key, address]) => [key, { tier: 'ready', address } as const]),
  );
  return [
    ...(copy.sequence === 0 ? [] : compareField(at, 'exists', listed !== null, copy.exists)),
    ...(truth === undefined
      ? [...copied.keys()].map((key) => ({ ...at, kind: 'extraAddress', key, actual: 'ready' }) as const)
      : compareAddresses(at, truth, copied, ['ready'])),
    ...copy.contradictions.map((field) => ({ ...at, kind: 'wrongDelta', field }) as const),
  ];
}

/** @param tiers those of which the copy holds the addresses. */
function compareAddresses(
  at: Place,
  truth: ListedPort,
  copied: ReadonlyMap<AddressKey, ServedAddress>,
  tiers: readonly Tier[],
): Difference[] {
  const found: Difference[] = [];
  for (const [key, occurrence] of truth.occurrences) {
    const tier = tierOf(occurrence.condition);
    const copy = copied.get(key);
    if (copy === undefined) {
      if (tiers.includes(tier)) found.push({ ...at, kind: 'missingAddress', key, expected: tier });
    } else if (copy.tier !== tier) {
      found.push({ ...at, kind: 'wrongTier', key, expected: tier, actual: copy.tier });
    } else {
      found.push(...compareAddress(at, truth, key, occurrence, copy.address));
    }
  }
  for (const [key, { tier }] of copied)
    if (!truth.occurrences.has(key)) found.push({ ...at, kind: 'extraAddress', key, actual: tier });
  return found.sort((a, b) => compareText(a.key ?? '', b.key ?? ''));
}

function compareAddress(
  at: Place,
  truth: ListedPort,
  key: AddressKey,
  occurrence: Occurrence,
  published: PublishedAddress,
): Difference[] {
  const found = compareFields(at, key, occurrence, published);
  if (found.length === 0) return [];
  const { address, condition } = occurrence;
  const isTold = truth.tellings(address.ip).some((telling) => {
    const other = telling.get(key);
    return other?.condition === condition && compareFields(at, key, other, published).length === 0;
  });
  return isTold ? [] : found;
}

/** Whatever the relay alone knows of pods is left out (S7): a list does not tell it. */
function compareFields(
  at: Place,
  key: AddressKey,
  { address }: Occurrence,
  published: PublishedAddress,
): Difference[] {
  const expected: Readonly<Record<string, unknown>> = formatAddress(address);
  const actual: Readonly<Record<string, unknown>> = formatAddress(parseAddress(published));
  const fields = new Set([...Object.keys(expected), ...Object.keys(actual)]);
  for (const field of ['owner', 'opaqueProtocol', ...(address.node === null ? ['node'] : [])])
    fields.delete(field);
  return [...fields].flatMap((field) => compareField({ ...at, key }, field, expected[field], actual[field]));
}

function compareField(
  at: Place & Pick<Difference, 'key'>,
  field: string,
  expected: unknown,
  actual: unknown,
): Difference[] {
  return isDeepStrictEqual(expected, actual) ? [] : [{ ...at, kind: 'wrongField', field, expected, actual }];
}

/** S27: terminating and not serving is not ready. */
function tierOf(condition: Condition): Tier {
  return condition === 'terminating' ? 'notReady' : condition;
}
