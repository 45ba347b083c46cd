/**
 * Orders two resourceVersions of one resource type as integers of any length (S44): the longer is the larger, else code
 * units decide. Versions of different resource types do not compare.
 * @returns a negative number, zero or a positive number, as for `Array.prototype.sort`.
 */
export function compareVersions(a: string, b: string): number {
  const left = withoutLeadingZeros(a);
  const right = withoutLeadingZeros(b);
  if (left.length !== right.length) return left.length - right.length;
  return left < right ? -1 : left > right ? 1 : 0;
}

function withoutLeadingZeros(version: string): string {
  return version.startsWith('0') ? version.replace(/^0+(?=\d)/, '') : version;
}
