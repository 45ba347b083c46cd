import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { findBinaries } from './binaries.ts';

let folder = '';
before(() => {
  folder = mkdtempSync(join(tmpdir(), 'binaries-'));
});
after(() => rmSync(folder, { recursive: true }));

describe('the programs of a control plane', () => {
  test('a folder that lacks some says which, and is whole with them', async () => {
    const env = { KUBEBUILDER_ASSETS: folder };
    writeFileSync(join(folder, 'kube-apiserver'), '');
    await assert.rejects(findBinaries(env), {
      message: `KUBEBUILDER_ASSETS=${folder} has no etcd, kube-controller-manager: put it there, or unset the variable`,
    });
    for (const name of ['etcd', 'kube-controller-manager']) writeFileSync(join(folder, name), '');
    const found = await findBinaries(env);
    assert.deepEqual(
      Object.values(found),
      Object.keys(found).map((name) => join(folder, name)),
    );
  });

  test('without them and without Go there is one line that says what to install or to set, and no half binary', async () => {
    const env = { XDG_CACHE_HOME: join(folder, 'cache'), PATH: folder };
    await assert.rejects(findBinaries(env), {
      message:
        /^the cluster tests need etcd, .*: install Go to have them built, or set KUBEBUILDER_ASSETS to/,
    });
    const [version = ''] = readdirSync(join(folder, 'cache/endpoints-watcher'));
    assert.match(version, /^kube-1\.\d+\.\d+-etcd-3\.\d+\.\d+$/);
    assert.deepEqual(readdirSync(join(folder, 'cache/endpoints-watcher', version)), []);
  });
});
