import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
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
