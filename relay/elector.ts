import { randomUUID } from 'node:crypto';
import type { Logger } from '../wire/log.ts';
import type { Connection } from './connection.ts';
import { formatMicroTime, type Lease, LeaseClient, type LeaseName, type LeaseSpec } from './lease.ts';
import { Pulse, type Timers } from './timers.ts';

/** Share of the retry period by which a standby's looks are spread. Source: client-go, `JitterFactor`. */
const JITTER_FACTOR = 1.2;

const NO_ANSWER = 'the API server did not answer in time';

/** How long an election takes its time, in milliseconds, as in client-go. */
export interface ElectionTimes {
  /** A Lease that did not change for so long is free. Told to the others in whole seconds, rounded up. */
  readonly leaseMs: number;
  /** A leader that could not renew for so long stands down: shorter, so that it has stopped when the Lease is free. */
  readonly renewDeadlineMs: number;
  /** Between two looks. */
  readonly retryMs: number;
}

export interface ElectorDeps {
  readonly lease: LeaseName;
  readonly times: ElectionTimes;
  /** Name of this process for people; a random part is added, so that no two processes are taken for one. */
  readonly candidate: string;
  readonly connection: Connection;
  readonly timers: Timers;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  readonly log: Logger;
}

/** What came of one look at the Lease: held, somebody else's, or neither (to be tried again). */
type Attempt = 'held' | 'taken' | 'failed';

/** The time from taking the Lease to losing it, under one holder. */
interface Term {
  readonly epoch: number;
  /** Monotonic time when the last successful write began: others count from later. */
  readonly renewedAt: number;
  readonly acquireTime: string;
}

/**
 * Takes and keeps a Lease in the manner of client-go's leader election (W17). Times written in the Lease are for people:
 * whether it is free is told by this process's monotonic clock alone, from when it last saw the Lease change.
 *
 * The Lease alone keeps nobody from writing late; the epoch does, at the receiver (W18). So each term, of the same process
 * too, has an epoch of its own, higher than any that this process has seen: it is the Lease's `leaseTransitions`.
 */
export class Elector {
  readonly identity: string;
  readonly #deps: ElectorDeps;
  readonly #client: LeaseClient;
  readonly #pulse = new Pulse();
  /** The Lease as it was last read or written, and since when it is so; null while there is none. */
  #observed: { readonly lease: Lease; readonly at: number } | null = null;
  #term: Term | null = null;
  /** The highest epoch that was seen, in the Lease or at the receiver. */
  #highestEpoch = -1;
  /** The lowest epoch that will do for this term. */
  #wantedEpoch = 0;
  #failure: string | null = 'it was not read yet';

  constructor(deps: ElectorDeps) {
    this.#deps = deps;
    this.#client = new LeaseClient(deps.connection, deps.lease);
    this.identity = `${deps.candidate}_${randomUUID()}`;
  }

  /** Epoch of the term; null for a standby. */
  get epoch(): number | null {
    return this.#term?.epoch ?? null;
  }

  /** Why the Lease could not be read or written, in a line for people; null when it could. */
  get failure(): string | null {
    return this.#failure;
  }

  /** May something be sent under this epoch now? False once the Lease was not renewed for its whole duration (W17). */
  holds(epoch: number): boolean {
    const { times, timers } = this.#deps;
    const term = this.#term;
    return term?.epoch === epoch && timers.monotonic() - term.renewedAt < times.leaseMs;
  }

  /** Looks until the Lease is held. @returns false when `signal` was aborted first. */
  async acquire(signal: AbortSignal): Promise<boolean> {
    const { times, timers, random } = this.#deps;
    while (!signal.aborted) {
      if ((await this.#attempt(this.#requestMs, signal)) === 'held') return true;
      await timers.sleep(times.retryMs * (1 + JITTER_FACTOR * random()), signal);
    }
    return false;
  }

  /** Renews the Lease. @returns why it was lost, for people; null when `signal` was aborted, with the Lease still held. */
  async keep(signal: AbortSignal): Promise<string | null> {
    const { times, timers } = this.#deps;
    signal.addEventListener('abort', () => this.#pulse.notify(), { once: true });
    const leftMs = () => (this.#term?.renewedAt ?? 0) + times.renewDeadlineMs - timers.monotonic();
    while (!signal.aborted) {
      await this.#pulse.wait(timers, Math.max(0, Math.min(times.retryMs, leftMs())));
      if (signal.aborted) break;
      if (leftMs() <= 0) return this.#endTerm('it was not renewed in time');
      const attempt = await this.#attempt(Math.min(this.#requestMs, leftMs()), signal);
      if (attempt === 'taken') return this.#endTerm('another relay holds it');
    }
    return null;
  }

  /**
   * While the Lease is kept: makes the term's epoch higher than `current`, under which the receiver has heard somebody (W18).
   * @returns false when the Lease turns out to be lost, or `signal` was aborted.
   */
  async raise(current: number, signal: AbortSignal): Promise<boolean> {
    this.#highestEpoch = Math.max(this.#highestEpoch, current);
    this.#wantedEpoch = this.#highestEpoch + 1;
    this.#pulse.notify();
    const isRaised = () => (this.#term?.epoch ?? -1) >= this.#wantedEpoch;
    while (!signal.aborted && this.#term !== null && !isRaised()) await this.#pulse.next();
    return !signal.aborted && isRaised();
  }

  /** Gives a held Lease to whoever asks first. To be called when nothing is sent any more. */
  async release(): Promise<void> {
    const { timers, log } = this.#deps;
    const term = this.#term;
    if (term === null) return;
    this.#term = null;
    const spec = this.#specOf({ ...term, acquireTime: formatMicroTime(timers.now()) });
    const attempt = await this.#within(this.#requestMs, new AbortController().signal, (signal) =>
      this.#writeOwn({ ...spec, holderIdentity: '', leaseDurationSeconds: 1 }, signal),
    );
    if (attempt === 'held') log.info('Lease released');
    else log.warn('Lease could not be released, it will expire', { reason: this.#failure });
  }

  /** For one look with all its requests, in milliseconds: well below the renew deadline, so that a second one fits. */
  get #requestMs(): number {
    return this.#deps.times.renewDeadlineMs / 2;
  }

  #attempt(limitMs: number, stop: AbortSignal): Promise<Attempt> {
    const term = this.#term;
    return this.#within(limitMs, stop, (signal) =>
      term === null ? this.#tryAcquire(signal) : this.#tryRenew(term, signal),
    );
  }

  /** Reads always: a process that was frozen may know nothing but old things. */
  async #tryAcquire(signal: AbortSignal): Promise<Attempt> {
    const { timers } = this.#deps;
    const startedAt = timers.monotonic();
    if ((await this.#read(signal)) === 'failed') return 'failed';
    if (!this.#isFree()) return 'taken';
    const acquireTime = formatMicroTime(timers.now());
    const term = { epoch: this.#highestEpoch + 1, renewedAt: startedAt, acquireTime };
    const written = await this.#write(this.#specOf(term), signal);
    return written === 'held' ? this.#begin(term, signal) : 'failed';
  }

  async #tryRenew(term: Term, signal: AbortSignal): Promise<Attempt> {
    const epoch = Math.max(term.epoch, this.#wantedEpoch);
    const next = { ...term, epoch, renewedAt: this.#deps.timers.monotonic() };
    const written = await this.#writeOwn(this.#specOf(next), signal);
    return written === 'held' ? this.#begin(next, signal) : written;
  }

  /** An answer that comes when its time is over changes nothing. */
  #begin(term: Term, signal: AbortSignal): Attempt {
    if (signal.aborted) return 'failed';
    this.#term = term;
    this.#highestEpoch = Math.max(this.#highestEpoch, term.epoch);
    this.#pulse.notify();
    return 'held';
  }

  #endTerm(reason: string): string {
    this.#term = null;
    this.#pulse.notify();
    return reason;
  }

  #specOf({ epoch, acquireTime }: Term): LeaseSpec {
    const { times, timers } = this.#deps;
    return {
      holderIdentity: this.identity,
      leaseDurationSeconds: Math.ceil(times.leaseMs / 1000),
      acquireTime,
      renewTime: formatMicroTime(timers.now()),
      leaseTransitions: epoch,
    };
  }

  /** May a standby take it? */
  #isFree(): boolean {
    if (this.#observed === null) return true;
    const { lease, at } = this.#observed;
    const { holderIdentity, leaseDurationSeconds } = lease.spec;
    if (!holderIdentity || holderIdentity === this.identity) return true;
    return this.#deps.timers.monotonic() - at >= (leaseDurationSeconds ?? 0) * 1000;
  }

  /** Writes over what this process wrote last; if that is not there any more, over what is, unless it is somebody else's. */
  async #writeOwn(spec: LeaseSpec, signal: AbortSignal): Promise<Attempt> {
    const first = await this.#write(spec, signal);
    if (first !== 'conflict') return first;
    if ((await this.#read(signal)) === 'failed') return 'failed';
    if (this.#observed !== null && this.#observed.lease.spec.holderIdentity !== this.identity) return 'taken';
    return (await this.#write(spec, signal)) === 'held' ? 'held' : 'failed';
  }

  async #write(spec: LeaseSpec, signal: AbortSignal): Promise<'held' | 'conflict' | 'failed'> {
    const answer =
      this.#observed === null
        ? await this.#client.create(spec, signal)
        : await this.#client.update(this.#observed.lease, spec, signal);
    switch (answer.kind) {
      case 'ok':
        this.#observe(answer.lease);
        return 'held';
      case 'absent':
      case 'conflict':
        return 'conflict';
      case 'failed':
        this.#noteFailure(answer.reason, signal);
        return 'failed';
      default:
        return answer satisfies never;
    }
  }

  async #read(signal: AbortSignal): Promise<'read' | 'failed'> {
    const answer = await this.#client.read(signal);
    switch (answer.kind) {
      case 'ok':
        this.#observe(answer.lease);
        return 'read';
      case 'absent':
        this.#failure = null;
        this.#observed = null;
        return 'read';
      case 'conflict':
        this.#noteFailure('409 at a read', signal);
        return 'failed';
      case 'failed':
        this.#noteFailure(answer.reason, signal);
        return 'failed';
      default:
        return answer satisfies never;
    }
  }

  /** Whoever changed it, and whatever: the time until it is free begins anew. */
  #observe(lease: Lease): void {
    const { timers, log } = this.#deps;
    this.#failure = null;
    const former = this.#observed?.lease;
    if (former?.metadata.resourceVersion === lease.metadata.resourceVersion) return;
    const { holderIdentity, leaseTransitions } = lease.spec;
    this.#observed = { lease, at: timers.monotonic() };
    this.#highestEpoch = Math.max(this.#highestEpoch, leaseTransitions ?? 0);
    const isNew = holderIdentity !== former?.spec.holderIdentity && holderIdentity !== this.identity;
    if (isNew && holderIdentity) log.info('another relay leads', { holder: holderIdentity });
  }

  /** Says each reason once, not at each look; what was given up has none. */
  #noteFailure(reason: string, signal: AbortSignal): void {
    if (signal.aborted) return;
    if (reason !== this.#failure) this.#deps.log.warn('Lease cannot be had, trying on', { reason });
    this.#failure = reason;
  }

  /** Bounds a look in time, whatever it waits for. */
  async #within(
    limitMs: number,
    stop: AbortSignal,
    work: (signal: AbortSignal) => Promise<Attempt>,
  ): Promise<Attempt> {
    const timer = new AbortController();
    const limit = new AbortController();
    const end = () => timer.abort();
    stop.addEventListener('abort', end, { once: true });
    let isDone = false;
    const timeout = this.#deps.timers.sleep(limitMs, timer.signal).then((): Attempt => {
      if (!isDone) this.#noteFailure(NO_ANSWER, stop);
      limit.abort(new Error(NO_ANSWER));
      return 'failed';
    });
    try {
      return await Promise.race([work(limit.signal), timeout]);
    } finally {
      isDone = true;
      stop.removeEventListener('abort', end);
      timer.abort();
    }
  }
}
