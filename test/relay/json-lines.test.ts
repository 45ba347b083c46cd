import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { readLines, readText } from '../../relay/json-lines.ts';

async function* chunked(bytes: Buffer, sizes: readonly number[]): AsyncGenerator<Uint8Array> {
  let start = 0;
  for (const size of sizes) {
    yield bytes.subarray(start, start + size);
    start += size;
  }
  yield bytes.subarray(start);
}

async function linesOf(chunks: AsyncIterable<Uint8Array>, maxBytes: number): Promise<string[]> {
  const lines: string[] = [];
  for await (const line of readLines(chunks, maxBytes)) lines.push(line);
  return lines;
}

test('W8: lines come out whole however the bytes were cut, and an unfinished last one is dropped', async () => {
  const line = fc.string({ unit: 'grapheme', minLength: 1 }).map((text) => text.replace(/[\r\n]/g, ' '));
  await fc.assert(
    fc.asyncProperty(fc.array(line), fc.array(fc.nat(20)), async (lines, sizes) => {
      const bytes = Buffer.from(`${lines.map((text) => `${text}\n`).join('')}unfinished`);
      assert.deepEqual(await linesOf(chunked(bytes, sizes), 10_000), lines);
    }),
  );
});

test('W8: a line above the limit is an error, one at the limit is not', async () => {
  const lines = (text: string) => linesOf(chunked(Buffer.from(text), [3, 3]), 5);
  assert.deepEqual(await lines('12345\n12345\n'), ['12345', '12345']);
  await assert.rejects(lines('12345\n123456\n'), { name: 'BodyTooLargeError' });
  await assert.rejects(lines('123456'), { name: 'BodyTooLargeError' });
});

test('a whole body is text, up to its limit', async () => {
  const euro = Buffer.from('1 €');
  assert.equal(await readText(chunked(euro, [3]), 5), '1 €');
  await assert.rejects(readText(chunked(euro, [3]), 4), { name: 'BodyTooLargeError' });
});
