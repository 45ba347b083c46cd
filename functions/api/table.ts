import { type Address, addressKey } from '../../core/address.ts';
import type { PortAnswer } from '../../core/query.ts';
import type { EpochMs } from '../../core/time.ts';
import { formatAge } from './age.ts';
import type { AnswerBody } from './answer-body.ts';
import type { FoundEndpoints } from './endpoints.ts';

/** Addresses that one cell shows. Source: kubectl get endpoints. */
const MAX_SHOWN = 3;
/** Blanks between the widest cell of a column and the next column. Source: kubectl's printers. */
const PADDING = 3;
const NONE = '<none>';

/** A row of a table. AGE passes with time, so that the ETag does not cover it. */
type Row = readonly string[];

/** Writes what `kubectl get endpoints` prints. AGE is the time since the last change. */
export function writeTable(body: AnswerBody, found: FoundEndpoints, now: EpochMs): void {
  const endpoints = found.ports.flatMap(({ addresses }) => addresses.map(endpointOf));
  writeRows(body, ['NAME', 'ENDPOINTS', 'AGE'], [[found.key.name, shorten(endpoints), ageOf(found, now)]]);
}

/** Writes a row an address, draining ones too, with what the table leaves out. */
export function writeWideTable(body: AnswerBody, found: FoundEndpoints, now: EpochMs): void {
  const age = ageOf(found, now);
  const columns = ['NAME', 'ENDPOINTS', 'AGE', 'NODE', 'ZONE', 'TARGET', 'CONDITION'];
  const rows = found.ports.flatMap(shownAddresses).map(([address, condition]) => {
    const { node, zone, target } = address;
    const targetText = target === null ? NONE : `${target.kind}/${target.name}`;
    return [found.key.name, endpointOf(address), age, node ?? NONE, zone ?? NONE, targetText, condition];
  });
  writeRows(body, columns, rows.length > 0 ? rows : [[found.key.name, NONE, age, NONE, NONE, NONE, NONE]]);
}

function ageOf({ changedAt }: FoundEndpoints, now: EpochMs): string {
  return formatAge(now - changedAt);
}

/** The tier asked for, then what else drains. */
function shownAddresses({ addresses, draining }: PortAnswer): (readonly [Address, 'ready' | 'draining'])[] {
  const drainingKeys = new Set(draining.map(addressKey));
  const ready = addresses.filter((address) => !drainingKeys.has(addressKey(address)));
  return [
    ...ready.map((address) => [address, 'ready'] as const),
    ...draining.map((address) => [address, 'draining'] as const),
  ];
}

/** `ip:port`; the IP alone of a Service without ports. */
function endpointOf(address: Address): string {
  return address.port === 0 ? address.ip : addressKey(address);
}

function shorten(endpoints: readonly string[]): string {
  if (endpoints.length === 0) return NONE;
  const shown = endpoints.slice(0, MAX_SHOWN).join(',');
  const more = endpoints.length - MAX_SHOWN;
  return more > 0 ? `${shown} + ${more} more...` : shown;
}

const AGE_COLUMN = 2;

function writeRows(body: AnswerBody, columns: Row, rows: readonly Row[]): void {
  const widths = columns.map((title, column) =>
    rows.reduce((width, row) => Math.max(width, row[column]?.length ?? 0), title.length),
  );
  for (const row of [columns, ...rows]) {
    row.forEach((cell, column) => {
      const isLast = column === row.length - 1;
      const text = isLast ? `${cell}\n` : cell.padEnd((widths[column] ?? 0) + PADDING);
      if (column === AGE_COLUMN) body.writePassing(text);
      else body.write(text);
    });
  }
}
