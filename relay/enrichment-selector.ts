import * as z from 'zod';

export type Labels = Readonly<Record<string, string>>;

/** Does a selector pick what has these labels? */
export type Selects = (labels: Labels) => boolean;

export type ReadSelector =
  | { readonly kind: 'ok'; readonly selects: Selects }
  | { readonly kind: 'invalid'; readonly reason: string };

/** Source: apimachinery, `validation.IsQualifiedName` and `IsValidLabelValue`. */
const NAME = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const PREFIX = /^(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

const key = z.string().refine(isKey, 'must be a label key');
const value = z.string().refine((text) => text === '' || NAME.test(text), 'must be a label value');

const expression = z
  .object({
    key,
    operator: z.enum(['In', 'NotIn', 'Exists', 'DoesNotExist']),
    values: z.array(value).nullish(),
  })
  .refine(
    ({ operator, values }) => (values ?? []).length > 0 === (operator === 'In' || operator === 'NotIn'),
    'must have values for In and NotIn, and none for Exists and DoesNotExist',
  );

const labelSelector = z.object({
  matchLabels: z.record(key, value).nullish(),
  matchExpressions: z.array(expression).nullish(),
});

/**
 * Reads a meta/v1 LabelSelector: labels and expressions must all hold; an empty one picks everything, none at all nothing.
 * Source: apimachinery, `LabelSelectorAsSelector`.
 */
export function readSelector(raw: unknown): ReadSelector {
  if (raw === undefined || raw === null) return { kind: 'ok', selects: () => false };
  const { data, error } = labelSelector.safeParse(raw);
  if (data === undefined) {
    const [issue] = error.issues;
    return { kind: 'invalid', reason: `${issue?.path.join('.')}: ${issue?.message}` };
  }
  const wanted = Object.entries(data.matchLabels ?? {});
  const expressions = data.matchExpressions ?? [];
  return {
    kind: 'ok',
    selects: (labels) =>
      wanted.every(([name, text]) => labelOf(labels, name) === text) &&
      expressions.every((wants) => holds(wants, labels)),
  };
}

function holds({ key, operator, values }: z.infer<typeof expression>, labels: Labels): boolean {
  const text = labelOf(labels, key);
  switch (operator) {
    case 'In':
      return text !== undefined && (values ?? []).includes(text);
    case 'NotIn':
      return text === undefined || !(values ?? []).includes(text);
    case 'Exists':
      return text !== undefined;
    case 'DoesNotExist':
      return text === undefined;
    default:
      return operator satisfies never;
  }
}

function labelOf(labels: Labels, key: string): string | undefined {
  return Object.hasOwn(labels, key) ? labels[key] : undefined;
}

function isKey(text: string): boolean {
  const parts = text.split('/');
  const [prefix, name] = parts.length === 1 ? [null, text] : parts;
  return parts.length <= 2 && NAME.test(name ?? '') && (prefix === null || PREFIX.test(prefix ?? ''));
}
