import { noAuthorization } from '../../relay/authorization.ts';
import type { ReadAccess } from '../../relay/connection.ts';
import type { EnrichmentName } from '../../relay/enrichment-watch.ts';
import { kubeconfigAccess } from '../../relay/kubeconfig.ts';
import { describeEnd, type Relay, startRelay } from '../../relay/relay.ts';
import { systemTimers } from '../../relay/timers.ts';
import type { Mode } from '../../wire/envelope.ts';
import type { Logger } from '../../wire/log.ts';
import { type ApiServer, startApiServer } from './cluster/api-server.ts';
import { startDemoLife } from './cluster/demo-life.ts';
import type { StackClock } from './stack-clock.ts';

/** How long the relay of a laptop waits for slices that change together, in milliseconds (W10a). */
const SETTLE_MS = 25;
/** Share of a service's addresses that goes only after a second look. */
const MAX_REMOVED = 0.5;

/** What is watched: a demo cluster made for it, or the user's own. */
export type ClusterSource =
  | { readonly kind: 'demo' }
  | { readonly kind: 'kubeconfig'; readonly kubeconfig: string | null; readonly context: string | null };

export interface WatchedClusterOptions {
  readonly source: ClusterSource;
  /** Name of the cluster in keys and deltas. */
  readonly name: string;
  readonly mode: Mode;
  readonly namespaces: readonly string[] | null;
  /** What is watched to tell more of each address; a demo cluster has Servers when they are. */
  readonly enrich: readonly EnrichmentName[];
  /** Where ingest listens. */
  readonly ingestUrl: URL;
  readonly clock: StackClock;
  readonly logger: Logger;
}

/** A cluster with a relay that tells the stack about it. */
export interface WatchedCluster extends AsyncDisposable {
  readonly relay: Relay;
  /** The demo cluster's API server; null for a cluster of the user's. */
  readonly apiServer: ApiServer | null;
}

/**
 * Starts a relay in this process, and for a demo the cluster that it watches.
 * @throws an Error with one line for people when there is no usable kubeconfig.
 */
export async function startWatchedCluster(options: WatchedClusterOptions): Promise<WatchedCluster> {
  const { source, name, mode, namespaces, enrich, ingestUrl, clock, logger } = options;
  await using opened = new AsyncDisposableStack();
  const linkerdPolicy = enrich.includes('servers');
  const apiServer =
    source.kind === 'demo' ? opened.use(await startApiServer({ clock, linkerdPolicy })) : null;
  const readAccess: ReadAccess = source.kind === 'demo' ? demoAccess(apiServer) : kubeconfigAccess(source);
  await readAccess('aged');
  const relay = opened.use(
    startRelay({
      cluster: name,
      relay: 'laptop',
      epoch: Math.floor(clock.now() / 1000),
      mode,
      namespaces,
      enrich,
      settleMs: SETTLE_MS,
      maxRemoved: MAX_REMOVED,
      readAccess,
      ingestUrl,
      authorize: noAuthorization,
      timers: { ...systemTimers, now: () => clock.now() },
      random: Math.random,
      log: logger,
    }),
  );
  void relay.done.then((end) => {
    if (end.kind !== 'stopped') logger.error('relay ended', { reason: describeEnd(end) });
  });
  if (apiServer !== null) {
    const stop = new AbortController();
    const life = startDemoLife({ apiServer, clock, linkerdPolicy, signal: stop.signal });
    opened.defer(async () => {
      stop.abort();
      await life.finished;
    });
  }
  const running = opened.move();
  return { relay, apiServer, [Symbol.asyncDispose]: () => running.disposeAsync() };
}

function demoAccess(apiServer: ApiServer | null): ReadAccess {
  return async () => ({ server: apiServer?.url ?? '', tls: {}, proxy: null, headers: {} });
}
