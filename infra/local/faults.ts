import * as z from 'zod';
import { type Invalid, invalid, parse } from '../../wire/parse.ts';

/** Where a port can be made to fail: the writes of the pipeline, in its order. */
export const FAULT_POINTS = [
  'store.putChunk',
  'store.putBody',
  'store.commit',
  'store.putReceipt',
  'bus.publish',
] as const;
export type FaultPoint = (typeof FAULT_POINTS)[number];

/** Exit code of a process that was killed (128 + SIGKILL). */
const KILLED = 137;

/** A misspelt field would silently be its default. */
const noOthers = {
  error: (issue: { readonly code: string; readonly keys?: unknown }) =>
    issue.code === 'unrecognized_keys' ? `has no field ${issue.keys}` : undefined,
};

const faultSchema = z.strictObject(
  {
    on: z.enum(FAULT_POINTS),
    /** Before the call, or after it succeeded: then its effect is there and its answer is lost. */
    when: z.enum(['before', 'after']).default('before'),
    /** `partial` sends half of what a call publishes and lets the rest fail, whatever `when` says. */
    do: z.enum(['exit', 'error', 'throttle', 'partial']),
    /** Calls let through first. */
    skip: z.int().min(0).max(1_000_000).default(0),
    /** Calls that fail after those. */
    times: z.int().min(1).max(1_000_000).default(1),
  },
  noOthers,
);
export type Fault = z.infer<typeof faultSchema>;
const faultsBody = z.strictObject({ faults: z.array(faultSchema).max(100) }, noOthers);

/** The faults in force. */
export interface Faults {
  /** Replaces all faults by those of a body `{"faults":[…]}`; their counts begin anew. */
  put(body: unknown): { readonly kind: 'ok' } | Invalid;
  /** Counts a call that comes by a point, and says what is to happen to it. Each fault counts all calls of its point. */
  visit(point: FaultPoint, when: Fault['when']): Fault['do'] | null;
}

/** No faults until some are put. */
export function createFaults(): Faults {
  let active: { readonly fault: Fault; visits: number }[] = [];
  return {
    put(body) {
      const parsed = parse(faultsBody, body);
      if (parsed.kind === 'invalid') return parsed;
      const misplaced = parsed.value.faults.findIndex(
        (fault) => fault.do === 'partial' && fault.on !== 'bus.publish',
      );
      if (misplaced >= 0) return invalid(`faults[${misplaced}].do`, 'may be "partial" on "bus.publish" only');
      active = parsed.value.faults.map((fault) => ({ fault, visits: 0 }));
      return { kind: 'ok' };
    },

    visit(point, when) {
      let action: Fault['do'] | null = null;
      for (const entry of active) {
        const { fault } = entry;
        const isHere = fault.on === point && (fault.do === 'partial' ? 'before' : fault.when) === when;
        if (!isHere) continue;
        const visit = entry.visits++;
        if (visit >= fault.skip && visit < fault.skip + fault.times) action ??= fault.do;
      }
      return action;
    },
  };
}

/** A method that faults can get hold of. */
type AsyncMethod = (...args: never[]) => Promise<unknown>;
type AsyncMethodName<P> = { [K in keyof P]: P[K] extends AsyncMethod ? K : never }[keyof P] & string;

/** What a port's users take for each kind of failure. */
export interface FaultEffects {
  /** The error that they treat as throttling. */
  readonly throttled: () => Error;
  /** Runs half of a call: `call` is the method itself, `args` what it was called with. */
  readonly partial?: (call: (...args: unknown[]) => Promise<unknown>, args: unknown[]) => Promise<unknown>;
}

/** The same port, with faults at the methods that are named; calls it makes of its own methods are not touched. */
export function withFaults<P extends object>(
  port: P,
  faults: Faults,
  points: { readonly [K in FaultPoint]?: AsyncMethodName<P> },
  effects: FaultEffects,
): P {
  const pointOf = new Map<PropertyKey, FaultPoint>();
  for (const point of FAULT_POINTS) {
    const method = points[point];
    if (method !== undefined) pointOf.set(method, point);
  }
  return new Proxy(port, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== 'function') return member;
      const call = member.bind(target) as (...args: unknown[]) => Promise<unknown>;
      const point = pointOf.get(name);
      return point === undefined
        ? call
        : (...args: unknown[]) => callWithFaults(point, call, args, faults, effects);
    },
  });
}

async function callWithFaults(
  point: FaultPoint,
  call: (...args: unknown[]) => Promise<unknown>,
  args: unknown[],
  faults: Faults,
  effects: FaultEffects,
): Promise<unknown> {
  const before = faults.visit(point, 'before');
  if (before === 'partial') {
    if (effects.partial === undefined) throw new TypeError(`${point} has no partial effect`);
    return effects.partial(call, args);
  }
  fail(before, point, 'before', effects);
  const result = await call(...args);
  fail(faults.visit(point, 'after'), point, 'after', effects);
  return result;
}

function fail(
  action: Fault['do'] | null,
  point: FaultPoint,
  when: Fault['when'],
  effects: FaultEffects,
): void {
  if (action === 'exit') process.exit(KILLED);
  if (action === 'error') throw new Error(`fault ${when} ${point}`);
  if (action === 'throttle') throw effects.throttled();
}
