import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { DirectoryInUseError, lockDirectory } from '../../../infra/local/directory-lock.ts';
import { startChild } from './child.ts';

describe('directory lock', () => {
  let directory = '';
  beforeEach(() => {
    directory = join(mkdtempSync(join(tmpdir(), 'lock-')), 'inner');
  });
  afterEach(() => rmSync(join(directory, '..'), { recursive: true }));

  const holder = `
    import { lockDirectory } from '${import.meta.resolve('../../../infra/local/directory-lock.ts')}';
    lockDirectory(process.argv[1]);
    console.log('locked');
    setInterval(() => {}, 1000);`;

  it('makes the directory, and leaves nothing in it', () => {
    lockDirectory(directory)[Symbol.dispose]();
    assert.deepEqual(readdirSync(directory), []);
  });

  it('is held once, also within a process, until it is disposed of', () => {
    {
      using _lock = lockDirectory(directory);
      assert.throws(() => lockDirectory(directory), DirectoryInUseError);
    }
    using _again = lockDirectory(directory);
  });

  it('of a living process is respected, and the error names directory and process', async () => {
    await using child = await startChild(holder, directory);
    assert.throws(() => lockDirectory(directory), {
      name: 'DirectoryInUseError',
      message: `${directory} is in use by process ${child.pid}: end that process, or choose another directory`,
    });
  });

  it('of a killed process is taken over', async () => {
    const child = await startChild(holder, directory);
    child.kill();
    await child.ended;
    using _lock = lockDirectory(directory);
  });

  const stale: Readonly<Record<string, string>> = {
    'of a former process with the number of this one': `${process.pid} 1`,
    'of a former process with the number of another one': `${process.ppid} 1`,
    'that is empty': '',
    'that is no lock': 'hello',
  };
  for (const [name, owner] of Object.entries(stale))
    it(`${name} is taken over`, () => {
      lockDirectory(directory)[Symbol.dispose]();
      writeFileSync(join(directory, 'owner.lock'), owner);
      using _lock = lockDirectory(directory);
      assert.deepEqual(readdirSync(directory), ['owner.lock']);
    });
});
