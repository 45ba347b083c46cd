import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { describe, test } from 'node:test';
import { deltaDetail } from '../../wire/delta.ts';

const MAIN = new URL('../../infra/local/main.ts', import.meta.url).pathname;

/** A process of `npm start`, and its stdout line by line. */
function start(...flags: string[]) {
  const child = spawn(process.execPath, [MAIN, ...flags], { stdio: ['ignore', 'pipe', 'pipe'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const nextLine = async () => (await lines.next()).value as string;
  const stderr = (async () => {
    let text = '';
    for await (const chunk of child.stderr) text += chunk;
    return text;
  })();
  const exited = once(child, 'exit').then(([code]) => code as number | null);
  return { child, nextLine, stderr, exited };
}

describe('npm start', () => {
  test('--json says first where it listens, then each delta of the demo cluster, and a signal ends it with 0', async () => {
    const { child, nextLine, exited } = start('--json', '--port', '0');
    const ready = JSON.parse(await nextLine());
    assert.equal(ready.ready, true);
    assert.match(ready.url, /^http:\/\/127\.0\.0\.1:\d+$/);
    const entry = JSON.parse(await nextLine());
    const detail = deltaDetail.parse(entry.detail);
    assert.equal(detail.cluster, 'demo');
    const answer = await fetch(
      `${ready.url}/v1/clusters/demo/namespaces/${detail.namespace}/services/${detail.service}/endpoints`,
    );
    assert.equal(answer.status, 200);
    const health = await fetch(`${ready.url}/readyz`);
    assert.equal(health.status, 200);
    child.kill('SIGTERM');
    assert.equal(await exited, 0);
  });

  test('the demo cluster is told in Endpoints mode too', async () => {
    const { child, nextLine, exited } = start('--json', '--port', '0', '--mode', 'endpoints');
    await nextLine();
    const { detail } = JSON.parse(await nextLine());
    assert.match(detail.cause.kind, /^(Service|Endpoints)$/);
    child.kill('SIGINT');
    assert.equal(await exited, 0);
  });

  const mistakes: Record<string, { flags: string[]; says: RegExp }> = {
    'an unknown flag': { flags: ['--prot', '1'], says: /^.*'--prot'.*--help.*\n$/ },
    'a flag whose value looks like a flag': {
      flags: ['--port', '-1'],
      says: /^Option '--port' argument is ambiguous; --help lists the flags\n$/,
    },
    'a port that is no number': { flags: ['--port', 'http'], says: /^--port: must be a whole number.*\n$/ },
    'a cluster of no known kind': {
      flags: ['--cluster', 'mine'],
      says: /^--cluster: must be demo, none or kubeconfig\n$/,
    },
    'a kubeconfig that cannot be read': {
      flags: ['--cluster', 'kubeconfig', '--kubeconfig', '/nonexistent', '--port', '0'],
      says: /^kubeconfig \/nonexistent: .*\n$/,
    },
    'Servers without pods': {
      flags: ['--enrich', 'servers'],
      says: /^--enrich: servers say something of pods alone: write pods,servers\n$/,
    },
    'a kubeconfig without a use': {
      flags: ['--kubeconfig', 'x'],
      says: /^--kubeconfig: only with --cluster kubeconfig\n$/,
    },
  };
  for (const [name, { flags, says }] of Object.entries(mistakes)) {
    test(`${name} is one clear line and exit 2`, async () => {
      const { exited, stderr } = start(...flags);
      assert.equal(await exited, 2);
      assert.match(await stderr, says);
    });
  }

  test('a port in use is one clear line and exit 2', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    const { exited, stderr } = start('--cluster', 'none', '--port', `${port}`);
    assert.equal(await exited, 2);
    assert.equal(await stderr, `--port: ${port} is in use; choose another, or 0 for any\n`);
    server.close();
  });
});
