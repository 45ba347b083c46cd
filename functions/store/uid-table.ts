import { ColumnReader, packLines, writeColumn } from './columns.ts';

/** What is known of a uid: as many cells in each row of a table. */
export interface UidRow {
  readonly uid: string;
  readonly cells: readonly string[];
}

/** Rows, and bytes that deflate cannot shorten; what belongs to which row, the cells must tell. */
export interface UidTable {
  readonly rows: readonly UidRow[];
  readonly extra: Uint8Array;
}

const LENGTH_BYTES = 4;
const UUID_BYTES = 16;
/** Only what comes back as it was: any other spelling of a UUID stays text. */
const CANONICAL_UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const DASHES = /-/g;

/**
 * Packs a table: length of the deflated text (4 bytes), the text, the uids that are UUIDs (16 bytes each), the extra
 * bytes. The text is the number of rows, a column of the other uids, and the columns of the cells.
 */
export function packUidTable({ rows, extra }: UidTable): Uint8Array {
  const uuids = rows.filter(({ uid }) => CANONICAL_UUID.test(uid)).map(({ uid }) => uid.replace(DASHES, ''));
  const lines = [
    `${rows.length}`,
    ...writeColumn(rows.map(({ uid }) => (CANONICAL_UUID.test(uid) ? null : uid))),
    ...(rows[0]?.cells ?? []).flatMap((_, column) =>
      writeColumn(rows.map(({ cells }) => cells[column] ?? '')),
    ),
  ];
  const text = packLines(lines);
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt32BE(text.byteLength);
  return Buffer.concat([length, text, Buffer.from(uuids.join(''), 'hex'), extra]);
}

/**
 * The table that was packed; it shares no memory with `packed`.
 * @param cellCount number of cells in a row.
 */
export function unpackUidTable(packed: Uint8Array, cellCount: number): UidTable {
  const bytes = Buffer.from(packed);
  const textEnd = LENGTH_BYTES + bytes.readUInt32BE();
  const reader = new ColumnReader(bytes.subarray(LENGTH_BYTES, textEnd));
  const rowCount = Number(reader.line());
  let end = textEnd;
  const uids = reader.column(rowCount).map((text) => {
    if (text !== null) return text;
    end += UUID_BYTES;
    return formatUuid(bytes.toString('hex', end - UUID_BYTES, end));
  });
  const columns = Array.from({ length: cellCount }, () => reader.texts(rowCount));
  return {
    rows: uids.map((uid, row) => ({ uid, cells: columns.map((column) => column[row] ?? '') })),
    extra: bytes.subarray(end),
  };
}

function formatUuid(hex: string): string {
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
