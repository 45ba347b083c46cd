import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Labels, readSelector } from '../../relay/enrichment-selector.ts';

const WEB = { app: 'web', tier: 'front', empty: '' };

const cases: Record<string, { selector: unknown; picks?: Labels; passes?: Labels }> = {
  'no selector picks nothing': { selector: null, passes: {} },
  'an absent one neither': { selector: undefined, passes: WEB },
  'an empty one picks everything': { selector: {}, picks: {} },
  'one of nulls is empty': { selector: { matchLabels: null, matchExpressions: null }, picks: WEB },
  'a label': { selector: { matchLabels: { app: 'web' } }, picks: WEB, passes: { app: 'db' } },
  'all labels': { selector: { matchLabels: { app: 'web', tier: 'back' } }, passes: WEB },
  'an empty value is a value': {
    selector: { matchLabels: { empty: '' } },
    picks: WEB,
    passes: { app: 'web' },
  },
  'a label that only every object has is none': {
    selector: { matchExpressions: [{ key: 'constructor', operator: 'Exists' }] },
    passes: WEB,
  },
  In: { selector: expression('app', 'In', ['db', 'web']), picks: WEB, passes: { app: 'x' } },
  'In lacks what has no such label': { selector: expression('zone', 'In', ['a']), passes: WEB },
  NotIn: { selector: expression('app', 'NotIn', ['db']), picks: WEB, passes: { app: 'db' } },
  'NotIn picks what has no such label': { selector: expression('zone', 'NotIn', ['a']), picks: WEB },
  Exists: { selector: expression('empty', 'Exists'), picks: WEB, passes: {} },
  'Exists with an empty list': { selector: expression('app', 'Exists', []), picks: WEB },
  DoesNotExist: { selector: expression('zone', 'DoesNotExist'), picks: WEB, passes: { zone: '' } },
  'labels and expressions together': {
    selector: {
      matchLabels: { app: 'web' },
      matchExpressions: [{ key: 'tier', operator: 'In', values: ['front'] }],
    },
    picks: WEB,
    passes: { app: 'web' },
  },
  'a key with a prefix': { selector: { matchLabels: { 'a.b/c': 'x' } }, picks: { 'a.b/c': 'x' }, passes: {} },
};

const invalid: Record<string, { selector: unknown; says: RegExp }> = {
  'an unknown operator': {
    selector: expression('app', 'Near', ['x']),
    says: /^matchExpressions\.0\.operator: /,
  },
  'In without values': {
    selector: expression('app', 'In', []),
    says: /^matchExpressions\.0: must have values/,
  },
  'NotIn without values': {
    selector: expression('app', 'NotIn'),
    says: /^matchExpressions\.0: must have values/,
  },
  'Exists with values': {
    selector: expression('app', 'Exists', ['x']),
    says: /^matchExpressions\.0: .* none for Exists/,
  },
  'a key that is none': { selector: { matchLabels: { '-x': 'y' } }, says: /^matchLabels\.-x: / },
  'a key of two slashes': { selector: expression('a/b/c', 'Exists'), says: /key: must be a label key$/ },
  'a value that is none': { selector: { matchLabels: { app: 'a b' } }, says: /must be a label value$/ },
  'a value that is too long': {
    selector: { matchLabels: { app: 'a'.repeat(64) } },
    says: /must be a label value$/,
  },
  'a number for a value': { selector: { matchLabels: { app: 1 } }, says: /^matchLabels\.app: / },
  'a text': { selector: 'app=web', says: /object/ },
};

function expression(key: string, operator: string, values?: readonly string[]) {
  return { matchExpressions: [{ key, operator, ...(values && { values }) }] };
}

describe('label selectors', () => {
  for (const [name, { selector, picks, passes }] of Object.entries(cases)) {
    test(name, () => {
      const read = readSelector(selector);
      assert.ok(read.kind === 'ok');
      if (picks !== undefined) assert.equal(read.selects(picks), true);
      if (passes !== undefined) assert.equal(read.selects(passes), false);
    });
  }

  for (const [name, { selector, says }] of Object.entries(invalid)) {
    test(`${name} is invalid`, () => {
      const read = readSelector(selector);
      assert.ok(read.kind === 'invalid');
      assert.match(read.reason, says);
    });
  }
});
