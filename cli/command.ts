import { type ParseArgsConfig, parseArgs } from 'node:util';
import type * as z from 'zod';

/** Exit status of a wrong command line, and of a command that could not begin its work. */
export const USAGE_STATUS = 2;

/** What a command has of its process. */
export interface CommandIo {
  /** Writes a line to stdout: what was asked for. */
  readonly out: (line: string) => void;
  /** Writes a line to stderr: why it is not there, or what else is to be known. */
  readonly err: (line: string) => void;
  readonly env: NodeJS.ProcessEnv;
  /** Aborted when the user interrupts. */
  readonly signal: AbortSignal;
}

/** A command as its module exports it. */
export interface Command {
  /** For `--help`: the form of the command, and each flag in a line. */
  readonly USAGE: string;
  /**
   * Runs the command. `args` are those behind its name.
   * @returns the exit status.
   * @throws UsageError for a wrong command line; any other error's message ends the process with status 2.
   */
  readonly run: (args: readonly string[], io: CommandIo) => Promise<number>;
}

/** A command line that says nothing that can be done; the message is one line for people, and names the flag. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** Flags by name, as `parseArgs` wants them. */
export type Flags = NonNullable<ParseArgsConfig['options']>;

/**
 * Reads a command line that has flags alone.
 * @param schema checks the values by flag name; an absent flag is an absent member.
 * @throws UsageError which names the flag.
 */
export function parseFlags<T>(args: readonly string[], flags: Flags, schema: z.ZodType<T>): T {
  const parsed = schema.safeParse(readFlags(args, flags), { error: describeIssue });
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const flag = issue?.path[0]?.toString();
  throw new UsageError(`${flag === undefined ? '' : `--${flag}: `}${issue?.message}`);
}

function readFlags(args: readonly string[], flags: Flags): Readonly<Record<string, unknown>> {
  try {
    return {
      ...parseArgs({ args: [...args], options: flags, strict: true, allowPositionals: false }).values,
    };
  } catch (error) {
    const [reason = ''] = (error instanceof Error ? error.message : String(error)).split(
      /\.?\s*(?:\n|$)|\.\s/,
    );
    throw new UsageError(`${reason}; --help lists the flags`);
  }
}

function describeIssue(issue: Parameters<z.core.$ZodErrorMap>[0]): string | undefined {
  return issue.code === 'invalid_type' && issue.input === undefined ? 'required' : undefined;
}
