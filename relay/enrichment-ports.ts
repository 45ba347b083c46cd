/** Annotation of pods and Services. Source: linkerd2, `pkg/k8s/labels.go`. */
export const OPAQUE_PORTS = 'config.linkerd.io/opaque-ports';

/** A port of a container, by its name. */
export interface NamedPort {
  readonly name: string;
  readonly port: number;
  /** The node's port that leads to it; null when there is none. */
  readonly hostPort: number | null;
}

/** One part of the annotation: a range of numbers, or a name, or what may be either, such as `123-456`. */
interface OpaquePart {
  readonly text: string;
  readonly range: { readonly first: number; readonly last: number } | null;
}

/** What the annotation says; no part at all: no port is opaque. */
export type OpaquePorts = readonly OpaquePart[];

const MAX_PORT = 65_535;

/**
 * Reads `3306, 665, 8000-8080, mysql`: numbers, ranges and names of container ports, joined by commas. What is none of these
 * is the name of no port. Source: linkerd2, `pkg/util/parsing.go`.
 */
export function parseOpaquePorts(annotation: string): OpaquePorts {
  const texts = annotation.split(',').map((part) => part.trim());
  return texts.filter((text) => text !== '').map((text) => ({ text, range: parseRange(text) }));
}

/** Ports of protocols in which the server speaks first; they are opaque where no annotation speaks. Source: as Linkerd's chart has them. */
export const DEFAULT_OPAQUE_PORTS = parseOpaquePorts('25,587,3306,4444,5432,6379,9300,11211');

/** Is a port among them? A part that is the name of a port means that port, whatever range it may look like. */
export function includesPort(
  parts: OpaquePorts,
  port: number,
  named: readonly Pick<NamedPort, 'name' | 'port'>[],
): boolean {
  return parts.some(({ text, range }) => {
    const namesakes = named.filter(({ name }) => name === text);
    if (namesakes.length > 0) return namesakes.some((namesake) => namesake.port === port);
    return range !== null && range.first <= port && port <= range.last;
  });
}

function parseRange(text: string): OpaquePart['range'] {
  const [, first = '', last = first] = /^(\d+)(?:-(\d+))?$/.exec(text) ?? [];
  const range = { first: Number(first), last: Number(last) };
  return range.first >= 1 && range.first <= range.last && range.last <= MAX_PORT ? range : null;
}
