import assert from 'node:assert/strict';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import type { Access } from '../../relay/connection.ts';
import { readInClusterAccess } from '../../relay/in-cluster.ts';
import { kubeconfigAccess } from '../../relay/kubeconfig.ts';

let folder = '';
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kubeconfig-'));
});
after(() => rm(folder, { recursive: true }));

const CA = Buffer.from('CA').toString('base64');

interface Parts {
  readonly cluster?: object;
  readonly user?: object | null;
  readonly current?: string | undefined;
}

async function write({
  cluster = { server: 'https://k8s/prefix' },
  user = {},
  current = 'one',
}: Parts): Promise<string> {
  const file = join(folder, `${Math.random()}.json`);
  const context = { cluster: 'c', ...(user !== null && { user: 'u' }) };
  const config = {
    clusters: [{ name: 'c', cluster }],
    users: user === null ? [] : [{ name: 'u', user }],
    contexts: [{ name: 'one', context }],
    'current-context': current,
  };
  await writeFile(file, JSON.stringify(config));
  return file;
}

async function read(parts: Parts, context: string | null = null): Promise<Access> {
  return kubeconfigAccess({ kubeconfig: await write(parts), context })('aged');
}

suite('kubeconfig', () => {
  test('a token and a CA', async () => {
    const cluster = {
      server: 'https://k8s/prefix',
      'certificate-authority-data': CA,
      'tls-server-name': 'k8s.local',
    };
    const access = await read({ cluster, user: { token: 'secret' } });
    assert.deepEqual(access, {
      server: 'https://k8s/prefix',
      tls: { ca: Buffer.from('CA'), servername: 'k8s.local' },
      proxy: null,
      headers: { authorization: 'Bearer secret' },
    });
  });

  test('a context without a user still has its CA', async () => {
    const access = await read({
      cluster: { server: 'https://k8s', 'certificate-authority-data': CA },
      user: null,
    });
    assert.deepEqual([access.tls, access.headers], [{ ca: Buffer.from('CA') }, {}]);
  });

  test('plain HTTP, as a demo cluster has it', async () => {
    assert.equal((await read({ cluster: { server: 'http://127.0.0.1:1' } })).server, 'http://127.0.0.1:1');
  });

  test('a name and password', async () => {
    const { headers } = await read({ user: { username: 'me', password: 'pw' } });
    assert.deepEqual(headers, { authorization: `Basic ${Buffer.from('me:pw').toString('base64')}` });
  });

  test("a token's file, beside the kubeconfig and before its token; it is read again each time (W12)", async () => {
    const file = await write({ user: { token: 'old', tokenFile: 'token' } });
    const readAccess = kubeconfigAccess({ kubeconfig: file, context: null });
    for (const token of ['one', 'two']) {
      await writeFile(join(folder, 'token'), `${token}\n`);
      assert.deepEqual((await readAccess('aged')).headers, { authorization: `Bearer ${token}` });
    }
    await rm(join(folder, 'token'));
    await assert.rejects(readAccess('refused'), {
      message: /^kubeconfig: tokenFile \/.*\/token of user "u" cannot be read$/,
    });
  });

  test('a proxy', async () => {
    const cluster = { server: 'https://k8s', 'proxy-url': 'http://proxy:3128' };
    assert.equal((await read({ cluster })).proxy, 'http://proxy:3128');
  });

  test('W12: a file is read again each time; an exec plugin only when its token was refused', async () => {
    const script = join(folder, 'plugin.sh');
    await writeFile(
      script,
      `#!/bin/sh\necho x >> ${folder}/runs\necho '{"status":{"token":"t'$(wc -l < ${folder}/runs)'"}}'\n`,
    );
    await chmod(script, 0o755);
    const user = { exec: { apiVersion: 'client.authentication.k8s.io/v1', command: script } };
    const readAccess = kubeconfigAccess({ kubeconfig: await write({ user }), context: null });
    const tokens: (string | undefined)[] = [];
    for (const reason of ['aged', 'aged', 'refused', 'aged'] as const) {
      tokens.push((await readAccess(reason)).headers.authorization?.replace(/\s+/g, ' '));
    }
    assert.deepEqual(tokens, ['Bearer t1', 'Bearer t1', 'Bearer t2', 'Bearer t2']);
  });

  const WRONG: Record<string, { readonly parts: Parts; readonly context?: string; readonly want: RegExp }> = {
    'a context that is not there': {
      parts: {},
      context: 'two',
      want: /^kubeconfig: no context "two"; it has: one$/,
    },
    'no current context': { parts: { current: '' }, want: /^kubeconfig: no context ""; it has: one$/ },
    'a socks proxy': {
      parts: { cluster: { server: 'https://k8s', 'proxy-url': 'socks5://p:1' } },
      want: /^kubeconfig: proxy-url socks5:\/\/p:1 is not supported/,
    },
  };
  for (const [name, { parts, context = null, want }] of Object.entries(WRONG)) {
    test(`one line: ${name}`, () => assert.rejects(read(parts, context), { message: want }));
  }

  test('one line: a file that is not there', async () => {
    const readAccess = kubeconfigAccess({ kubeconfig: '/nowhere', context: null });
    await assert.rejects(readAccess('aged'), { message: /^kubeconfig \/nowhere: ENOENT/ });
  });
});

test('inside a pod: the service account, at the address in the environment', async () => {
  await writeFile(join(folder, 'token'), 'secret\n');
  await writeFile(join(folder, 'ca.crt'), 'CA');
  const env = { KUBERNETES_SERVICE_HOST: 'fd00::1', KUBERNETES_SERVICE_PORT: '6443' };
  assert.deepEqual(await readInClusterAccess(env, folder), {
    server: 'https://[fd00::1]:6443',
    tls: { ca: Buffer.from('CA') },
    proxy: null,
    headers: { authorization: 'Bearer secret' },
  });
});
