import { type Clock, formatInstant } from '../core/time.ts';

/** Levels in rising order; a logger writes its own level and those above it. */
export const LOG_LEVELS = ['debug', 'info', 'warn', 'error'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Extra data of one line: snake_case keys with their unit in the name (`wait_ms`). */
export type LogFields = Readonly<Record<string, unknown>>;

/** A structured logger. The message is a constant; whatever varies goes into the fields. */
export type Logger = Readonly<Record<LogLevel, (message: string, fields?: LogFields) => void>> & {
  /** The same sink with fields that every line carries. */
  with(fields: LogFields): Logger;
};

export interface LoggerOptions {
  /** Lowest level that is written. */
  readonly level: LogLevel;
  readonly clock: Clock;
  /** Receives one JSON line without its line feed. */
  readonly write: (line: string) => void;
  /** Fields of every line, such as `component`. */
  readonly fields?: LogFields;
}

/** Writes one JSON object a line: `time`, `level`, `message`, then the fields; an Error becomes its name, message and stack. */
export function createLogger(options: LoggerOptions): Logger {
  const { level, clock, write, fields = {} } = options;
  const lineAt =
    (lineLevel: LogLevel) =>
    (message: string, extra: LogFields = {}) => {
      if (LOG_LEVELS.indexOf(lineLevel) < LOG_LEVELS.indexOf(level)) return;
      const line = { time: formatInstant(clock.now()), level: lineLevel, message, ...fields, ...extra };
      write(JSON.stringify(line, describeError));
    };
  return {
    debug: lineAt('debug'),
    info: lineAt('info'),
    warn: lineAt('warn'),
    error: lineAt('error'),
    with: (more) => createLogger({ ...options, fields: { ...fields, ...more } }),
  };
}

function describeError(_key: string, value: unknown): unknown {
  if (!(value instanceof Error)) return value;
  return { name: value.name, message: value.message, stack: value.stack, cause: value.cause };
}
