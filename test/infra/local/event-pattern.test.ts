import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { compilePattern } from '../../../infra/local/event-pattern.ts';

interface Case {
  readonly pattern: unknown;
  readonly yes?: readonly unknown[];
  readonly no?: readonly unknown[];
}

/** Values of the one field `a`. */
const field = (test: unknown, yes: readonly unknown[], no: readonly unknown[]): Case => ({
  pattern: { a: [test] },
  yes: yes.map((a) => ({ a })),
  no: no.map((a) => ({ a })),
});

const delta = {
  source: 'endpoints-watcher',
  'detail-type': 'EndpointsChanged',
  resources: ['prod-eu/default/web:80', 'other'],
  detail: {
    cluster: 'prod-eu',
    size: 3,
    exists: true,
    triggeredAt: null,
    added: [
      { ip: '10.244.0.5', port: 8080, zone: 'a', target: { kind: 'Pod', name: 'web-1' } },
      { ip: '10.244.1.6', port: 8080, zone: 'b', target: { kind: 'Pod', name: 'web-2' } },
    ],
    removed: [],
  },
};

const VALUES: Readonly<Record<string, Case>> = {
  'a list means any of its values': {
    pattern: { a: ['x', 1, true, null] },
    yes: [{ a: 'x' }, { a: 1 }, { a: true }, { a: null }],
    no: [{ a: 'y' }, { a: '1' }, { a: 'true' }, { a: 'null' }, { a: false }, {}],
  },
  'all fields of a pattern must match': {
    pattern: { a: ['x'], b: { c: [1] } },
    yes: [{ a: 'x', b: { c: 1 }, d: 5 }],
    no: [{ a: 'x', b: { c: 2 } }, { a: 'x' }, { b: { c: 1 } }],
  },
  'an empty string is a value': field('', [''], [null, 'x', 0]),
  'a string is compared with its case': field('Web', ['Web'], ['web', 'Web ']),
  'a number matches however it is written': {
    pattern: JSON.parse('{"a":[3.018e2]}'),
    yes: [JSON.parse('{"a":301.80}')],
    no: [{ a: 301.81 }, { a: '301.8' }],
  },
  'a number too big for ranges still equals itself': field(123456789012, [123456789012], [123456789013]),
  'an address matches in any spelling': field('::1', ['::1', '0:0:0:0:0:0:0:1'], ['::2', '1']),
  'what only looks like an address is text': field('08:23', ['08:23'], ['8:23']),
  'a field that is an object is no value': { pattern: { a: ['x'] }, no: [{ a: { x: 'x' } }] },
  'exactly is a plain string': field({ exactly: 'x' }, ['x'], ['X', 'xx']),

  'prefix is for strings': field({ prefix: '10' }, ['10', '10.0'], ['110', 10, 100, null]),
  'an empty prefix is any string': field({ prefix: '' }, ['', 'x'], [1, null]),
  'prefix may ignore case': field(
    { prefix: { 'equals-ignore-case': 'EventB' } },
    ['EVENTBridge', 'eventb'],
    ['event'],
  ),
  'suffix is for strings': field({ suffix: '.png' }, ['a.png', '.png'], ['a.PNG', 'a.png.gz', 5]),
  'suffix may ignore case': field(
    { suffix: { 'equals-ignore-case': 'BRIDGE' } },
    ['eventBridge'],
    ['bridges'],
  ),
  'equals-ignore-case is for strings': field(
    { 'equals-ignore-case': 'aLiCe' },
    ['ALICE', 'alice'],
    ['alic', 'alices', 1],
  ),
  'case is ignored a character at a time, whatever its length': field(
    { 'equals-ignore-case': 'straße' },
    ['STRASSE', 'Straße'],
    ['strase'],
  ),
  'case is ignored beyond ASCII': field({ 'equals-ignore-case': 'Äⱥ𐐀' }, ['äȺ𐐨'], ['aȺ𐐨']),
  'characters of regular expressions are plain': field(
    { 'equals-ignore-case': 'a.b(c)*' },
    ['A.B(C)*'],
    ['axb(c)*'],
  ),
  'a line feed is a character': field({ wildcard: 'a*b' }, ['a\nb'], ['a\nb\n']),

  'wildcard stands for any characters': field(
    { wildcard: 'dir/*.png' },
    ['dir/a.png', 'dir/.png', 'dir/x/y.png'],
    ['dir/a.jpg', 'xdir/a.png', 'dir.png', 7],
  ),
  'several wildcards match in order': field({ wildcard: '*a*b*' }, ['ab', 'xaxbx'], ['ba', 'a', 'b']),
  'wildcard parts do not overlap': field({ wildcard: 'aba*ba' }, ['ababa', 'abaxba'], ['aba']),
  'a wildcard alone is any string': field({ wildcard: '*' }, ['', 'x'], [1, null, true]),
  'a wildcard without a star is a plain string': field({ wildcard: 'ab' }, ['ab'], ['abc', 'xab']),
  'an escaped star and backslash are themselves': field(
    { wildcard: 'a\\*b\\\\*' },
    ['a*b\\', 'a*b\\xyz'],
    ['axb\\'],
  ),
  'an escaped star may stand beside a wildcard': field({ wildcard: '\\**' }, ['*', '*x'], ['x']),

  'anything-but a string': field({ 'anything-but': 'x' }, ['y', '', 5, null, true], ['x']),
  'anything-but needs the field': {
    pattern: { a: [{ 'anything-but': 'x' }] },
    no: [{}, { b: 1 }, { a: {} }, { a: [] }],
  },
  'anything-but a number': field({ 'anything-but': 123 }, [124, '123', null], [123, 123.0]),
  'anything-but a list of strings': field({ 'anything-but': ['x', 'y'] }, ['z', 1], ['x', 'y']),
  'anything-but a list of numbers': field({ 'anything-but': [100, 200] }, [150, '100'], [100, 200]),
  'anything-but a prefix': field({ 'anything-but': { prefix: 'us-' } }, ['eu-west', 5], ['us-east', 'us-']),
  'anything-but several prefixes': field(
    { 'anything-but': { prefix: ['us-', 'eu-'] } },
    ['ap-1'],
    ['us-1', 'eu-1'],
  ),
  'anything-but a suffix': field({ 'anything-but': { suffix: '.png' } }, ['a.gif', null], ['a.png']),
  'anything-but several suffixes': field(
    { 'anything-but': { suffix: ['.png', '.gif'] } },
    ['a.c'],
    ['a.png', 'a.gif'],
  ),
  'anything-but ignoring case': field(
    { 'anything-but': { 'equals-ignore-case': 'init' } },
    ['inits', 1],
    ['INIT', 'init'],
  ),
  'anything-but several ignoring case': field(
    { 'anything-but': { 'equals-ignore-case': ['a', ''] } },
    ['b'],
    ['A', 'a', ''],
  ),
  'anything-but a wildcard': field(
    { 'anything-but': { wildcard: '*/lib/*' } },
    ['/bin/x'],
    ['/lib/x', 'x/lib/'],
  ),
  'anything-but several wildcards': field(
    { 'anything-but': { wildcard: ['a*', '*b'] } },
    ['cc'],
    ['ax', 'xb'],
  ),
  'anything-but matches an array with any other element': field(
    { 'anything-but': 'x' },
    [['x', 'y']],
    [['x'], ['x', 'x']],
  ),

  'numeric equality': field({ numeric: ['=', 100] }, [100, 100.0], [101, '100', null]),
  'numeric lower bound, open': field({ numeric: ['>', 0] }, [1, 0.000001], [0, -1, '1']),
  'numeric lower bound, closed': field({ numeric: ['>=', -5.5] }, [-5.5, 0], [-5.6]),
  'numeric upper bound, open': field({ numeric: ['<', 10] }, [9.999999, -5e9], [10, 11]),
  'numeric upper bound, closed': field({ numeric: ['<=', 10] }, [10], [10.000001]),
  'numeric range': field({ numeric: ['>', 0, '<=', 5] }, [0.1, 5], [0, 5.1, '3']),
  'numbers are compared to six decimals': field({ numeric: ['=', 0.3] }, [0.1 + 0.2], [0.300001]),
  'numbers beyond five billion are in no range': field({ numeric: ['>', 0] }, [5e9], [5.1e9, 1e300]),

  'cidr of IPv4': field({ cidr: '10.0.0.0/24' }, ['10.0.0.0', '10.0.0.255'], ['10.0.1.0', '10.0.0', 'x', 10]),
  'cidr need not name the first address': field({ cidr: '10.0.0.77/24' }, ['10.0.0.1'], ['10.0.1.77']),
  'cidr of one address': field({ cidr: '10.0.0.7/32' }, ['10.0.0.7'], ['10.0.0.8']),
  'cidr of everything': field({ cidr: '0.0.0.0/0' }, ['255.1.2.3'], ['::1', 'text']),
  'cidr of IPv6': field(
    { cidr: '2001:db8::/32' },
    ['2001:db8:1::5', '2001:0DB8::'],
    ['2001:db9::', '10.0.0.1'],
  ),

  'exists: true is any leaf, null too': {
    pattern: { a: [{ exists: true }] },
    yes: [{ a: 1 }, { a: null }, { a: ['x'] }],
    no: [{}, { a: {} }, { a: [] }, { a: { b: 1 } }],
  },
  'exists: false is no leaf, an object counts as none': {
    pattern: { a: [{ exists: false }] },
    yes: [{}, { b: 1 }, { a: { b: 1 } }, { a: [] }],
    no: [{ a: 1 }, { a: null }, { a: ['x'] }],
  },
  'exists: false may be one of several values': {
    pattern: { a: [{ exists: false }, 'x'] },
    yes: [{}, { a: 'x' }],
    no: [{ a: 'y' }],
  },
  'operators and values mix in a list': field({ prefix: 'a' }, ['ab'], ['b']),
};

const STRUCTURE: Readonly<Record<string, Case>> = {
  'a delta is found by its source, type, resource and detail': {
    pattern: {
      source: ['endpoints-watcher'],
      'detail-type': ['NoEndpoints', 'EndpointsChanged'],
      resources: [{ prefix: 'prod-eu/default/' }],
      detail: { size: [{ numeric: ['>', 0] }], triggeredAt: [null], removed: { ip: [{ exists: false }] } },
    },
    yes: [delta],
  },
  'an array matches when any element does': {
    pattern: { resources: ['other', 'none'] },
    yes: [delta, { resources: 'other' }],
    no: [{ resources: [] }, { resources: ['x'] }],
  },
  'arrays of objects are looked through': {
    pattern: { detail: { added: { target: { name: ['web-2'] } } } },
    yes: [delta],
  },
  'dots join names, in the pattern and in the event': {
    pattern: { a: { 'b.c': [1] } },
    yes: [{ a: { b: { c: 1 } } }, { 'a.b': { c: 1 } }, { 'a.b.c': 1 }],
    no: [{ a: { b: 1, c: 1 } }],
  },
  'one path may be a value and an object in an array': {
    pattern: { lines: { points: [287.5], 'points.pp': ['i0'] } },
    yes: [{ lines: [{ points: [[[{ pp: 'i0' }, 483.3, 287.5]]] }] }],
    no: [{ lines: [{ points: [[[{ pp: 'i0' }], [287.5]]] }] }],
  },
  'an event that is no object matches nothing': {
    pattern: { a: [{ exists: false }] },
    no: [null, [], 'x', 5],
  },
  'names of prototypes are no fields': { pattern: { toString: [{ exists: true }] }, no: [{}] },
};

const ARRAYS: Readonly<Record<string, Case>> = {
  'two fields must match in one element': {
    pattern: { detail: { added: { ip: ['10.244.0.5'], zone: ['b'] } } },
    no: [delta],
  },
  'two fields that match in one element match': {
    pattern: { detail: { added: { ip: [{ cidr: '10.244.1.0/24' }], zone: ['b'] } } },
    yes: [delta],
  },
  'the fitting element may come last': {
    pattern: { d: { a: [{ exists: true }], b: [{ exists: true }] } },
    yes: [{ d: [{ a: 1 }, { b: 2 }, { a: 3, b: 4 }] }, { d: { a: 1, b: 2 } }],
    no: [{ d: [{ a: 1 }, { b: 2 }] }, { d: [] }, {}],
  },
  'three fields, each in another element': {
    pattern: { d: { a: [1], b: [2], c: [3] } },
    yes: [{ d: [{ a: 1, b: 2, c: 3 }] }],
    no: [
      { d: [{ a: 1 }, { b: 2 }, { c: 3 }] },
      {
        d: [
          { a: 1, b: 2 },
          { b: 2, c: 3 },
          { a: 1, c: 3 },
        ],
      },
    ],
  },
  'elements of elements are kept apart too': {
    pattern: { u: { t: { k: ['color'], v: ['blue'] } } },
    yes: [{ u: [{ t: [{ k: 'color', v: 'blue' }] }] }],
    no: [
      { u: [{ t: [{ k: 'color' }, { v: 'blue' }] }] },
      { u: [{ t: [{ k: 'color' }] }, { t: [{ v: 'blue' }] }] },
    ],
  },
  'a field of the outer element belongs to each inner one': {
    pattern: { u: { name: ['x'], t: { v: ['blue'] } } },
    yes: [{ u: [{ name: 'x', t: [{ v: 'red' }, { v: 'blue' }] }] }],
    no: [
      {
        u: [
          { name: 'x', t: [{ v: 'red' }] },
          { name: 'y', t: [{ v: 'blue' }] },
        ],
      },
    ],
  },
  'arrays in arrays are arrays': {
    pattern: { employees: { firstName: ['Anna'], lastName: ['Smith'] } },
    yes: [
      {
        employees: [
          [
            { firstName: 'John', lastName: 'Doe' },
            { firstName: 'Anna', lastName: 'Smith' },
          ],
        ],
      },
    ],
    no: [
      { employees: [[{ firstName: 'Anna', lastName: 'Doe' }], [{ firstName: 'John', lastName: 'Smith' }]] },
    ],
  },
  'plain values of one array may match several fields of its object': {
    pattern: { d: { tags: ['b'], type: ['x'] } },
    yes: [{ d: { tags: ['a', 'b', 'c'], type: 'x' } }],
    no: [{ d: { tags: ['a'], type: 'x' } }],
  },
  'different arrays do not restrict each other': {
    pattern: { users: { name: ['x'] }, items: { id: [2] } },
    yes: [{ users: [{ name: 'y' }, { name: 'x' }], items: [{ id: 2 }, { id: 3 }] }],
  },
  'exists: false means absent from the element that matched': {
    pattern: { employees: { firstName: ['Anna'], ids: [{ exists: false }] } },
    yes: [{ employees: [{ firstName: 'John', ids: [1] }, { firstName: 'Anna' }] }],
    no: [{ employees: [{ firstName: 'John' }, { firstName: 'Anna', ids: [1] }] }],
  },
  'exists: false looks at all elements until a field before it, by name, chose one': {
    pattern: { d: { a: [{ exists: false }], b: [1] } },
    yes: [{ d: [{ b: 1 }, { b: 2 }] }],
    no: [{ d: [{ a: 5 }, { b: 1 }] }],
  },
  'numbers and their names in one element': {
    pattern: { i: { n: ['g'], p: [{ numeric: ['<', 100] }] } },
    yes: [
      {
        i: [
          { n: 'w', p: 500 },
          { n: 'g', p: 50 },
        ],
      },
    ],
    no: [
      {
        i: [
          { n: 'w', p: 50 },
          { n: 'g', p: 200 },
        ],
      },
    ],
  },
  'anything-but in one element with another field': {
    pattern: { u: { n: ['alice'], s: [{ 'anything-but': 'banned' }] } },
    yes: [
      {
        u: [
          { n: 'alice', s: 'active' },
          { n: 'bob', s: 'banned' },
        ],
      },
    ],
    no: [
      {
        u: [
          { n: 'alice', s: 'banned' },
          { n: 'bob', s: 'active' },
        ],
      },
    ],
  },
};

const OR: Readonly<Record<string, Case>> = {
  'one alternative suffices, beside what must hold': {
    pattern: { source: ['s'], $or: [{ a: ['x'] }, { b: ['y'], c: ['z'] }] },
    yes: [
      { source: 's', a: 'x' },
      { source: 's', b: 'y', c: 'z' },
    ],
    no: [{ source: 's' }, { source: 's', b: 'y' }, { a: 'x' }],
  },
  'alternatives of several lists combine': {
    pattern: { $or: [{ a: [1] }, { b: [1] }], d: { $or: [{ e: [1] }, { f: [1] }] } },
    yes: [
      { a: 1, d: { f: 1 } },
      { b: 1, d: { e: 1 } },
    ],
    no: [{ a: 1, b: 1 }, { d: { e: 1, f: 1 } }],
  },
  'alternatives nest': {
    pattern: { $or: [{ a: [1] }, { b: [1], $or: [{ c: [1] }, { d: { e: [1] } }] }] },
    yes: [{ a: 1 }, { b: 1, c: 1 }, { b: 1, d: { e: 1 } }],
    no: [{ b: 1 }, { c: 1 }],
  },
  'array consistency holds across alternatives': {
    pattern: { d: { n: ['x'], $or: [{ a: [1] }, { b: [1] }] } },
    yes: [
      {
        d: [
          { n: 'y', a: 1 },
          { n: 'x', b: 1 },
        ],
      },
    ],
    no: [{ d: [{ n: 'x' }, { a: 1 }, { b: 1 }] }],
  },
  'an object named $or is a field': {
    pattern: { $or: { a: [1] } },
    yes: [{ $or: { a: 1 } }],
    no: [{ a: 1 }],
  },
  'operators under $or make it a field': {
    pattern: { $or: [{ numeric: ['>', 10] }, { prefix: 'x' }] },
    yes: [{ $or: 11 }, { $or: 'xy' }],
    no: [{ $or: 9 }, { $or: 'y' }],
  },
};

for (const [group, cases] of Object.entries({
  values: VALUES,
  structure: STRUCTURE,
  arrays: ARRAYS,
  $or: OR,
}))
  describe(`event pattern, ${group}`, () => {
    for (const [name, { pattern, yes = [], no = [] }] of Object.entries(cases))
      it(name, () => {
        const compiled = compilePattern(pattern);
        assert.equal(compiled.kind, 'ok', compiled.kind === 'invalid' ? compiled.reason : '');
        if (compiled.kind !== 'ok') return;
        for (const event of yes) assert.ok(compiled.matches(event), `should match ${JSON.stringify(event)}`);
        for (const event of no)
          assert.ok(!compiled.matches(event), `should not match ${JSON.stringify(event)}`);
      });
  });

describe('event pattern, refused', () => {
  const refused: Readonly<Record<string, readonly [pattern: unknown, reason: RegExp]>> = {
    'no object': [[1], /must be an object/],
    'an empty pattern': [{}, /the pattern is an empty object/],
    'an empty object inside': [{ a: { b: {} } }, /^a\.b is an empty object/],
    'a value outside a list': [{ a: { b: 'x' } }, /^a\.b must be an object or a list of values/],
    'an empty list': [{ a: [] }, /^a is an empty list/],
    'a list inside a list': [{ a: [['x']] }, /^a holds a list inside its list/],
    'an unknown operator': [{ a: [{ regex: 'x' }] }, /^a: "regex" is no operator/],
    'two operators in one object': [
      { a: [{ prefix: 'x', suffix: 'y' }] },
      /^a must hold exactly one operator/,
    ],
    'an object without operator': [{ a: [{}] }, /exactly one operator/],
    'a path named twice': [{ a: { b: [1] }, 'a.b': [2] }, /^a\.b is named twice/],
    'a path outside and inside $or': [{ a: [1], $or: [{ a: [2] }, { b: [1] }] }, /^a is named twice/],
    'exactly a number': [{ a: [{ exactly: 33 }] }, /exactly must be a string/],
    'prefix of a number': [{ a: [{ prefix: 3 }] }, /prefix must be a string/],
    'a list of prefixes': [{ a: [{ prefix: ['x'] }] }, /prefix must be a string/],
    'prefix of another operator': [{ a: [{ prefix: { suffix: 'x' } }] }, /not "suffix"/],
    'prefix ignoring case of a number': [
      { a: [{ prefix: { 'equals-ignore-case': 5 } }] },
      /must be a string/,
    ],
    'suffix of a number': [{ a: [{ suffix: 3 }] }, /suffix must be a string/],
    'equals-ignore-case of a list': [{ a: [{ 'equals-ignore-case': ['x'] }] }, /must be a string/],
    'exists of a string': [{ a: [{ exists: 'yes' }] }, /exists must be true or false/],
    'two stars in a row': [{ a: [{ wildcard: 'a**b' }] }, /must not have two \* in a row/],
    'an escape of another character': [{ a: [{ wildcard: 'a\\b' }] }, /may escape \* and \\ only/],
    'an escape at the end': [{ a: [{ wildcard: 'a\\' }] }, /may escape \* and \\ only/],
    'wildcard of a number': [{ a: [{ wildcard: 5 }] }, /wildcard must be a string/],
    'anything-but strings and numbers': [{ a: [{ 'anything-but': ['x', 1] }] }, /one or a list of one type/],
    'anything-but nothing': [{ a: [{ 'anything-but': [] }] }, /one or a list of one type/],
    'anything-but null': [{ a: [{ 'anything-but': null }] }, /one or a list of one type/],
    'anything-but a boolean': [{ a: [{ 'anything-but': true }] }, /one or a list of one type/],
    'anything-but an empty prefix': [{ a: [{ 'anything-but': { prefix: '' } }] }, /prefix must not be empty/],
    'anything-but an empty suffix': [
      { a: [{ 'anything-but': { suffix: ['x', ''] } }] },
      /suffix must not be empty/,
    ],
    'anything-but no prefix': [{ a: [{ 'anything-but': { prefix: [] } }] }, /at least one string/],
    'anything-but a prefix of a number': [{ a: [{ 'anything-but': { prefix: 27 } }] }, /must be a string/],
    'anything-but a bad wildcard': [{ a: [{ 'anything-but': { wildcard: '**' } }] }, /two \* in a row/],
    'anything-but numeric': [
      { a: [{ 'anything-but': { numeric: ['=', 1] } }] },
      /must be a string|not "numeric"/,
    ],
    'anything-but beyond five billion': [{ a: [{ 'anything-but': 6e9 }] }, /from -5000000000 to 5000000000/],
    'numeric without a list': [{ a: [{ numeric: 5 }] }, /must be like/],
    'numeric with an unknown comparison': [{ a: [{ numeric: ['==', 1] }] }, /must be like/],
    'numeric with a method for comparison': [{ a: [{ numeric: ['toString', 1] }] }, /must be like/],
    'numeric with a string': [{ a: [{ numeric: ['>', '1'] }] }, /takes numbers/],
    'numeric without a number': [{ a: [{ numeric: ['>'] }] }, /must be like/],
    'numeric beyond five billion': [{ a: [{ numeric: ['<', 6e9] }] }, /from -5000000000/],
    'numeric upper bound first': [{ a: [{ numeric: ['<', 5, '>', 0] }] }, /must be like/],
    'numeric range upside down': [{ a: [{ numeric: ['>', 30, '<', 1] }] }, /lower bound first/],
    'numeric range of nothing': [{ a: [{ numeric: ['>', 1, '<', 1] }] }, /lower bound first/],
    'numeric range with more': [{ a: [{ numeric: ['>', 1, '<', 30, false] }] }, /must be like/],
    'cidr without bits': [{ a: [{ cidr: '10.0.0.0' }] }, /cidr must be an address block/],
    'cidr with too many bits': [{ a: [{ cidr: '10.0.0.0/33' }] }, /address block/],
    'cidr of IPv6 with too many bits': [{ a: [{ cidr: '2001:db8::/129' }] }, /address block/],
    'cidr of a name': [{ a: [{ cidr: 'foo/3' }] }, /address block/],
    'cidr with negative bits': [{ a: [{ cidr: '10.0.0.0/-3' }] }, /address block/],
    '$or with one alternative': [{ $or: [{ a: [1] }] }, /^\$or must be a list of at least two objects/],
    '$or with a wrong alternative': [{ d: { $or: [{ a: [1] }, { b: [] }] } }, /^d\.b is an empty list/],
    '$or with an empty alternative': [{ $or: [{ a: [1] }, {}] }, /empty object/],
    '$or with too many combinations': [
      {
        ...Object.fromEntries(
          ['a', 'b', 'c', 'd'].map((n) => [n, { $or: [...'12345678'].map((m) => ({ [m]: [1] })) }]),
        ),
      },
      /more than 1000 combinations/,
    ],
    'a pattern too long': [{ a: ['x'.repeat(5000)] }, /at most 4096 characters/],
    'a pattern nested without end': [
      { a: Array.from({ length: 20_000 }).reduce<unknown>((inner) => ({ b: inner }), ['x']) },
      /at most 4096 characters/,
    ],
  };
  for (const [name, [pattern, reason]] of Object.entries(refused))
    it(name, () => {
      const compiled = compilePattern(pattern);
      assert.equal(compiled.kind, 'invalid');
      if (compiled.kind === 'invalid') assert.match(compiled.reason, reason);
    });
});

it('many elements in several arrays do not multiply', () => {
  const names = ['a', 'b', 'c', 'd', 'e', 'f'];
  const pattern = Object.fromEntries(names.map((name) => [name, { x: [{ exists: true }] }]));
  const elements = Array.from({ length: 200 }, (_, x) => ({ x }));
  const event = { ...Object.fromEntries(names.map((name) => [name, elements])), z: [{ p: 1 }, { q: 1 }] };
  const compiled = compilePattern({ ...pattern, z: { p: [1], q: [1] } });
  assert.equal(compiled.kind === 'ok' && compiled.matches(event), false);
});

/** A leaf, its path, and for each array that it lies in, by JSON pointer, the element. */
interface Leaf {
  readonly path: string;
  readonly value: unknown;
  readonly elements: Readonly<Record<string, number>>;
}

function leavesOf(value: unknown, path = '', pointer = '', elements: Leaf['elements'] = {}): Leaf[] {
  if (Array.isArray(value))
    return value.flatMap((element, i) => {
      const isLeaf = element === null || typeof element !== 'object';
      return leavesOf(element, path, `${pointer}/${i}`, isLeaf ? elements : { ...elements, [pointer]: i });
    });
  if (typeof value !== 'object' || value === null) return [{ path, value, elements }];
  return Object.entries(value).flatMap(([name, child]) =>
    leavesOf(child, path === '' ? name : `${path}.${name}`, `${pointer}/${name}`, elements),
  );
}

const areTogether = (a: Leaf, b: Leaf) =>
  Object.entries(a.elements).every(([array, i]) => (b.elements[array] ?? i) === i);

/** Tries every choice of leaves, and compares all pairs. `false` wants the field absent. */
function tryAll(
  tests: readonly (readonly [string, number | false])[],
  leaves: Leaf[],
  chosen: Leaf[] = [],
): boolean {
  const [test, ...rest] = tests;
  if (test === undefined) return true;
  const [path, want] = test;
  const reachable = leaves.filter(
    (leaf) => leaf.path === path && chosen.every((other) => areTogether(leaf, other)),
  );
  if (want === false) return reachable.length === 0 && tryAll(rest, leaves, chosen);
  return reachable.some((leaf) => leaf.value === want && tryAll(rest, leaves, [...chosen, leaf]));
}

it('agrees with trying every choice of fields, in any nesting of arrays', () => {
  const { event } = fc.letrec<{ event: unknown; node: unknown }>((tie) => ({
    event: fc.dictionary(fc.constantFrom('a', 'b'), tie('node'), { minKeys: 1, maxKeys: 2 }),
    node: fc.oneof(
      { maxDepth: 4, depthSize: 'medium' },
      fc.integer({ min: 0, max: 1 }),
      fc.array(tie('node'), { maxLength: 3 }),
      fc.array(tie('event'), { minLength: 2, maxLength: 4 }),
      tie('event'),
    ),
  }));
  // Fields are picked from the event itself, so that what decides is how they lie to each other.
  const picks = fc.array(fc.record({ leaf: fc.nat(), isAbsent: fc.nat({ max: 4 }) }), {
    minLength: 2,
    maxLength: 4,
  });
  const outcomes = new Set<boolean>();
  fc.assert(
    fc.property(event, picks, (value, picked) => {
      const leaves = leavesOf(value);
      fc.pre(leaves.length > 0);
      const wanted = new Map<string, number | false>();
      for (const { leaf, isAbsent } of picked) {
        const { path, value: found } = leaves[leaf % leaves.length] ?? { path: 'a', value: 0 };
        wanted.set(path, isAbsent === 0 ? false : Number(found));
      }
      const compiled = compilePattern(
        Object.fromEntries(
          [...wanted].map(([path, want]) => [path, [want === false ? { exists: false } : want]]),
        ),
      );
      assert.ok(compiled.kind === 'ok');
      const tests = [...wanted].sort(([a], [b]) => (a < b ? -1 : 1));
      const expected = tryAll(tests, leaves);
      assert.equal(compiled.matches(value), expected);
      outcomes.add(expected);
    }),
    { numRuns: 3000 },
  );
  assert.deepEqual([...outcomes].sort(), [false, true]);
});
