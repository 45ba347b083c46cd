import type { RequestFacts } from './misbehaviour.ts';
import { qualifiedName, type Resource } from './resources.ts';

/** The `Status` object with which the API server answers a failed request. Source: meta/v1 `types.go`. */
export interface Status {
  readonly kind: 'Status';
  readonly apiVersion: 'v1';
  readonly metadata: { readonly continue?: string };
  readonly status: 'Success' | 'Failure';
  readonly message?: string;
  readonly reason?: string;
  readonly details?: StatusDetails;
  readonly code?: number;
}

interface StatusDetails {
  readonly name?: string;
  readonly group?: string;
  readonly kind?: string;
  readonly uid?: string;
  readonly causes?: readonly StatusCause[];
  /** Also sent as the Retry-After header, in seconds. */
  readonly retryAfterSeconds?: number;
}

export interface StatusCause {
  readonly reason?: string;
  readonly message: string;
  readonly field?: string;
}

/** A request that the API server refuses; `status` is the body of the answer, or the object of an ERROR event. */
export class ApiError extends Error {
  readonly status: Status & { readonly code: number };

  constructor(
    code: number,
    reason: string,
    message: string,
    details?: StatusDetails,
    metadata: Status['metadata'] = {},
  ) {
    super(message);
    this.name = 'ApiError';
    this.status = {
      kind: 'Status',
      apiVersion: 'v1',
      metadata,
      status: 'Failure',
      message,
      reason,
      ...(details === undefined ? {} : { details }),
      code,
    };
  }
}

export function unauthorized(): ApiError {
  return new ApiError(401, 'Unauthorized', 'Unauthorized');
}

export function badRequest(message: string): ApiError {
  return new ApiError(400, 'BadRequest', message);
}

/** The user whom RBAC denies here is always the relay's service account; null is a path without a resource. */
export function forbidden({ verb, namespace, url }: RequestFacts, resource: Resource | null): ApiError {
  const user = 'system:serviceaccount:endpoints-watcher:relay';
  if (resource === null) {
    return new ApiError(403, 'Forbidden', `forbidden: User "${user}" cannot get path "${url}"`, {});
  }
  const scope = namespace === null ? 'at the cluster scope' : `in the namespace "${namespace}"`;
  return new ApiError(
    403,
    'Forbidden',
    `${qualifiedName(resource)} is forbidden: User "${user}" cannot ${verb} resource "${resource.plural}" in API group "${resource.group}" ${scope}`,
    identify(resource),
  );
}

export function unknownResource(): ApiError {
  return new ApiError(404, 'NotFound', 'the server could not find the requested resource', {});
}

export function notFound(resource: Resource, name: string): ApiError {
  return new ApiError(
    404,
    'NotFound',
    `${qualifiedName(resource)} "${name}" not found`,
    identify(resource, name),
  );
}

export function methodNotAllowed(): ApiError {
  return new ApiError(
    405,
    'MethodNotAllowed',
    'the server does not allow this method on the requested resource',
    {},
  );
}

export function notAcceptable(): ApiError {
  return new ApiError(
    406,
    'NotAcceptable',
    'only the following media types are accepted: application/json, application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1',
  );
}

export function alreadyExists(resource: Resource, name: string): ApiError {
  return new ApiError(
    409,
    'AlreadyExists',
    `${qualifiedName(resource)} "${name}" already exists`,
    identify(resource, name),
  );
}

/** The version that an update was based on is no longer the stored one. */
export function conflict(
  resource: Resource,
  name: string,
  why = 'the object has been modified; please apply your changes to the latest version and try again',
): ApiError {
  return new ApiError(
    409,
    'Conflict',
    `Operation cannot be fulfilled on ${qualifiedName(resource)} "${name}": ${why}`,
    identify(resource, name),
  );
}

/** A watch from a version that the watch cache no longer holds: what an ERROR event usually carries. */
export function tooOldVersion(version: number, oldest: number): ApiError {
  return new ApiError(410, 'Expired', `too old resource version: ${version} (${oldest})`);
}

/** A list at an exact version that etcd has compacted. */
export function expiredList(): ApiError {
  return new ApiError(410, 'Expired', 'The resourceVersion for the provided list is too old.');
}

/** A page of a snapshot that etcd has compacted; `inconsistentContinue` goes on with what is there now. */
export function expiredContinue(inconsistentContinue: string): ApiError {
  return new ApiError(
    410,
    'Expired',
    'The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.',
    undefined,
    { continue: inconsistentContinue },
  );
}

export function entityTooLarge(limitBytes: number): ApiError {
  return new ApiError(413, 'RequestEntityTooLarge', `Request entity too large: limit is ${limitBytes}`);
}

/** 422; `group` and `kind` are those of what was validated, such as ListOptions. */
export function invalid(group: string, kind: string, name: string, causes: readonly StatusCause[]): ApiError {
  const texts = causes.map(({ field, message }) => `${field}: ${message}`);
  const what = texts.length === 1 ? texts[0] : `[${texts.join(', ')}]`;
  return new ApiError(
    422,
    'Invalid',
    `${kind}${group === '' ? '' : `.${group}`} "${name}" is invalid: ${what}`,
    {
      ...(name === '' ? {} : { name }),
      ...(group === '' ? {} : { group }),
      kind,
      causes,
    },
  );
}

/** An overloaded server. Real ones answer this in plain text when the request never reached a handler. */
export function tooManyRequests(retryAfterSeconds: number): ApiError {
  return new ApiError(429, 'TooManyRequests', 'Too many requests, please try again later.', {
    retryAfterSeconds,
  });
}

export function internalError(): ApiError {
  const cause = 'etcdserver: leader changed';
  return new ApiError(500, 'InternalError', `Internal error occurred: ${cause}`, {
    causes: [{ message: cause }],
  });
}

export function serviceUnavailable(): ApiError {
  return new ApiError(503, 'ServiceUnavailable', 'the server is currently unable to handle the request');
}

/** A version that this server has not reached: after an etcd restore, or on a lagging replica. */
export function versionTooLarge(wanted: number, current: number, retryAfterSeconds: number): ApiError {
  const message = `Timeout: Too large resource version: ${wanted}, current: ${current}`;
  return new ApiError(504, 'Timeout', message, {
    causes: [{ reason: 'ResourceVersionTooLarge', message: 'Too large resource version' }],
    ...(retryAfterSeconds === 0 ? {} : { retryAfterSeconds }),
  });
}

function identify(resource: Resource, name?: string): StatusDetails {
  return {
    ...(name === undefined ? {} : { name }),
    ...(resource.group === '' ? {} : { group: resource.group }),
    kind: resource.plural,
  };
}
