import { type ApiServer, startApiServer } from '../../infra/local/cluster/api-server.ts';
import { type Relay, type RelayOptions, startRelay } from '../../relay/relay.ts';
import { createService, createSlice, testLog } from './builders.ts';
import { ManualTimers } from './manual-timers.ts';
import { relayOptions } from './relay-options.ts';
import { ScriptedIngest } from './scripted-ingest.ts';

/** A demo API server, an ingest by contract, and relays between them; only time is not real. */
export class Rig implements AsyncDisposable {
  readonly timers = new ManualTimers();
  readonly server: ApiServer;
  readonly ingest: ScriptedIngest;
  readonly #stack = new AsyncDisposableStack();

  private constructor(server: ApiServer, ingest: ScriptedIngest) {
    this.server = server;
    this.ingest = ingest;
  }

  static async start(): Promise<Rig> {
    // The server's own watches end by its clock, which stands still.
    const server = await startApiServer({ clock: new ManualTimers() });
    let rig: Rig | null = null;
    const ingest = await ScriptedIngest.start(() => rig?.timers.monotonic() ?? 0);
    rig = new Rig(server, ingest);
    return rig;
  }

  relay(options: Partial<RelayOptions> = {}): Relay {
    const relay = startRelay(
      relayOptions(this.server, {
        epoch: 7,
        ingestUrl: this.ingest.url,
        timers: this.timers,
        log: testLog(),
        ...options,
      }),
    );
    this.#stack.use(relay);
    return relay;
  }

  /** A relay whose first inventory is done. */
  async synced(options: Partial<RelayOptions> = {}): Promise<Relay> {
    const relay = this.relay(options);
    await this.timers.until(() => relay.notReady().length === 0, 'ready');
    await this.settled();
    return relay;
  }

  /** What the cluster has of the watched kinds, in the form of `ScriptedIngest.objects`. */
  get truth(): string[] {
    const { objects } = this.server;
    return [...objects.list('Service'), ...objects.list('EndpointSlice')]
      .map(
        ({ kind, metadata }) => `${kind}/${metadata.namespace}/${metadata.name} ${metadata.resourceVersion}`,
      )
      .sort();
  }

  /** Until ingest has the truth. */
  settled(stepMs?: number): Promise<void> {
    const isSettled = () => JSON.stringify(this.ingest.objects) === JSON.stringify(this.truth);
    return this.timers.until(isSettled, 'the truth', stepMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
    await this.ingest[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
  }
}

/** Fills a cluster: `web` with two slices, `db` with one. */
export function populate({ objects }: ApiServer): void {
  createService(objects, 'web');
  createService(objects, 'db');
  createSlice(objects, { name: 'web-1', service: 'web' });
  createSlice(objects, { name: 'web-2', service: 'web' });
  createSlice(objects, { name: 'db-1', service: 'db' });
}
