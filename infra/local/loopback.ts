import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Names of this machine's loopback that the laptop stack answers to and sends to. */
const LOOPBACK = new Set(['127.0.0.1', 'localhost']);

/** Whether a Host header, with or without a port, names the loopback: a web page's rebound name does not. */
export function isLoopbackHost(host: string | undefined): boolean {
  return host !== undefined && LOOPBACK.has(host.toLowerCase().replace(/:\d+$/, ''));
}

/** The URL when a text is a plain http one on the loopback, else null. */
export function parseLoopbackUrl(text: string): URL | null {
  const url = URL.parse(text);
  if (url === null || url.protocol !== 'http:' || !LOOPBACK.has(url.hostname)) return null;
  return url.username === '' && url.password === '' ? url : null;
}

/**
 * Starts a server on 127.0.0.1, on a free port unless told one, and returns its URL. When the server is closed, each
 * connection ends with the answer under way: Node itself closes only those idle at that moment.
 * @throws the system's error, such as EADDRINUSE.
 */
export async function listenOnLoopback(server: Server, port = 0): Promise<string> {
  server.on('request', (_request, response) => {
    response.once('finish', () => {
      if (!server.listening) setImmediate(() => server.closeIdleConnections());
    });
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
