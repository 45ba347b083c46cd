import * as z from 'zod';
import type { EpochMs } from '../core/time.ts';
import { parse } from '../wire/parse.ts';
import type { Connection, Write } from './connection.ts';
import { readText } from './json-lines.ts';

const MAX_BODY_BYTES = 1_000_000;
const API_VERSION = 'coordination.k8s.io/v1';

/** Fields that an election reads or writes; the others are kept as they are. */
const leaseSpec = z.looseObject({
  /** Null or empty: nobody holds it. */
  holderIdentity: z.string().nullish(),
  leaseDurationSeconds: z.number().nullish(),
  acquireTime: z.string().nullish(),
  renewTime: z.string().nullish(),
  leaseTransitions: z.number().nullish(),
});
export type LeaseSpec = z.infer<typeof leaseSpec>;

/** A Lease as the API server has it. Source: coordination.k8s.io/v1. */
const leaseObject = z.looseObject({
  metadata: z.looseObject({ resourceVersion: z.string() }),
  spec: leaseSpec
    .nullish()
    .transform((spec) => spec ?? {})
    .pipe(leaseSpec),
});
export type Lease = z.infer<typeof leaseObject>;

/** Where a Lease is. */
export interface LeaseName {
  readonly namespace: string;
  readonly name: string;
}

/** What became of a request for a Lease. */
export type LeaseAnswer =
  | { readonly kind: 'ok'; readonly lease: Lease }
  /** It is not there. */
  | { readonly kind: 'absent' }
  /** Somebody else wrote first: what was read is out of date. */
  | { readonly kind: 'conflict' }
  /** No answer, or one that says nothing of the Lease. The reason is a line for people. */
  | { readonly kind: 'failed'; readonly reason: string };

/** One Lease, read and written over HTTP; nothing is repeated, nothing is thrown. */
export class LeaseClient {
  readonly #connection: Connection;
  readonly #name: LeaseName;

  constructor(connection: Connection, name: LeaseName) {
    this.#connection = connection;
    this.#name = name;
  }

  read(signal: AbortSignal): Promise<LeaseAnswer> {
    return this.#send(`/${this.#name.name}`, null, signal);
  }

  create(spec: LeaseSpec, signal: AbortSignal): Promise<LeaseAnswer> {
    const lease = { apiVersion: API_VERSION, kind: 'Lease', metadata: this.#name, spec };
    return this.#send('', { method: 'POST', body: JSON.stringify(lease) }, signal);
  }

  /** Writes these fields on top of a Lease that was read: `conflict` when it is no longer that one. */
  update(lease: Lease, spec: LeaseSpec, signal: AbortSignal): Promise<LeaseAnswer> {
    const body = JSON.stringify({ ...lease, spec: { ...lease.spec, ...spec } });
    return this.#send(`/${this.#name.name}`, { method: 'PUT', body }, signal);
  }

  async #send(path: string, write: Write | null, signal: AbortSignal): Promise<LeaseAnswer> {
    const url = `/apis/${API_VERSION}/namespaces/${this.#name.namespace}/leases${path}`;
    try {
      const response = await this.#connection.request(url, signal, 'application/json', write);
      const text = await readText(response.body, MAX_BODY_BYTES);
      return answerOf(response.statusCode, text, write);
    } catch (error) {
      return { kind: 'failed', reason: error instanceof Error ? error.message || error.name : String(error) };
    }
  }
}

function answerOf(status: number, text: string, write: Write | null): LeaseAnswer {
  if (status === 409) return { kind: 'conflict' };
  // To create it in a namespace that is not there is answered 404 too.
  if (status === 404 && write?.method !== 'POST') return { kind: 'absent' };
  const body = parseJson(text);
  if (status === 200 || status === 201) {
    const parsed = parse(leaseObject, body, 'Lease');
    return parsed.kind === 'ok'
      ? { kind: 'ok', lease: parsed.value }
      : { kind: 'failed', reason: `not a Lease: ${parsed.message}` };
  }
  const { message = text } = (body ?? {}) as { readonly message?: unknown };
  const fix = status === 403 ? '; allow get, create and update of leases in coordination.k8s.io' : '';
  return { kind: 'failed', reason: `${status}: ${String(message).slice(0, 300)}${fix}` };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** An instant as Kubernetes' MicroTime: RFC 3339 in UTC with six digits, which it insists on. */
export function formatMicroTime(at: EpochMs): string {
  return new Date(at).toISOString().replace('Z', '000Z');
}
