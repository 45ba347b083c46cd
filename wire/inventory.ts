import * as z from 'zod';
import { compareText } from '../core/address.ts';
import {
  count,
  envelope,
  MAX_NAME_LENGTH,
  MAX_NAMESPACES,
  namespaces,
  objectName,
  objectUid,
  optionalVersion,
  orNull,
  resourceVersion,
  serviceName,
  watchedKind,
} from './envelope.ts';
import { type Invalid, parse } from './parse.ts';

/** Services, and objects of all services together, in one page. */
const MAX_PAGE_OBJECTS = 10_000;

/** Version of one kind's list, or of its list per namespace. */
const listVersion = z.union(
  [
    resourceVersion,
    z
      .record(objectName, resourceVersion)
      .refine(
        (versions) => Object.keys(versions).length <= MAX_NAMESPACES,
        `must have at most ${MAX_NAMESPACES} namespaces`,
      ),
  ],
  'must be a decimal number in a string, or one per namespace',
);

/** Identifies a service in the order of pages. */
const serviceKey = z.object({ namespace: objectName, name: serviceName });
export type ServiceKey = z.infer<typeof serviceKey>;

const namedObject = z.object({ name: objectName, uid: objectUid, resourceVersion });

const inventoryService = serviceKey
  .extend({
    uid: objectUid.nullish().transform(orNull).describe('Null = objects name a Service that does not exist.'),
    resourceVersion: optionalVersion,
    objects: z.array(namedObject).max(MAX_PAGE_OBJECTS).default([]).describe('Its slices, or its Endpoints.'),
  })
  .superRefine(({ uid, resourceVersion }, context) => {
    if (uid !== null && resourceVersion === null)
      context.addIssue({ code: 'custom', path: ['resourceVersion'], message: 'required beside uid' });
  });
export type InventoryService = z.infer<typeof inventoryService>;

/** `POST /v1/inventory`: one page of whole services, which speaks for the range from `after` to its last service. */
export const inventoryRequest = envelope
  .extend({
    id: z.string().max(MAX_NAME_LENGTH).nullish().transform(orNull).describe('One per list, for logs.'),
    resourceVersions: z
      .object({
        Service: listVersion.optional(),
        EndpointSlice: listVersion.optional(),
        Endpoints: listVersion.optional(),
      })
      .describe('Versions of the lists; of a kind, or namespace, without one nothing is removed.'),
    namespaces,
    after: serviceKey
      .nullish()
      .transform(orNull)
      .describe("The former page's last service; null on the first page."),
    last: z.boolean().describe('The last page speaks to the end of the range.'),
    maxRemoved: z
      .number()
      .min(0)
      .max(1)
      .nullish()
      .transform(orNull)
      .describe("Largest share of a service's addresses that may go; null = no guard."),
    restored: z.boolean().default(false).describe('The cluster came back with lower versions.'),
    services: z
      .array(inventoryService)
      .max(MAX_PAGE_OBJECTS)
      .describe('Sorted by namespace, then name, in code units.'),
  })
  .superRefine(({ after, services }, context) => {
    let objects = 0;
    for (const [index, service] of services.entries()) {
      const former = index === 0 ? after : (services[index - 1] ?? null);
      if (former !== null && compareServiceKeys(former, service) >= 0) {
        const which = index === 0 ? 'after' : `services[${index - 1}]`;
        const message = `must sort behind ${which} by namespace, then name, in code units`;
        context.addIssue({ code: 'custom', path: ['services', index], message });
        return;
      }
      objects += service.objects.length;
    }
    if (objects > MAX_PAGE_OBJECTS)
      context.addIssue({
        code: 'custom',
        path: ['services'],
        message: `must have at most ${MAX_PAGE_OBJECTS} objects together; send more pages`,
      });
  });
export type InventoryRequest = z.infer<typeof inventoryRequest>;

/** Parses a page; `invalid` is a 400. */
export function parseInventoryRequest(
  body: unknown,
): { readonly kind: 'ok'; readonly request: InventoryRequest } | Invalid {
  const parsed = parse(inventoryRequest, body);
  return parsed.kind === 'ok' ? { kind: 'ok', request: parsed.value } : parsed;
}

/** The order of services in pages: namespace, then name, in code units. */
export function compareServiceKeys(a: ServiceKey, b: ServiceKey): number {
  return compareText(a.namespace, b.namespace) || compareText(a.name, b.name);
}

/** Answer of `POST /v1/inventory`. */
export const inventoryAnswer = z.object({
  missing: z
    .array(z.object({ kind: watchedKind, namespace: z.string(), name: z.string() }))
    .describe('Whose stored version differs or is absent: to be sent as events with resync.'),
  deleted: count.describe('Objects that went.'),
  again: z
    .boolean()
    .describe('Something was held back: send the missing with confirm, then this page again.'),
});
export type InventoryAnswer = z.infer<typeof inventoryAnswer>;
