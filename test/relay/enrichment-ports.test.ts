import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { DEFAULT_OPAQUE_PORTS, includesPort, parseOpaquePorts } from '../../relay/enrichment-ports.ts';

const NAMED = [
  { name: 'mysql', port: 3306 },
  { name: '100-200', port: 80 },
  { name: 'twice', port: 1 },
  { name: 'twice', port: 2 },
];

const cases: Record<string, { says: string; has?: number[]; lacks?: number[] }> = {
  'an empty annotation has none': { says: '', lacks: [25, 3306, 0] },
  'one number': { says: '3306', has: [3306], lacks: [3305, 3307, 33060] },
  '"3306, 665" is two ports': { says: '3306, 665', has: [3306, 665], lacks: [3307] },
  'space around a part means nothing, and a comma at the end neither': {
    says: ' 80 ,\t443,',
    has: [80, 443],
  },
  'a range has both its ends': { says: '8000-8002', has: [8000, 8001, 8002], lacks: [7999, 8003] },
  'a range of one': { says: '80-80', has: [80], lacks: [79, 81] },
  'the highest port': { says: '65535', has: [65535] },
  'a name of a container port': { says: 'mysql', has: [3306], lacks: [80] },
  'a name that two containers have is both': { says: 'twice', has: [1, 2], lacks: [3] },
  'a name that looks like a range is the name': { says: '100-200', has: [80], lacks: [100, 150] },
  "a range that is nobody's name": { says: '100-201', has: [100, 201], lacks: [80] },
  'what is nonsense leaves the other parts alone': {
    says: 'x,,80-,-1,7-5,0,65536,1-65536,8 0,+1,443',
    has: [443],
    lacks: [80, 5, 7, 0, 1, 8],
  },
  'names, numbers and ranges together': { says: 'mysql,25,90-91', has: [3306, 25, 90, 91], lacks: [26] },
};

describe('the opaque-ports annotation', () => {
  for (const [name, { says, has = [], lacks = [] }] of Object.entries(cases)) {
    test(name, () => {
      const ports = parseOpaquePorts(says);
      const included = [...has, ...lacks].filter((port) => includesPort(ports, port, NAMED));
      assert.deepEqual(included, has);
    });
  }

  test("Linkerd's defaults", () => {
    const defaults = Array.from({ length: 65_536 }, (_, port) => port).filter((port) =>
      includesPort(DEFAULT_OPAQUE_PORTS, port, []),
    );
    assert.deepEqual(defaults, [25, 587, 3306, 4444, 5432, 6379, 9300, 11211]);
  });
});
