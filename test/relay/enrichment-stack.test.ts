import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StackClock } from '../../infra/local/stack-clock.ts';
import { startWatchedCluster } from '../../infra/local/watched-cluster.ts';
import { portSet } from '../../wire/api.ts';
import { type DeltaDetail, deltaDetail } from '../../wire/delta.ts';
import { startQuietStack } from '../quiet-stack.ts';
import { testLog } from './builders.ts';

/** One read of the bus waits so long for news, in milliseconds; it never should. */
const WAIT_MS = 20_000;
/** The demo goes on for ever: what has not come among so many deltas does not come. */
const MAX_DELTAS = 40;

test('owners are in the answers, and a Server that appears is an update of each address, on the bus and in the answers', async () => {
  const clock = new StackClock();
  const logger = testLog();
  await using stack = await startQuietStack({ logger, clock });
  await using watched = await startWatchedCluster({
    source: { kind: 'demo' },
    name: 'demo',
    mode: 'slices',
    namespaces: null,
    enrich: ['pods', 'servers'],
    ingestUrl: new URL(stack.url),
    clock,
    logger,
  });
  let after = 0;
  const nextDelta = async (isWanted: (detail: DeltaDetail) => boolean): Promise<DeltaDetail> => {
    for (;;) {
      assert.ok(after < MAX_DELTAS, 'it did not come');
      const { entries } = await stack.bus.read({ after, limit: 1, wait: WAIT_MS });
      const [entry] = entries;
      assert.ok(entry, 'nothing came');
      after = entry.n;
      const { data } = deltaDetail.safeParse(entry.detail);
      if (data?.service === 'my-service' && isWanted(data)) return data;
    }
  };
  const answer = async () => {
    const path = '/v1/clusters/demo/namespaces/default/services/my-service/endpoints?port=80';
    const response = await fetch(`${stack.url}${path}`);
    return portSet.parse(await response.json()).addresses;
  };

  await nextDelta(({ size }) => size === 3);
  const owner = { kind: 'Deployment', name: 'my-service' };
  const before = await answer();
  assert.deepEqual(
    before.map((address) => address.owner),
    [owner, owner, owner],
  );
  assert.deepEqual(
    before.map(({ opaqueProtocol }) => opaqueProtocol ?? false),
    [false, false, false],
  );

  watched.apiServer?.objects.create({
    kind: 'Server',
    metadata: { name: 'my-service', namespace: 'default' },
    spec: { podSelector: { matchLabels: { app: 'my-service' } }, port: 'http', proxyProtocol: 'opaque' },
  });
  const delta = await nextDelta(({ updated }) => updated.length > 0);
  assert.deepEqual([delta.added.length, delta.removed.length, delta.size], [0, 0, 3]);
  assert.deepEqual(
    delta.updated.map((address) => [address.opaqueProtocol, address.owner]),
    [
      [true, owner],
      [true, owner],
      [true, owner],
    ],
  );
  assert.deepEqual(
    [delta.cause.kind, delta.cause.type, delta.triggeredAt],
    ['EndpointSlice', 'MODIFIED', null],
  );
  assert.deepEqual(
    (await answer()).map(({ opaqueProtocol }) => opaqueProtocol),
    [true, true, true],
  );
});
