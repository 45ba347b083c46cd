/** What a process is asked in turn. Source: Chrome DevTools Protocol. */
const QUESTIONS = ['HeapProfiler.collectGarbage', 'Runtime.getHeapUsage'];

/**
 * What a Node process holds once its garbage is collected, in KiB: objects on the heap, and buffers beside it. Null when
 * it does not answer.
 * @param inspector the `ws:` URL that `--inspect` tells. The session ends with the answer: with an open one, nobody exits.
 */
export function heldKib(inspector: string, signal: AbortSignal): Promise<number | null> {
  const { promise, resolve } = Promise.withResolvers<number | null>();
  const socket = new WebSocket(inspector);
  const close = () => socket.close();
  signal.addEventListener('abort', close);
  socket.addEventListener('open', () => {
    for (const [id, method] of QUESTIONS.entries()) socket.send(JSON.stringify({ id, method }));
  });
  socket.addEventListener('message', ({ data }) => {
    const { id, result } = JSON.parse(data);
    if (id !== QUESTIONS.length - 1) return;
    resolve((result.usedSize + result.backingStorageSize) / 1024);
    close();
  });
  socket.addEventListener('error', () => resolve(null));
  socket.addEventListener('close', () => {
    signal.removeEventListener('abort', close);
    resolve(null);
  });
  return promise;
}
