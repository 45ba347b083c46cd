import { setTimeout as wait } from 'node:timers/promises';

/** Time between two looks, and how many there are: some minutes of a busy machine. */
const LOOK_MS = 50;
const MAX_LOOKS = 1_800;

/** Looks until a check passes; its last failure is thrown. */
export async function eventually(check: () => Promise<void> | void): Promise<void> {
  for (let look = 1; ; look++) {
    try {
      return await check();
    } catch (error) {
      if (look >= MAX_LOOKS) throw error;
      await wait(LOOK_MS);
    }
  }
}
