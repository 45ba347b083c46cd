import * as z from 'zod';

/** Which objects of a cluster make the sets; never both (S12). */
const MODES = ['slices', 'endpoints'] as const;
export const mode = z.enum(MODES);
export type Mode = z.infer<typeof mode>;

/** The kinds that are watched, and kept, in either mode. */
const WATCHED_KINDS = ['Service', 'EndpointSlice', 'Endpoints'] as const;
export const watchedKind = z.enum(WATCHED_KINDS);
export type WatchedKind = z.infer<typeof watchedKind>;

/** Kubernetes' longest name (a DNS subdomain). */
export const MAX_NAME_LENGTH = 253;
/** Far above a UUID, which is what API servers make. */
export const MAX_UID_LENGTH = 128;
/** etcd's versions have 19 digits at most; other stores may have more (S44). */
const MAX_VERSION_DIGITS = 64;
/** Namespaces that one relay may be limited to. */
export const MAX_NAMESPACES = 1000;

/** Name of a cluster: it begins every key, so it has no character that separates them. */
export const clusterName = z
  .string()
  .regex(
    /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/,
    'must be 1 to 63 of a-z, 0-9 and "-", and begin and end with a letter or digit',
  );

/** Name of a namespace or object, as API servers allow it; so it has no character that separates the parts of a key. */
export const objectName = z
  .string()
  .max(MAX_NAME_LENGTH)
  .regex(
    /^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$/,
    'must be a name of a-z, 0-9, "-" and ".", and begin and end with a letter or digit',
  );

/**
 * Name by which a Service is meant: its own, or what a slice's label says (S8), which may be no Service's name at all.
 * It too has no character that separates the parts of a key.
 */
export const serviceName = z
  .string()
  .max(MAX_NAME_LENGTH)
  .regex(
    /^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/,
    'must be the name of a Service: letters, digits, "-", "_" and ".", with a letter or digit at both ends',
  );

/** uid of a Kubernetes object. */
export const objectUid = z
  .string()
  .min(1)
  .max(MAX_UID_LENGTH)
  .refine((uid) => uid.isWellFormed(), 'must be Unicode text');

/** resourceVersion: a decimal integer of any sensible length, compared by `compareVersions` (S44). */
export const resourceVersion = z
  .string()
  .regex(new RegExp(`^[0-9]{1,${MAX_VERSION_DIGITS}}$`), 'must be a decimal number in a string');

/** A version that may not be known: empty, null and absent are null. */
export const optionalVersion = z
  .string()
  .regex(new RegExp(`^[0-9]{0,${MAX_VERSION_DIGITS}}$`), 'must be a decimal number in a string')
  .nullish()
  .transform(orNull);

/** A count, a sequence, an epoch: an integer from 0 that a double holds exactly. */
export const count = z.int().min(0);

/** What every request of a relay says of itself. */
export const envelope = z.object({
  cluster: clusterName,
  clusterUid: z
    .string()
    .max(MAX_UID_LENGTH)
    .nullish()
    .transform(orNull)
    .describe('uid of namespace kube-system, which tells clusters of one name apart; null = not checked.'),
  epoch: count.describe("Rises with each leader; one lower than the cluster's is refused."),
  relay: z
    .string()
    .max(MAX_NAME_LENGTH)
    .nullish()
    .transform(orNull)
    .describe('Name of the sending process, for logs.'),
  mode: mode.default('slices').describe('Which objects make the sets: EndpointSlices or Endpoints.'),
});

/** The scope of a relay. */
export const namespaces = z
  .array(objectName)
  .min(1)
  .max(MAX_NAMESPACES)
  .nullish()
  .transform(orNull)
  .describe('The namespaces that the relay sees; null = all.');

/** An absent, null or (for text) empty value is null: all three mean "not told". */
export function orNull<T>(value: T | null | undefined): T | null {
  return value === undefined || value === '' ? null : value;
}
