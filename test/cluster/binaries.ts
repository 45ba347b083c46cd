import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

/** The programs of a control plane, in controller-runtime's words. */
const NAMES = ['etcd', 'kube-apiserver', 'kube-controller-manager'] as const;
export type BinaryName = (typeof NAMES)[number];

const SOURCES = new URL('control-plane/', import.meta.url).pathname;

/** Where each program is. */
export type Binaries = Readonly<Record<BinaryName, string>>;

/**
 * Finds the programs in `$KUBEBUILDER_ASSETS`, or in a cache folder, into which they are built once from their Go modules:
 * some 12 minutes on two cores.
 * @throws an Error that says what to install or to set.
 */
export async function findBinaries(env: NodeJS.ProcessEnv = process.env): Promise<Binaries> {
  const assets = env.KUBEBUILDER_ASSETS;
  if (assets !== undefined && assets !== '') {
    const missing = NAMES.filter((name) => !existsSync(join(assets, name)));
    if (missing.length === 0) return binariesIn(assets);
    throw new Error(
      `KUBEBUILDER_ASSETS=${assets} has no ${missing.join(', ')}: put it there, or unset the variable`,
    );
  }
  const kubernetes = versionOf('kube', 'k8s.io/kubernetes');
  const etcd = versionOf('etcd', 'go.etcd.io/etcd/server/v3');
  const cache = env.XDG_CACHE_HOME || join(homedir(), '.cache');
  const folder = join(cache, 'endpoints-watcher', `kube-${kubernetes}-etcd-${etcd}`);
  mkdirSync(folder, { recursive: true });
  if (!existsSync(join(folder, 'etcd'))) await build('etcd', folder, [], env);
  if (NAMES.some((name) => !existsSync(join(folder, name)))) {
    const stamp = 'k8s.io/component-base/version';
    const [major, minor] = kubernetes.split('.');
    const flags = [
      `-X ${stamp}.gitVersion=v${kubernetes}`,
      `-X ${stamp}.gitMajor=${major}`,
      `-X ${stamp}.gitMinor=${minor}`,
    ];
    await build('kube', folder, flags, env);
  }
  return binariesIn(folder);
}

function binariesIn(folder: string): Binaries {
  const paths = NAMES.map((name) => [name, join(folder, name)]);
  return Object.fromEntries(paths) as Record<BinaryName, string>;
}

/** The version that a module of ours requires: what the cache is keyed by. */
function versionOf(module: string, path: string): string {
  const text = readFileSync(join(SOURCES, module, 'go.mod'), 'utf8');
  const version = new RegExp(`^(?:require|\\t) ?${path} v(\\S+)`, 'm').exec(text)?.[1];
  if (version === undefined) throw new Error(`control-plane/${module}/go.mod requires no ${path}`);
  return version;
}

/** Builds all programs of a module; they appear whole or not at all. */
async function build(
  module: string,
  folder: string,
  flags: readonly string[],
  outer: NodeJS.ProcessEnv,
): Promise<void> {
  try {
    execFileSync('go', ['version'], { stdio: 'ignore', env: outer });
  } catch {
    throw new Error(
      `the cluster tests need ${NAMES.join(', ')}: install Go to have them built, or set KUBEBUILDER_ASSETS to a folder that has them`,
    );
  }
  process.stderr.write(`building the control plane's ${module}, once\n`);
  const parts = mkdtempSync(join(folder, 'building-'));
  try {
    const args = [
      'build',
      '-trimpath',
      '-ldflags',
      ['-s', '-w', ...flags].join(' '),
      '-o',
      `${parts}/`,
      './...',
    ];
    const env = { ...outer, CGO_ENABLED: '0', GOFLAGS: '-mod=readonly' };
    const go = spawn('go', args, { cwd: join(SOURCES, module), env, stdio: ['ignore', 'ignore', 'inherit'] });
    const [code] = (await once(go, 'exit')) as [number | null];
    if (code !== 0) throw new Error(`go ${args.join(' ')} in control-plane/${module} ended with ${code}`);
    for (const name of NAMES) {
      if (existsSync(join(parts, name))) renameSync(join(parts, name), join(folder, name));
    }
  } finally {
    rmSync(parts, { recursive: true, force: true });
  }
}
