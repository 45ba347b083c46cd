import type { PortId } from '../../core/service-port.ts';
import type { EpochMs } from '../../core/time.ts';
import { unpackCluster } from './cluster-item.ts';
import { type Item, unpackEntry } from './head-item.ts';
import type { ChunkName, ClusterRecord, DeadLetter, Receipt, ServiceKey, Subscription } from './store.ts';

/**
 * What lies where in the table:
 *
 * | pk                         | sk                     | holds                                      |
 * |----------------------------|------------------------|--------------------------------------------|
 * | CLUSTER/NAMESPACE/SERVICE  | HEAD                   | see head-item.ts                           |
 * | same                       | CHUNK#UID#RANDOM       | `b` packed part, `at` its making           |
 * | same                       | BODY#NAME#PART         | `b` piece of a packed delta, `at`          |
 * | same                       | DELTA#PORT#SEQUENCE    | `e` receipt: entry, `dead`                 |
 * | CLUSTERS                   | CLUSTER                | `r` see cluster-item.ts                    |
 * | LEASES                     | sweep                  | `h` holder, `u` until, `m` memory          |
 * | DEADLETTERS                | CLUSTER/NAMESPACE/SERVICE:PORT#SEQUENCE | nothing: the receipt says it all |
 * | SUBSCRIPTIONS              | CLUSTER/NAMESPACE/SERVICE#ID | `port`, `u` until    |
 *
 * Subscriptions of all services are one partition, so that a scrape and the sweep read them, and nothing else, by one
 * query; renewed every minute, 60,000 fit into what one partition takes.
 *
 * `ttl` is in seconds; DynamoDB may delete days late.
 */
export const PK = 'pk';
export const SK = 'sk';
export const TTL = 'ttl';
export const BYTES = 'b';
/** When the item was made, in milliseconds. */
export const MADE_AT = 'at';
export const ENTRY = 'e';
export const IS_DEAD = 'dead';
export const CLUSTER = 'r';
export const HOLDER = 'h';
export const UNTIL = 'u';
export const MEMORY = 'm';
export const PORT = 'port';

/** The index of listed services. */
export const INDEX = 'services';
export const HEAD_SK = 'HEAD';
export const CHUNK = 'CHUNK#';
export const BODY = 'BODY#';
export const CLUSTERS_PK = 'CLUSTERS';
export const DEAD_LETTERS_PK = 'DEADLETTERS';
export const SUBSCRIPTIONS_PK = 'SUBSCRIPTIONS';
export const LEASE_KEY = { [PK]: { S: 'LEASES' }, [SK]: { S: 'sweep' } };

/** Digits of the largest safe integer, so that sequences sort as text. */
const SEQUENCE_DIGITS = 16;
/** `ttl` counts in seconds. */
export const MS_PER_SECOND = 1000;

/** `CLUSTER/NAMESPACE/SERVICE`. */
export function pkOf({ cluster, namespace, name }: ServiceKey): string {
  return `${cluster}/${namespace}/${name}`;
}

export function keyOf(key: ServiceKey, sk: string): Item {
  return { [PK]: { S: pkOf(key) }, [SK]: { S: sk } };
}

export function bodySk(name: string, part: number): string {
  return `${BODY}${name}#${part}`;
}

export function receiptSk(port: PortId, sequence: number): string {
  return `DELTA#${port}#${sortable(sequence)}`;
}

function sortable(sequence: number): string {
  return `${sequence}`.padStart(SEQUENCE_DIGITS, '0');
}

export function deadLetterKey({ key, port, sequence }: DeadLetter): Item {
  return { [PK]: { S: DEAD_LETTERS_PK }, [SK]: { S: `${pkOf(key)}:${port}#${sortable(sequence)}` } };
}

export function subscriptionKey(key: ServiceKey, id: string): Item {
  return { [PK]: { S: SUBSCRIPTIONS_PK }, [SK]: { S: `${pkOf(key)}#${id}` } };
}

/** Names do not hold `#`. */
export function toSubscription(item: Item): Subscription {
  const sk = skOf(item);
  const service = sk.slice(0, sk.indexOf('#'));
  const [cluster = '', namespace = '', name = ''] = service.split('/');
  return {
    key: { cluster, namespace, name },
    id: sk.slice(service.length + 1),
    port: (item[PORT]?.S ?? '') as PortId,
    until: Number(item[UNTIL]?.N) as EpochMs,
  };
}

/** Names hold neither `/` nor `:`. */
export function toDeadLetter(sk: string): DeadLetter {
  const service = sk.slice(0, sk.indexOf(':'));
  const [cluster = '', namespace = '', name = ''] = service.split('/');
  const [port = '', sequence] = sk.slice(service.length + 1).split('#');
  return { key: { cluster, namespace, name }, port: port as PortId, sequence: Number(sequence) };
}

export function skOf(item: Item): string {
  return item[SK]?.S ?? '';
}

export function chunkOf(item: Item): ChunkName {
  return skOf(item).slice(CHUNK.length) as ChunkName;
}

/** A copy: what the SDK hands out is a view of a larger buffer, which it would keep alive. */
export function bytesOf(item: Item | undefined): Uint8Array {
  return new Uint8Array(item?.[BYTES]?.B ?? []);
}

export function madeAt(item: Item): EpochMs {
  return Number(item[MADE_AT]?.N) as EpochMs;
}

export function toChunks(items: readonly Item[]): Map<ChunkName, Uint8Array> {
  return new Map(items.map((item) => [chunkOf(item), bytesOf(item)]));
}

export function toReceipt(item: Item): Receipt {
  const { [ENTRY]: entry, [TTL]: ttl, [IS_DEAD]: dead } = item;
  return {
    entry: unpackEntry(entry ?? { L: [] }),
    expiresAt: (Number(ttl?.N) * MS_PER_SECOND) as EpochMs,
    isDead: dead?.BOOL ?? false,
  };
}

export function toCluster(item: Item): ClusterRecord {
  return unpackCluster(skOf(item), item[CLUSTER]?.S ?? '');
}
