import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createAdaptorServer } from '@hono/node-server';
import type { Hono } from 'hono';

/** An app behind a real server on the loopback. */
export interface ServedApp extends AsyncDisposable {
  readonly url: string;
}

export async function serveApp(app: Pick<Hono, 'fetch'>): Promise<ServedApp> {
  const server = createAdaptorServer({ fetch: (request, env) => app.fetch(request, env) });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      if ('closeAllConnections' in server) server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
