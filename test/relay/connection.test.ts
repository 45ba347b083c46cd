import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { suite, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { startApiServer } from '../../infra/local/cluster/api-server.ts';
import { type Access, Connection } from '../../relay/connection.ts';
import { testLog } from './builders.ts';
import { HastyTimers } from './manual-timers.ts';

suite('connection', () => {
  test('W12: credentials are read again every minute, and kept when that fails', async () => {
    await using server = await startApiServer({ clock: new HastyTimers(), token: 'good' });
    const timers = new HastyTimers();
    const reads: string[] = [];
    let failure: Error | null = null;
    const lines: string[] = [];
    await using connection = new Connection({
      timers,
      log: testLog(lines),
      readAccess: async (reason) => {
        reads.push(reason);
        if (failure !== null) throw failure;
        return { server: server.url, tls: {}, proxy: null, headers: { authorization: 'Bearer good' } };
      },
    });
    const status = async () => {
      const { statusCode, body } = await connection.request('/api/v1/services', AbortSignal.timeout(5000));
      await body.dump();
      return statusCode;
    };
    await status();
    timers.pass(59_999);
    await status();
    assert.deepEqual(reads, ['aged']);
    timers.pass(1);
    failure = new Error('disk');
    assert.equal(await status(), 200);
    assert.deepEqual(reads, ['aged', 'aged']);
    assert.match(lines[0] ?? '', /credentials could not be read again/);
  });

  test('W12: several requests that are refused share one reading', async () => {
    await using server = await startApiServer({ clock: new HastyTimers(), token: 'new' });
    const reads: string[] = [];
    await using connection = new Connection({
      timers: new HastyTimers(),
      log: testLog(),
      readAccess: async (reason) => {
        reads.push(reason);
        const token = reads.length === 1 ? 'old' : 'new';
        return { server: server.url, tls: {}, proxy: null, headers: { authorization: `Bearer ${token}` } };
      },
    });
    const answers = await Promise.all(
      ['services', 'endpoints', 'nodes'].map((plural) =>
        connection.request(`/api/v1/${plural}`, AbortSignal.timeout(5000)),
      ),
    );
    assert.deepEqual(
      answers.map(({ statusCode }) => statusCode),
      [200, 200, 200],
    );
    for (const { body } of answers) await body.dump();
    assert.deepEqual(reads.slice(0, 2), ['aged', 'refused']);
  });

  test('W12: another CA file makes new connections, and a watch on an old one goes on', async () => {
    const sockets = new Set<unknown>();
    const server = createServer((request, response) => {
      sockets.add(request.socket);
      if (request.url === '/watch') return response.write('1\n');
      setTimeout(() => response.end(request.url), 0);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const timers = new HastyTimers();
    let ca = 'one';
    const readAccess = async (): Promise<Access> => ({ server: url, tls: { ca }, proxy: null, headers: {} });
    await using connection = new Connection({ timers, log: testLog(), readAccess });
    try {
      const get = async () => (await connection.request('/list', AbortSignal.timeout(5000))).body.text();
      const stop = new AbortController();
      const watch = await connection.request('/watch', stop.signal);
      const lines = watch.body[Symbol.asyncIterator]();
      assert.equal(String((await lines.next()).value), '1\n');
      await get();
      // A connection is free again some turns after its answer.
      for (let turn = 0; turn < 5; turn++) await setImmediate();
      timers.pass(60_000);
      await get();
      assert.equal(sockets.size, 2, 'the same CA: the same connections');
      ca = 'two';
      timers.pass(60_000);
      await get();
      assert.equal(sockets.size, 3, 'another CA: another connection');
      const next = lines.next();
      stop.abort();
      await assert.rejects(next, { name: 'AbortError' });
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });

  test('a server with a path, and a change of the transport: new connections go to the new one', async () => {
    await using one = await startApiServer({ clock: new HastyTimers() });
    await using two = await startApiServer({ clock: new HastyTimers() });
    const timers = new HastyTimers();
    let access: Access = { server: `${one.url}/api/`, tls: {}, proxy: null, headers: {} };
    await using connection = new Connection({ timers, log: testLog(), readAccess: async () => access });
    const get = async (path: string) =>
      (await connection.request(path, AbortSignal.timeout(5000))).body.dump();
    await get('/v1/services');
    access = { ...access, server: two.url };
    timers.pass(60_000);
    await get('/api/v1/services');
    assert.deepEqual(
      [one, two].map(({ requests }) => requests.map(({ url }) => url)),
      [['/api/v1/services'], ['/api/v1/services']],
    );
  });
});
