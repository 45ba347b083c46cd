import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

/** A way to a port of this machine that can be shut: connections break, and new ones break at once. */
export class Gate implements AsyncDisposable {
  readonly url: string;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #isOpen = true;

  private constructor(server: Server, target: number) {
    this.#server = server;
    const address = server.address();
    if (address === null || typeof address === 'string') throw new Error('no port');
    this.url = `https://127.0.0.1:${address.port}`;
    server.on('connection', (socket) => (this.#isOpen ? this.#pass(socket, target) : socket.destroy()));
  }

  /** @param url of the server behind it. */
  static async to(url: string): Promise<Gate> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new Gate(server, Number(new URL(url).port));
  }

  shut(): void {
    this.#isOpen = false;
    this.breakAll();
  }

  /** Breaks what is connected; new connections are let through as before. */
  breakAll(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  open(): void {
    this.#isOpen = true;
  }

  #pass(near: Socket, target: number): void {
    const far = connect(target, '127.0.0.1');
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        this.#sockets.delete(socket);
        other.destroy();
      });
      socket.pipe(other);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.shut();
    this.#server.close();
    await once(this.#server, 'close');
  }
}
