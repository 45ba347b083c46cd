import { type DeltaDetail, deltaDetail } from '../../wire/delta.ts';
import type { BusEntry } from './bus.ts';

/** How what happens is shown on stdout. */
export interface Printer {
  /** Everything listens at `url`. */
  ready(url: string): void;
  entry(entry: BusEntry): void;
}

export interface PrinterOptions {
  readonly json: boolean;
  readonly quiet: boolean;
  /** Colour, for a terminal. */
  readonly isColoured: boolean;
  readonly write: (line: string) => void;
}

/** One line an event: JSON for programs, a summary for people. */
export function createPrinter({ json, quiet, isColoured, write }: PrinterOptions): Printer {
  if (json) {
    return {
      ready: (url) => write(JSON.stringify({ ready: true, url })),
      entry: (entry) => {
        if (!quiet) write(JSON.stringify(entry));
      },
    };
  }
  return {
    ready: (url) => {
      write(`endpoints-watcher at ${url}`);
      if (!quiet)
        write(
          `  the current endpoints: curl '${url}/v1/clusters'; metrics: ${url}/metrics; API: ${url}/openapi.json`,
        );
    },
    entry: (entry) => {
      if (!quiet) write(describeEntry(entry, isColoured));
    },
  };
}

const COLOURS = { added: 32, removed: 31, updated: 33, faint: 2 } as const;

function describeEntry({ time, detailType, resources, detail }: BusEntry, isColoured: boolean): string {
  const paint = (colour: keyof typeof COLOURS, text: string) =>
    isColoured ? `\u001b[${COLOURS[colour]}m${text}\u001b[0m` : text;
  const clockTime = paint('faint', time.slice(11, 23));
  const delta = deltaDetail.safeParse(detail);
  if (!delta.success) return `${clockTime} ${resources.join(' ')} ${detailType}`;
  const { namespace, service, port, protocol, added, removed, updated } = delta.data;
  const name = `${namespace}/${service}:${port}${protocol === 'TCP' ? '' : `/${protocol}`}`;
  const counts = [
    paint('added', `+${added.length}`),
    paint('removed', `−${removed.length}`),
    paint('updated', `~${updated.length}`),
  ];
  return `${clockTime} ${name.padEnd(32)} ${counts.join(' ')}  ${describeSize(delta.data)}  ${paint('faint', describeCause(delta.data))}`;
}

function describeSize({ exists, size, part }: DeltaDetail): string {
  const pieces = part === undefined ? '' : ` (part ${part.index + 1} of ${part.count})`;
  if (!exists) return `service gone${pieces}`;
  return `${size === 0 ? 'no endpoints' : `${size} endpoint${size === 1 ? '' : 's'}`}${pieces}`;
}

function describeCause({ cause, removed }: DeltaDetail): string {
  const reasons = [...new Set(removed.map(({ reason }) => reason))];
  const why = reasons.length === 0 ? '' : ` (${reasons.join(', ')})`;
  return `${cause.kind} ${cause.name} ${cause.type}${why}`;
}
