import type * as z from 'zod';

/** What parsing data from outside comes to: the typed value, or the first thing that is wrong with it. */
export type Parsed<T> = { readonly kind: 'ok'; readonly value: T } | Invalid;

/** The first error of a value from outside. */
export interface Invalid {
  readonly kind: 'invalid';
  /** Path of the field, such as `services[3].name`; `body` for the whole. */
  readonly field: string;
  /** One line that names the field and what it should be. */
  readonly message: string;
}

type RawIssue = Parameters<z.core.$ZodErrorMap>[0];

/** Keys come from outside: a longer one is cut in messages. */
const MAX_KEY_LENGTH = 80;
const PLAIN_KEY = /^[A-Za-z_][A-Za-z0-9_]*$/;

/**
 * Checks a value against its schema.
 * @param root what the value is called when it is wrong as a whole.
 */
export function parse<T>(schema: z.ZodType<T>, value: unknown, root = 'body'): Parsed<T> {
  const result = schema.safeParse(value, { error: describeIssue });
  if (result.success) return { kind: 'ok', value: result.data };
  const [issue] = result.error.issues;
  return invalid(issue === undefined ? root : formatPath(issue.path) || root, issue?.message ?? 'invalid');
}

/** An error found by code instead of a schema, in the same form. */
export function invalid(field: string, fix: string): Invalid {
  return { kind: 'invalid', field, message: `${field}: ${fix}` };
}

/** `a.b[3].c`; a key that is no plain word is quoted. */
function formatPath(path: readonly PropertyKey[]): string {
  let text = '';
  for (const key of path) {
    if (typeof key === 'number') text += `[${key}]`;
    else if (typeof key === 'string' && PLAIN_KEY.test(key) && key.length <= MAX_KEY_LENGTH)
      text += text === '' ? key : `.${key}`;
    else text += `[${JSON.stringify(String(key).slice(0, MAX_KEY_LENGTH))}]`;
  }
  return text;
}

/** The fix for what a schema without a message of its own found. */
function describeIssue(issue: RawIssue): string {
  switch (issue.code) {
    case 'invalid_type':
      if (issue.input === undefined) return 'required';
      return `must be ${TYPE_NAMES[issue.expected] ?? issue.expected}`;
    case 'invalid_value':
      return `must be ${issue.values.map((value) => JSON.stringify(value)).join(' or ')}`;
    case 'too_small':
      if (issue.minimum === 1 && UNITS[issue.origin] !== undefined) return 'must not be empty';
      return `must ${verb(issue.origin)} at least ${issue.minimum}${UNITS[issue.origin] ?? ''}`;
    case 'too_big':
      return `must ${verb(issue.origin)} at most ${issue.maximum}${UNITS[issue.origin] ?? ''}`;
    case 'invalid_key':
      return issue.issues[0]?.message ?? 'invalid';
    default:
      return issue.message ?? 'invalid';
  }
}

const TYPE_NAMES: Readonly<Record<string, string>> = {
  array: 'an array',
  boolean: 'a boolean',
  int: 'an integer',
  number: 'a number',
  object: 'an object',
  record: 'an object',
  string: 'a string',
};
const UNITS: Readonly<Record<string, string>> = { string: ' characters', array: ' items' };

function verb(origin: string): string {
  return UNITS[origin] === undefined ? 'be' : 'have';
}
