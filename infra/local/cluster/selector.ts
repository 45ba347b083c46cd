import type { Labels, ObjectMeta } from './resources.ts';
import { badRequest } from './status.ts';

/** Decides whether an object belongs to a list or a watch. */
export type Selector = (metadata: ObjectMeta) => boolean;

const LABEL_KEY = /^([a-z0-9.-]+\/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$/;
const LABEL_VALUE = /^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$/;
const SET_TERM = /^(\S+)\s+(in|notin)\s*\(([^()]*)\)$/;
const EQUALITY_TERM = /^([^=!]+?)\s*(==|=|!=)\s*([^=!]*)$/;

/**
 * Parses a label selector: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, joined by commas.
 * An empty one selects everything.
 *
 * @throws ApiError 400 when a term is none of these.
 */
export function parseLabelSelector(text: string): Selector {
  const terms = splitTerms(text).map(parseLabelTerm);
  return ({ labels = {} }) => terms.every((matches) => matches(labels));
}

/**
 * Parses a field selector of `metadata.name` and `metadata.namespace`, which every resource has.
 *
 * @throws ApiError 400 on any other field.
 */
export function parseFieldSelector(text: string): Selector {
  const terms = splitTerms(text).map((term) => {
    const [, field = '', operator, value = ''] = EQUALITY_TERM.exec(term) ?? [];
    if (operator === undefined) throw badRequest(`invalid selector: '${text}'; can't understand '${term}'`);
    const read = FIELDS[field];
    if (read === undefined) throw badRequest(`field label not supported: ${field}`);
    return (metadata: ObjectMeta) => (read(metadata) === value) === (operator !== '!=');
  });
  return (metadata) => terms.every((matches) => matches(metadata));
}

/** True when a Service's selector picks a pod with these labels. */
export function isSelected(selector: Labels, labels: Labels = {}): boolean {
  return Object.entries(selector).every(([key, value]) => labels[key] === value);
}

const FIELDS: Readonly<Record<string, (metadata: ObjectMeta) => string>> = {
  'metadata.name': ({ name }) => name,
  'metadata.namespace': ({ namespace = '' }) => namespace,
};

function splitTerms(text: string): string[] {
  if (text.trim() === '') return [];
  return text.split(/,(?![^(]*\))/).map((term) => term.trim());
}

function parseLabelTerm(term: string): (labels: Labels) => boolean {
  const [, setKey, setOperator, list] = SET_TERM.exec(term) ?? [];
  if (setKey !== undefined && list !== undefined) {
    const values = new Set(list.split(',').map((value) => value.trim()));
    return requirement(term, setKey, [...values], (value) =>
      setOperator === 'in'
        ? value !== undefined && values.has(value)
        : value === undefined || !values.has(value),
    );
  }
  const [, key, operator, wanted = ''] = EQUALITY_TERM.exec(term) ?? [];
  if (key !== undefined) {
    return requirement(term, key, [wanted], (value) => (value === wanted) === (operator !== '!='));
  }
  return term.startsWith('!')
    ? requirement(term, term.slice(1), [], (value) => value === undefined)
    : requirement(term, term, [], (value) => value !== undefined);
}

function requirement(
  term: string,
  key: string,
  values: readonly string[],
  matches: (value: string | undefined) => boolean,
): (labels: Labels) => boolean {
  if (!LABEL_KEY.test(key) || !values.every((value) => LABEL_VALUE.test(value))) {
    throw badRequest(`unable to parse requirement: ${JSON.stringify(term)} is not a label requirement`);
  }
  return (labels) => matches(labels[key]);
}
