import { noAuthorization } from '../../relay/authorization.ts';
import type { RelayOptions } from '../../relay/relay.ts';

/** What nobody else can say for a test's relay. */
type Given = Pick<RelayOptions, 'ingestUrl' | 'timers' | 'log'>;

/** Options of a relay between an API server of the demo and an ingest, neither of which asks who it is. */
export function relayOptions<More extends Partial<RelayOptions>>(
  apiServer: { readonly url: string },
  options: Given & More,
) {
  return {
    cluster: 'test',
    relay: 'test',
    mode: 'slices' as const,
    namespaces: null,
    settleMs: 25,
    maxRemoved: 0.5,
    readAccess: async () => ({ server: apiServer.url, tls: {}, proxy: null, headers: {} }),
    authorize: noAuthorization,
    random: () => 0,
    ...options,
  };
}
