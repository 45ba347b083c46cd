/**
 * The whole of a body as text.
 * @throws an Error when it has more than `maxBytes`.
 */
export async function readBounded(chunks: AsyncIterable<Uint8Array>, maxBytes: number): Promise<string> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of chunks) {
    size += part.length;
    if (size > maxBytes) throw new Error(`an answer of more than ${maxBytes} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts, size).toString();
}
