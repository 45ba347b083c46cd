import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { it } from 'node:test';
import type { EpochMs } from '../../../core/time.ts';
import { type NewLogEntry, openEventLog, READ_BYTES } from '../../../infra/local/event-log.ts';
import { type BusEvent, backOffMs, startDelivery } from '../../../infra/local/event-rule.ts';
import { listenOnLoopback } from '../../../infra/local/loopback.ts';
import { createLogger } from '../../../wire/log.ts';

function entryOf(text: string): NewLogEntry {
  const time = '2026-01-01T00:00:00.000Z';
  return {
    id: 'id',
    time,
    eventBusName: 'default',
    source: 's',
    detailType: 't',
    resources: [],
    detail: { text },
  };
}

it('a log in memory forgets its oldest entries, and keeps their numbers', async () => {
  await using log = await openEventLog(null, 1000);
  for (let i = 0; i < 20; i++) await log.append([entryOf('x'.repeat(100))]);
  const kept = (await log.read(0, 1000)).map(({ n }) => n);
  assert.deepEqual([kept.at(-1), log.last], [20, 20]);
  assert.ok(kept.length > 1 && kept.length < 10, `${kept.length} kept`);
  await log.append([entryOf('x'.repeat(5000))]);
  assert.deepEqual(
    (await log.read(0, 1000)).map(({ n }) => n),
    [21],
  );
});

for (const kind of ['memory', 'file'])
  it(`one read is bounded in bytes, in ${kind}, but returns an entry`, async () => {
    const directory = kind === 'memory' ? null : await mkdtemp(join(tmpdir(), 'log-'));
    try {
      await using log = await openEventLog(directory);
      const third = entryOf('x'.repeat(READ_BYTES / 3));
      await log.append([third, third, third, third]);
      assert.deepEqual(
        (await log.read(0, 1000)).map(({ n }) => n),
        [1, 2],
      );
      await log.append([entryOf('x'.repeat(READ_BYTES + 1)), entryOf('')]);
      assert.deepEqual(
        (await log.read(4, 1000)).map(({ n }) => n),
        [5],
      );
      assert.deepEqual(await log.read(6, 1000), []);
    } finally {
      if (directory !== null) await rm(directory, { recursive: true });
    }
  });

it('appends at the same time are numbered in their order, each whole', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'log-'));
  try {
    await using log = await openEventLog(directory);
    await Promise.all(Array.from({ length: 30 }, (_, i) => log.append([entryOf(`${i}a`), entryOf(`${i}b`)])));
    const entries = await log.read(0, 1000);
    assert.deepEqual(
      entries.map(({ n, detail }) => [n, detail.text]),
      Array.from({ length: 60 }, (_, i) => [i + 1, `${Math.floor(i / 2)}${i % 2 === 0 ? 'a' : 'b'}`]),
    );
  } finally {
    await rm(directory, { recursive: true });
  }
});

it('an append that the disk refuses leaves nothing behind, also after a restart', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'log-'));
  try {
    const code = `
      import { openEventLog } from '${import.meta.resolve('../../../infra/local/event-log.ts')}';
      const entry = (text) => ({ id: 'id', detail: { text } });
      const log = await openEventLog(process.argv[1]);
      await log.append([entry('first')]);
      const refused = await log.append(['whole', 'whole', 'x'.repeat(100000)].map(entry)).catch((error) => error.code);
      await log.append([entry('second')]);
      console.log(refused, log.last);
      await log[Symbol.asyncDispose]();`;
    // Files of at most 16 blocks; a write beyond fails instead of ending the process.
    const limited = `trap '' XFSZ; ulimit -f 16; exec "$0" --input-type=module --eval "$1" "$2"`;
    const { stdout } = spawnSync('sh', ['-c', limited, process.execPath, code, directory], {
      encoding: 'utf8',
    });
    assert.equal(stdout.trim(), 'EFBIG 2');
    await using log = await openEventLog(directory);
    assert.deepEqual(
      (await log.read(0, 1000)).map(({ n, detail }) => [n, detail.text]),
      [
        [1, 'first'],
        [2, 'second'],
      ],
    );
  } finally {
    await rm(directory, { recursive: true });
  }
});

it('a rule that falls behind a log in memory says how many events it lost', async () => {
  const lines: string[] = [];
  const clock = { now: () => 0 as EpochMs, monotonic: () => 0 };
  const logger = createLogger({ level: 'warn', clock, write: (line) => lines.push(line) });
  const arrived = Promise.withResolvers<void>();
  const server = createServer((request, response) => {
    request.resume();
    response.end();
    arrived.resolve();
  });
  const target = new URL(await listenOnLoopback(server));
  await using log = await openEventLog(null, 100);
  for (const text of ['a', 'b', 'c']) await log.append([entryOf(text)]);
  {
    await using _delivery = startDelivery({ name: 'r', target, matches: () => true }, 0, {
      ...{ log, logger, retryDelayMs: () => 0 },
      toEvent: ({ id, detail }) => ({ id, detail }) as BusEvent,
    });
    await arrived.promise;
  }
  server.closeAllConnections();
  server.close();
  assert.deepEqual(
    lines.map((line) => JSON.parse(line)).map(({ message, rule, events }) => ({ message, rule, events })),
    [{ message: 'rule lost events that the log forgot', rule: 'r', events: 2 }],
  );
});

it('waits between attempts grow to half a minute at most', () => {
  for (const [attempt, most] of [
    [1, 100],
    [2, 200],
    [5, 1600],
    [185, 30_000],
  ] as const) {
    const waits = Array.from({ length: 100 }, () => backOffMs(attempt));
    assert.ok(waits.every((wait) => wait >= 0 && wait <= most));
    assert.ok(Math.max(...waits) > most / 2);
  }
});
