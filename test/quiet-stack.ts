import { type LocalStack, type LocalStackOptions, startLocalStack } from '../infra/local/stack.ts';
import { StackClock } from '../infra/local/stack-clock.ts';
import { createLogger } from '../wire/log.ts';

/** A stack in memory, on any free port, that sweeps when told to and says what goes wrong; unless asked for otherwise. */
export function startQuietStack(options: Partial<LocalStackOptions> = {}): Promise<LocalStack> {
  const { clock = new StackClock() } = options;
  const write = (line: string) => void process.stderr.write(`${line}\n`);
  return startLocalStack({
    port: 0,
    dataDir: null,
    inlineBytes: undefined,
    isSweeping: false,
    logger: createLogger({ level: 'error', clock, write }),
    ...options,
    clock,
  });
}
