import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import * as z from 'zod';

const ROOT = join(import.meta.dirname, '../..');
const BIOME = join(ROOT, 'node_modules/@biomejs/biome/bin/biome');

/** A statement in a file of a folder, and whether the linter lets it stand. */
interface Case {
  readonly in: string;
  readonly statement: string;
  /** Name of the file, where a rule is about that one; else one that is made of the sentence. */
  readonly file?: string;
  readonly want: 'allowed' | 'refused';
}

function allowed(folder: string, statement: string): Case {
  return { in: folder, statement, want: 'allowed' };
}

function refused(folder: string, statement: string): Case {
  return { in: folder, statement, want: 'refused' };
}

const CASES: Readonly<Record<string, Case>> = {
  'core imports itself': allowed('core', "import { a } from './time.ts';"),
  'core does not import wire': refused('core', "import { a } from '../wire/log.ts';"),
  'core does not import types either': refused('core', "import type { A } from '../wire/log.ts';"),
  'core does not re-export from outside': refused('core', "export { a } from '../wire/log.ts';"),
  'core does not import on demand': refused('core', "export const a = import('../wire/log.ts');"),
  'core does not go out by its own folder': refused('core', "import { a } from './sub/../../wire/log.ts';"),
  'core does not import node:*': refused('core', "import { a } from 'node:crypto';"),
  'core does not import packages': refused('core', "import { a } from 'hono';"),
  'core does not import scoped packages': refused('core', "import { a } from '@smithy/signature-v4';"),

  'wire imports core': allowed('wire', "import { a } from '../core/time.ts';"),
  'wire imports node:* and packages': allowed('wire', "import { a } from 'node:crypto';"),
  'wire does not import functions': refused('wire', "import { a } from '../functions/store/store.ts';"),
  'wire does not import relay': refused('wire', "import { a } from '../relay/queue.ts';"),

  'store imports core': allowed('functions/store', "import { a } from '../../core/time.ts';"),
  'store imports wire': allowed('functions/store', "import { a } from '../../wire/log.ts';"),
  'store does not import bus': refused('functions/store', "import { a } from '../bus/bus.ts';"),
  'store does not import use cases': refused('functions/store', "import { a } from '../services/fence.ts';"),
  'store does not import http': refused('functions/store', "import { a } from '../http/body.ts';"),
  'bus imports store': allowed('functions/bus', "import { a } from '../store/store.ts';"),
  'bus does not import use cases': refused('functions/bus', "import { a } from '../services/fence.ts';"),
  'bus does not import http': refused('functions/bus', "import { a } from '../http/body.ts';"),

  'use cases import store': allowed('functions/services', "import { a } from '../store/store.ts';"),
  'use cases import bus': allowed('functions/services', "import { a } from '../bus/bus.ts';"),
  'use cases do not know HTTP': refused('functions/services', "import { a } from '../http/body.ts';"),
  'use cases do not import ingest': refused('functions/services', "import { a } from '../ingest/app.ts';"),

  'http imports store': allowed('functions/http', "import { a } from '../store/store.ts';"),
  'http does not import use cases': refused(
    'functions/http',
    "import { a } from '../services/publication.ts';",
  ),
  'http does not import api': refused('functions/http', "import { a } from '../api/app.ts';"),
  'http does not import relay': refused('functions/http', "import { a } from '../../relay/queue.ts';"),

  'environment imports http': allowed('functions/environment', "import { a } from '../http/body.ts';"),
  'environment does not import api': refused('functions/environment', "import { a } from '../api/app.ts';"),

  'sweep imports environment': allowed('functions/sweep', "import { a } from '../environment/settings.ts';"),

  'ingest imports http': allowed('functions/ingest', "import { a } from '../http/body.ts';"),
  'ingest imports store': allowed('functions/ingest', "import { a } from '../store/store.ts';"),
  'api imports the version of its release': allowed(
    'functions/api',
    "import a from '../../package.json' with { type: 'json' };",
  ),
  'ingest does not import api': refused('functions/ingest', "import { a } from '../api/app.ts';"),
  'api does not import ingest': refused('functions/api', "import { a } from '../ingest/app.ts';"),
  'api does not import sweep': refused('functions/api', "import { a } from '../sweep/sweep.ts';"),
  'sweep does not import ingest': refused('functions/sweep', "import { a } from '../ingest/app.ts';"),
  'sweep does not import relay': refused('functions/sweep', "import { a } from '../../relay/queue.ts';"),

  'relay imports core': allowed('relay', "import { a } from '../core/time.ts';"),
  'relay imports wire': allowed('relay', "import { a } from '../wire/log.ts';"),
  'relay imports packages': allowed('relay', "import { a } from '@kubernetes/client-node';"),
  'relay does not import functions': refused('relay', "import { a } from '../functions/store/store.ts';"),
  'relay does not import cli': refused('relay', "import { a } from '../cli/main.ts';"),
  'cli imports wire': allowed('cli', "import { a } from '../wire/api.ts';"),
  'cli imports the version of its release': allowed(
    'cli',
    "import a from '../package.json' with { type: 'json' };",
  ),
  'cli does not import relay': refused('cli', "import { a } from '../relay/queue.ts';"),
  'cli does not import functions': refused('cli', "import { a } from '../functions/store/store.ts';"),
  'an operator command imports functions': {
    ...allowed(
      'cli',
      "import { a } from '../functions/services/dead-letters.ts';\nimport { b } from './command.ts';",
    ),
    file: 'replay',
  },

  'functions do not import the laptop stack': refused(
    'functions/ingest',
    "import { a } from '../../infra/local/bus.ts';",
  ),
  'relay does not import the laptop stack': refused('relay', "import { a } from '../infra/local/bus.ts';"),
  'relay does not import tests': refused('relay', "import { a } from '../test/relay/builders.ts';"),
  'cli does not import benches': refused('cli', "import { a } from '../bench/sizes.ts';"),
  'the build does not import the laptop stack': refused('infra', "import { a } from './local/bus.ts';"),
  'the build does not import tests': refused('infra', "import { a } from '../test/relay/builders.ts';"),
  'the laptop stack imports functions': allowed(
    'infra/local',
    "import { a } from '../../functions/ingest/app.ts';",
  ),
  'the laptop stack imports relay': allowed(
    'infra/local/cluster',
    "import { a } from '../../../relay/queue.ts';",
  ),
  'tests import the laptop stack': allowed('test/system', "import { a } from '../../infra/local/stack.ts';"),
  'benches import functions': allowed('bench', "import { a } from '../functions/store/packing.ts';"),

  'zod is imported as a namespace': allowed('wire', "import * as z from 'zod';"),
  'types of zod too': allowed('wire', "import type * as z from 'zod';"),
  'zod is not imported by name': refused('wire', "import { z } from 'zod';"),
  'types of zod are not either': refused('functions/http', "import type { ZodType } from 'zod';"),
  'zod has no default import': refused('functions/ingest', "import z from 'zod';"),
  'zod is not imported by name in tests': refused('test/wire', "import { z } from 'zod';"),
  'zod is not imported by name in the laptop stack': refused('infra/local', "import { z } from 'zod';"),
};

/** The part of a report that names a file. Source: Reviewdog Diagnostic Format. */
const report = z.object({
  diagnostics: z.array(z.object({ location: z.object({ path: z.string() }) })),
});

let tree: string;
let refusals: ReadonlySet<string>;

/** Where the statement of a case is written: each in a file of its own. */
function fileOf(name: string): string {
  const { in: folder, file = name.replaceAll(/[^a-z]+/gi, '-') } = CASES[name] as Case;
  return `${folder}/${file}.ts`;
}

before(async () => {
  tree = await mkdtemp(join(tmpdir(), 'import-direction-'));
  await copyFile(join(ROOT, 'biome.json'), join(tree, 'biome.json'));
  for (const [name, { statement }] of Object.entries(CASES)) {
    const path = join(tree, fileOf(name));
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, `${statement}\n`);
  }
  const { diagnostics } = report.parse(JSON.parse(await lint(tree)));
  refusals = new Set(diagnostics.map(({ location }) => location.path));
});

after(() => rm(tree, { recursive: true, force: true }));

/** What the project's own rule says of a tree, all of it. It exits with 1 when it refuses something. */
function lint(cwd: string): Promise<string> {
  const rule = ['--only=style/noRestrictedImports', '--vcs-enabled=false'];
  const output = ['--max-diagnostics=none', '--reporter=rdjson'];
  return new Promise((resolve) => {
    execFile(process.execPath, [BIOME, 'lint', '.', ...rule, ...output], { cwd }, (_error, stdout) =>
      resolve(stdout),
    );
  });
}

for (const [name, { want }] of Object.entries(CASES)) {
  test(name, () => {
    assert.equal(refusals.has(fileOf(name)) ? 'refused' : 'allowed', want);
  });
}
