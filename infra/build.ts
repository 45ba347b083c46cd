/**
 * Bundles what is deployed into dist/: each function and the relay into one file, dependencies included. Prints the sizes
 * and fails when a function is over its budget, since each cold start loads, and bills, every byte.
 */
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { type BuildOptions, build } from 'esbuild';

const ROOT = join(import.meta.dirname, '..');
const DIST = join(ROOT, 'dist');

const FUNCTIONS = ['ingest', 'api', 'sweep'];
/** Largest minified function, in bytes. One with both SDK clients, Hono and schemas has 430,000: a slip is seen. */
const FUNCTION_BUDGET = 500_000;

/** CommonJS packages inside an ES module ask for built-in modules by `require`. */
const REQUIRE =
  "import{createRequire as __createRequire}from'node:module';const require=__createRequire(import.meta.url);";

const BUNDLE: BuildOptions = {
  absWorkingDir: ROOT,
  bundle: true,
  minify: true,
  platform: 'node',
  target: 'node24',
  format: 'esm',
  // The SDK's ES modules can be shaken; its CommonJS, which platform `node` would take, cannot.
  mainFields: ['module', 'main'],
  banner: { js: REQUIRE },
  legalComments: 'none',
  logLevel: 'warning',
};

/** What functions load otherwise than the relay, which finds credentials wherever a cluster has them. */
const ON_LAMBDA: BuildOptions = {
  alias: { '@aws-sdk/credential-provider-node': './infra/lambda-credentials.ts' },
};

/** Bundles one entry and prints its size. @returns the size in bytes. */
async function bundle(entry: string, options: BuildOptions = {}): Promise<number> {
  const outfile = join(DIST, entry.replace(/\.ts$/, '.mjs'));
  await build({ ...BUNDLE, ...options, entryPoints: [entry], outfile });
  const bytes = await readFile(outfile);
  console.log(`${entry}: ${bytes.byteLength} bytes, ${gzipSync(bytes).byteLength} gzipped`);
  return bytes.byteLength;
}

await rm(DIST, { recursive: true, force: true });
for (const name of FUNCTIONS) {
  const size = await bundle(`functions/${name}/handler.ts`, ON_LAMBDA);
  if (size > FUNCTION_BUDGET) {
    console.error(
      `functions/${name} is over its ${FUNCTION_BUDGET} bytes: find the dependency that slipped in`,
    );
    process.exitCode = 1;
  }
}
await bundle('relay/main.ts');
