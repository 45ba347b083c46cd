import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface AdminDeps {
  /** Interface to listen on. */
  readonly host: string;
  /** 0 = any free one. */
  readonly port: number;
  /** Prometheus text. */
  readonly metrics: () => string;
  /** Empty when ready. */
  readonly notReady: () => readonly string[];
}

export interface Admin extends AsyncDisposable {
  readonly port: number;
}

/** Serves the relay's own `/metrics`, `/healthz` and `/readyz` (W15, W16). It is alive while it answers. */
export async function startAdmin({ host, port, metrics, notReady }: AdminDeps): Promise<Admin> {
  const server = createServer((request, response) => {
    const answer = (status: number, type: string, text: string) =>
      response.writeHead(status, { 'content-type': type }).end(text);
    const reasons = notReady();
    switch (request.url) {
      case '/metrics':
        return answer(200, 'text/plain; version=0.0.4; charset=utf-8', metrics());
      case '/healthz':
        return answer(200, 'application/json', '{"ok":true}\n');
      case '/readyz':
        return answer(
          reasons.length === 0 ? 200 : 503,
          'application/json',
          `${JSON.stringify({ ok: reasons.length === 0, reasons })}\n`,
        );
      default:
        return answer(404, 'text/plain', 'there are /metrics, /healthz and /readyz\n');
    }
  });
  server.listen(port, host);
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
