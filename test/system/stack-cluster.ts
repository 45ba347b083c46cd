import type { LocalStack } from '../../infra/local/stack.ts';
import { type DeltaDetail, type DeltaType, deltaDetail } from '../../wire/delta.ts';
import type { EventStatus, EventsAnswer } from '../../wire/events.ts';
import type { AnsweredSet, CaseAnswer, CaseEvent, CaseTarget } from '../cases.ts';
import type { ReceivedDelta } from '../replica.ts';

/** Of an event that finds the stack out of breath. */
const MAX_TRIES = 5;

/** One cluster of a laptop stack, spoken to as relays, subscribers and readers do: over HTTP alone. */
export class StackCluster implements CaseTarget {
  readonly #stack: LocalStack;
  readonly #name: string;
  readonly #mode: 'slices' | 'endpoints';
  /** The bus's position up to which deltas were taken. */
  #taken = 0;

  constructor(stack: LocalStack, name: string, mode: 'slices' | 'endpoints') {
    this.#stack = stack;
    this.#name = name;
    this.#mode = mode;
  }

  async send(event: CaseEvent): Promise<EventStatus | 'http-400'> {
    let response = await this.post([event]);
    // A busy machine may outlast a request's fence: then it comes again, as relays have it (P5).
    for (let tries = 1; response.status === 503 && tries < MAX_TRIES; tries++) {
      response = await this.post([{ ...event, confirm: true }]);
    }
    if (response.status === 400) return 'http-400';
    const { results } = (await response.json()) as EventsAnswer;
    return results[0]?.status ?? 'rejected';
  }

  /** Posts a batch of events. */
  post(events: readonly unknown[]): Promise<Response> {
    return this.#send('POST', '/v1/events', { cluster: this.#name, epoch: 1, mode: this.#mode, events });
  }

  async advance(ms: number): Promise<void> {
    await this.#send('POST', '/local/clock', { advanceMs: ms });
    await this.#send('POST', '/local/sweep', {});
  }

  async takeDeltas(): Promise<readonly ReceivedDelta[]> {
    const { entries, last } = await this.#stack.bus.read({ after: this.#taken, limit: 10_000, wait: 0 });
    this.#taken = last;
    const own = entries.filter(({ detail }) => (detail as { cluster?: unknown }).cluster === this.#name);
    const deltas = own.flatMap(({ detailType, detail }) => {
      const parsed = deltaDetail.safeParse(detail);
      return parsed.success ? [{ type: detailType as DeltaType, detail: parsed.data }] : [];
    });
    return bySequence(deltas);
  }

  async answer(
    { namespace, name }: { readonly namespace: string; readonly name: string },
    params: Readonly<Record<string, string>>,
  ): Promise<CaseAnswer> {
    const path = `/v1/clusters/${this.#name}/namespaces/${namespace}/services/${name}/endpoints`;
    const response = await fetch(`${this.#stack.url}${path}?${new URLSearchParams(params)}`);
    const body = (await response.json()) as AnsweredSet;
    return response.ok ? { status: response.status, set: body } : { status: response.status };
  }

  #send(method: string, path: string, body: unknown): Promise<Response> {
    const headers = { 'content-type': 'application/json' };
    return fetch(`${this.#stack.url}${path}`, { method, headers, body: JSON.stringify(body) });
  }
}

/** The bus promises no order; sequences restore it (P3). */
function bySequence(deltas: ReceivedDelta[]): ReceivedDelta[] {
  const sequenceOf = ({ detail }: { readonly detail: DeltaDetail }) => detail.sequence;
  return deltas.sort((a, b) => sequenceOf(a) - sequenceOf(b));
}
