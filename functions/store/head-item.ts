import type { AttributeValue } from '@aws-sdk/client-dynamodb';
import { compareText } from '../../core/address.ts';
import type { EndpointKind } from '../../core/endpoint-object.ts';
import type { ServiceRecord } from '../../core/service.ts';
import { type PortId, parsePortId } from '../../core/service-port.ts';
import type { Deletion, PortState, RenameWindow } from '../../core/service-state.ts';
import type { EpochMs } from '../../core/time.ts';
import { formatDigest } from '../../wire/key-hash.ts';
import {
  type ChunkName,
  type DeltaEntry,
  type Garbage,
  type Head,
  type ObjectBody,
  type ServiceKey,
  type ServiceRange,
  type ServiceSummary,
  type StoredObject,
  UnknownFormatError,
} from './store.ts';
import { packUidTable, unpackUidTable } from './uid-table.ts';

/** Attributes of an item by name. */
export type Item = Record<string, AttributeValue>;

/** A later format is never rewritten: a release reads format N + 1 before another writes it. */
const FORMAT = 1;

/**
 * Attributes of a HEAD. Names are short, since every write pays for them; an attribute with nothing in it is left out.
 * No fact is stored twice: the summary, which the index of services projects, is also where HEAD keeps its ports.
 */
export const HEAD = {
  format: 'f',
  version: 'v',
  /** Random bytes of the write: tell whether an answer that got lost was a success. */
  by: 'by',
  records: 'r',
  summary: 's',
  objects: 'o',
  inlineBodies: 'b',
  deletions: 'd',
  pending: 'p',
  garbage: 'g',
  /** Keys of the index, there only while the service is listed. */
  cluster: 'c',
  name: 'n',
} as const;

/**
 * Separates namespace and name in the index. It comes before every character of a name, so that the order of the keys is
 * that of (namespace, name): with `/`, which comes after `-` and `.`, `a-b/x` would stand before `a/x`.
 */
const SEPARATOR = '#';
/** Comes before the separator and every character of a name; so `KEY!` is the first key behind KEY. */
const LOWEST = '!';
/** Comes after every character of a name. */
const HIGHEST = '~';

/** Key of a service in the index of services. */
function listKey({ namespace, name }: Pick<ServiceKey, 'namespace' | 'name'>): string {
  return `${namespace}${SEPARATOR}${name}`;
}

/** First and last key that a range may hold, both included; the last may come before the first: then it holds none. */
export function listRange(range: ServiceRange): { readonly first: string; readonly last: string } {
  const firsts = [LOWEST];
  const lasts = [HIGHEST];
  if (range.namespace !== undefined) {
    firsts.push(`${range.namespace}${SEPARATOR}`);
    lasts.push(`${range.namespace}${SEPARATOR}${HIGHEST}`);
  }
  if (range.after !== undefined) firsts.push(`${listKey(range.after)}${LOWEST}`);
  if (range.upTo !== undefined) lasts.push(listKey(range.upTo));
  return { first: firsts.sort(compareText).at(-1) ?? LOWEST, last: lasts.sort(compareText)[0] ?? HIGHEST };
}

/** The attributes of a head, its primary key aside. */
export function toHeadItem(key: ServiceKey, head: Head, by: Uint8Array): Item {
  const { records, objects, pending, garbage } = head;
  return {
    [HEAD.format]: { N: `${FORMAT}` },
    [HEAD.version]: { N: `${head.version}` },
    [HEAD.by]: { B: by },
    [HEAD.records]: { S: packRecords(records) },
    [HEAD.summary]: { S: packSummary(head) },
    ...(objects.length > 0 && { [HEAD.objects]: { B: packObjects(key.name, objects) } }),
    ...(objects.some(isInline) && { [HEAD.inlineBodies]: { B: packInlineBodies(objects) } }),
    ...(records.deletions.size > 0 && { [HEAD.deletions]: { B: packDeletions(records.deletions) } }),
    ...(pending.length > 0 && { [HEAD.pending]: { L: pending.map(packEntry) } }),
    ...(garbage.length > 0 && { [HEAD.garbage]: { B: packGarbage(garbage) } }),
    ...(head.isListed && { [HEAD.cluster]: { S: key.cluster }, [HEAD.name]: { S: listKey(key) } }),
  };
}

/**
 * The head that an item holds. It shares no memory with the item.
 * @throws UnknownFormatError when a later release wrote it.
 */
export function fromHeadItem(key: ServiceKey, item: Item): Head {
  const format = Number(item[HEAD.format]?.N);
  if (format !== FORMAT) throw new UnknownFormatError(`head of format ${format}`);
  const { type, changedAt, windowUntil, ports } = unpackSummary(textOf(item[HEAD.summary]));
  return {
    version: Number(item[HEAD.version]?.N),
    records: {
      ...unpackRecords(textOf(item[HEAD.records]), type),
      deletions: unpackDeletions(item[HEAD.deletions]?.B),
      ports: new Map(ports),
    },
    objects: unpackObjects(key.name, item[HEAD.objects]?.B, item[HEAD.inlineBodies]?.B),
    pending: (item[HEAD.pending]?.L ?? []).map(unpackEntry),
    garbage: unpackGarbage(item[HEAD.garbage]?.B),
    changedAt,
    windowUntil,
    isListed: item[HEAD.cluster] !== undefined,
  };
}

/** What the index of services tells of one. */
export function fromListItem(item: Item): ServiceSummary {
  const [cluster = '', namespace = '', name = ''] = textOf(item.pk).split('/');
  const { type, changedAt, windowUntil, ports } = unpackSummary(textOf(item[HEAD.summary]));
  return {
    key: { cluster, namespace, name },
    type,
    exists: type !== null,
    changedAt,
    windowUntil,
    ports: ports.map(([id, port]) => ({
      id,
      name: port.name,
      size: port.size,
      sequence: port.sequence,
      digest: port.digest,
    })),
  };
}

/** A pending delta, which a receipt repeats as it is. */
export function packEntry({ port, sequence, body }: DeltaEntry): AttributeValue {
  const content = body.kind === 'inline' ? [{ B: body.bytes }] : [{ S: body.name }, { N: `${body.parts}` }];
  return { L: [{ S: port }, { N: `${sequence}` }, ...content] };
}

/** The delta that `packEntry` packed. It shares no memory with the attribute. */
export function unpackEntry(attribute: AttributeValue): DeltaEntry {
  const [port, sequence, content, parts] = attribute.L ?? [];
  return {
    port: textOf(port) as PortId,
    sequence: Number(sequence?.N),
    body:
      content?.B === undefined
        ? { kind: 'stored', name: textOf(content), parts: Number(parts?.N) }
        : { kind: 'inline', bytes: new Uint8Array(content.B) },
  };
}

type PackedCause = readonly [
  RenameWindow['cause']['kind'],
  name: string,
  RenameWindow['cause']['type'],
  resourceVersion: string,
];

/** The type of the Service is in the summary. */
type PackedRecords = readonly [
  preferredKind: EndpointKind,
  service:
    | readonly [
        uid: string,
        version: string,
        isHeadless: boolean,
        hasSelector: boolean,
        isLocal: boolean,
        externalName: string | null,
        ports: readonly (readonly [port: number, protocol: PortState['protocol'], name: string])[],
      ]
    | null,
  windows: readonly (readonly [
    port: PortId,
    formerNames: readonly string[],
    until: EpochMs,
    isRepeated: boolean,
    cause: PackedCause,
  ])[],
];

type Records = Pick<Head['records'], 'preferredKind' | 'service' | 'windows'>;

function packRecords({ preferredKind, service, windows }: Records): string {
  const packed: PackedRecords = [
    preferredKind,
    service && [
      service.uid,
      service.version,
      service.isHeadless,
      service.hasSelector,
      service.isLocal,
      service.externalName,
      service.ports.map(({ port, protocol, name }) => [port, protocol, name]),
    ],
    [...windows].map(([id, { formerNames, until, isRepeated, cause }]) => [
      id,
      formerNames,
      until,
      isRepeated,
      [cause.kind, cause.name, cause.type, cause.resourceVersion],
    ]),
  ];
  return JSON.stringify(packed);
}

function unpackRecords(text: string, type: string | null): Records {
  const [preferredKind, service, windows] = JSON.parse(text) as PackedRecords;
  return {
    preferredKind,
    service: service && unpackService(service, type ?? ''),
    windows: new Map(
      windows.map(([id, formerNames, until, isRepeated, [kind, name, causeType, resourceVersion]]) => [
        id,
        { formerNames, until, isRepeated, cause: { kind, name, type: causeType, resourceVersion } },
      ]),
    ),
  };
}

function unpackService(packed: NonNullable<PackedRecords[1]>, type: string): ServiceRecord {
  const [uid, version, isHeadless, hasSelector, isLocal, externalName, ports] = packed;
  return {
    uid,
    version,
    type,
    isHeadless,
    hasSelector,
    isLocal,
    externalName,
    ports: ports.map(([port, protocol, name]) => ({ port, protocol, name })),
  };
}

type PackedSummary = readonly [
  format: number,
  /** Null while there is no Service. */
  type: string | null,
  changedAt: EpochMs,
  windowUntil: EpochMs | null,
  ports: readonly (readonly [
    id: PortId,
    name: string,
    sequence: number,
    exists: 0 | 1,
    size: number,
    digest: string,
  ])[],
];

interface Summary {
  readonly type: string | null;
  readonly changedAt: EpochMs;
  readonly windowUntil: EpochMs | null;
  readonly ports: readonly (readonly [PortId, PortState])[];
}

function packSummary({ records, changedAt, windowUntil }: Head): string {
  const packed: PackedSummary = [
    FORMAT,
    records.service?.type ?? null,
    changedAt,
    windowUntil,
    [...records.ports].map(([id, { name, sequence, exists, size, digest }]) => [
      id,
      name,
      sequence,
      exists ? 1 : 0,
      size,
      Buffer.from(formatDigest(digest), 'hex').toString('base64url'),
    ]),
  ];
  return JSON.stringify(packed);
}

function unpackSummary(text: string): Summary {
  const [format, type, changedAt, windowUntil, ports] = JSON.parse(text) as PackedSummary;
  if (format !== FORMAT) throw new UnknownFormatError(`summary of format ${format}`);
  return {
    type,
    changedAt,
    windowUntil,
    ports: ports.map(([id, name, sequence, exists, size, digest]) => {
      const number = parsePortId(id) ?? damaged('port id');
      const sum = BigInt(`0x${Buffer.from(digest, 'base64url').toString('hex')}`);
      return [id, { ...number, name, sequence, exists: exists === 1, size, digest: sum }];
    }),
  };
}

/** Cells of an object: name, kind, version, is truncated, enrichment's epoch and number, count, body. */
const OBJECT_CELLS = 8;
/** Random bytes in the name of a chunk: `UID#` and these in hex. */
const RANDOM_BYTES = 4;

function packObjects(service: string, objects: readonly StoredObject[]): Uint8Array {
  return packUidTable({
    rows: objects.map(({ uid, name, kind, version, isTruncated, enrichment, count, body }) => ({
      uid,
      cells: [
        shortenName(service, name),
        kind,
        version,
        isTruncated ? '1' : '',
        enrichment === null ? '' : `${enrichment.epoch}`,
        enrichment === null ? '' : `${enrichment.number}`,
        `${count}`,
        describeBody(body),
      ],
    })),
    extra: Buffer.concat(
      objects.flatMap(({ body }) => (body.kind === 'chunks' ? body.names.map((name) => randomOf(name)) : [])),
    ),
  });
}

function unpackObjects(
  service: string,
  packed: Uint8Array | undefined,
  inlineBodies: Uint8Array | undefined,
): StoredObject[] {
  if (packed === undefined) return [];
  const { rows, extra } = unpackUidTable(packed, OBJECT_CELLS);
  const takeRandom = taker(extra);
  const takeInline = taker(inlineBodies ?? new Uint8Array());
  return rows.map(({ uid, cells }) => {
    const [name = '', kind, version = '', truncated, epoch, number, count, body = ''] = cells;
    return {
      kind: kind as EndpointKind,
      name: lengthenName(service, name),
      uid,
      version,
      enrichment: epoch === '' ? null : { epoch: Number(epoch), number: Number(number) },
      count: Number(count),
      isTruncated: truncated === '1',
      body: readBody(uid, body, takeRandom, takeInline),
    };
  });
}

/** Most objects are called `SERVICE-RANDOM`; a name that is kept whole is marked by a `=`. */
function shortenName(service: string, name: string): string {
  return name.startsWith(`${service}-`) ? name.slice(service.length) : `=${name}`;
}

function lengthenName(service: string, short: string): string {
  return short.startsWith('=') ? short.slice(1) : `${service}${short}`;
}

/** The number of chunks, or `i` and the length of each inline part. */
function describeBody(body: ObjectBody): string {
  return body.kind === 'chunks'
    ? `${body.names.length}`
    : `i${body.parts.map((part) => part.byteLength).join(',')}`;
}

function readBody(uid: string, description: string, takeRandom: Taker, takeInline: Taker): ObjectBody {
  if (description === 'i') return { kind: 'inline', parts: [] };
  if (description.startsWith('i')) {
    const lengths = description.slice(1).split(',');
    return { kind: 'inline', parts: lengths.map((length) => takeInline(Number(length))) };
  }
  const names = Array.from({ length: Number(description) }, () => chunkName(uid, takeRandom(RANDOM_BYTES)));
  return { kind: 'chunks', names };
}

function packInlineBodies(objects: readonly StoredObject[]): Uint8Array {
  return Buffer.concat(objects.flatMap(({ body }) => (body.kind === 'inline' ? body.parts : [])));
}

function isInline({ body }: StoredObject): boolean {
  return body.kind === 'inline';
}

function packDeletions(deletions: ReadonlyMap<string, Deletion>): Uint8Array {
  const rows = [...deletions].map(([uid, { version, at }]) => ({ uid, cells: [version, `${at}`] }));
  return packUidTable({ rows, extra: new Uint8Array() });
}

function unpackDeletions(packed: Uint8Array | undefined): Map<string, Deletion> {
  if (packed === undefined) return new Map();
  const { rows } = unpackUidTable(packed, 2);
  return new Map(
    rows.map(({ uid, cells: [version = '', at] }) => [uid, { version, at: Number(at) as EpochMs }]),
  );
}

const SECONDS_BYTES = 4;
const MS_PER_SECOND = 1000;

/** Grouped by uid. Instants become whole seconds, rounded up, so that nothing is collected too early. */
function packGarbage(garbage: readonly Garbage[]): Uint8Array {
  const groups = Map.groupBy(garbage, ({ chunk }) => uidOf(chunk));
  const rows = [...groups].map(([uid, chunks]) => ({ uid, cells: [`${chunks.length}`] }));
  const extra = [...groups.values()].flat().map(({ chunk, at }) => {
    const seconds = Buffer.alloc(SECONDS_BYTES);
    seconds.writeUInt32BE(Math.ceil(at / MS_PER_SECOND));
    return Buffer.concat([randomOf(chunk), seconds]);
  });
  return packUidTable({ rows, extra: Buffer.concat(extra) });
}

function unpackGarbage(packed: Uint8Array | undefined): Garbage[] {
  if (packed === undefined) return [];
  const { rows, extra } = unpackUidTable(packed, 1);
  const take = taker(extra);
  return rows.flatMap(({ uid, cells: [count] }) =>
    Array.from({ length: Number(count) }, () => ({
      chunk: chunkName(uid, take(RANDOM_BYTES)),
      at: (Buffer.from(take(SECONDS_BYTES)).readUInt32BE() * MS_PER_SECOND) as EpochMs,
    })),
  );
}

const CHUNK_NAME = /^(.+)#([0-9a-f]{8})$/s;

function chunkName(uid: string, random: Uint8Array): ChunkName {
  return `${uid}#${Buffer.from(random).toString('hex')}` as ChunkName;
}

function uidOf(name: ChunkName): string {
  return CHUNK_NAME.exec(name)?.[1] ?? damaged('chunk name');
}

function randomOf(name: ChunkName): Buffer {
  return Buffer.from(CHUNK_NAME.exec(name)?.[2] ?? damaged('chunk name'), 'hex');
}

/** Takes the next so many bytes, as a copy. */
type Taker = (length: number) => Uint8Array;

function taker(bytes: Uint8Array): Taker {
  let end = 0;
  return (length) => {
    end += length;
    return new Uint8Array(bytes.subarray(end - length, end));
  };
}

function textOf(attribute: AttributeValue | undefined): string {
  return attribute?.S ?? damaged('attribute');
}

function damaged(what: string): never {
  throw new Error(`damaged item: ${what}`);
}
