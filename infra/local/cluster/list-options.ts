import type { KubeObject } from './resources.ts';
import { parseFieldSelector, parseLabelSelector } from './selector.ts';
import { badRequest, invalid, type StatusCause } from './status.ts';

/** The query of a list or watch request. Source: meta/v1 `ListOptions` and its validation. */
export interface ListOptions {
  readonly isWatch: boolean;
  /** Namespace of the path, label and field selectors together. */
  readonly selects: (object: KubeObject) => boolean;
  /** True when something is filtered besides the namespace: then `remainingItemCount` is unknown. */
  readonly isFiltered: boolean;
  /** Null when unset: the most recent. 0: anything will do. */
  readonly resourceVersion: number | null;
  readonly match: 'Exact' | 'NotOlderThan' | null;
  /** 0 when unset: everything at once. */
  readonly limit: number;
  readonly continueToken: string | null;
  readonly sendInitialEvents: boolean | null;
  readonly allowWatchBookmarks: boolean;
  /** 0 when unset. */
  readonly timeoutSeconds: number;
}

const NOT_OLDER_THAN = 'NotOlderThan';

/**
 * Reads and validates the query.
 *
 * @throws ApiError 400 when a value cannot be read, 422 when the combination is not allowed: sendInitialEvents on a
 * server without watch-list, or without `resourceVersionMatch=NotOlderThan`.
 */
export function parseListOptions(
  query: URLSearchParams,
  namespace: string | null,
  isWatchListOn: boolean,
): ListOptions {
  const matchText = query.get('resourceVersionMatch') ?? '';
  const labelText = query.get('labelSelector') ?? '';
  const fieldText = query.get('fieldSelector') ?? '';
  const continueToken = query.get('continue') || null;
  const causes = readBoolean(query, 'watch')
    ? watchCauses(query, matchText, isWatchListOn)
    : listCauses(query, matchText);
  if (causes.length > 0) throw invalid('meta.k8s.io', 'ListOptions', '', causes);
  const isLabelled = parseLabelSelector(labelText);
  const isNamed = parseFieldSelector(fieldText);
  return {
    isWatch: readBoolean(query, 'watch') ?? false,
    selects: ({ metadata }) =>
      (namespace === null || metadata.namespace === namespace) && isLabelled(metadata) && isNamed(metadata),
    isFiltered: labelText !== '' || fieldText !== '',
    resourceVersion: readNumber(query, 'resourceVersion'),
    match: matchText === 'Exact' || matchText === NOT_OLDER_THAN ? matchText : null,
    limit: readNumber(query, 'limit') ?? 0,
    continueToken,
    sendInitialEvents: readBoolean(query, 'sendInitialEvents'),
    allowWatchBookmarks: readBoolean(query, 'allowWatchBookmarks') ?? false,
    timeoutSeconds: readNumber(query, 'timeoutSeconds') ?? 0,
  };
}

function watchCauses(query: URLSearchParams, match: string, isWatchListOn: boolean): StatusCause[] {
  const sendsInitialEvents = query.has('sendInitialEvents');
  return [
    ...forbidden(
      sendsInitialEvents && match !== NOT_OLDER_THAN,
      'resourceVersionMatch',
      'sendInitialEvents requires setting resourceVersionMatch to NotOlderThan',
    ),
    ...forbidden(
      sendsInitialEvents && !isWatchListOn,
      'sendInitialEvents',
      'sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled',
    ),
    ...forbidden(
      match !== '' && !sendsInitialEvents,
      'resourceVersionMatch',
      'resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided',
    ),
    ...(match === '' || match === NOT_OLDER_THAN ? [] : unsupportedMatch(match, [NOT_OLDER_THAN])),
    ...forbidden(
      match !== '' && query.has('continue'),
      'resourceVersionMatch',
      'resourceVersionMatch is forbidden when continue is provided',
    ),
  ];
}

function listCauses(query: URLSearchParams, match: string): StatusCause[] {
  const hasMatch = match !== '';
  return [
    ...forbidden(
      hasMatch && !query.get('resourceVersion'),
      'resourceVersionMatch',
      'resourceVersionMatch is forbidden unless resourceVersion is provided',
    ),
    ...forbidden(
      hasMatch && query.has('continue'),
      'resourceVersionMatch',
      'resourceVersionMatch is forbidden when continue is provided',
    ),
    ...(['', 'Exact', NOT_OLDER_THAN].includes(match)
      ? []
      : unsupportedMatch(match, ['Exact', NOT_OLDER_THAN, ''])),
    ...forbidden(
      match === 'Exact' && query.get('resourceVersion') === '0',
      'resourceVersionMatch',
      'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
    ),
    ...forbidden(
      query.has('sendInitialEvents'),
      'sendInitialEvents',
      'sendInitialEvents is forbidden for list',
    ),
  ];
}

function forbidden(holds: boolean, field: string, message: string): StatusCause[] {
  return holds ? [{ reason: 'FieldValueForbidden', message: `Forbidden: ${message}`, field }] : [];
}

function unsupportedMatch(value: string, supported: readonly string[]): StatusCause[] {
  const list = supported.map((text) => JSON.stringify(text)).join(', ');
  return [
    {
      reason: 'FieldValueNotSupported',
      message: `Unsupported value: ${JSON.stringify(value)}: supported values: ${list}`,
      field: 'resourceVersionMatch',
    },
  ];
}

function readBoolean(query: URLSearchParams, name: string): boolean | null {
  const text = query.get(name);
  return text === null ? null : text !== 'false' && text !== '0';
}

function readNumber(query: URLSearchParams, name: string): number | null {
  const text = query.get(name);
  if (text === null || text === '') return null;
  const value = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value)) {
    throw badRequest(`invalid ${name}: ${JSON.stringify(text)} is not a whole number`);
  }
  return value;
}
