import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseInventoryRequest } from '../../wire/inventory.ts';

const object = { name: 'web-abc', uid: 'u2', resourceVersion: '123' };
const named = (namespace: string, name: string, over: object = {}) => ({ namespace, name, ...over });
const page = (over: object = {}) => ({
  cluster: 'prod-eu',
  epoch: 7,
  resourceVersions: { Service: '150', EndpointSlice: '149' },
  last: true,
  services: [named('default', 'web', { uid: 'u1', resourceVersion: '120', objects: [object] })],
  ...over,
});

describe('a page of an inventory', () => {
  test('what is left out has a default', () => {
    assert.deepEqual(parseInventoryRequest(page()), {
      kind: 'ok',
      request: {
        cluster: 'prod-eu',
        clusterUid: null,
        epoch: 7,
        relay: null,
        mode: 'slices',
        id: null,
        resourceVersions: { Service: '150', EndpointSlice: '149' },
        namespaces: null,
        after: null,
        last: true,
        maxRemoved: null,
        restored: false,
        services: [
          { namespace: 'default', name: 'web', uid: 'u1', resourceVersion: '120', objects: [object] },
        ],
      },
    });
  });

  const accepted: Record<string, object> = {
    'versions by namespace': { resourceVersions: { Service: { a: '1', b: '2' }, EndpointSlice: { a: '1' } } },
    'a service that does not exist but has objects': {
      services: [named('default', 'web', { objects: [object] })],
    },
    'no services at all': { services: [] },
    'a scope, a guard and a restoration': {
      namespaces: ['a'],
      maxRemoved: 0.5,
      restored: true,
      mode: 'endpoints',
    },
    'services behind the former page': { after: named('default', 'wea') },
    'namespaces in code units: a-b before a.b before ab': {
      services: [named('a-b', 'z'), named('a.b', 'a'), named('ab', 'a')],
    },
    'a service that only a label names': { services: [named('default', 'Web_1', { objects: [object] })] },
    'members of a later version': { future: 1 },
  };
  for (const [name, over] of Object.entries(accepted))
    test(`takes ${name}`, () => {
      const parsed = parseInventoryRequest(page(over));
      assert.equal(parsed.kind, 'ok', parsed.kind === 'ok' ? '' : parsed.message);
    });

  const many = (count: number) =>
    Array.from({ length: count }, (_, index) => ({ ...object, name: `web-${index}` }));
  const refused: Record<string, { over: object; message: RegExp }> = {
    'no versions': { over: { resourceVersions: undefined }, message: /^resourceVersions: required$/ },
    'a version that is a number': {
      over: { resourceVersions: { Service: 150 } },
      message: /^resourceVersions\.Service: must be a decimal number in a string, or one per namespace$/,
    },
    'no word on whether it is the last': { over: { last: undefined }, message: /^last: required$/ },
    'a share above 1': { over: { maxRemoved: 50 }, message: /^maxRemoved: must be at most 1$/ },
    'a negative share': { over: { maxRemoved: -0.1 }, message: /^maxRemoved: must be at least 0$/ },
    'an empty scope': { over: { namespaces: [] }, message: /^namespaces: must not be empty$/ },
    'services out of order': {
      over: { services: [named('default', 'b'), named('default', 'a')] },
      message: /^services\[1\]: must sort behind services\[0\] by namespace, then name, in code units$/,
    },
    'a service named twice': {
      over: { services: [named('default', 'a'), named('default', 'a')] },
      message: /^services\[1\]: must sort behind services\[0\]/,
    },
    'a service of the former page': {
      over: { after: named('default', 'web') },
      message: /^services\[0\]: must sort behind after/,
    },
    'a uid without its version': {
      over: { services: [named('default', 'web', { uid: 'u' })] },
      message: /^services\[0\]\.resourceVersion: required beside uid$/,
    },
    'an object without uid': {
      over: { services: [named('default', 'web', { objects: [{ name: 'a', resourceVersion: '1' }] })] },
      message: /^services\[0\]\.objects\[0\]\.uid: required$/,
    },
    'more objects than a page may hold': {
      over: {
        services: [named('a', 'a', { objects: many(6000) }), named('a', 'b', { objects: many(6000) })],
      },
      message: /^services: must have at most 10000 objects together; send more pages$/,
    },
  };
  for (const [name, { over, message }] of Object.entries(refused))
    test(`refuses ${name} and names the field`, () => {
      const parsed = parseInventoryRequest(page(over));
      assert.equal(parsed.kind, 'invalid');
      assert.match(parsed.kind === 'invalid' ? parsed.message : '', message);
    });
});
