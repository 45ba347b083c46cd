import type { Logger } from '../wire/log.ts';
import { Backoff } from './backoff.ts';
import { Connection } from './connection.ts';
import { type ElectionTimes, Elector } from './elector.ts';
import type { LeaseName } from './lease.ts';
import { Metrics } from './metrics.ts';
import { type Relay, type RelayEnd, type RelayOptions, startRelay } from './relay.ts';

export interface ElectedRelayOptions extends Omit<RelayOptions, 'epoch' | 'maySend'> {
  readonly lease: LeaseName;
  readonly times: ElectionTimes;
}

/**
 * A relay that works while it holds a Lease and else stands by: one of several watches the cluster (W17, W18). A standby
 * lists and watches nothing, and is ready while it can read the Lease, so that a rollout goes on (W16).
 */
export function startElectedRelay(options: ElectedRelayOptions): Relay {
  return new ElectedRelay(options);
}

class ElectedRelay implements Relay {
  readonly done: Promise<RelayEnd>;
  readonly #options: ElectedRelayOptions;
  readonly #log: Logger;
  readonly #stop = new AbortController();
  readonly #connection: Connection;
  readonly #elector: Elector;
  readonly #standbyMetrics = new Metrics();
  /** Of a cluster for which somebody else raises the epoch time and again. */
  readonly #backoff: Backoff;
  /** Each epoch has a relay of its own: what one has sent and seen says nothing to the next. */
  #leading: Relay | null = null;

  constructor(options: ElectedRelayOptions) {
    this.#options = options;
    const { relay: candidate, lease, times, readAccess, timers, random } = options;
    this.#log = options.log.with({ component: 'leadership', lease: `${lease.namespace}/${lease.name}` });
    this.#connection = new Connection({ readAccess, timers, log: this.#log });
    this.#elector = new Elector({
      lease,
      times,
      candidate,
      connection: this.#connection,
      timers,
      random,
      log: this.#log,
    });
    this.#backoff = new Backoff(timers, random);
    this.#standbyMetrics.set('endpoints_watcher_relay_leader', {}, 0);
    this.done = this.#run();
    // Whoever waits for `done` hears of a fault; nobody has to.
    this.done.catch(() => {});
  }

  get metrics(): Metrics {
    return this.#leading?.metrics ?? this.#standbyMetrics;
  }

  notReady(): string[] {
    if (this.#leading !== null) return this.#leading.notReady();
    const { namespace, name } = this.#options.lease;
    const { epoch, failure } = this.#elector;
    if (epoch !== null) return [`epoch ${epoch} is over, a higher one is taken`];
    return failure === null ? [] : [`Lease ${namespace}/${name}: ${failure}`];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.done.catch(() => {});
  }

  async #run(): Promise<RelayEnd> {
    await using _connection = this.#connection;
    const { signal } = this.#stop;
    try {
      while (await this.#elector.acquire(signal)) {
        const end = await this.#lead(signal);
        if (end !== null) return end;
      }
      return { kind: 'stopped' };
    } finally {
      await this.#elector.release();
    }
  }

  /** @returns how the relay ended, or null when it stands by again, or was stopped. */
  async #lead(stop: AbortSignal): Promise<RelayEnd | null> {
    const { timers } = this.#options;
    const term = new AbortController();
    const signal = AbortSignal.any([stop, term.signal]);
    const over = this.#elector.keep(signal).then((reason) => {
      if (reason !== null) this.#log.warn('no longer leads, stands by', { reason });
      term.abort();
      return null;
    });
    try {
      for (;;) {
        const end = await this.#relayUntil(over);
        if (end?.kind !== 'fenced') return end;
        const { epoch, current } = end;
        this.#log.warn('ingest has heard a higher epoch', { epoch, current });
        await timers.sleep(this.#backoff.next(), signal);
        // Whoever holds the Lease is the leader, also if it was deleted and its count begins anew (W18).
        if (!(await this.#elector.raise(current, signal))) return await over;
      }
    } finally {
      term.abort();
      await over;
    }
  }

  /** Relays under the present epoch until that ends, or the term is over. */
  async #relayUntil(over: Promise<null>): Promise<RelayEnd | null> {
    const { epoch } = this.#elector;
    if (epoch === null) return over;
    this.#log.info('leads', { epoch, identity: this.#elector.identity });
    await using relay = startRelay({
      ...this.#options,
      epoch,
      maySend: () => this.#elector.holds(epoch),
    });
    this.#leading = relay;
    try {
      return await Promise.race([relay.done, over]);
    } finally {
      this.#leading = null;
    }
  }
}
