import { readdirSync, readFileSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { loadCases } from './cases.ts';

/** A test that says which rules it proves. */
export interface NamingTest {
  /** Path from here. */
  readonly file: string;
  readonly title: string;
}

const ROOT = import.meta.dirname;
/** Number of rules by their letter: sets, watching, pipeline, faults of the reference. */
const COUNTS = { S: 47, W: 19, P: 8, L: 43 } as const;
/** A comment, or a text; one that a colon or a comma follows is a title: the key of a table or the first argument. */
const LITERAL =
  /\/\/.*|\/\*[\s\S]*?\*\/|(?<text>'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`)(?=(?<title>\s*[:,])?)/g;
/** `S12`, or all from `S17-S21`. */
const RULE = /\b(?<letter>[SWPL])(?<first>\d{1,2})(?:[-–](?:\k<letter>)?(?<last>\d{1,2}))?(?!\d)/g;

/** All rules, in order. */
export const RULES: readonly string[] = Object.entries(COUNTS).flatMap(([letter, count]) =>
  Array.from({ length: count }, (_, index) => `${letter}${index + 1}`),
);

/** The tests that name each rule: in their title, or in the list of a story. */
export function testsByRule(): ReadonlyMap<string, readonly NamingTest[]> {
  const tests = new Map<string, NamingTest[]>(RULES.map((rule) => [rule, []]));
  for (const { name: title, rules, file } of loadCases())
    for (const rule of rules) tests.get(rule)?.push({ file: `cases/${file}`, title });
  for (const file of testFiles())
    for (const title of titlesIn(readFileSync(join(ROOT, file), 'utf8')))
      for (const rule of rulesIn(title)) tests.get(rule)?.push({ file, title });
  return tests;
}

function testFiles(): string[] {
  return readdirSync(ROOT, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)).replaceAll(sep, '/'))
    .filter((file) => !file.startsWith('mutants/') && file !== 'rules.ts')
    .sort();
}

function titlesIn(source: string): string[] {
  return [...source.matchAll(LITERAL)]
    .filter(({ groups }) => groups?.title !== undefined)
    .map(({ groups }) => groups?.text?.slice(1, -1) ?? '');
}

function rulesIn(title: string): Set<string> {
  const rules = [...title.matchAll(RULE)].flatMap(({ groups }) => {
    const { letter, first, last = first } = groups ?? {};
    const length = Math.max(0, Number(last) - Number(first) + 1);
    return [...new Array(length).keys()].map((index) => `${letter}${Number(first) + index}`);
  });
  return new Set(rules);
}

function toMarkdown(tests: ReadonlyMap<string, readonly NamingTest[]>): string {
  const cellOf = (text: string) => text.replaceAll('\n', ' ').replaceAll('|', '\\|');
  const rows = [...tests].map(([rule, naming]) => {
    const cells = naming.map(({ file, title }) => `\`${file}\` ${cellOf(title)}`);
    return `| ${rule} | ${naming.length} | ${cells.join('<br>')} |`;
  });
  return ['| rule | | tests that name it |', '|---|---|---|', ...rows].join('\n');
}

if (import.meta.main) process.stdout.write(`${toMarkdown(testsByRule())}\n`);
