import { createHash } from 'node:crypto';

/** Characters of one piece: large enough to cost little each, small enough to go out while the rest waits. */
const PIECE_CHARS = 64_000;
/** Characters of the hash that an ETag shows: 132 bits. */
const ETAG_CHARS = 22;

/** A text that was made in pieces, so that a set of any size is never one string. */
export interface FinishedBody {
  /** UTF-8. */
  readonly pieces: readonly Uint8Array<ArrayBuffer>[];
  /** A weak entity tag over the form and all that was written but what passes with time. */
  readonly etag: string;
}

/** Collects a text and its ETag in one go. */
export class AnswerBody {
  private readonly pieces: Uint8Array<ArrayBuffer>[] = [];
  private readonly hash = createHash('sha256');
  private text = '';
  private tagged = '';

  /** @param form name of the answer's form, which the ETag covers. */
  constructor(form: string) {
    this.tagged = `${form}\n`;
  }

  write(text: string): void {
    this.tagged += text;
    this.writePassing(text);
  }

  /** Writes what changes by the passing of time alone: the ETag does not cover it. */
  writePassing(text: string): void {
    this.text += text;
    if (this.text.length >= PIECE_CHARS) this.flush();
  }

  finish(): FinishedBody {
    this.flush();
    return {
      pieces: this.pieces,
      etag: `W/"${this.hash.digest('base64url').slice(0, ETAG_CHARS)}"`,
    };
  }

  private flush(): void {
    this.hash.update(this.tagged);
    if (this.text !== '') this.pieces.push(new TextEncoder().encode(this.text));
    this.tagged = '';
    this.text = '';
  }
}

/** Small texts as pieces in UTF-8, made as they are taken. */
export function* encodePieces(texts: Iterable<string>): Generator<Uint8Array<ArrayBuffer>, void> {
  const encoder = new TextEncoder();
  let piece = '';
  for (const text of texts) {
    piece += text;
    if (piece.length < PIECE_CHARS) continue;
    yield encoder.encode(piece);
    piece = '';
  }
  if (piece !== '') yield encoder.encode(piece);
}

/** Does an If-None-Match header name this tag? Compared weakly. Source: RFC 9110, 13.1.2. */
export function isMatch(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false;
  if (ifNoneMatch.trim() === '*') return true;
  const opaque = opaqueTag(etag);
  return (ifNoneMatch.match(ENTITY_TAG) ?? []).some((tag) => opaqueTag(tag) === opaque);
}

const ENTITY_TAG = /(?:W\/)?"[^"]*"/g;

function opaqueTag(tag: string): string {
  return tag.replace(/^W\//, '');
}
