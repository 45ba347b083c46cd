import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ServiceCache } from '../../../functions/services/service-cache.ts';

const keyOf = (n: number) => ({ cluster: 'prod-eu', namespace: 'default', name: `web-${n}` });

/** A cache of so many bytes that has seen services 0 to `count` - 1, none of which has any object left. */
function cacheOf(maxBytes: number, count: number) {
  const cache = new ServiceCache(maxBytes);
  const services = [...new Array(count).keys()].map((n) => {
    const service = cache.get(keyOf(n));
    cache.settle(keyOf(n));
    return service;
  });
  return { cache, services };
}

describe('services that come and go do not stay in memory (L41)', () => {
  test('of a thousand without objects the oldest are forgotten', () => {
    const { cache, services } = cacheOf(100_000, 1000);
    assert.equal(cache.get(keyOf(999)), services[999]);
    assert.notEqual(cache.get(keyOf(0)), services[0]);
  });
  test('one of which only the receipts were asked for counts too, as a sweep does of all', () => {
    const cache = new ServiceCache(100_000);
    const first = cache.get(keyOf(0));
    for (let n = 1; n < 1000; n++) cache.get(keyOf(n));
    assert.notEqual(cache.get(keyOf(0)), first);
  });
  test('within the bound they are kept', () => {
    const { cache, services } = cacheOf(1_000_000, 10);
    assert.deepEqual(
      services.map((service, n) => service === cache.get(keyOf(n))),
      services.map(() => true),
    );
  });
  test('the one in use stays, however small the bound', () => {
    const { cache, services } = cacheOf(1, 3);
    assert.equal(cache.get(keyOf(2)), services[2]);
    assert.notEqual(cache.get(keyOf(1)), services[1]);
  });
});
