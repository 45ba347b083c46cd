import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const LOCK_FILE = 'owner.lock';

/** Another process works in the directory. */
export class DirectoryInUseError extends Error {
  readonly directory: string;
  readonly pid: number;

  constructor(directory: string, pid: number) {
    super(`${directory} is in use by process ${pid}: end that process, or choose another directory`);
    this.name = 'DirectoryInUseError';
    this.directory = directory;
    this.pid = pid;
  }
}

/** Locks that this process holds: its own number in a file may be that of a former process. */
const held = new Set<string>();

/**
 * Makes a directory this process's own until disposal. A lock left behind by a process that is gone is taken over.
 * @throws DirectoryInUseError while another process, or this one, holds it; a file system error when it cannot be written.
 */
export function lockDirectory(directory: string): Disposable {
  mkdirSync(directory, { recursive: true });
  const file = join(directory, LOCK_FILE);
  const mine = `${file}.${process.pid}`;
  writeFileSync(mine, describeProcess(process.pid));
  try {
    while (!tryLink(mine, file)) {
      const owner = readOwner(file);
      if (owner === null) continue;
      if (held.has(file) || isRunning(owner)) throw new DirectoryInUseError(directory, parsePid(owner));
      removeStale(file, owner);
    }
  } finally {
    rmSync(mine, { force: true });
  }
  held.add(file);
  return {
    [Symbol.dispose]() {
      held.delete(file);
      rmSync(file, { force: true });
    },
  };
}

/** A hard link appears whole or not at all, so nobody reads a lock that is half written. */
function tryLink(from: string, to: string): boolean {
  try {
    linkSync(from, to);
    return true;
  } catch (error) {
    if (hasCode(error, 'EEXIST')) return false;
    throw error;
  }
}

function readOwner(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return null;
    throw error;
  }
}

/** Takes a stale lock away, unless another contender has already replaced it with its own: that one is put back. */
function removeStale(file: string, owner: string): void {
  const aside = `${file}.${process.pid}.stale`;
  try {
    renameSync(file, aside);
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return;
    throw error;
  }
  if (readOwner(aside) !== owner) tryLink(aside, file);
  rmSync(aside, { force: true });
}

/** A process number, and where the system tells it (Linux) when it started: numbers are used again. */
function describeProcess(pid: number): string {
  return `${pid} ${startOf(pid) ?? 'unknown'}`;
}

function isRunning(owner: string): boolean {
  const pid = parsePid(owner);
  if (!Number.isInteger(pid) || pid <= 0 || pid === process.pid) return false;
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (hasCode(error, 'ESRCH')) return false;
    if (!hasCode(error, 'EPERM')) throw error;
  }
  return owner === describeProcess(pid);
}

function parsePid(owner: string): number {
  return Number(owner.split(' ')[0]);
}

/** Start of a process in ticks since boot. Source: proc_pid_stat(5), field 22; the name before it may hold spaces. */
function startOf(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null;
  } catch {
    return null;
  }
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}
