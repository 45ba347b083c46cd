import { spawn } from 'node:child_process';
import { globSync } from 'node:fs';
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { MUTANTS, type Mutant } from './mutants.ts';

/**
 * Breaks rule after rule in copies of the project, and looks whether the quick tests of the sets notice. Arguments are
 * rules: only mutants of these are tried. Exits with 1 when a mutant survives or no longer fits the code.
 */

const ROOT = join(import.meta.dirname, '../..');
/** What the tests need of the project, beside its packages. */
const TREE = ['core', 'wire', 'functions', 'test', 'package.json', 'tsconfig.json'];
const TESTS = 'test/{core/*,functions/ingest/{intake,move-order}}.test.ts';
/** They take the longest, and are asked only where the others find nothing. */
const SLOW = /\/(cases|traces|properties)\.test\.ts$/;
/** Files that run the quick tests and the slow ones, each in one process. */
const ENTRIES = ['quick-tests.ts', 'slow-tests.ts'] as const;
/** Few runs, and for every mutant the same: what is killed once is killed always. */
const SETTINGS = { RUNS: '25', SEED: '1', ORDERS: '20' };
/** One for each core that the tests have. */
const WORKERS = 2;
/** A mutant that goes round in circles is killed after so many milliseconds; the tests take a tenth of it. */
const LIMIT_MS = 60_000;

interface Verdict {
  readonly mutant: Mutant;
  /** The first test that fails; null when none does. */
  readonly killer: string | null;
}

/** A copy of the project in a directory of its own. */
class Copy implements AsyncDisposable {
  readonly #root: string;

  private constructor(root: string) {
    this.#root = root;
  }

  static async make(): Promise<Copy> {
    const root = await mkdtemp(join(tmpdir(), 'mutants-'));
    for (const name of TREE) await cp(join(ROOT, name), join(root, name), { recursive: true });
    await symlink(join(ROOT, 'node_modules'), join(root, 'node_modules'));
    const tests = Object.groupBy(globSync(TESTS, { cwd: root }).sort(), (path) =>
      SLOW.test(path) ? 'slow-tests.ts' : 'quick-tests.ts',
    );
    for (const entry of ENTRIES) {
      const imports = tests[entry]?.map((path) => `import './${path}';\n`) ?? [];
      await writeFile(join(root, entry), imports.join(''));
    }
    return new Copy(root);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#root, { recursive: true, force: true });
  }

  /** The first test that fails, null when none does. */
  async firstFailure(): Promise<string | null> {
    for (const entry of ENTRIES) {
      const failure = await this.#firstFailureOf(entry);
      if (failure !== null) return failure;
    }
    return null;
  }

  async #firstFailureOf(entry: string): Promise<string | null> {
    const child = spawn(process.execPath, ['--test-reporter=tap', entry], {
      cwd: this.#root,
      env: { ...process.env, ...SETTINGS, NODE_COMPILE_CACHE: join(this.#root, 'compile-cache') },
      stdio: ['ignore', 'pipe', 'ignore'],
      timeout: LIMIT_MS,
      killSignal: 'SIGKILL',
    });
    const exited = new Promise<number | null>((resolve) => child.once('exit', resolve));
    let failure: string | null = null;
    for await (const line of createInterface({ input: child.stdout })) {
      failure = /^\s*not ok \d+ - (.*)/.exec(line)?.[1] ?? null;
      if (failure !== null) break;
    }
    if (failure !== null) child.kill('SIGKILL');
    const code = await exited;
    if (code === 0) return null;
    return failure ?? (code === null ? 'the tests do not end' : 'the code does not load');
  }

  async judge(mutant: Mutant): Promise<Verdict> {
    const path = join(this.#root, mutant.file);
    const source = await readFile(path, 'utf8');
    await writeFile(
      path,
      source.replace(mutant.find, () => mutant.replace),
    );
    const killer = await this.firstFailure();
    await writeFile(path, source);
    return { mutant, killer };
  }
}

/** Mutants whose text is not in the code exactly once. */
async function misfits(mutants: readonly Mutant[]): Promise<Mutant[]> {
  const found: Mutant[] = [];
  for (const mutant of mutants) {
    const source = await readFile(join(ROOT, mutant.file), 'utf8');
    if (source.split(mutant.find).length !== 2) found.push(mutant);
  }
  return found;
}

async function judgeAll(mutants: readonly Mutant[]): Promise<Verdict[]> {
  const waiting = mutants.values();
  const verdicts: Verdict[] = [];
  const work = async () => {
    await using copy = await Copy.make();
    for (const mutant of waiting) {
      const verdict = await copy.judge(mutant);
      verdicts.push(verdict);
      console.log(describe(verdict));
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, work));
  return verdicts;
}

function describe({ mutant: { rules, file, sentence }, killer }: Verdict): string {
  const outcome = killer === null ? 'SURVIVED' : `killed by: ${killer}`;
  return `${rules.join(' ')} (${file}) ${sentence}\n    ${outcome}`;
}

/** How many mutants of each rule were killed. */
function toTable(verdicts: readonly Verdict[]): string {
  const rules = [...new Set(verdicts.flatMap(({ mutant }) => mutant.rules))];
  const collator = new Intl.Collator('en', { numeric: true });
  const rows = rules.sort(collator.compare).map((rule) => {
    const own = verdicts.filter(({ mutant }) => mutant.rules.includes(rule));
    const survivors = own.filter(({ killer }) => killer === null);
    const names = survivors.map(({ mutant }) => mutant.sentence).join('; ');
    return `| ${rule} | ${own.length - survivors.length} | ${survivors.length} | ${names} |`;
  });
  return ['| rule | killed | survived | |', '|---|---|---|---|', ...rows].join('\n');
}

async function main(rules: readonly string[]): Promise<number> {
  const chosen = MUTANTS.filter(
    (mutant) => rules.length === 0 || mutant.rules.some((rule) => rules.includes(rule)),
  );
  const strangers = await misfits(chosen);
  for (const { file, sentence, find } of strangers)
    console.log(`${file}: not there exactly once, for "${sentence}":\n    ${find}`);
  if (strangers.length > 0) return 1;
  await using sound = await Copy.make();
  const failure = await sound.firstFailure();
  if (failure !== null) {
    console.log(`the tests fail without any mutant: ${failure}`);
    return 1;
  }
  const verdicts = await judgeAll(chosen);
  const survivors = verdicts.filter(({ killer }) => killer === null);
  console.log(`\n${toTable(verdicts)}\n\n${verdicts.length} mutants, ${survivors.length} survived`);
  return survivors.length > 0 ? 1 : 0;
}

process.exitCode = await main(process.argv.slice(2));
