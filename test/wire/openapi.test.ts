import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { jsonSchemas, openApiDocument } from '../../wire/openapi.ts';
import { honoPath, ROUTES, type Route } from '../../wire/routes.ts';

const text = JSON.stringify(openApiDocument({ version: '0.1.0', serverUrl: 'https://example.com' }));
const document = JSON.parse(text);

/** Every object inside a JSON value, with its path. */
function* objectsIn(value: unknown, path = '#'): Generator<[string, Record<string, unknown>]> {
  if (typeof value !== 'object' || value === null) return;
  if (!Array.isArray(value)) yield [path, value as Record<string, unknown>];
  for (const [key, child] of Object.entries(value)) yield* objectsIn(child, `${path}/${key}`);
}

function resolve(root: unknown, pointer: string): unknown {
  return pointer
    .slice(2)
    .split('/')
    .reduce<unknown>((value, key) => (value as Record<string, unknown> | undefined)?.[key], root);
}

describe('the OpenAPI document', () => {
  test('is OpenAPI 3.1 with title, version, server and paths', () => {
    assert.match(document.openapi, /^3\.1\.\d$/);
    assert.deepEqual(Object.keys(document).sort(), ['components', 'info', 'openapi', 'paths', 'servers']);
    assert.equal(document.info.version, '0.1.0');
    assert.equal(typeof document.info.title, 'string');
    assert.deepEqual(document.servers, [{ url: 'https://example.com' }]);
  });

  test('has every route of the table and no other', () => {
    const described = Object.entries<object>(document.paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method} ${path}`),
    );
    const served = Object.values<Route>(ROUTES).map(({ method, path }) => `${method} ${path}`);
    assert.deepEqual(described.sort(), served.sort());
  });

  test('every operation has an id of its own, answers with descriptions, and all parameters of its path', () => {
    const ids = new Set<string>();
    for (const [path, methods] of Object.entries<Record<string, Record<string, never>>>(document.paths)) {
      for (const operation of Object.values(methods)) {
        const {
          operationId,
          parameters = [],
          responses,
        } = operation as unknown as {
          operationId: string;
          parameters?: { name: string; in: string; required: boolean; schema: object }[];
          responses: Record<string, { description: string }>;
        };
        assert.equal(ids.has(operationId), false);
        ids.add(operationId);
        for (const [status, { description }] of Object.entries(responses)) {
          assert.match(status, /^[1-5]\d\d$/);
          assert.notEqual(description, '');
        }
        const inPath = parameters.filter((parameter) => parameter.in === 'path');
        assert.deepEqual(
          inPath.map(({ name }) => `{${name}}`),
          path.match(/\{\w+\}/g) ?? [],
        );
        assert.equal(
          inPath.every(({ required }) => required),
          true,
        );
        assert.equal(
          parameters.every(({ schema }) => typeof schema === 'object'),
          true,
        );
      }
    }
  });

  test('every reference resolves', () => {
    const references = [...objectsIn(document)].flatMap(([path, { $ref }]) =>
      typeof $ref === 'string' ? [{ path, $ref }] : [],
    );
    assert.notEqual(references.length, 0);
    for (const { path, $ref } of references) {
      assert.match($ref, /^#\/components\/schemas\/\w+$/, path);
      assert.notEqual(resolve(document, $ref), undefined, `${path}: ${$ref}`);
    }
  });

  test('a set refers to its addresses, and leaves room for members of a later version', () => {
    const { PortSet, ServedAddress } = document.components.schemas;
    assert.deepEqual(PortSet.properties.addresses.items, { $ref: '#/components/schemas/ServedAddress' });
    assert.deepEqual(ServedAddress.required, ['ip', 'port', 'family']);
    for (const [path, { additionalProperties }] of objectsIn(document.components.schemas))
      assert.notEqual(additionalProperties, false, path);
  });

  test('only the port of a query for deltas or the parts of a path are required', () => {
    const { parameters } = document.paths[ROUTES.getEndpoints.path].get;
    const required = parameters.filter((parameter: { required: boolean }) => parameter.required);
    assert.deepEqual(
      required.map(({ name }: { name: string }) => name),
      ['cluster', 'namespace', 'service'],
    );
  });

  test('the way callers are known is told where one is needed', () => {
    const securityOf = (auth: 'iam' | 'token' | 'none', path: string) => {
      const { paths, components } = JSON.parse(JSON.stringify(openApiDocument({ version: '1', auth })));
      return { security: paths[path].get.security, schemes: Object.keys(components.securitySchemes ?? {}) };
    };
    assert.deepEqual(securityOf('token', '/v1/clusters'), { security: [{ token: [] }], schemes: ['token'] });
    assert.deepEqual(securityOf('iam', '/healthz'), { security: [], schemes: ['iam'] });
    assert.deepEqual(securityOf('none', '/v1/clusters'), { security: undefined, schemes: [] });
  });
});

test('each detail on the bus has a JSON Schema that stands alone', () => {
  const schemas = jsonSchemas();
  assert.deepEqual(Object.keys(schemas), ['EndpointsChanged', 'NoEndpoints', 'RelayLost', 'RelayRecovered']);
  for (const schema of Object.values(schemas)) {
    assert.equal(schema.$schema, 'https://json-schema.org/draft/2020-12/schema');
    for (const [path, { $ref }] of objectsIn(JSON.parse(JSON.stringify(schema))))
      assert.equal($ref, undefined, path);
  }
});

test("a route's path can be given to Hono", () => {
  assert.equal(
    honoPath(ROUTES.getEndpoints),
    '/v1/clusters/:cluster/namespaces/:namespace/services/:service/endpoints',
  );
});
