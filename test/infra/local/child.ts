import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/** A process that can be killed like any. */
export interface Child extends AsyncDisposable {
  readonly pid: number;
  /** The first line that it wrote. */
  readonly line: string;
  /** Its exit code, or null when a signal ended it. */
  readonly ended: Promise<number | null>;
  /** kill -9. */
  kill(): void;
}

/** Runs a module's text, with one argument in `process.argv[1]`, until disposal; resolves with its first line. */
export async function startChild(code: string, argument: string): Promise<Child> {
  const child = spawn(process.execPath, ['--input-type=module', '--eval', code, argument], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, AWS_EC2_METADATA_DISABLED: 'true' },
  });
  const ended = once(child, 'exit').then(([status]) => status as number | null);
  const lines = createInterface(child.stdout);
  const line = await Promise.race([
    once(lines, 'line').then(([text]) => String(text)),
    ended.then((status) => `ended with ${status} before its first line`),
  ]);
  return {
    pid: child.pid ?? 0,
    line,
    ended,
    kill: () => child.kill('SIGKILL'),
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL');
      await ended;
    },
  };
}
