import { StringDecoder } from 'node:string_decoder';

/** A body, or a line of it, is larger than its reader allows. */
class BodyTooLargeError extends Error {
  override readonly name = 'BodyTooLargeError';
  readonly maxBytes: number;

  constructor(maxBytes: number) {
    super(`more than ${maxBytes} bytes`);
    this.maxBytes = maxBytes;
  }
}

const LINE_FEED = 0x0a;

/**
 * Splits a stream of bytes on line feeds (W8). What follows the last one was cut off, and is dropped.
 * @throws BodyTooLargeError at a line of more than `maxBytes`.
 */
export async function* readLines(
  chunks: AsyncIterable<Uint8Array>,
  maxBytes: number,
): AsyncGenerator<string, void, undefined> {
  const decoder = new StringDecoder();
  let line = '';
  let size = 0;
  for await (const chunk of chunks) {
    let start = 0;
    for (let end = chunk.indexOf(LINE_FEED); start < chunk.length; end = chunk.indexOf(LINE_FEED, start)) {
      const isWhole = end !== -1;
      const part = chunk.subarray(start, isWhole ? end : undefined);
      size += part.length;
      if (size > maxBytes) throw new BodyTooLargeError(maxBytes);
      line += decoder.write(part);
      if (!isWhole) break;
      start = end + 1;
      if (line !== '') yield line;
      line = '';
      size = 0;
    }
  }
}

/**
 * A whole body as text.
 * @throws BodyTooLargeError when it has more than `maxBytes`.
 */
export async function readText(chunks: AsyncIterable<Uint8Array>, maxBytes: number): Promise<string> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of chunks) {
    parts.push(chunk);
    size += chunk.length;
    if (size > maxBytes) throw new BodyTooLargeError(maxBytes);
  }
  return Buffer.concat(parts, size).toString();
}
