import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import fc from 'fast-check';
import * as yaml from 'yaml';
import { addressKey, compareText } from '../core/address.ts';
import { inParallel } from '../functions/services/in-parallel.ts';
import type { EventStatus } from '../wire/events.ts';
import { type ReceivedDelta, Replica } from './replica.ts';
import { SeenServices } from './seen-services.ts';

/** One story: events, and what must come of them. Its form is told in `cases/README.md`. */
export interface Case {
  readonly file: string;
  readonly name: string;
  readonly rules: readonly string[];
  readonly mode: 'slices' | 'endpoints';
  readonly permutable?: boolean;
  readonly steps: readonly Step[];
  readonly final: Readonly<Record<string, FinalPort>>;
  readonly queries?: readonly Query[];
}

interface Step {
  readonly event?: string;
  readonly object?: CaseObject;
  readonly stateUnknown?: boolean;
  readonly clock?: { readonly advanceMs: number };
  readonly expectStatus?: string | readonly string[];
  readonly expect?: Readonly<Record<string, ExpectedDelta>>;
  readonly mayUpdate?: boolean;
}

interface CaseObject {
  readonly kind?: string;
  readonly metadata?: {
    readonly name?: string;
  };
}

type Fields = Readonly<Record<string, unknown>>;

interface ExpectedDelta {
  readonly delta: string;
  readonly exists?: boolean;
  readonly added?: readonly string[];
  readonly updated?: readonly string[];
  readonly removed?: Readonly<Record<string, string>>;
  readonly size?: number;
  readonly truncated?: boolean;
  readonly triggeredAt?: string | null;
  readonly portName?: string;
  readonly addresses?: Readonly<Record<string, Fields>>;
}

interface FinalPort {
  readonly status?: number;
  readonly exists?: boolean;
  readonly ready?: readonly string[];
  readonly draining?: readonly string[];
  readonly notReady?: number;
  readonly truncated?: boolean;
  readonly portName?: string;
  readonly addresses?: Readonly<Record<string, Fields>>;
}

interface Query {
  readonly service: string;
  readonly params: Readonly<Record<string, string | number>>;
  readonly ready: readonly string[];
}

/** An event as a relay posts it. */
export interface CaseEvent {
  readonly type: string;
  readonly object: unknown;
  readonly stateUnknown: boolean;
  readonly former: readonly string[];
}

/** What a query for one service port came to; the set where there is one. */
export interface CaseAnswer {
  /** HTTP status, or the one that the outcome stands for. */
  readonly status: number;
  readonly set?: AnsweredSet;
}

/** The parts of an answered set that cases look at. */
export interface AnsweredSet {
  readonly exists: boolean;
  readonly portName: string;
  readonly truncated: boolean;
  readonly addresses: readonly AnsweredAddress[];
  readonly draining: readonly AnsweredAddress[];
  readonly notReady: number;
}

interface AnsweredAddress {
  readonly ip: string;
  readonly port: number;
}

/** What cases are run against: one cluster that nothing else uses. */
export interface CaseTarget {
  /** Sends one event alone; `http-400` when the request itself is refused. */
  send(event: CaseEvent): Promise<EventStatus | 'http-400'>;
  /** Lets time pass, then does what is due, as the sweep does. */
  advance(ms: number): Promise<void>;
  /** The deltas since it was last called, in order of their sequence. */
  takeDeltas(): Promise<readonly ReceivedDelta[]>;
  /** Reads one service port; `params` are those of the endpoints query. */
  answer(
    service: { readonly namespace: string; readonly name: string },
    params: Readonly<Record<string, string>>,
  ): Promise<CaseAnswer>;
}

const FOLDER = new URL('cases/', import.meta.url);
/** Longer than a rename window, in milliseconds: only once they are closed is the end the same in every order (S3). */
const WINDOWS_CLOSED_MS = 15_000;
/** Orders that a story is told in at the same time. */
const MAX_PARALLEL_TELLINGS = 8;
/** Which orders are sampled; any whole number. */
const SEED = Number(process.env.SEED ?? 20_261_130);

/** Every story, sorted by file name. */
export function loadCases(): Case[] {
  const files = readdirSync(FOLDER).filter((name) => name.endsWith('.yaml'));
  return files.sort(compareText).map((file) => ({
    ...(yaml.parse(readFileSync(new URL(file, FOLDER), 'utf8')) as Omit<Case, 'file'>),
    file,
  }));
}

/** Tells a story as it is written, and checks each step, the end and the queries. */
export async function runCase(story: Case, target: CaseTarget): Promise<void> {
  const run = new Run(target);
  for (const [index, step] of story.steps.entries())
    await named(`${story.name}\nstep ${index}, ${describeStep(step)}`, () => run.step(step));
  await checkEnd(story, run);
}

/** Where stories are told in other orders: many clusters that share a clock. */
export interface CaseWorld {
  newTarget(mode: Case['mode']): CaseTarget;
  /** Lets time pass in all of them, then does what is due, as the sweep does. */
  advance(ms: number): Promise<void>;
}

/**
 * Tells a story in other orders, each in a cluster of its own, and checks the end and the queries. No permutable story moves
 * the clock, so all of them can end at once.
 */
export async function runReordered(
  story: Case,
  orders: readonly (readonly number[])[],
  world: CaseWorld,
): Promise<void> {
  const tellings = orders.map((order) => ({ order, run: new Run(world.newTarget(story.mode)) }));
  await eachOf(tellings, async ({ order, run }) => {
    for (const index of order) await run.play(story.steps[index] ?? {});
  });
  await world.advance(WINDOWS_CLOSED_MS);
  await eachOf(tellings, async ({ run }) => {
    await run.takeDeltas();
    await checkEnd(story, run);
  });

  async function eachOf(all: typeof tellings, task: (telling: (typeof tellings)[number]) => Promise<void>) {
    await inParallel(MAX_PARALLEL_TELLINGS, all, (telling) =>
      named(`${story.name}\nsteps in the order ${telling.order}`, () => task(telling)),
    );
  }
}

/** Orders to tell a story in: all that there are, or so many of them, the reverse first. */
export function ordersOf({ steps }: Case, max: number): number[][] {
  const written = [...steps.keys()];
  if (factorial(written.length) <= max) return permutations(written);
  const order = fc.shuffledSubarray(written, { minLength: written.length });
  return [written.toReversed(), ...fc.sample(order, { numRuns: max - 1, seed: SEED })];
}

function permutations(items: readonly number[]): number[][] {
  if (items.length === 0) return [[]];
  return items.flatMap((first) =>
    permutations(items.filter((item) => item !== first)).map((rest) => [first, ...rest]),
  );
}

function factorial(n: number): number {
  return n < 2 ? 1 : n * factorial(n - 1);
}

async function checkEnd({ name, final, queries = [] }: Case, run: Run): Promise<void> {
  for (const [port, expected] of Object.entries(final))
    await named(`${name}\nfinally ${port}`, () => run.checkFinal(port, expected));
  for (const query of queries)
    await named(`${name}\nquery ${JSON.stringify(query)}`, () => run.checkQuery(query));
}

/** One telling of a story: plays the relay and a subscriber. */
class Run {
  readonly #target: CaseTarget;
  readonly #replica = new Replica();
  readonly #seen = new SeenServices();

  constructor(target: CaseTarget) {
    this.#target = target;
  }

  async step(step: Step): Promise<void> {
    const status = await this.play(step);
    if (step.expectStatus !== undefined)
      assert([step.expectStatus].flat().includes(status ?? ''), `status ${status}, not ${step.expectStatus}`);
    const expected = new Map(Object.entries(step.expect ?? {}));
    const deltas = (await this.takeDeltas()).filter(
      (delta) => !(step.mayUpdate && isMereUpdate(delta) && !expected.has(portOf(delta))),
    );
    assert.deepEqual(
      deltas.map(portOf).sort(compareText),
      [...expected.keys()].sort(compareText),
      'ports with a delta',
    );
    for (const delta of deltas) {
      const want = expected.get(portOf(delta));
      if (want !== undefined) assert.deepEqual(...comparedDelta(delta, want));
    }
  }

  /** Does what a step says; what came of its event, if it has one. */
  async play({ event, object, stateUnknown = false, clock }: Step): Promise<string | undefined> {
    if (clock !== undefined) await this.#target.advance(clock.advanceMs);
    if (event === undefined) return undefined;
    return await this.#target.send({
      type: event,
      object,
      stateUnknown,
      former: this.#seen.formerOf(object),
    });
  }

  async takeDeltas(): Promise<readonly ReceivedDelta[]> {
    const deltas = await this.#target.takeDeltas();
    for (const delta of deltas) this.#replica.apply(delta);
    return deltas;
  }

  async checkFinal(port: string, { status, ...expected }: FinalPort): Promise<void> {
    const [service = '', number = ''] = port.split(':');
    const answer = await this.#read(service, { port: number });
    if (status !== undefined) {
      assert.equal(answer.status, status);
      return;
    }
    if (expected.exists === false) {
      assert(answer.status === 404 || answer.set?.exists === false, `answers ${JSON.stringify(answer)}`);
      return;
    }
    const set = setOf(answer);
    const keys = (addresses: AnsweredSet['addresses']) => addresses.map(addressKey);
    const view = { ...set, ready: keys(set.addresses), draining: keys(set.draining) };
    const { addresses, ...plain } = expected;
    assert.deepEqual(pick(view, Object.keys(plain)), sortedLists(plain));
    if (addresses !== undefined) assert.deepEqual(...comparedAddresses(set.addresses, addresses));
    const group = this.#replica.groups().find((name) => name.endsWith(`/${port}`));
    if (group !== undefined)
      assert.deepEqual(
        [...this.#replica.port(group).addresses.keys()].sort(compareText),
        view.ready,
        'replayed',
      );
  }

  async checkQuery({ service, params, ready }: Query): Promise<void> {
    const texts = Object.entries(params).map(([name, value]) => [name, String(value)]);
    const answer = await this.#read(service, Object.fromEntries(texts));
    assert.deepEqual(setOf(answer).addresses.map(addressKey), [...ready].sort(compareText));
  }

  async #read(service: string, params: Readonly<Record<string, string>>): Promise<CaseAnswer> {
    const [namespace = '', name = ''] = service.split('/');
    return await this.#target.answer({ namespace, name }, params);
  }
}

/** `namespace/service:port` of a delta: its group without the cluster. */
function portOf({ detail }: ReceivedDelta): string {
  return detail.group.slice(detail.group.indexOf('/') + 1);
}

function isMereUpdate({ detail }: ReceivedDelta): boolean {
  return detail.added.length === 0 && detail.removed.length === 0 && detail.updated.length > 0;
}

/** What came and what was expected, with the same fields. */
function comparedDelta({ type, detail }: ReceivedDelta, expected: ExpectedDelta): [object, object] {
  const {
    delta,
    exists = true,
    added = [],
    updated = [],
    removed = {},
    addresses = {},
    ...others
  } = expected;
  const reasonOf = (key: string, reason: string) => (removed[key] === 'any' ? 'any' : reason);
  const [came, wanted] = comparedAddresses([...detail.added, ...detail.updated], addresses);
  return [
    {
      delta: type,
      exists: detail.exists,
      added: detail.added.map(addressKey),
      updated: detail.updated.map(addressKey),
      removed: Object.fromEntries(
        detail.removed.map((at) => [addressKey(at), reasonOf(addressKey(at), at.reason)]),
      ),
      addresses: came,
      ...pick(detail, Object.keys(others)),
    },
    { delta, exists, ...sortedLists({ added, updated }), removed, addresses: wanted, ...others },
  ];
}

/** Only the addresses and fields that are expected; null and absent mean the same. */
function comparedAddresses(
  addresses: readonly AnsweredAddress[],
  expected: Readonly<Record<string, Fields>>,
): [object, object] {
  const byKey = new Map<string, AnsweredAddress>(addresses.map((address) => [addressKey(address), address]));
  const came = Object.entries(expected).map(([key, fields]) => [
    key,
    pick(byKey.get(key) ?? {}, Object.keys(fields)),
  ]);
  return [withoutNulls(Object.fromEntries(came)), withoutNulls(expected)];
}

function withoutNulls(value: object): object {
  const drop = (_key: string, field: unknown) => (field === null ? undefined : field);
  return JSON.parse(JSON.stringify(value, drop)) as object;
}

function pick(from: object, names: readonly string[]): Record<string, unknown> {
  const fields = from as Fields;
  return Object.fromEntries(names.map((name) => [name, fields[name]]));
}

/** Lists of addresses are written in any order, and come sorted (S6). */
function sortedLists(fields: object): object {
  const sorted = Object.entries(fields).map(([name, value]) => [
    name,
    Array.isArray(value) ? value.toSorted(compareText) : value,
  ]);
  return Object.fromEntries(sorted) as object;
}

function setOf({ status, set }: CaseAnswer): AnsweredSet {
  assert(set !== undefined, `answers ${status}`);
  return set;
}

function describeStep({ event, object, clock }: Step): string {
  if (clock !== undefined) return `clock +${clock.advanceMs} ms`;
  return `${event} ${object?.kind} ${object?.metadata?.name ?? ''}`;
}

/** @throws Error that says where a check failed; its cause says what. */
async function named(where: string, check: () => Promise<void>): Promise<void> {
  try {
    await check();
  } catch (cause) {
    throw new Error(where, { cause });
  }
}
