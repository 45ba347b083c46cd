import type { RelayDetail, RelayType } from '../../wire/delta.ts';
import type { BusEntry } from './bus.ts';

/** The bus entry that tells of a silent relay, or of the end of its silence. */
export function relayEntry(detailType: RelayType, detail: RelayDetail): BusEntry {
  return { detailType, resources: [detail.cluster], detail: JSON.stringify(detail) };
}
