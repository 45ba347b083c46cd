import { AsyncLocalStorage } from 'node:async_hooks';

/** How many deviations from the undisturbed order one schedule may have. */
export interface Bounds {
  /** Switches away from a thread that could go on. */
  readonly preemptions: number;
  readonly faults: number;
}

/** One way in which a call may go: what it does, and its answer or error. */
export interface Way<T> {
  readonly name: string;
  readonly run: () => Promise<T>;
  /** What it changes. What begins with `+` is only ever added, the same by whomever, so that the order does not matter. */
  readonly writes: readonly string[];
}

/** Something that happens at one moment, when the scheduler says so. */
export interface Call<T> extends Way<T> {
  /** Ways in which it may fail; each costs a fault. */
  readonly faults: readonly Way<T>[];
  /** Other ways that cost nothing. */
  readonly alternatives: readonly Way<T>[];
  /** What its outcome depends on; with a star at the end, everything that begins so. */
  readonly reads: readonly string[];
  /** Nobody else notices when it happens, so no switch before it is tried. */
  readonly isLocal: boolean;
}

/** A property that must hold does not: the schedule is a counterexample. */
export class Violation extends Error {
  override readonly name = 'Violation';
}

/** What exploring came to. */
export interface Exploration {
  readonly schedules: number;
  /** How many of them led into a state that was reached before. */
  readonly merged: number;
  readonly violation: { readonly error: unknown; readonly trace: readonly string[] } | null;
}

/** A call that waits for its turn. */
interface Waiting {
  readonly call: Call<unknown>;
  readonly attempt: Attempt | null;
  readonly settle: (way: Promise<unknown>) => void;
}

/** What runs in order: a lane with its requests, or a request that its sender has given up. */
interface Thread {
  readonly name: string;
  readonly isGhost: boolean;
  /** Has a lane come to its end? */
  isOver: boolean;
  waiting: Waiting[];
  /** Stands for its local state: what it did and saw since it last told that state. */
  history: number;
}

/** A request of a lane. */
interface Attempt {
  readonly name: string;
  thread: Thread;
  /** Its sender gets no answer. */
  readonly lose: () => void;
}

/** One thing that may happen next. */
interface Option {
  readonly kind: 'run' | 'giveUp' | 'kill';
  readonly thread: Thread;
  readonly way: Way<unknown> | null;
  readonly preemptions: number;
  readonly faults: number;
}

/** Ends a schedule whose future was explored before. */
class Merged extends Error {}

/** Decides what happens next. */
interface Guide {
  choose(options: readonly Option[]): number;
  /** Was everything explored from this state, with at least so much left of the bounds? From now on it is. */
  isExplored(state: () => string, left: Bounds): boolean;
}

type Scenario = (schedule: Schedule) => Promise<void>;

/**
 * Runs a scenario under every schedule within the bounds, from its start each time: stateless model checking, depth
 * first. A schedule is given up in a state that was reached before: one in which the world is the same, and each thread
 * has the same local state, so that its future is the same too.
 * @param scenario builds its world, starts lanes, awaits `exhaust`, and checks what came of it.
 */
export async function explore(scenario: Scenario, bounds: Bounds): Promise<Exploration> {
  const guide = new DepthFirst();
  return runAll(scenario, bounds, guide, () => guide.advance());
}

/** Runs a scenario under so many schedules at random. @param random whole numbers from 0 up to a bound. */
export async function wander(
  scenario: Scenario,
  bounds: Bounds,
  schedules: number,
  random: (bound: number) => number,
): Promise<Exploration> {
  let left = schedules;
  return runAll(scenario, bounds, new RandomWalk(random), () => --left > 0);
}

async function runAll(
  scenario: Scenario,
  bounds: Bounds,
  guide: Guide,
  isMoreLeft: () => boolean,
): Promise<Exploration> {
  const numbers = new Numbers();
  let [schedules, merged] = [0, 0];
  do {
    const schedule = new Schedule(guide, bounds, numbers);
    try {
      await scenario(schedule);
    } catch (error) {
      if (!(error instanceof Merged))
        return { schedules, merged, violation: { error, trace: schedule.trace } };
      merged++;
    }
    schedules++;
  } while (isMoreLeft());
  return { schedules, merged, violation: null };
}

/** What was chosen at one step of a schedule. */
interface Choice {
  /** Number of options. */
  readonly options: number;
  readonly taken: number;
}

/** Goes back to the last choice that has an option left, and takes it, until there is none. */
class DepthFirst implements Guide {
  /** The choices that are to be made again; the last one for the first time. */
  private prefix: readonly Choice[] = [];
  private path: Choice[] = [];
  /** States, with the bounds that were left when they were explored. */
  private readonly explored = new Map<string, readonly Bounds[]>();

  choose({ length }: readonly Option[]): number {
    const planned = this.prefix[this.path.length];
    if (planned !== undefined && planned.options !== length)
      throw new Error('a scenario is not deterministic');
    const choice = planned ?? { options: length, taken: 0 };
    this.path.push(choice);
    return choice.taken;
  }

  isExplored(state: () => string, left: Bounds): boolean {
    if (this.path.length < this.prefix.length) return false;
    const key = state();
    const known = this.explored.get(key) ?? [];
    if (known.some(({ preemptions, faults }) => preemptions >= left.preemptions && faults >= left.faults)) {
      return true;
    }
    this.explored.set(key, [...known, left]);
    return false;
  }

  /** Plans the next schedule; false when there is none. */
  advance(): boolean {
    const index = this.path.findLastIndex(({ options, taken }) => taken + 1 < options);
    const choice = this.path[index];
    if (choice === undefined) return false;
    this.prefix = [...this.path.slice(0, index), { ...choice, taken: choice.taken + 1 }];
    this.path = [];
    return true;
  }
}

/** In how many of 100 steps something else may happen than what happens undisturbed. */
const WILDNESS = 15;

class RandomWalk implements Guide {
  private readonly random: (bound: number) => number;

  constructor(random: (bound: number) => number) {
    this.random = random;
  }

  choose(options: readonly Option[]): number {
    const usual = options.filter(({ preemptions, faults }) => preemptions + faults === 0);
    const among = this.random(100) < WILDNESS ? options : usual;
    const chosen = among[this.random(among.length)];
    return chosen === undefined ? 0 : options.indexOf(chosen);
  }

  isExplored(): boolean {
    return false;
  }
}

/** Numbers for texts: equal ones for equal texts. */
class Numbers {
  private readonly numbers = new Map<string, number>();

  of(text: string): number {
    const known = this.numbers.get(text);
    if (known !== undefined) return known;
    this.numbers.set(text, this.numbers.size + 1);
    return this.numbers.size;
  }
}

/** Whose request the code at hand belongs to. */
const callers = new AsyncLocalStorage<Attempt>();

/** One run of a scenario, in which every call waits until it is chosen. */
export class Schedule {
  /** Tells what of the world has this name, so that it is the same whoever wrote it; null when that cannot be told. */
  contentOf: (name: string) => Promise<string | null> = async () => null;
  readonly trace: string[] = [];
  private readonly guide: Guide;
  private readonly bounds: Bounds;
  private readonly numbers: Numbers;
  private readonly threads: Thread[] = [];
  /** What was written last, by name: its content, or the history behind it. */
  private readonly written = new Map<string, number>();
  private current: Thread | null = null;
  private used: Bounds = { preemptions: 0, faults: 0 };
  private failure: { readonly error: unknown } | null = null;

  constructor(guide: Guide, bounds: Bounds, numbers: Numbers) {
    this.guide = guide;
    this.bounds = bounds;
    this.numbers = numbers;
  }

  /** Starts a lane: a sender of requests, one after the other. */
  lane(name: string, body: (lane: Lane) => Promise<void>): void {
    const thread: Thread = {
      name,
      isGhost: false,
      isOver: false,
      waiting: [],
      history: this.numbers.of(name),
    };
    this.threads.push(thread);
    const end = () => {
      thread.isOver = true;
    };
    body(new Lane(this, thread)).then(end, (error: unknown) => this.fail(error));
  }

  /** The request at hand: an identity, nothing more. */
  get request(): object | undefined {
    return callers.getStore();
  }

  /** Makes a call of the request at hand, or at once outside of requests. */
  async call<T>(call: Call<T>): Promise<T> {
    const attempt = callers.getStore();
    return attempt === undefined ? call.run() : this.enqueue(attempt.thread, attempt, call);
  }

  /** Lets something happen later, at any time or never. */
  float<T>(call: Call<T>): void {
    const history = this.numbers.of(`${this.current?.history} floats ${call.name}`);
    const thread: Thread = { name: 'a write on its way', isGhost: true, isOver: false, waiting: [], history };
    this.threads.push(thread);
    this.enqueue(thread, null, call).catch(() => undefined);
  }

  /** Ends the schedule with an error. */
  fail(error: unknown): void {
    this.failure ??= { error };
  }

  /** Lets calls happen, one at a time, until nothing waits any more. */
  async exhaust(): Promise<void> {
    for (;;) {
      await quiet();
      if (this.failure !== null) throw this.failure.error;
      if (this.guide.isExplored(() => this.stateKey(), this.left())) throw new Merged();
      const options = this.options();
      const option = options[options.length > 0 ? this.guide.choose(options) : 0];
      if (option === undefined) break;
      await this.take(option);
    }
    if (this.threads.some(({ isGhost, isOver }) => !isGhost && !isOver))
      throw new Violation('a lane waits for ever');
  }

  /** A number for a text. */
  numberOf(text: string): number {
    return this.numbers.of(text);
  }

  /** Makes a call wait for its turn. */
  enqueue<T>(thread: Thread, attempt: Attempt | null, call: Call<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const settle = (way: Promise<unknown>) => (way as Promise<T>).then(resolve, reject);
      thread.waiting.push({ call, attempt, settle });
    });
  }

  /** Runs code whose calls are a request's. */
  run<T>(attempt: Attempt, body: () => Promise<T>): Promise<T> {
    return callers.run(attempt, body);
  }

  /** The first is what happens undisturbed. */
  private options(): Option[] {
    const ready = this.threads.filter(({ waiting }) => waiting.length > 0);
    const alive = ready.filter(({ isGhost }) => !isGhost);
    const [current] = ready.filter((thread) => thread === this.current);
    const next = current !== undefined ? [current] : [...alive, ...ready.filter(({ isGhost }) => isGhost)];
    const options: Option[] = next.map((thread) => option('run', thread));
    for (const thread of next) options.push(...alternativesOf(thread));
    const [first] = next;
    // What nobody waits for may go on at any time, or never.
    if (first?.isGhost) options.push(option('kill', first));
    const { preemptions, faults } = this.left();
    if (preemptions > 0 && current && !current.waiting[0]?.call.isLocal) {
      for (const thread of ready)
        if (thread !== current) options.push(option('run', thread, { preemptions: 1 }));
    }
    if (faults > 0) for (const thread of next) options.push(...faultsOf(thread));
    return options;
  }

  /** What is left of the bounds. */
  private left(): Bounds {
    return {
      preemptions: this.bounds.preemptions - this.used.preemptions,
      faults: this.bounds.faults - this.used.faults,
    };
  }

  private stateKey(): string {
    const threads = this.threads.filter(({ isGhost, isOver, waiting }) => {
      return isGhost ? waiting.length > 0 : !isOver;
    });
    const histories = threads.map(({ history }) => history).sort();
    const written = [...this.written].map(([name, content]) => `${name}=${content}`).sort();
    // Only of a thread that could go on it matters that it was the latest: a switch would preempt it.
    const current = this.current?.waiting.length ? this.current.history : null;
    return `${current}|${histories}|${written}`;
  }

  private async take({ kind, thread, way, preemptions, faults }: Option): Promise<void> {
    this.used = {
      preemptions: this.used.preemptions + preemptions,
      faults: this.used.faults + faults,
    };
    if (kind === 'kill') thread.waiting = [];
    else if (kind === 'giveUp') this.giveUp(thread);
    else await this.step(thread, way);
  }

  private async step(thread: Thread, way: Way<unknown> | null): Promise<void> {
    const next = thread.waiting.shift();
    if (next === undefined) return;
    this.current = thread;
    const { call } = next;
    const { run, writes } = way ?? call;
    const seen = ['clock', ...call.reads].flatMap((pattern) => this.contentsOf(pattern));
    thread.history = this.numbers.of(`${thread.history} ${call.name} ${way?.name ?? ''} ${seen}`);
    this.trace.push(`${thread.name}: ${call.name}${way === null ? '' : ` (${way.name})`}`);
    const outcome = run();
    try {
      await outcome;
    } catch (error) {
      if (error instanceof Violation) this.fail(error);
    }
    for (const name of writes) {
      const content = name.startsWith('+') ? '' : await this.contentOf(name);
      this.written.set(name, content === null ? thread.history : this.numbers.of(`= ${content}`));
    }
    next.settle(outcome);
  }

  private contentsOf(pattern: string): string[] {
    if (!pattern.endsWith('*')) return [`${this.written.get(pattern) ?? 0}`];
    const prefix = pattern.slice(0, -1);
    const names = [...this.written.keys()].filter((name) => name.startsWith(prefix)).sort();
    return names.map((name) => `${name}=${this.written.get(name)}`);
  }

  private giveUp(thread: Thread): void {
    const attempt = thread.waiting[0]?.attempt;
    if (!attempt) return;
    this.current = thread;
    this.trace.push(`${thread.name}: gets no answer to ${attempt.name}`);
    const history = this.numbers.of(`${thread.history} runs on`);
    const ghost: Thread = {
      name: `${thread.name}, given up`,
      isGhost: true,
      isOver: false,
      waiting: thread.waiting,
      history,
    };
    this.threads.push(ghost);
    thread.waiting = [];
    thread.history = this.numbers.of(`${thread.history} lost`);
    attempt.thread = ghost;
    attempt.lose();
  }
}

/** Sends requests, one after the other. */
export class Lane {
  private readonly schedule: Schedule;
  private readonly thread: Thread;

  constructor(schedule: Schedule, thread: Thread) {
    this.schedule = schedule;
    this.thread = thread;
  }

  /** Something that the sender itself does. */
  call<T>(call: Call<T>): Promise<T> {
    return this.schedule.enqueue(this.thread, null, call);
  }

  /** Tells all that the sender knows between two requests, so that what led there does not matter any more. */
  knows(state: string): void {
    this.thread.history = this.schedule.numberOf(`${this.thread.name} knows ${state}`);
  }

  /** Runs a request to its answer; null when the sender gave it up, dead or not. */
  request<T>(name: string, body: () => Promise<T>): Promise<T | null> {
    return new Promise((resolve) => {
      const attempt: Attempt = { name, thread: this.thread, lose: () => resolve(null) };
      const answered = this.schedule.run(attempt, async () => {
        const answer = await body();
        await this.schedule.call(ANSWER);
        return answer;
      });
      answered.then(resolve, (error: unknown) => this.schedule.fail(error));
    });
  }
}

/** The answer reaches its sender. */
const ANSWER: Call<void> = {
  name: 'answer',
  run: async () => undefined,
  faults: [],
  alternatives: [],
  reads: [],
  writes: [],
  isLocal: true,
};

function option(kind: Option['kind'], thread: Thread, rest: Partial<Option> = {}): Option {
  return { kind, thread, way: null, preemptions: 0, faults: 0, ...rest };
}

function alternativesOf(thread: Thread): Option[] {
  return (thread.waiting[0]?.call.alternatives ?? []).map((way) => option('run', thread, { way }));
}

function faultsOf(thread: Thread): Option[] {
  const [next] = thread.waiting;
  if (next === undefined) return [];
  const { call, attempt } = next;
  const faults = call.faults.map((way) => option('run', thread, { way, faults: 1 }));
  const canBeGivenUp = attempt !== null && !thread.isGhost && (!call.isLocal || call === ANSWER);
  return canBeGivenUp ? [...faults, option('giveUp', thread, { faults: 1 })] : faults;
}

/** Until nothing moves: what is awaited then are calls alone. */
function quiet(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
