#!/usr/bin/env node
import { type Command, type CommandIo, USAGE_STATUS } from './command.ts';

/** What can be done, and the module that does it: loaded only when asked for. */
const COMMANDS: Readonly<
  Record<string, { readonly summary: string; readonly load: () => Promise<Command> }>
> = {
  verify: {
    summary: 'compares what a cluster says with what the api serves',
    load: () => import('./verify.ts'),
  },
  replay: {
    summary: 'publishes once more what the bus refused for good',
    load: () => import('./replay.ts'),
  },
};

const USAGE = `usage: endpoints-watcher COMMAND [flags]

${Object.entries(COMMANDS)
  .map(([name, { summary }]) => `  ${name.padEnd(10)}${summary}`)
  .join('\n')}

endpoints-watcher COMMAND --help lists a command's flags`;

const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());

process.exitCode = await main(process.argv.slice(2), {
  out: (line) => void process.stdout.write(`${line}\n`),
  err: (line) => void process.stderr.write(`${line}\n`),
  env: process.env,
  signal: stop.signal,
});

async function main([name, ...args]: readonly string[], io: CommandIo): Promise<number> {
  if (name === undefined || name === '--help' || name === 'help') {
    (name === undefined ? io.err : io.out)(USAGE);
    return name === undefined ? USAGE_STATUS : 0;
  }
  const entry = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (entry === undefined) {
    io.err(`no command ${JSON.stringify(name)}; there are ${Object.keys(COMMANDS).join(', ')}`);
    return USAGE_STATUS;
  }
  try {
    const command = await entry.load();
    if (!args.includes('--help')) return await command.run(args, io);
    io.out(command.USAGE);
    return 0;
  } catch (error) {
    const [reason = ''] = (error instanceof Error ? error.message : String(error)).split('\n');
    io.err(`${name}: ${reason}`);
    return USAGE_STATUS;
  }
}
