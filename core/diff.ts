import { type Address, type AddressKey, addressKey, compareText } from './address.ts';
import { equalAddresses, type Occurrence, type Occurrences } from './address-set.ts';
import type { UpdatedAddress } from './delta.ts';

/** What a published set gained and lost; each list sorted by key. No key is in two of them (S4). */
export interface Difference {
  readonly added: readonly Address[];
  readonly updated: readonly UpdatedAddress[];
  readonly removed: readonly Address[];
}

/** Compares the ready addresses of two states of one service port (S5, S26). */
export function diffOccurrences(before: Occurrences, after: Occurrences): Difference {
  const added: Address[] = [];
  const updated: UpdatedAddress[] = [];
  const removed: Address[] = [];
  for (const [key, occurrence] of after) {
    if (occurrence.condition !== 'ready') continue;
    const former = readyAt(before, key);
    if (former === null) added.push(occurrence.address);
    else if (!equalAddresses(former.address, occurrence.address)) {
      updated.push({ address: occurrence.address, former: former.address });
    }
  }
  for (const [key, occurrence] of before) {
    if (occurrence.condition === 'ready' && readyAt(after, key) === null) removed.push(occurrence.address);
  }
  return {
    added: added.sort(byKey),
    updated: updated.sort((a, b) => byKey(a.address, b.address)),
    removed: removed.sort(byKey),
  };
}

/** Did nothing change? */
export function isEmptyDifference({ added, updated, removed }: Difference): boolean {
  return added.length === 0 && updated.length === 0 && removed.length === 0;
}

function readyAt(occurrences: Occurrences, key: AddressKey): Occurrence | null {
  const occurrence = occurrences.get(key);
  return occurrence?.condition === 'ready' ? occurrence : null;
}

/** Orders addresses by key in code units (S6). */
export function byKey(a: Address, b: Address): number {
  return compareText(addressKey(a), addressKey(b));
}
