import { setTimeout as wait } from 'node:timers/promises';
import type { ApiServer } from '../../infra/local/cluster/api-server.ts';
import type { Fault as ApiFault, Misbehaviour, Verb } from '../../infra/local/cluster/misbehaviour.ts';
import { FAULT_POINTS, type Fault as PortFault } from '../../infra/local/faults.ts';
import type { Random } from './cluster-life.ts';
import type { KeptProcess } from './kept-process.ts';

/** Faults that were tried, by name. */
export type FaultCounts = Map<string, number>;

/** What faults get hold of. */
export interface FaultTargets {
  readonly apiServer: ApiServer;
  readonly stack: KeptProcess;
  readonly relays: readonly KeptProcess[];
  /** Sends JSON to the stack; null when nobody answered. */
  readonly ask: (method: string, path: string, body: unknown) => Promise<unknown>;
}

const API_FAULTS: readonly ApiFault[] = [
  { kind: 'resetBeforeHeaders' },
  { kind: 'resetMidStream', afterLines: 3 },
  { kind: 'stallBeforeHeaders' },
  { kind: 'status', code: 410 },
  { kind: 'status', code: 429, retryAfterSeconds: 1 },
  { kind: 'status', code: 500 },
  { kind: 'status', code: 503 },
  { kind: 'errorEvent', code: 410, afterLines: 2 },
  { kind: 'errorEvent', code: 500, afterLines: 2 },
  { kind: 'shortWatch', afterLines: 5 },
  { kind: 'cutList' },
  { kind: 'cutLine', afterLines: 4 },
  { kind: 'garbageLine', afterLines: 4 },
  { kind: 'closeSlowReader', pendingChanges: 5 },
];
const ANY_VERB: readonly Verb[] = ['list', 'watch', 'get', 'update'];
/** Of faults that not every request can meet. */
const VERBS: Readonly<Partial<Record<ApiFault['kind'], readonly Verb[]>>> = {
  cutList: ['list'],
  errorEvent: ['watch'],
  shortWatch: ['watch'],
  cutLine: ['watch'],
  garbageLine: ['watch'],
  closeSlowReader: ['watch'],
};

/** Longer than a Lease is held, than a request waits, and than its fence (P8). */
const MAX_FREEZE_MS = 20_000;

/** A pause between two faults of one sort, in milliseconds: from a to b. */
type Pause = readonly [from: number, to: number];

/** Makes everything go wrong at random until the signal aborts; then nothing is wrong any more. */
export class FaultSchedule {
  readonly counts: FaultCounts = new Map();
  readonly #targets: FaultTargets;
  readonly #random: Random;

  constructor(targets: FaultTargets, random: Random) {
    this.#targets = targets;
    this.#random = random;
  }

  /** @param killing aborts earlier: the processes that live on then are those whose memory is measured. */
  async run(signal: AbortSignal, killing: AbortSignal): Promise<void> {
    await Promise.all([
      this.#repeat([500, 3_000], signal, () => this.#disturbApiServer()),
      this.#repeat([500, 5_000], signal, () => this.#putPortFaults()),
      this.#repeat([2_000, 8_000], signal, () => this.#sweep()),
      this.#repeat([4_000, 20_000], killing, () => this.#kill()),
    ]);
  }

  async #repeat([from, to]: Pause, signal: AbortSignal, act: () => Promise<void>): Promise<void> {
    while (!signal.aborted) {
      await wait(from + this.#random(to - from), undefined, { signal }).catch(() => {});
      if (!signal.aborted) await act();
    }
  }

  async #disturbApiServer(): Promise<void> {
    const { apiServer } = this.#targets;
    const choice = this.#random(API_FAULTS.length + 4);
    const fault = API_FAULTS[choice];
    if (fault === undefined) return this.#disturbWholeServer(choice - API_FAULTS.length);
    const verbs = VERBS[fault.kind] ?? ANY_VERB;
    const verb = verbs[this.#random(verbs.length)] ?? 'list';
    const misbehaviour: Misbehaviour = { fault, on: { verb }, times: 1 + this.#random(2) };
    this.#count(`api server: ${verb} ${fault.kind}${'code' in fault ? ` ${fault.code}` : ''}`);
    await using _disturbed = await apiServer.misbehave(misbehaviour);
    // Watches that would last meet it only when they are opened anew.
    if (this.#random(3) === 0) await apiServer.restart();
    await wait(300 + this.#random(2_000));
  }

  async #disturbWholeServer(choice: number): Promise<void> {
    const { apiServer } = this.#targets;
    switch (choice) {
      case 0: {
        this.#count('api server: refuse');
        await using _refusing = await apiServer.misbehave({ fault: { kind: 'refuse' } });
        await wait(200 + this.#random(2_500));
        return;
      }
      case 1:
        this.#count('api server: restart');
        return apiServer.restart();
      case 2:
        this.#count('api server: compact and restart');
        apiServer.compact();
        return apiServer.restart();
      default:
        this.#count('api server: compact');
        return apiServer.compact();
    }
  }

  async #putPortFaults(): Promise<void> {
    const faults = Array.from({ length: 1 + this.#random(3) }, (): PortFault => {
      const on = FAULT_POINTS[this.#random(FAULT_POINTS.length)] ?? 'bus.publish';
      const kinds =
        on === 'bus.publish' ? (['error', 'throttle', 'partial'] as const) : (['error', 'throttle'] as const);
      const how = kinds[this.#random(kinds.length)] ?? 'error';
      const when = this.#random(2) === 0 ? 'before' : 'after';
      this.#count(`stack: ${how} ${how === 'partial' ? '' : `${when} `}${on}`);
      return { on, when, do: how, skip: this.#random(10), times: 1 + this.#random(3) };
    });
    await this.#targets.ask('PUT', '/local/faults', { faults });
  }

  async #sweep(): Promise<void> {
    this.#count('sweep in the middle');
    await this.#targets.ask('POST', '/local/sweep', {});
  }

  async #kill(): Promise<void> {
    const { stack, relays, ask } = this.#targets;
    const relay = relays[this.#random(relays.length)];
    const pauseMs = 100 + this.#random(2_000);
    switch (this.#random(6)) {
      case 0:
        this.#count('relay: kill -9');
        return relay?.kill(pauseMs);
      case 1:
        this.#count('relay: frozen');
        return relay?.freeze(1_000 + this.#random(MAX_FREEZE_MS));
      case 2:
        this.#count('stack: kill -9');
        return stack.kill(pauseMs);
      case 3:
        this.#count('stack: frozen');
        return stack.freeze(1_000 + this.#random(MAX_FREEZE_MS));
      default: {
        const on = FAULT_POINTS[this.#random(FAULT_POINTS.length)] ?? 'bus.publish';
        const when = this.#random(2) === 0 ? 'before' : 'after';
        this.#count(`stack: exit ${when} ${on}`);
        const fault: PortFault = { on, when, do: 'exit', skip: this.#random(3), times: 1 };
        await ask('PUT', '/local/faults', { faults: [fault] });
      }
    }
  }

  #count(name: string): void {
    this.counts.set(name, (this.counts.get(name) ?? 0) + 1);
  }
}
