import { deflateRawSync, inflateRawSync } from 'node:zlib';

/**
 * Text columns: one field of many rows as one line, or two. They are made for deflate, which finds what rows have in
 * common better the closer together it stands, and for values that repeat.
 *
 * `=VALUE`                    every row has this value;
 * `#VALUE⇥VALUE…`, `INDICES`  few values: which of them each row has, one character a row;
 * `:PREFIX⇥REST⇥REST…`        what all values begin with, then how each goes on.
 */

/** A field of a row: text of any kind, or nothing. */
export type Cell = string | null;

/** Indices are the characters from this one on: visible ones, none of which means anything in a line. */
const FIRST_INDEX = '!'.charCodeAt(0);
/** As many visible ASCII characters as there are. */
const MAX_INDEXED_VALUES = 94;
/** Below so many rows a value, listing the values first saves nothing. */
const MIN_ROWS_PER_VALUE = 1.5;

const NULL = '\\0';

/** The lines of a column with at least one row. */
export function writeColumn(cells: readonly Cell[]): string[] {
  const values = [...new Set(cells)];
  if (values.length <= 1) return [`=${escapeCell(values[0] ?? null)}`];
  if (values.length <= MAX_INDEXED_VALUES && values.length * MIN_ROWS_PER_VALUE <= cells.length) {
    const indices = new Map(values.map((value, index) => [value, String.fromCharCode(FIRST_INDEX + index)]));
    return [`#${values.map(escapeCell).join('\t')}`, cells.map((cell) => indices.get(cell)).join('')];
  }
  const escaped = cells.map(escapeCell);
  const prefix = commonPrefix(escaped);
  return [`:${[prefix, ...escaped.map((cell) => cell.slice(prefix.length))].join('\t')}`];
}

/** Small blocks, about one a column, each with a code of its own: names and digits have little in common (4 % less). */
const DEFLATE = { memLevel: 4 };

/** Deflates lines. Never compare the bytes: the same lines may give others with another zlib. */
export function packLines(lines: readonly string[]): Uint8Array {
  return deflateRawSync(lines.join('\n'), DEFLATE);
}

/** Reads lines and columns in the order in which they were written. */
export class ColumnReader {
  private readonly lines: Iterator<string>;

  /** @param packed what `packLines` made. */
  constructor(packed: Uint8Array) {
    this.lines = linesOf(inflateRawSync(packed).toString());
  }

  /** The next line as it is. */
  line(): string {
    const { done, value } = this.lines.next();
    if (done) throw new Error('packed columns end too early');
    return value;
  }

  /** The next column, of so many rows. */
  column(rows: number): Cell[] {
    const line = this.line();
    const body = line.slice(1);
    switch (line[0]) {
      case '=':
        return new Array<Cell>(rows).fill(unescapeCell(body));
      case '#': {
        const values = body.split('\t').map(unescapeCell);
        return Array.from(this.line(), (index) => values[index.charCodeAt(0) - FIRST_INDEX] ?? null);
      }
      case ':': {
        const [prefix = '', ...rests] = body.split('\t');
        return rests.map((rest) => unescapeCell(prefix + rest));
      }
      default:
        throw new Error('packed columns are damaged');
    }
  }

  /** The next column, which has no nulls. */
  texts(rows: number): string[] {
    return this.column(rows).map((cell) => cell ?? '');
  }
}

/** Line by line, so that a reader of the first column does not pay for the others. */
function* linesOf(text: string): Generator<string, undefined> {
  for (let start = 0; start < text.length; ) {
    const found = text.indexOf('\n', start);
    const end = found < 0 ? text.length : found;
    yield text.slice(start, end);
    start = end + 1;
  }
}

const SPECIAL = /[\\\t\n\p{Surrogate}]/gu;

/** Lone halves of a surrogate pair are escaped too, since UTF-8 cannot hold them. */
function escapeCell(cell: Cell): string {
  if (cell === null) return NULL;
  return cell.replace(SPECIAL, (character) => {
    switch (character) {
      case '\\':
        return '\\\\';
      case '\t':
        return '\\t';
      case '\n':
        return '\\n';
      default:
        return `\\u${character.charCodeAt(0).toString(16)}`;
    }
  });
}

const ESCAPED = /\\(?:u([0-9a-f]{4})|(.))/g;

function unescapeCell(text: string): Cell {
  if (text === NULL) return null;
  if (!text.includes('\\')) return text;
  return text.replace(ESCAPED, (_, surrogate: string | undefined, character: string) => {
    if (surrogate !== undefined) return String.fromCharCode(Number.parseInt(surrogate, 16));
    return character === 't' ? '\t' : character === 'n' ? '\n' : character;
  });
}

function commonPrefix(texts: readonly string[]): string {
  const [first = '', ...others] = texts;
  let length = first.length;
  for (const text of others) {
    let same = 0;
    while (same < length && text[same] === first[same]) same++;
    length = same;
  }
  // Never half a surrogate pair.
  return first.slice(0, length).replace(/\p{Surrogate}$/u, '');
}
