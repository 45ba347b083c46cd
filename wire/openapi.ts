import * as z from 'zod';
import { publishedAddress } from './address.ts';
import {
  clusterDeletionAnswer,
  clusterSummary,
  clustersAnswer,
  endpointsAnswer,
  healthAnswer,
  portSet,
  portSets,
  servedAddress,
  serviceSummary,
  servicesAnswer,
  subscriptionAnswer,
  subscriptionRequest,
} from './api.ts';
import { type DetailType, deltaDetail, relayDetail } from './delta.ts';
import { eventsAnswer, watchEvent } from './events.ts';
import { heartbeatAnswer, heartbeatRequest } from './heartbeat.ts';
import { inventoryAnswer, inventoryRequest } from './inventory.ts';
import { endpointSlice, endpoints, service } from './kubernetes.ts';
import { conflictDocument, problemDocument } from './problem.ts';
import { eventsDocument, ROUTES, type Route, type RouteAnswer } from './routes.ts';

/** A JSON Schema of draft 2020-12, the dialect of OpenAPI 3.1. */
export type JsonSchema = z.core.JSONSchema.BaseSchema;

export interface OpenApiOptions {
  /** Version of this release. */
  readonly version: string;
  /** Where the API is served; left out when the document's own origin serves it. */
  readonly serverUrl?: string;
  /** How callers are known: one of IAM, bearer tokens, or not at all on loopback. */
  readonly auth?: 'iam' | 'token' | 'none';
}

/** An OpenAPI 3.1 document; tools read it, code does not. */
export type OpenApiDocument = Readonly<Record<string, unknown>> & {
  readonly openapi: '3.1.1';
  readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
};

/** Schemas that the document names once and refers to. */
const COMPONENTS = new Map<z.ZodType, string>([
  [publishedAddress, 'Address'],
  [clusterDeletionAnswer, 'ClusterDeletion'],
  [clusterSummary, 'ClusterSummary'],
  [clustersAnswer, 'ClustersAnswer'],
  [conflictDocument, 'Conflict'],
  [endpoints, 'Endpoints'],
  [endpointsAnswer, 'EndpointsAnswer'],
  [endpointSlice, 'EndpointSlice'],
  [eventsAnswer, 'EventsAnswer'],
  [eventsDocument, 'EventsRequest'],
  [healthAnswer, 'HealthAnswer'],
  [heartbeatAnswer, 'HeartbeatAnswer'],
  [heartbeatRequest, 'HeartbeatRequest'],
  [inventoryAnswer, 'InventoryAnswer'],
  [inventoryRequest, 'InventoryRequest'],
  [portSet, 'PortSet'],
  [portSets, 'PortSets'],
  [problemDocument, 'Problem'],
  [service, 'Service'],
  [serviceSummary, 'ServiceSummary'],
  [servicesAnswer, 'ServicesAnswer'],
  [servedAddress, 'ServedAddress'],
  [subscriptionAnswer, 'Subscription'],
  [subscriptionRequest, 'SubscriptionRequest'],
  [watchEvent, 'WatchEvent'],
]);

const AUTH_SCHEMES = {
  iam: {
    type: 'apiKey',
    in: 'header',
    name: 'Authorization',
    description: 'AWS Signature Version 4, service lambda.',
  },
  token: { type: 'http', scheme: 'bearer' },
} as const;

/** The API's document, from the schemas that validate. */
export function openApiDocument({ version, serverUrl, auth = 'iam' }: OpenApiOptions): OpenApiDocument {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const [operationId, route] of Object.entries<Route>(ROUTES)) {
    paths[route.path] = { ...paths[route.path], [route.method]: describeRoute(operationId, route, auth) };
  }
  return {
    openapi: '3.1.1',
    info: {
      title: 'endpoints-watcher',
      version,
      description: 'Endpoints of Kubernetes services, outside their clusters.',
      license: { name: 'Apache 2.0', identifier: 'Apache-2.0' },
    },
    ...(serverUrl !== undefined && { servers: [{ url: serverUrl }] }),
    paths,
    components: {
      schemas: componentSchemas(),
      ...(auth !== 'none' && { securitySchemes: { [auth]: AUTH_SCHEMES[auth] } }),
    },
  };
}

/** Schemas of what is put on the bus, by DetailType; each stands alone. */
export function jsonSchemas(): Readonly<Record<DetailType, JsonSchema>> {
  return {
    EndpointsChanged: z.toJSONSchema(deltaDetail, JSON_SCHEMA_OPTIONS),
    NoEndpoints: z.toJSONSchema(deltaDetail, JSON_SCHEMA_OPTIONS),
    RelayLost: z.toJSONSchema(relayDetail, JSON_SCHEMA_OPTIONS),
    RelayRecovered: z.toJSONSchema(relayDetail, JSON_SCHEMA_OPTIONS),
  };
}

/** `input`: what a sender may write; it leaves objects open for members that a later version adds. */
const JSON_SCHEMA_OPTIONS = {
  io: 'input',
  unrepresentable: 'any',
  override: ({ jsonSchema }) => {
    // The format says it; the pattern is a wall of digits.
    if (jsonSchema.format === 'date-time') delete jsonSchema.pattern;
  },
} as const satisfies z.core.ToJSONSchemaParams;

function describeRoute(operationId: string, route: Route, auth: OpenApiOptions['auth']) {
  const parameters = [
    ...describeParameters('path', route.params),
    ...describeParameters('query', route.query),
  ];
  return {
    operationId,
    summary: route.summary,
    tags: [route.servedBy],
    ...(auth !== undefined && auth !== 'none' && { security: route.scope === null ? [] : [{ [auth]: [] }] }),
    ...(parameters.length > 0 && { parameters }),
    ...(route.body !== undefined && {
      requestBody: { required: true, content: { 'application/json': { schema: refer(route.body) } } },
    }),
    responses: Object.fromEntries(
      Object.entries(route.answers).map(([status, answer]) => [status, describeAnswer(answer)]),
    ),
  };
}

function describeParameters(place: 'path' | 'query', schema: z.ZodObject | undefined) {
  return Object.entries(schema?.shape ?? {}).map(([name, type]) => {
    const { description, ...json } = inline(type as z.ZodType);
    return {
      name,
      in: place,
      required: place === 'path' || !(type as z.ZodType).safeParse(undefined).success,
      ...(description !== undefined && { description }),
      schema: json,
    };
  });
}

function describeAnswer({ description, content }: RouteAnswer) {
  const media = Object.entries(content).map(([type, schema]) => [type, { schema: refer(schema) }]);
  return { description, ...(media.length > 0 && { content: Object.fromEntries(media) }) };
}

const COMPONENT_PREFIX = '#/components/schemas/';

function refer(schema: z.ZodType): JsonSchema {
  const id = COMPONENTS.get(schema);
  return id === undefined ? inline(schema) : { $ref: `${COMPONENT_PREFIX}${id}` };
}

function inline(schema: z.ZodType): JsonSchema {
  const { $schema: _dialect, ...json } = z.toJSONSchema(schema, JSON_SCHEMA_OPTIONS);
  return json;
}

function componentSchemas(): Record<string, JsonSchema> {
  const registry = z.registry<{ id: string }>();
  for (const [schema, id] of COMPONENTS) registry.add(schema, { id });
  const { schemas } = z.toJSONSchema(registry, {
    ...JSON_SCHEMA_OPTIONS,
    uri: (id) => `${COMPONENT_PREFIX}${id}`,
  });
  const named = Object.entries(schemas).map(([id, { $schema: _dialect, $id: _place, ...json }]) => [
    id,
    json,
  ]);
  return Object.fromEntries(named);
}
