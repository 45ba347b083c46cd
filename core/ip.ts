import type { Family } from './address.ts';

/** A canonical IP and its family. */
export interface Ip {
  readonly ip: string;
  readonly family: Family;
}

const IPV4_OCTET = /^(?:0|[1-9]\d{0,2})$/;
const IPV6_GROUP = /^[0-9a-f]{1,4}$/;
const IPV6_GROUPS = 8;

/**
 * The canonical form of an IP (S14): dotted IPv4, or IPv6 lower-case and compressed as RFC 5952 says.
 * @returns null for what Kubernetes calls ambiguous or has no meaning in a slice: leading zeros in IPv4, IPv4-mapped
 * IPv6, a zone, and anything that is no IP.
 */
export function canonicalIp(text: string): Ip | null {
  if (!text.includes(':')) return isIpv4(text) ? { ip: text, family: 'IPv4' } : null;
  const groups = parseIpv6(text.toLowerCase());
  if (groups === null || isIpv4Mapped(groups)) return null;
  return { ip: formatIpv6(groups), family: 'IPv6' };
}

function isIpv4(text: string): boolean {
  const octets = text.split('.');
  return octets.length === 4 && octets.every((octet) => IPV4_OCTET.test(octet) && Number(octet) <= 255);
}

function parseIpv6(text: string): number[] | null {
  const halves = text.split('::');
  if (halves.length > 2) return null;
  const head = parseGroups(halves[0] ?? '', halves.length === 1);
  const tail = parseGroups(halves[1] ?? '', true);
  if (head === null || tail === null) return null;
  if (halves.length === 1) return head.length === IPV6_GROUPS ? head : null;
  const missing = IPV6_GROUPS - head.length - tail.length;
  if (missing < 1) return null;
  return [...head, ...new Array<number>(missing).fill(0), ...tail];
}

/** Groups of one half of an IPv6 text; only the end of the whole address may be written as dotted IPv4. */
function parseGroups(half: string, mayEndInIpv4: boolean): number[] | null {
  if (half === '') return [];
  const groups: number[] = [];
  const parts = half.split(':');
  for (const [index, part] of parts.entries()) {
    if (IPV6_GROUP.test(part)) {
      groups.push(Number.parseInt(part, 16));
    } else if (mayEndInIpv4 && index === parts.length - 1 && isIpv4(part)) {
      const [a = 0, b = 0, c = 0, d = 0] = part.split('.').map(Number);
      groups.push(a * 256 + b, c * 256 + d);
    } else {
      return null;
    }
  }
  return groups;
}

function isIpv4Mapped(groups: readonly number[]): boolean {
  return groups[5] === 0xffff && groups.slice(0, 5).every((group) => group === 0);
}

/** RFC 5952: the first longest run of two or more zero groups becomes `::`. */
function formatIpv6(groups: readonly number[]): string {
  let best = { start: -1, length: 1 };
  let start = 0;
  for (let end = 0; end <= groups.length; end++) {
    if (groups[end] === 0) continue;
    if (end - start > best.length) best = { start, length: end - start };
    start = end + 1;
  }
  const hex = groups.map((group) => group.toString(16));
  if (best.start < 0) return hex.join(':');
  return `${hex.slice(0, best.start).join(':')}::${hex.slice(best.start + best.length).join(':')}`;
}
