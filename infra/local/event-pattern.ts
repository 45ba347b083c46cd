import { BlockList, isIP } from 'node:net';

/** What an event pattern comes to: a test of events, or one line that says what is wrong with it. */
export type CompiledPattern =
  | { readonly kind: 'ok'; readonly matches: (event: unknown) => boolean }
  | { readonly kind: 'invalid'; readonly reason: string };

/** Longest pattern, as JSON text. Source: PutRule, `EventPattern`. */
const MAX_PATTERN_CHARS = 4096;
/** Ways to match that the `$or` lists of one pattern may multiply to; bounds the work of one event. */
const MAX_BRANCHES = 1000;
/** Numbers beyond are never equal to, above or below anything. Source: EventBridge, numeric matching. */
const MAX_NUMBER = 5e9;
/** Numbers are compared to six decimals. Source: EventBridge, numeric matching. */
const MICROS = 1e6;

/** Names that make a list under `$or` a plain field of that name again. Source: event-ruler, reserved field names. */
const RESERVED_IN_OR = new Set([
  ...['exactly', 'prefix', 'suffix', 'equals-ignore-case', 'anything-but', 'numeric', 'cidr', 'exists'],
  ...['wildcard', '=', '<', '<=', '>', '>=', 'regex', 'not-wildcard', 'not-equals-ignore-case', 'date-after'],
  ...['date-on-or-after', 'date-before', 'date-on-or-before', 'in-date-range', 'ip-address-in-range'],
  'ip-address-not-in-range',
]);

type JsonObject = Readonly<Record<string, unknown>>;
/** A test of one leaf: a string, number, boolean or null of the event. */
type ValueTest = (value: unknown) => boolean;

/** What one field must be. */
interface FieldTest {
  /** Any one suffices. */
  readonly values: readonly ValueTest[];
  /** The field may be missing instead (`exists: false`). */
  readonly orAbsent: boolean;
}

/** Field tests by path, all of which must hold; a pattern is one branch for each choice its `$or` lists leave. */
type Branch = ReadonlyMap<string, FieldTest>;

/**
 * Compiles an EventBridge event pattern. It decides as AWS's event-ruler does, quirks included: paths are joined by dots,
 * arrays are looked through, and two fields match together only when no array of the event holds them in different elements.
 */
export function compilePattern(pattern: unknown): CompiledPattern {
  const compiled = compileWith(pattern, true);
  if (compiled.kind === 'ok') return compiled;
  // As in event-ruler, a pattern that is wrong while `$or` is an operator may be right with a field of that name.
  const plain = compileWith(pattern, false);
  return plain.kind === 'ok' ? plain : compiled;
}

class PatternError extends Error {}

function compileWith(pattern: unknown, hasOr: boolean): CompiledPattern {
  try {
    if (!isObject(pattern)) throw new PatternError('must be an object');
    if (jsonLength(pattern) > MAX_PATTERN_CHARS)
      throw new PatternError(`must be at most ${MAX_PATTERN_CHARS} characters of JSON`);
    const branches = addObject([new Map()], pattern, { path: '', hasOr, inOr: false });
    return { kind: 'ok', matches: matcherOf(branches) };
  } catch (error) {
    if (error instanceof PatternError) return { kind: 'invalid', reason: error.message };
    throw error;
  }
}

/** Characters of a value as JSON; what is nested too deeply to be written has no end. */
function jsonLength(value: unknown): number {
  try {
    return JSON.stringify(value).length;
  } catch (error) {
    if (error instanceof RangeError) return Number.POSITIVE_INFINITY;
    throw error;
  }
}

interface Place {
  /** Path so far; '' at the top. */
  readonly path: string;
  /** `$or` is an operator, not a field. */
  readonly hasOr: boolean;
  readonly inOr: boolean;
}

function addObject(branches: readonly Branch[], object: JsonObject, place: Place): readonly Branch[] {
  const fields = Object.entries(object);
  if (fields.length === 0)
    throw new PatternError(`${place.path || 'the pattern'} is an empty object: name at least one field`);
  return fields.reduce((soFar, [name, value]) => addField(soFar, name, value, place), branches);
}

function addField(
  branches: readonly Branch[],
  name: string,
  value: unknown,
  place: Place,
): readonly Branch[] {
  const path = joinPath(place.path, name);
  if (name === '$or' && place.hasOr) return addAlternatives(branches, value, path, place);
  if (place.inOr && RESERVED_IN_OR.has(name))
    throw new PatternError(`${path}: "${name}" is an operator, inside $or name a field instead`);
  if (isObject(value)) return addObject(branches, value, { ...place, path });
  if (!Array.isArray(value))
    throw new PatternError(`${path} must be an object or a list of values, such as ["a"]`);
  const test = compileField(value, path);
  return branches.map((branch) => {
    if (branch.has(path)) throw new PatternError(`${path} is named twice: put all its values into one list`);
    return new Map(branch).set(path, test);
  });
}

function addAlternatives(
  branches: readonly Branch[],
  value: unknown,
  path: string,
  place: Place,
): readonly Branch[] {
  if (!Array.isArray(value) || value.length < 2 || !value.every(isObject))
    throw new PatternError(`${path} must be a list of at least two objects`);
  const choices = value.flatMap((alternative) => addObject(branches, alternative, { ...place, inOr: true }));
  if (choices.length > MAX_BRANCHES)
    throw new PatternError(`${path} makes more than ${MAX_BRANCHES} combinations: use fewer $or lists`);
  return choices;
}

function compileField(list: readonly unknown[], path: string): FieldTest {
  if (list.length === 0) throw new PatternError(`${path} is an empty list: name at least one value`);
  const values: ValueTest[] = [];
  let orAbsent = false;
  for (const item of list) {
    if (isObject(item) && item.exists === false && Object.keys(item).length === 1) orAbsent = true;
    else values.push(compileItem(item, path));
  }
  return { values, orAbsent };
}

function compileItem(item: unknown, path: string): ValueTest {
  if (typeof item === 'string') return textTest(item);
  if (typeof item === 'number') return numberTest(item);
  if (isObject(item)) return compileOperator(item, path);
  if (Array.isArray(item))
    throw new PatternError(`${path} holds a list inside its list: name strings, numbers or operators`);
  return (value) => value === item;
}

function compileOperator(expression: JsonObject, path: string): ValueTest {
  const [operator, operand] = onlyEntry(expression, path);
  const where = `${path}: ${operator}`;
  switch (operator) {
    case 'exactly': {
      const text = textOf(operand, where);
      return (value) => value === text;
    }
    case 'prefix':
    case 'suffix':
      return edgeTest(operator, operand, where);
    case 'equals-ignore-case':
      return foldedTest(textOf(operand, where), '^', '$');
    case 'wildcard':
      return wildcardTest(textOf(operand, where), where);
    case 'anything-but':
      return anythingButTest(operand, where);
    case 'numeric':
      return rangeTest(operand, where);
    case 'cidr':
      return cidrTest(textOf(operand, where), where);
    case 'exists':
      if (operand !== true) throw new PatternError(`${where} must be true or false`);
      return () => true;
    default:
      throw new PatternError(`${path}: "${operator}" is no operator of event patterns`);
  }
}

/** An IP address in a pattern means the address, not its spelling. */
function textTest(text: string): ValueTest {
  const address = addressTest(text, isIP(text) === 4 ? 32 : 128);
  return (value) => value === text || (address?.(value) ?? false);
}

function numberTest(number: number): ValueTest {
  const micros = toMicros(number);
  return (value) =>
    value === number || (typeof value === 'number' && micros !== null && toMicros(value) === micros);
}

function edgeTest(edge: 'prefix' | 'suffix', operand: unknown, where: string): ValueTest {
  if (isObject(operand)) {
    const [inner, text] = onlyEntry(operand, where);
    if (inner !== 'equals-ignore-case')
      throw new PatternError(`${where} takes a string or {"equals-ignore-case": "…"}, not "${inner}"`);
    const folded = textOf(text, `${where} equals-ignore-case`);
    return edge === 'prefix' ? foldedTest(folded, '^', '') : foldedTest(folded, '', '$');
  }
  const text = textOf(operand, where);
  return edge === 'prefix'
    ? (value) => typeof value === 'string' && value.startsWith(text)
    : (value) => typeof value === 'string' && value.endsWith(text);
}

/** Equal but for case, a character at a time: its lower and its upper form, whatever their lengths. */
function foldedTest(text: string, start: '^' | '', end: '$' | ''): ValueTest {
  const characters = [...text].map((character) => {
    const forms = new Set([character, character.toLowerCase(), character.toUpperCase()]);
    return `(?:${[...forms].map(escapeRegExp).join('|')})`;
  });
  const expression = new RegExp(`${start}${characters.join('')}${end}`, 'su');
  return (value) => typeof value === 'string' && expression.test(value);
}

/** `*` stands for any characters, none included; `\*` and `\\` for themselves. */
function wildcardTest(text: string, where: string): ValueTest {
  const parts = [''];
  for (let i = 0; i < text.length; i++) {
    let character = text.charAt(i);
    if (character === '*') {
      if (text[i + 1] === '*') throw new PatternError(`${where} must not have two * in a row`);
      parts.push('');
      continue;
    }
    if (character === '\\') {
      character = text.charAt(++i);
      if (character !== '*' && character !== '\\')
        throw new PatternError(`${where} may escape * and \\ only: write \\\\ for a backslash`);
    }
    parts.push(`${parts.pop()}${character}`);
  }
  return (value) => typeof value === 'string' && hasParts(value, parts);
}

/** Whether a text begins with the first part, ends with the last and has the others between them, in order. */
function hasParts(text: string, parts: readonly string[]): boolean {
  const first = parts[0] ?? '';
  if (parts.length === 1) return text === first;
  const last = parts.at(-1) ?? '';
  if (!text.startsWith(first) || !text.endsWith(last)) return false;
  let from = first.length;
  for (const part of parts.slice(1, -1)) {
    const at = text.indexOf(part, from);
    if (at < 0) return false;
    from = at + part.length;
  }
  return from + last.length <= text.length;
}

/** True for whatever is not named, of any type. */
function anythingButTest(operand: unknown, where: string): ValueTest {
  const excluded = excludedTests(operand, where);
  return (value) => !excluded.some((test) => test(value));
}

function excludedTests(operand: unknown, where: string): readonly ValueTest[] {
  if (isObject(operand)) {
    const [operator, inner] = onlyEntry(operand, where);
    const texts = (Array.isArray(inner) ? inner : [inner]).map((text) =>
      textOf(text, `${where} ${operator}`),
    );
    if (texts.length === 0) throw new PatternError(`${where} ${operator} must name at least one string`);
    return texts.map((text) => excludedTest(operator, text, where));
  }
  const items = Array.isArray(operand) ? operand : [operand];
  const isText = typeof items[0] === 'string';
  if (items.length === 0 || !items.every((item) => typeof item === (isText ? 'string' : 'number')))
    throw new PatternError(`${where} takes strings or numbers, one or a list of one type`);
  return items.map((item) =>
    isText ? (value: unknown) => value === item : microsTest(micros(item, where), (a, b) => a === b),
  );
}

function excludedTest(operator: string, text: string, where: string): ValueTest {
  switch (operator) {
    case 'prefix':
    case 'suffix':
      if (text === '')
        throw new PatternError(`${where} ${operator} must not be empty: it would match nothing`);
      return edgeTest(operator, text, where);
    case 'equals-ignore-case':
      return foldedTest(text, '^', '$');
    case 'wildcard':
      return wildcardTest(text, `${where} wildcard`);
    default:
      throw new PatternError(
        `${where} takes prefix, suffix, equals-ignore-case or wildcard, not "${operator}"`,
      );
  }
}

type Comparison = (value: number, limit: number) => boolean;
const LOWER: Readonly<Record<string, Comparison>> = { '>': (a, b) => a > b, '>=': (a, b) => a >= b };
const UPPER: Readonly<Record<string, Comparison>> = { '<': (a, b) => a < b, '<=': (a, b) => a <= b };
const SINGLE: Readonly<Record<string, Comparison>> = { '=': (a, b) => a === b, ...LOWER, ...UPPER };

/** `["=", n]`, one bound, or a lower and then an upper one. */
function rangeTest(operand: unknown, where: string): ValueTest {
  const terms = Array.isArray(operand) ? operand : [];
  const comparison = (table: Readonly<Record<string, Comparison>>, symbol: unknown) => {
    const found = typeof symbol === 'string' && Object.hasOwn(table, symbol) ? table[symbol] : undefined;
    if (found === undefined)
      throw new PatternError(`${where} must be like ["=", 1], [">", 0] or [">", 0, "<=", 5]`);
    return found;
  };
  if (terms.length === 2) return microsTest(micros(terms[1], where), comparison(SINGLE, terms[0]));
  const isAbove = comparison(LOWER, terms.length === 4 ? terms[0] : undefined);
  const isBelow = comparison(UPPER, terms[2]);
  const [bottom, top] = [micros(terms[1], where), micros(terms[3], where)];
  if (bottom >= top)
    throw new PatternError(`${where} must have its lower bound first and below the upper one`);
  const [above, below] = [microsTest(bottom, isAbove), microsTest(top, isBelow)];
  return (value) => above(value) && below(value);
}

function microsTest(limit: number, compare: Comparison): ValueTest {
  return (value) => {
    const number = typeof value === 'number' ? toMicros(value) : null;
    return number !== null && compare(number, limit);
  };
}

/** A number of the pattern, in millionths. */
function micros(value: unknown, where: string): number {
  const number = typeof value === 'number' ? toMicros(value) : null;
  if (number === null) throw new PatternError(`${where} takes numbers from -5000000000 to 5000000000`);
  return number;
}

function toMicros(value: number): number | null {
  return Math.abs(value) <= MAX_NUMBER ? Math.round(value * MICROS) : null;
}

function cidrTest(text: string, where: string): ValueTest {
  const [, address = '', bits = ''] = /^([^/]+)\/(\d{1,3})$/.exec(text) ?? [];
  const test = addressTest(address, Number(bits));
  if (test === null) throw new PatternError(`${where} must be an address block, such as "10.0.0.0/24"`);
  return test;
}

/** Test for the addresses of a block, or null when it is none. */
function addressTest(address: string, prefixBits: number): ValueTest | null {
  const family = familyOf(address);
  if (family === null || prefixBits > (family === 'ipv4' ? 32 : 128)) return null;
  const block = new BlockList();
  block.addSubnet(address, prefixBits, family);
  return (value) => {
    const valueFamily = typeof value === 'string' ? familyOf(value) : null;
    return typeof value === 'string' && valueFamily !== null && block.check(value, valueFamily);
  };
}

function familyOf(address: string): 'ipv4' | 'ipv6' | null {
  const version = address.includes('%') ? 0 : isIP(address);
  return version === 0 ? null : `ipv${version === 4 ? 4 : 6}`;
}

/** A leaf of the event, and the element of each array that it lies in. */
interface Field {
  readonly value: unknown;
  readonly elements: Elements;
}

/** Element index by array, arrays numbered as they are met. */
type Elements = ReadonlyMap<number, number>;

function matcherOf(branches: readonly Branch[]): (event: unknown) => boolean {
  const steps = new Set(branches.flatMap((branch) => [...branch.keys()].flatMap(pathSteps)));
  // In the order of their names, as event-ruler goes through them: `exists: false` sees the elements chosen before it.
  const sorted = branches.map((branch) => [...branch].sort(([a], [b]) => (a < b ? -1 : 1)));
  return (event) => {
    if (!isObject(event)) return false;
    const fields = collectFields(event, steps);
    return sorted.some((tests) => matchesBranch(tests, fields));
  };
}

/** `a.b.c` comes by `a` and `a.b`. */
function pathSteps(path: string): string[] {
  return path.split('.').map((_, i, names) => names.slice(0, i + 1).join('.'));
}

/** The event's leaves by path, only those on the way to a path of the pattern. */
function collectFields(event: JsonObject, steps: ReadonlySet<string>): Map<string, Field[]> {
  const fields = new Map<string, Field[]>();
  let arrays = 0;
  const visit = (value: unknown, path: string, elements: Elements): void => {
    if (Array.isArray(value)) {
      const array = arrays++;
      for (const [index, element] of value.entries()) {
        const isLeaf = element === null || typeof element !== 'object';
        visit(element, path, isLeaf ? elements : new Map(elements).set(array, index));
      }
    } else if (isObject(value)) {
      for (const [name, child] of Object.entries(value)) {
        const childPath = joinPath(path, name);
        if (steps.has(childPath)) visit(child, childPath, elements);
      }
    } else {
      const same = fields.get(path);
      if (same === undefined) fields.set(path, [{ value, elements }]);
      else same.push({ value, elements });
    }
  };
  visit(event, '', new Map());
  return fields;
}

/** Whether each test can be given a field so that no two fields lie in different elements of one array. */
function matchesBranch(
  tests: readonly (readonly [string, FieldTest])[],
  fields: ReadonlyMap<string, readonly Field[]>,
): boolean {
  const candidates = tests.map(([path, test]) => {
    const all = fields.get(path) ?? [];
    const fitting = all.filter(({ value }) => test.values.some((accepts) => accepts(value)));
    return { all, fitting, orAbsent: test.orAbsent };
  });
  if (candidates.some(({ fitting, orAbsent }) => fitting.length === 0 && !orAbsent)) return false;
  // Arrays that fields from each test on lie in: elements of others cannot clash any more, so are forgotten.
  const open = candidates.map((_, i) => {
    return new Set(
      candidates.slice(i).flatMap(({ all }) => all.flatMap(({ elements }) => [...elements.keys()])),
    );
  });
  const failed = candidates.map(() => new Set<string>());

  const search = (i: number, chosen: Elements): boolean => {
    const candidate = candidates[i];
    if (candidate === undefined) return true;
    const state = [...chosen].filter(([array]) => open[i]?.has(array)).join(';');
    if (failed[i]?.has(state)) return false;
    const isConsistent = ({ elements }: Field) =>
      elements.entries().every(([array, index]) => (chosen.get(array) ?? index) === index);
    const found =
      candidate.fitting.some(
        (field) => isConsistent(field) && search(i + 1, new Map([...chosen, ...field.elements])),
      ) ||
      (candidate.orAbsent && !candidate.all.some(isConsistent) && search(i + 1, chosen));
    if (!found) failed[i]?.add(state);
    return found;
  };
  return search(0, new Map());
}

function onlyEntry(expression: JsonObject, where: string): readonly [string, unknown] {
  const [entry, second] = Object.entries(expression);
  if (entry === undefined || second !== undefined)
    throw new PatternError(`${where} must hold exactly one operator in each of its objects`);
  return entry;
}

function textOf(value: unknown, where: string): string {
  if (typeof value !== 'string') throw new PatternError(`${where} must be a string`);
  return value;
}

function joinPath(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`;
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
