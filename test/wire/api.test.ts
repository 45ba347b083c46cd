import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type * as z from 'zod';
import {
  endpointsQuery,
  parseQuery,
  type Query,
  servicePath,
  servicesPath,
  servicesQuery,
} from '../../wire/api.ts';
import { conflict, problem, problemDocument } from '../../wire/problem.ts';

const accepted: Record<string, { schema: z.ZodType; query: Query; value: unknown }> = {
  'endpoints without a query: the ready tier of all ports': {
    schema: endpointsQuery,
    query: {},
    value: { tier: 'ready' },
  },
  'a port is TCP unless it is named': {
    schema: endpointsQuery,
    query: { port: '80' },
    value: { port: { port: 80, protocol: 'TCP' }, tier: 'ready' },
  },
  'a port with its protocol': {
    schema: endpointsQuery,
    query: { port: '53/UDP' },
    value: { port: { port: 53, protocol: 'UDP' }, tier: 'ready' },
  },
  'S19: port 0': {
    schema: endpointsQuery,
    query: { port: '0' },
    value: { port: { port: 0, protocol: 'TCP' }, tier: 'ready' },
  },
  'S33: every filter': {
    schema: endpointsQuery,
    query: { hostname: 'web-0', node: 'n1', zone: 'a', family: 'IPv6', tier: 'effective', format: 'wide' },
    value: { hostname: 'web-0', node: 'n1', zone: 'a', family: 'IPv6', tier: 'effective', format: 'wide' },
  },
  'names that no schema knows': { schema: endpointsQuery, query: { utm: 'x' }, value: { tier: 'ready' } },
  'a list of services by default': { schema: servicesQuery, query: {}, value: { limit: 500 } },
  'a page of services': {
    schema: servicesQuery,
    query: { limit: '2', continue: 'abc', namespace: '_all' },
    value: { limit: 2, continue: 'abc', namespace: '_all' },
  },
  'all namespaces in a path': {
    schema: servicesPath,
    query: { cluster: 'prod-eu', namespace: '_all' },
    value: { cluster: 'prod-eu', namespace: '_all' },
  },
};

describe('a URL', () => {
  for (const [name, { schema, query, value }] of Object.entries(accepted))
    test(`may ask for ${name}`, () => assert.deepEqual(parseQuery(schema, query), { kind: 'ok', value }));

  const refused: Record<string, { schema: z.ZodType; query: Query; message: string }> = {
    'a port by name': {
      schema: endpointsQuery,
      query: { port: 'http' },
      message: 'port: must be a port such as 80 or 53/UDP',
    },
    'a port out of range': {
      schema: endpointsQuery,
      query: { port: '65536' },
      message: 'port: must be a port such as 80 or 53/UDP',
    },
    'a family in small letters': {
      schema: endpointsQuery,
      query: { family: 'ipv4' },
      message: 'family: must be "IPv4" or "IPv6"',
    },
    'another tier': {
      schema: endpointsQuery,
      query: { tier: 'all' },
      message: 'tier: must be "ready" or "draining" or "effective"',
    },
    'an empty zone': { schema: endpointsQuery, query: { zone: '' }, message: 'zone: must not be empty' },
    'no services': {
      schema: servicesQuery,
      query: { limit: '0' },
      message: 'limit: must be an integer from 1 to 1000',
    },
    'a limit in hexadecimal': {
      schema: servicesQuery,
      query: { limit: '0x10' },
      message: 'limit: must be an integer from 1 to 1000',
    },
    'all namespaces of one service': {
      schema: servicePath,
      query: { cluster: 'a', namespace: '_all', service: 'web' },
      message: 'namespace: must be a name of a-z, 0-9, "-" and ".", and begin and end with a letter or digit',
    },
  };
  for (const [name, { schema, query, message }] of Object.entries(refused))
    test(`may not ask for ${name}`, () => {
      const parsed = parseQuery(schema, query);
      assert.equal(parsed.kind === 'invalid' && parsed.message, message);
    });
});

describe('an error', () => {
  test('is a problem document with further members', () => {
    const body = problem(409, 'Older relay', 'Epoch 7 is over: 8 is the current one.', {
      error: 'epoch',
      current: 8,
    });
    assert.deepEqual(body, {
      type: 'about:blank',
      title: 'Older relay',
      status: 409,
      detail: 'Epoch 7 is over: 8 is the current one.',
      error: 'epoch',
      current: 8,
    });
    assert.deepEqual(problemDocument.parse(body), body);
    assert.deepEqual(conflict.parse(body), { error: 'epoch', current: 8 });
  });
});
