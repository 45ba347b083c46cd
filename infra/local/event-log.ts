import { EventEmitter, once } from 'node:events';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { lockDirectory } from './directory-lock.ts';

/** An entry as the bus accepted it. */
export interface NewLogEntry {
  /** EventId of the answer, `id` of the delivered event. */
  readonly id: string;
  /** RFC 3339, UTC: the entry's own Time, else that of its acceptance. */
  readonly time: string;
  /** Name, never the ARN. */
  readonly eventBusName: string;
  readonly source: string;
  readonly detailType: string;
  readonly resources: readonly string[];
  readonly detail: Readonly<Record<string, unknown>>;
}

export interface LogEntry extends NewLogEntry {
  /** Rises by 1 from 1 in the order of acceptance. */
  readonly n: number;
}

/** What a bus accepted, in order. */
export interface EventLog extends AsyncDisposable {
  /** `n` of the newest entry; 0 when there is none. */
  readonly last: number;
  /**
   * Appends entries in one piece; resolves when they are as durable as the log is.
   * @throws the file system's error; then none of them is in the log, unless the process ends before its next append.
   */
  append(entries: readonly NewLogEntry[]): Promise<void>;
  /** Entries after `n`, at most `limit` and at most READ_BYTES of them, but at least one if there is one. */
  read(after: number, limit: number): Promise<LogEntry[]>;
  /** Resolves when `last` is above `n`, or when the signal aborts. */
  waitBeyond(n: number, signal: AbortSignal): Promise<void>;
}

/** Text that a log in memory keeps, in bytes: above it the oldest entries are forgotten. Some 60,000 deltas. */
const MEMORY_LOG_BYTES = 64 * 1024 * 1024;
/** Text that one read returns, in bytes, whatever its limit: bounds its memory. */
export const READ_BYTES = 8 * 1024 * 1024;

/**
 * Opens a log: in memory, bounded by MEMORY_LOG_BYTES, or in a directory, where each append is on disk before it
 * resolves, nothing is ever forgotten, and the log is found again (a last line torn by a kill is dropped).
 * @throws DirectoryInUseError when another process has it open; Error when the file is not a log.
 */
export async function openEventLog(
  directory: string | null,
  memoryBytes = MEMORY_LOG_BYTES,
): Promise<EventLog> {
  const lines = directory === null ? memoryLines(memoryBytes) : await fileLines(directory);
  const appended = new EventEmitter().setMaxListeners(0);
  let waiting: { readonly entries: NewLogEntry[]; readonly written: Promise<void> } | null = null;
  let previous: Promise<unknown> = Promise.resolve();

  const write = async (entries: readonly NewLogEntry[]) => {
    const first = lines.last + 1;
    await lines.append(
      entries.map((entry, i) => Buffer.from(`${JSON.stringify({ n: first + i, ...entry })}\n`)),
    );
    appended.emit('append');
  };

  return {
    get last() {
      return lines.last;
    },

    append(entries) {
      // Appends that meet a write under way go out together in the next: one sync to disk for all of them.
      if (waiting === null) {
        const group: NewLogEntry[] = [];
        const written = previous.then(() => {
          waiting = null;
          return write(group);
        });
        previous = written.catch(() => undefined);
        waiting = { entries: group, written };
      }
      waiting.entries.push(...entries);
      return waiting.written;
    },

    async read(after, limit) {
      const texts = await lines.read(after, limit);
      return texts.map((text) => JSON.parse(text) as LogEntry);
    },

    async waitBeyond(n, signal) {
      while (lines.last <= n && !signal.aborted)
        await once(appended, 'append', { signal }).catch((error: unknown) => {
          if (!signal.aborted) throw error;
        });
    },

    async [Symbol.asyncDispose]() {
      await previous;
      await lines.close();
    },
  };
}

/** Numbered lines: line n is entry n. */
interface Lines {
  readonly last: number;
  append(lines: readonly Buffer[]): Promise<void>;
  read(after: number, limit: number): Promise<string[]>;
  close(): Promise<void>;
}

function memoryLines(maxBytes: number): Lines {
  const kept = new Map<number, Buffer>();
  let bytes = 0;
  let last = 0;
  return {
    get last() {
      return last;
    },
    async append(lines) {
      for (const line of lines) {
        kept.set(++last, line);
        bytes += line.length;
      }
      for (const [n, line] of kept) {
        if (bytes <= maxBytes || n === last) break;
        kept.delete(n);
        bytes -= line.length;
      }
    },
    async read(after, limit) {
      const texts: string[] = [];
      let size = 0;
      for (let n = Math.max(after + 1, last - kept.size + 1); n <= last && texts.length < limit; n++) {
        const line = kept.get(n) ?? Buffer.alloc(0);
        size += line.length;
        if (size > READ_BYTES && texts.length > 0) break;
        texts.push(line.toString());
      }
      return texts;
    },
    async close() {
      kept.clear();
    },
  };
}

async function fileLines(directory: string): Promise<Lines> {
  await using opened = new AsyncDisposableStack();
  opened.use(lockDirectory(directory));
  const path = join(directory, 'events.jsonl');
  const file = opened.use(await openOrCreate(path));
  const ends = await findLineEnds(file, path);
  await file.truncate(ends.at(-1) ?? 0);
  await file.sync();
  await syncDirectory(directory);
  const kept = opened.move();

  /** What a failed append left is cut off before the next one: it may be longer than that. */
  let hasRemains = false;
  const startOf = (n: number) => ends[n - 2] ?? 0;
  return {
    get last() {
      return ends.length;
    },
    async append(lines) {
      let end = startOf(ends.length + 1);
      if (hasRemains) await file.truncate(end);
      hasRemains = true;
      await writeAll(file, Buffer.concat(lines), end);
      await file.datasync();
      hasRemains = false;
      for (const line of lines) {
        end += line.length;
        ends.push(end);
      }
    },
    async read(after, limit) {
      const start = startOf(after + 1);
      let to = Math.min(after + limit, ends.length);
      if (to <= after) return [];
      while (to > after + 1 && startOf(to + 1) - start > READ_BYTES) to--;
      const text = await readAll(file, start, startOf(to + 1) - start);
      return text.toString().trimEnd().split('\n');
    },
    async close() {
      await kept.disposeAsync();
    },
  };
}

/** Opened for positioned writes, which appending modes do not allow. */
async function openOrCreate(path: string): Promise<FileHandle> {
  const created = await open(path, 'a');
  await created.close();
  return open(path, 'r+');
}

/** A file's name is durable only when its directory is. */
async function syncDirectory(directory: string): Promise<void> {
  await using handle = await open(directory, 'r');
  await handle.sync();
}

/** Offset behind each whole line. What follows the last line feed is what a kill left of a write that nobody was told of. */
async function findLineEnds(file: FileHandle, path: string): Promise<number[]> {
  const ends: number[] = [];
  let offset = 0;
  let rest = Buffer.alloc(0);
  for await (const chunk of file.createReadStream({ start: 0, autoClose: false, highWaterMark: 1 << 20 })) {
    let text = Buffer.concat([rest, chunk as Buffer]);
    for (let feed = text.indexOf(10); feed >= 0; feed = text.indexOf(10)) {
      const n = ends.length + 1;
      const start = `{"n":${n},`;
      if (text.toString('latin1', 0, Math.min(feed, start.length)) !== start)
        throw new Error(
          `${path} is not a log of events: line ${n} is not entry ${n}; move it away to begin anew`,
        );
      offset += feed + 1;
      ends.push(offset);
      text = text.subarray(feed + 1);
    }
    rest = text;
  }
  return ends;
}

async function writeAll(file: FileHandle, data: Buffer, position: number): Promise<void> {
  for (let done = 0; done < data.length; ) {
    const { bytesWritten } = await file.write(data, done, data.length - done, position + done);
    done += bytesWritten;
  }
}

async function readAll(file: FileHandle, position: number, length: number): Promise<Buffer> {
  const data = Buffer.alloc(length);
  for (let done = 0; done < length; ) {
    const { bytesRead } = await file.read(data, done, length - done, position + done);
    if (bytesRead === 0) throw new Error('the log of events was cut while it was open');
    done += bytesRead;
  }
  return data;
}
