import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { addressKey } from '../../core/address.ts';
import { kindOfMode } from '../../core/changes.ts';
import type { WatchedObject } from '../../core/kubernetes.ts';
import { RENAME_WINDOW_MS, windowsUntil } from '../../core/rename-window.ts';
import { emptyState, type ServiceState } from '../../core/service-state.ts';
import type { EpochMs } from '../../core/time.ts';
import { type Transition, transit } from '../../core/transition.ts';
import { sortEvents } from '../../functions/ingest/intake.ts';
import { hashKey } from '../../wire/key-hash.ts';
import type { ReceivedDelta } from '../replica.ts';
import { endpoint, endpoints, HTTP, HTTP_8080, service, slice } from './builders.ts';
import { CoreCluster } from './core-cluster.ts';
import { ObservedSets } from './observed-sets.ts';

interface Sent {
  readonly type: string;
  readonly object: WatchedObject;
  readonly former?: readonly string[];
}

const put = (object: WatchedObject, more: object = {}): Sent => ({ type: 'MODIFIED', object, ...more });
const gone = (object: WatchedObject): Sent => ({ type: 'DELETED', object });

/** A batch of events, or so many milliseconds; then the deltas that come of it, as `describeDelta` writes them. */
type Step = readonly [told: readonly Sent[] | number, want: readonly string[]];

/** `80 = 2: +10.0.0.1:8080 ~10.0.0.2:8080 -10.0.0.3:8080 gone`: the port, its new size, what changed. */
function describeDelta({ detail }: ReceivedDelta): string {
  const { group, service: name, exists, size, added, updated, removed } = detail;
  const port = group.slice(group.lastIndexOf(':') + 1);
  const changes = [
    ...added.map((address) => `+${addressKey(address)}`),
    ...updated.map((address) => `~${addressKey(address)}`),
    ...removed.map((address) => `-${addressKey(address)} ${address.reason}`),
  ];
  const head = `${name === 'web' ? '' : `${name}:`}${port} = ${exists ? size : 'no Service'}`;
  return changes.length === 0 ? head : `${head}: ${changes.join(' ')}`;
}

function checkStories(
  title: string,
  mode: 'slices' | 'endpoints',
  stories: Readonly<Record<string, readonly Step[]>>,
) {
  describe(title, () => {
    for (const [sentence, steps] of Object.entries(stories))
      test(sentence, async () => {
        const [whole, warm] = [new CoreCluster(mode), new CoreCluster(mode, { usesHolders: true })];
        const sets = new ObservedSets(whole);
        for (const [index, [told, want]] of steps.entries()) {
          for (const cluster of [whole, warm]) {
            if (typeof told === 'number') await cluster.advance(told);
            else cluster.post(told);
          }
          const deltas = sets.check(`step ${index}`, warm.drain());
          assert.deepEqual(deltas.map(describeDelta), want, `step ${index}`);
        }
      });
  });
}

const ADMIN = { name: 'admin', port: 81 };
const ADMIN_9000 = { name: 'admin', port: 9000 };
const named = (name: string, port = 80) => ({ name, port });
const portsAt = (version: number, ...ports: { name: string; port: number }[]) =>
  put(service({ ports }, { version }));
const sliceAt = (name: string, ip: string, version: number, ...ports: { name: string; port: number }[]) =>
  put(slice(name, [ip], { version, ports }));
const [ONE, TWO, THREE] = ['10.0.0.1', '10.0.0.2', '10.0.0.3'];
/** Service `web` and a slice with one address. */
const START: Step = [[put(service()), put(slice('a', [ONE]))], ['80 = 1: +10.0.0.1:8080']];

checkStories('a batch is one difference a port (S4)', 'slices', {
  'a Service and its slices together make no false NoEndpoints, in either order': [
    [
      [put(slice('a', [ONE])), put(slice('b', [TWO])), put(service())],
      ['80 = 2: +10.0.0.1:8080 +10.0.0.2:8080'],
    ],
  ],
  'an address that moves between slices in one batch is not told': [
    [
      [put(service()), put(slice('a', [ONE])), put(slice('b', [TWO]))],
      ['80 = 2: +10.0.0.1:8080 +10.0.0.2:8080'],
    ],
    [[put(slice('b', [ONE, TWO], { version: 2 })), put(slice('a', null, { version: 2 }))], []],
    [[put(slice('b', [TWO], { version: 3 })), put(slice('a', [ONE], { version: 3 }))], []],
  ],
  'what comes and goes within a batch is not told': [
    START,
    [[put(slice('b', [TWO])), gone(slice('b', [TWO], { version: 2 }))], []],
  ],
  'several ports speak once each': [
    [
      [put(service({ ports: [HTTP, ADMIN] })), put(slice('a', [ONE], { ports: [HTTP_8080, ADMIN_9000] }))],
      ['80 = 1: +10.0.0.1:8080', '81 = 1: +10.0.0.1:9000'],
    ],
    [
      [put(slice('a', [ONE, TWO], { ports: [HTTP_8080], version: 2 }))],
      ['80 = 2: +10.0.0.2:8080', '81 = 0: -10.0.0.1:9000 gone'],
    ],
  ],
  'ports speak in the order of their ids, the vanished among them': [
    [[put(service({ ports: [named('http', 90)] })), put(slice('a', [ONE]))], ['90 = 1: +10.0.0.1:8080']],
    [
      [put(service({ ports: [HTTP] }, { version: 2 }))],
      ['80 = 1: +10.0.0.1:8080', '90 = 0: -10.0.0.1:8080 portRemoved'],
    ],
  ],
  'a new target number is one difference': [
    START,
    [
      [put(slice('a', [ONE], { ports: [{ ...HTTP_8080, port: 9090 }], version: 2 }))],
      ['80 = 1: +10.0.0.1:9090 -10.0.0.1:8080 gone'],
    ],
  ],
  'a new pod on the same address is an update': [
    [[put(service()), put(slice('a', [endpoint(ONE, 'ready', { pod: 'x' })]))], ['80 = 1: +10.0.0.1:8080']],
    [[put(slice('a', [endpoint(ONE, 'ready', { pod: 'y' })], { version: 2 }))], ['80 = 1: ~10.0.0.1:8080']],
  ],
  'a zone change is an update, not a removal (S5)': [
    [[put(service()), put(slice('a', [endpoint(ONE, 'ready', { zone: 'a' })]))], ['80 = 1: +10.0.0.1:8080']],
    [[put(slice('a', [endpoint(ONE, 'ready', { zone: 'b' })], { version: 2 }))], ['80 = 1: ~10.0.0.1:8080']],
  ],
});

checkStories('a delta leaves exactly when what was said last no longer holds (S38)', 'slices', {
  'a Service first seen without addresses says so once': [
    [[put(service())], ['80 = 0']],
    [[put(service({}, { version: 2 }))], []],
    [[put(slice('a', null))], []],
  ],
  'slices alone say nothing (S34)': [
    [[put(slice('a', [ONE]))], []],
    [[put(service())], ['80 = 1: +10.0.0.1:8080']],
  ],
  'a set that becomes empty says so once': [
    START,
    [[put(slice('a', null, { version: 2 }))], ['80 = 0: -10.0.0.1:8080 gone']],
    [[gone(slice('a', null, { version: 3 }))], []],
  ],
  'a deleted Service is told once, with everything removed (S35)': [
    START,
    [[gone(service({}, { version: 2 }))], ['80 = no Service: -10.0.0.1:8080 serviceDeleted']],
    [[put(slice('a', [ONE, TWO], { version: 2 }))], []],
  ],
  'an empty one too': [
    [[put(service())], ['80 = 0']],
    [[gone(service({}, { version: 2 }))], ['80 = no Service']],
  ],
  'a port removed earlier still hears that its Service goes, and that another one comes': [
    [[put(service({ ports: [HTTP, ADMIN] }))], ['80 = 0', '81 = 0']],
    [[put(service({}, { version: 2 }))], []],
    [[gone(service({}, { version: 3 }))], ['80 = no Service', '81 = no Service']],
    [[put(service({}, { version: 4, uid: 'again' }))], ['80 = 0', '81 = 0']],
  ],
  'a port that comes back goes on counting': [
    [
      [put(service({ ports: [HTTP, ADMIN] })), put(slice('a', [ONE], { ports: [ADMIN_9000] }))],
      ['80 = 0', '81 = 1: +10.0.0.1:9000'],
    ],
    [[put(service({}, { version: 2 }))], ['81 = 0: -10.0.0.1:9000 portRemoved']],
    [[put(service({ ports: [HTTP, ADMIN] }, { version: 3 }))], ['81 = 1: +10.0.0.1:9000']],
  ],
  'a Service that never had the port says nothing of it': [
    [[put(service({ type: 'ExternalName', externalName: 'a.example.com' }))], []],
    [[gone(service({ type: 'ExternalName' }, { version: 2 }))], []],
  ],
  'a Service recreated in one batch is not told at all': [
    START,
    [[gone(service({}, { version: 2 })), put(service({}, { version: 3, uid: 'again' }))], []],
  ],
});

const OWNED = { ownerReferences: [{ kind: 'Service', name: 'web', uid: 'uid-svc' }] };

checkStories('left-overs of a former Service do not count (S35)', 'slices', {
  'they go as its successor comes, and new ones come': [
    [[put(service()), put(slice('a', [ONE, TWO], OWNED))], ['80 = 2: +10.0.0.1:8080 +10.0.0.2:8080']],
    [[put(service({}, { version: 9, uid: 'new' }))], ['80 = 0: -10.0.0.1:8080 gone -10.0.0.2:8080 gone']],
    [
      [put(slice('b', [TWO], { ownerReferences: [{ kind: 'Service', name: 'web', uid: 'new' }] }))],
      ['80 = 1: +10.0.0.2:8080'],
    ],
    [[gone(slice('a', [ONE, TWO], { ...OWNED, version: 9 }))], []],
  ],
  'a slice without an owner stays': [START, [[put(service({}, { version: 9, uid: 'new' }))], []]],
  'one that names another Service as its owner too': [
    [
      [
        put(service()),
        put(slice('a', [ONE], { ownerReferences: [{ kind: 'Service', name: 'other', uid: 'x' }] })),
      ],
      ['80 = 1: +10.0.0.1:8080'],
    ],
  ],
  'one that is taken over by the new Service counts again': [
    [[put(service()), put(slice('a', [ONE], OWNED))], ['80 = 1: +10.0.0.1:8080']],
    [[put(service({}, { version: 9, uid: 'new' }))], ['80 = 0: -10.0.0.1:8080 gone']],
    [
      [
        put(
          slice('a', [ONE], { version: 2, ownerReferences: [{ kind: 'Service', name: 'web', uid: 'new' }] }),
        ),
      ],
      ['80 = 1: +10.0.0.1:8080'],
    ],
  ],
});

checkStories('an ExternalName has no addresses (S36)', 'slices', {
  'turning into one removes every port, turning back brings them back': [
    START,
    [
      [put(service({ type: 'ExternalName', externalName: 'x' }, { version: 2 }))],
      ['80 = 0: -10.0.0.1:8080 portRemoved'],
    ],
    [[put(slice('a', [ONE, TWO], { version: 2 }))], []],
    [[put(service({}, { version: 3 }))], ['80 = 2: +10.0.0.1:8080 +10.0.0.2:8080']],
  ],
});

checkStories('a removal says why: the first reason that holds (S29)', 'slices', {
  'serviceDeleted, though the slices go in the same batch': [
    START,
    [
      [gone(slice('a', [ONE], { version: 2 })), gone(service({}, { version: 2 }))],
      ['80 = no Service: -10.0.0.1:8080 serviceDeleted'],
    ],
  ],
  'portRemoved, though the pod is no longer ready': [
    START,
    [
      [
        put(slice('a', [endpoint(ONE, 'notReady')], { version: 2 })),
        put(service({ ports: [ADMIN] }, { version: 2 })),
      ],
      ['80 = 0: -10.0.0.1:8080 portRemoved', '81 = 0'],
    ],
  ],
  'terminating, draining or not': [
    [[put(service()), put(slice('a', [ONE, TWO]))], ['80 = 2: +10.0.0.1:8080 +10.0.0.2:8080']],
    [
      [put(slice('a', [endpoint(ONE, 'draining'), endpoint(TWO, 'terminating')], { version: 2 }))],
      ['80 = 0: -10.0.0.1:8080 terminating -10.0.0.2:8080 terminating'],
    ],
  ],
  notReady: [
    START,
    [[put(slice('a', [endpoint(ONE, 'notReady')], { version: 2 }))], ['80 = 0: -10.0.0.1:8080 notReady']],
  ],
  'what another slice says goes before the move': [
    [
      [put(service()), put(slice('a', [ONE])), put(slice('b', [endpoint(ONE, 'notReady')]))],
      ['80 = 1: +10.0.0.1:8080'],
    ],
    [
      [put(slice('a', [ONE], { service: 'api', version: 2 }), { former: ['web'] })],
      ['80 = 0: -10.0.0.1:8080 notReady'],
    ],
  ],
  sliceMoved: [
    [
      [put(service()), put(slice('a', [ONE, TWO])), put(slice('b', [TWO]))],
      ['80 = 2: +10.0.0.1:8080 +10.0.0.2:8080'],
    ],
    [
      [put(slice('a', [ONE, TWO], { service: 'api', version: 2 }), { former: ['web'] })],
      ['80 = 1: -10.0.0.1:8080 sliceMoved'],
    ],
  ],
  'sliceMoved, though its port was re-pointed in the same batch': [
    [[portsAt(1, named('a')), sliceAt('x', ONE, 1, named('a', 8080))], ['80 = 1: +10.0.0.1:8080']],
    [
      [
        portsAt(2, named('b')),
        put(slice('x', [ONE], { service: 'api', version: 2, ports: [named('a', 8080)] }), {
          former: ['web'],
        }),
      ],
      ['80 = 0: -10.0.0.1:8080 sliceMoved'],
    ],
  ],
  'gone, with its slice': [
    START,
    [[gone(slice('a', [ONE], { version: 2 }))], ['80 = 0: -10.0.0.1:8080 gone']],
  ],
});

checkStories('slices move between services (S10)', 'slices', {
  'leaving and joining in one batch': [
    [
      [put(service()), put(service({}, { name: 'api', uid: 'svc-2' })), put(slice('a', [ONE]))],
      ['80 = 1: +10.0.0.1:8080', 'api:80 = 0'],
    ],
    [
      [put(slice('a', [ONE], { service: 'api', version: 2 }), { former: ['web'] })],
      ['80 = 0: -10.0.0.1:8080 sliceMoved', 'api:80 = 1: +10.0.0.1:8080'],
    ],
  ],
  'a slice that is nobody’s now': [
    START,
    [
      [put(slice('a', [ONE], { service: null, version: 2 }), { former: ['web'] })],
      ['80 = 0: -10.0.0.1:8080 sliceMoved'],
    ],
    [[put(slice('a', [ONE], { version: 1 }))], []],
  ],
  'a deletion under another name leaves its former services': [
    START,
    [
      [{ ...gone(slice('a', [ONE], { service: 'api', version: 2 })), former: ['web'] }],
      ['80 = 0: -10.0.0.1:8080 sliceMoved'],
    ],
  ],
  'two slices that change places': [
    [
      [
        put(service()),
        put(service({}, { name: 'api', uid: 'svc-2' })),
        put(slice('a', [ONE])),
        put(slice('b', [TWO], { service: 'api' })),
      ],
      ['80 = 1: +10.0.0.1:8080', 'api:80 = 1: +10.0.0.2:8080'],
    ],
    [
      [
        put(slice('a', [ONE], { service: 'api', version: 2 }), { former: ['web'] }),
        put(slice('b', [TWO], { version: 2 }), { former: ['api'] }),
      ],
      [
        '80 = 0: -10.0.0.1:8080 sliceMoved',
        'api:80 = 1: +10.0.0.1:8080 -10.0.0.2:8080 sliceMoved',
        '80 = 1: +10.0.0.2:8080',
      ],
    ],
  ],
});

/** Service and two slices, port 80 named `a`. */
const NAMED_A: Step = [
  [portsAt(1, named('a')), sliceAt('x', ONE, 1, named('a', 8080)), sliceAt('y', TWO, 1, named('a', 8080))],
  ['80 = 2: +10.0.0.1:8080 +10.0.0.2:8080'],
];

checkStories('a renamed port keeps its addresses until its slices follow (S23)', 'slices', {
  'nothing is told when they all follow': [
    NAMED_A,
    [[portsAt(2, named('b'))], []],
    [[sliceAt('x', ONE, 2, named('b', 8080))], []],
    [[sliceAt('y', TWO, 2, named('b', 8080))], []],
    [RENAME_WINDOW_MS, []],
  ],
  'those that do not follow go after ten seconds': [
    NAMED_A,
    [[portsAt(2, named('b'))], []],
    [[sliceAt('x', ONE, 2, named('b', 8080))], []],
    [RENAME_WINDOW_MS - 1, []],
    [1, ['80 = 1: -10.0.0.2:8080 gone']],
    [[sliceAt('y', TWO, 2, named('b', 8080))], ['80 = 2: +10.0.0.2:8080']],
  ],
  'a new number under the new name is one difference': [
    NAMED_A,
    [[portsAt(2, named('b'))], []],
    [[sliceAt('x', ONE, 2, named('b', 9090))], ['80 = 2: +10.0.0.1:9090 -10.0.0.1:8080 gone']],
  ],
  'slices that follow in the same batch open no window': [
    NAMED_A,
    [
      [
        portsAt(2, named('b')),
        sliceAt('x', ONE, 2, named('b', 9090)),
        sliceAt('y', TWO, 2, named('b', 8080)),
      ],
      ['80 = 2: +10.0.0.1:9090 -10.0.0.1:8080 gone'],
    ],
    [[sliceAt('x', ONE, 3, named('a', 8080))], ['80 = 1: -10.0.0.1:9090 gone']],
  ],
  'once all followed the window is over': [
    NAMED_A,
    [[portsAt(2, named('b'))], []],
    [[sliceAt('x', ONE, 2, named('b', 8080)), sliceAt('y', TWO, 2, named('b', 8080))], []],
    [[sliceAt('y', TWO, 3, named('a', 8080))], ['80 = 1: -10.0.0.2:8080 gone']],
  ],
  'slices that change in the same batch do not keep it from opening': [
    NAMED_A,
    [[portsAt(2, named('b')), sliceAt('z', THREE, 1, named('b', 8080))], ['80 = 3: +10.0.0.3:8080']],
    [RENAME_WINDOW_MS, ['80 = 1: -10.0.0.1:8080 gone -10.0.0.2:8080 gone']],
  ],
  'a slice with neither name holds no window open': [
    NAMED_A,
    [[sliceAt('z', THREE, 1, named('other', 1))], []],
    [[portsAt(2, named('b'))], []],
    [[sliceAt('x', ONE, 2, named('b', 8080)), sliceAt('y', TWO, 2, named('b', 8080))], []],
    [[sliceAt('y', TWO, 3, named('a', 8080))], ['80 = 1: -10.0.0.2:8080 gone']],
  ],
  'nor does an empty one keep it from opening': [
    NAMED_A,
    [[put(slice('z', null, { ports: null }))], []],
    [[portsAt(2, named('b'))], []],
    [RENAME_WINDOW_MS, ['80 = 0: -10.0.0.1:8080 gone -10.0.0.2:8080 gone']],
  ],
  'each port has a window of its own': [
    [
      [portsAt(1, named('a'), named('x', 81)), sliceAt('s', ONE, 1, named('a', 8080), named('x', 8081))],
      ['80 = 1: +10.0.0.1:8080', '81 = 1: +10.0.0.1:8081'],
    ],
    [[portsAt(2, named('b'), named('y', 81))], []],
    [RENAME_WINDOW_MS - 1, []],
    [[portsAt(3, named('b'), named('z', 81))], []],
    [1, ['80 = 0: -10.0.0.1:8080 gone']],
    [RENAME_WINDOW_MS - 1, ['81 = 0: -10.0.0.1:8081 gone']],
  ],
  'slices that come meanwhile under the former name count': [
    NAMED_A,
    [[portsAt(2, named('b'))], []],
    [[sliceAt('z', THREE, 1, named('a', 8080))], ['80 = 3: +10.0.0.3:8080']],
    [RENAME_WINDOW_MS, ['80 = 0: -10.0.0.1:8080 gone -10.0.0.2:8080 gone -10.0.0.3:8080 gone']],
  ],
  'after a second rename the latest former name that a slice has counts, and only time ends it': [
    NAMED_A,
    [[portsAt(2, named('b'))], []],
    [[sliceAt('x', ONE, 2, named('b', 9090))], ['80 = 2: +10.0.0.1:9090 -10.0.0.1:8080 gone']],
    [RENAME_WINDOW_MS - 1, []],
    [[portsAt(3, named('c'))], []],
    [RENAME_WINDOW_MS - 1, []],
    [[sliceAt('x', ONE, 3, named('c', 9090)), sliceAt('y', TWO, 3, named('c', 8080))], []],
    [[sliceAt('y', TWO, 4, named('a', 8080))], []],
    [1, ['80 = 1: -10.0.0.2:8080 gone']],
  ],
  'a rename that is taken back': [
    NAMED_A,
    [[portsAt(2, named('b'))], []],
    [[sliceAt('x', ONE, 2, named('b', 8080))], []],
    [[portsAt(3, named('a'))], []],
    [[sliceAt('x', ONE, 3, named('a', 8080))], []],
    [RENAME_WINDOW_MS, []],
  ],
  'the next event ends it, when it is due': [
    NAMED_A,
    [[portsAt(2, named('b'))], []],
    [RENAME_WINDOW_MS - 1, []],
    [[sliceAt('z', THREE, 1, named('b', 8080))], ['80 = 3: +10.0.0.3:8080']],
    [1, ['80 = 1: -10.0.0.1:8080 gone -10.0.0.2:8080 gone']],
  ],
  'where a slice has both names the port was re-pointed: one difference, no window': [
    [
      [
        portsAt(1, named('a')),
        sliceAt('x', ONE, 1, named('a', 8080), named('b', 9090)),
        sliceAt('y', TWO, 1, named('a', 8080)),
      ],
      ['80 = 2: +10.0.0.1:8080 +10.0.0.2:8080'],
    ],
    [[portsAt(2, named('b'))], ['80 = 1: +10.0.0.1:9090 -10.0.0.1:8080 gone -10.0.0.2:8080 gone']],
  ],
  'a name that goes to another number is no rename of that number': [
    NAMED_A,
    [
      [portsAt(2, named('a', 81))],
      [
        '80 = 0: -10.0.0.1:8080 portRemoved -10.0.0.2:8080 portRemoved',
        '81 = 2: +10.0.0.1:8080 +10.0.0.2:8080',
      ],
    ],
  ],
  'a recreated Service opens none': [
    NAMED_A,
    [
      [put(service({ ports: [named('b')] }, { version: 2, uid: 'new' }))],
      ['80 = 0: -10.0.0.1:8080 gone -10.0.0.2:8080 gone'],
    ],
  ],
  'a Service that goes closes it': [
    NAMED_A,
    [[portsAt(2, named('b'))], []],
    [
      [gone(service({}, { version: 3 }))],
      ['80 = no Service: -10.0.0.1:8080 serviceDeleted -10.0.0.2:8080 serviceDeleted'],
    ],
    [[put(service({ ports: [named('b')] }, { version: 4, uid: 'new' }))], ['80 = 0']],
  ],
  'a port that gains its name': [
    [
      [put(service({ ports: [{ port: 80 }] })), put(slice('x', [ONE], { ports: [{ port: 8080 }] }))],
      ['80 = 1: +10.0.0.1:8080'],
    ],
    [[portsAt(2, named('b'))], []],
    [[sliceAt('x', ONE, 2, named('b', 8080))], []],
  ],
});

describe('when a window is to be closed (S23)', () => {
  const web = { namespace: 'default', name: 'web' };
  const until = (cluster: CoreCluster) => windowsUntil(cluster.state(web));
  test('ten seconds after the last rename; never without one', async () => {
    const cluster = new CoreCluster('slices');
    cluster.post(NAMED_A[0] as readonly Sent[]);
    assert.equal(until(cluster), null);
    cluster.post([portsAt(2, named('b'))]);
    const first = until(cluster) ?? 0;
    await cluster.advance(4000);
    cluster.post([portsAt(3, named('c'))]);
    assert.equal((until(cluster) ?? 0) - first, 4000);
    await cluster.advance(RENAME_WINDOW_MS);
    assert.equal(until(cluster), null);
  });
});

checkStories('the same in Endpoints mode', 'endpoints', {
  'a batch is one difference, a flip is a removal': [
    [
      [put(endpoints([{ addresses: [{ ip: ONE }, { ip: TWO }], ports: [HTTP_8080] }])), put(service())],
      ['80 = 2: +10.0.0.1:8080 +10.0.0.2:8080'],
    ],
    [
      [
        put(
          endpoints([{ addresses: [{ ip: ONE }], notReadyAddresses: [{ ip: TWO }], ports: [HTTP_8080] }], {
            version: 2,
          }),
        ),
      ],
      ['80 = 1: -10.0.0.2:8080 notReady'],
    ],
    [[put(endpoints(null, { version: 3 }))], ['80 = 0: -10.0.0.1:8080 gone']],
    [[gone(endpoints(null, { version: 4 }))], []],
  ],
  'a change of the flag alone makes no delta (S42)': [
    [
      [put(endpoints([{ addresses: [{ ip: ONE }], ports: [HTTP_8080] }])), put(service())],
      ['80 = 1: +10.0.0.1:8080'],
    ],
    [
      [
        put(
          endpoints([{ addresses: [{ ip: ONE }], ports: [HTTP_8080] }], {
            version: 2,
            annotations: { 'endpoints.kubernetes.io/over-capacity': 'truncated' },
          }),
        ),
      ],
      [],
    ],
  ],
  'both names in two subsets of the object: re-pointed, no window': [
    [
      [
        put(
          endpoints([
            { addresses: [{ ip: ONE }], ports: [named('a', 8080)] },
            { addresses: [{ ip: TWO }], ports: [named('b', 8080)] },
          ]),
        ),
        portsAt(1, named('a')),
      ],
      ['80 = 1: +10.0.0.1:8080'],
    ],
    [[portsAt(2, named('b'))], ['80 = 1: +10.0.0.2:8080 -10.0.0.1:8080 gone']],
    [
      [put(endpoints([{ addresses: [{ ip: ONE }], ports: [named('a', 8080)] }], { version: 2 }))],
      ['80 = 0: -10.0.0.2:8080 gone'],
    ],
  ],
  'a rename is followed by the one object': [
    [
      [put(endpoints([{ addresses: [{ ip: ONE }], ports: [named('a', 8080)] }])), portsAt(1, named('a'))],
      ['80 = 1: +10.0.0.1:8080'],
    ],
    [[portsAt(2, named('b'))], []],
    [[put(endpoints([{ addresses: [{ ip: ONE }], ports: [named('b', 8080)] }], { version: 2 }))], []],
  ],
});

describe('the cause is the last event of the batch that changed the port', () => {
  const causes = (batch: readonly object[], ...before: readonly Sent[][]) => {
    const cluster = new CoreCluster('slices');
    for (const told of before) cluster.post(told);
    cluster.drain();
    cluster.post(batch);
    return cluster.drain().map(({ detail: { group, cause } }) => {
      const { kind, name, type, resourceVersion } = cause;
      return `${group.slice(group.lastIndexOf(':') + 1)} ${type} ${kind} ${name}@${resourceVersion}`;
    });
  };
  const known = [
    put(service({ ports: [HTTP, ADMIN] })),
    put(slice('a', [ONE], { ports: [HTTP_8080, ADMIN_9000] })),
  ];
  const cases: Readonly<Record<string, readonly [came: string[], want: string[]]>> = {
    'of two slices the last that changed it': [
      causes(
        [put(slice('b', [TWO], { version: 5 })), put(slice('a', [ONE], { version: 6, ports: [HTTP_8080] }))],
        known,
      ),
      ['80 MODIFIED EndpointSlice b@5', '81 MODIFIED EndpointSlice a@6'],
    ],
    'the Service, when it came last': [
      causes([put(slice('a', [ONE], { version: 5 })), put(service({}, { version: 6 }))]),
      ['80 MODIFIED Service web@6'],
    ],
    'not a slice behind it that changed another port': [
      causes(
        [
          put(slice('b', [TWO], { version: 5 })),
          put(slice('c', [THREE], { version: 6, ports: [ADMIN_9000] })),
        ],
        known,
      ),
      ['80 MODIFIED EndpointSlice b@5', '81 MODIFIED EndpointSlice c@6'],
    ],
    'an update as well as an addition': [
      causes(
        [
          put(
            slice('a', [endpoint(ONE, 'ready', { zone: 'z' })], {
              version: 5,
              ports: [HTTP_8080, ADMIN_9000],
            }),
          ),
          put(slice('c', [THREE], { version: 6, ports: [ADMIN_9000] })),
        ],
        known,
      ),
      ['80 MODIFIED EndpointSlice a@5', '81 MODIFIED EndpointSlice c@6'],
    ],
    'not a Service behind it whose change is none of this port': [
      causes(
        [put(slice('b', [TWO], { version: 5 })), put(service({ ports: [HTTP] }, { version: 6 }))],
        known,
      ),
      ['80 MODIFIED EndpointSlice b@5', '81 MODIFIED Service web@6'],
    ],
    'a Service that is another one': [
      causes(
        [
          put(slice('b', [TWO], { version: 5 })),
          put(service({ ports: [HTTP, ADMIN] }, { version: 6, uid: 'new' })),
        ],
        [put(service({ ports: [HTTP, ADMIN] })), put(slice('a', [ONE], OWNED))],
      ),
      ['80 MODIFIED Service web@6'],
    ],
    'a deletion': [
      causes([gone(slice('a', [ONE], { version: 5 }))], known),
      ['80 DELETED EndpointSlice a@5', '81 DELETED EndpointSlice a@5'],
    ],
    'the Service that ends the port, not a slice that goes behind it': [
      causes([gone(service({}, { version: 5 })), gone(slice('a', [ONE], { version: 6 }))], known),
      ['80 DELETED Service web@5', '81 DELETED Service web@5'],
    ],
    'the Service that moves the port, not a slice behind it that is none of it': [
      causes(
        [put(service({ ports: [HTTP] }, { version: 5 })), put(slice('a', [ONE], { version: 6 }))],
        known,
      ),
      ['81 MODIFIED Service web@5'],
    ],
    'RESYNC for what was found by a list': [
      causes([{ ...put(slice('b', [TWO], { version: 5 })), resync: true }], known),
      ['80 RESYNC EndpointSlice b@5'],
    ],
    'RESYNC for a state made up at a re-list': [
      causes([{ ...gone(slice('a', [ONE], { version: 1 })), stateUnknown: true }], known),
      ['80 RESYNC EndpointSlice a@1', '81 RESYNC EndpointSlice a@1'],
    ],
  };
  for (const [sentence, [came, want]] of Object.entries(cases))
    test(sentence, () => assert.deepEqual(came, want));

  test('a window that time closed names the last rename', async () => {
    const cluster = new CoreCluster('slices');
    cluster.post(NAMED_A[0] as readonly Sent[]);
    cluster.post([portsAt(2, named('c')), portsAt(3, named('b'))]);
    cluster.drain();
    await cluster.advance(RENAME_WINDOW_MS);
    const [delta] = cluster.drain();
    assert.deepEqual(delta?.detail.cause, {
      kind: 'Service',
      name: 'web',
      type: 'MODIFIED',
      resourceVersion: '3',
    });
  });
});

describe('a confirmed version may change which slice tells the metadata (S11, P5)', () => {
  for (const usesHolders of [false, true])
    test(usesHolders ? 'computed from what was touched' : 'computed from all', () => {
      const cluster = new CoreCluster('slices', { usesHolders });
      const sets = new ObservedSets(cluster);
      const inZone = (name: string, zone: string, version: number) =>
        put(slice(name, [endpoint(ONE, 'ready', { zone })], { version }));
      cluster.post([put(service()), inZone('a', 'a', 10), inZone('b', 'b', 20)]);
      sets.check('at first');
      assert.deepEqual(cluster.post([{ ...inZone('a', 'a', 30), confirm: true }]), ['unchanged']);
      const [delta, ...others] = sets.check('confirmed');
      assert.equal(delta?.detail.updated[0]?.zone, 'a');
      assert.deepEqual(others, []);
    });
});

describe('times of a delta (S47)', () => {
  const at = (name: string, version: number, triggered?: string) =>
    slice(name, [ONE, ...(version > 1 ? [TWO] : [])], {
      version,
      ...(triggered && { annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': triggered } }),
    });
  const timesOf = (...batch: object[]) => {
    const cluster = new CoreCluster('slices');
    cluster.post([put(service()), ...batch]);
    const [delta] = cluster.drain();
    return [delta?.detail.triggeredAt, delta?.detail.observedAt];
  };
  const cases: Readonly<Record<string, readonly [came: unknown[], want: unknown[]]>> = {
    'the oldest trigger of the batch, as it was written': [
      timesOf(put(at('a', 1, '2026-11-30T10:00:02.5Z')), put(at('b', 1, '2026-11-30T10:00:01.123456789Z'))),
      ['2026-11-30T10:00:01.123456789Z', '2026-11-30T10:00:00.000Z'],
    ],
    'whichever slice comes first': [
      timesOf(
        put(at('a', 1, '2026-11-30T10:00:01Z')),
        put(at('b', 1, '2026-11-30T10:00:02Z')),
        put(at('c', 1)),
      ),
      ['2026-11-30T10:00:01Z', '2026-11-30T10:00:00.000Z'],
    ],
    'to the nanosecond': [
      timesOf(
        put(at('a', 1, '2026-11-30T10:00:00.250000009Z')),
        put(at('b', 1, '2026-11-30T10:00:00.250000001Z')),
      ),
      ['2026-11-30T10:00:00.250000001Z', '2026-11-30T10:00:00.000Z'],
    ],
    'none is unknown': [timesOf(put(at('a', 1))), [null, '2026-11-30T10:00:00.000Z']],
    'what is no time is unknown': [timesOf(put(at('a', 1, 'soon'))), [null, '2026-11-30T10:00:00.000Z']],
    'deletions have none': [
      timesOf(put(at('a', 1)), put(at('b', 1)), gone(at('b', 2, '2026-11-30T09:00:00Z'))),
      [null, '2026-11-30T10:00:00.000Z'],
    ],
    'seen when the relay first saw something of it': [
      timesOf(
        { ...put(at('a', 1)), observedAt: '2026-11-30T09:59:59.500Z' },
        { ...put(at('b', 1)), observedAt: '2026-11-30T09:59:58.000Z' },
      ),
      [null, '2026-11-30T09:59:58.000Z'],
    ],
  };
  for (const [sentence, [came, want]] of Object.entries(cases))
    test(sentence, () => assert.deepEqual(came, want));

  test('a slice that leaves for another service has one in both', () => {
    const cluster = new CoreCluster('slices');
    const api = { name: 'api', uid: 'svc-api' };
    cluster.post([put(service()), put(service({}, api)), put(at('a', 1))]);
    cluster.drain();
    const annotations = { 'endpoints.kubernetes.io/last-change-trigger-time': '2026-11-30T10:00:01Z' };
    cluster.post([put(slice('a', [ONE], { version: 2, service: 'api', annotations }), { former: ['web'] })]);
    const told = cluster.drain().map(({ detail }) => [detail.service, detail.triggeredAt]);
    assert.deepEqual(told.sort(), [
      ['api', '2026-11-30T10:00:01Z'],
      ['web', '2026-11-30T10:00:01Z'],
    ]);
  });
});

const NOW = 1_000_000_000_000 as EpochMs;

/** One batch for service `web`, as it stands in a state. */
function transitOne(
  before: ServiceState,
  mode: 'slices' | 'endpoints',
  batch: readonly object[],
  holders?: (ips: ReadonlySet<string>) => Iterable<string>,
): Transition {
  const { services } = sortEvents(batch, { mode, epoch: 1, receivedAt: NOW });
  const changes = services.flatMap((one) => one.changes);
  const kind = kindOfMode(mode);
  return transit(before, changes, {
    now: NOW,
    hash: hashKey,
    kind,
    ...(holders !== undefined && { holders }),
  });
}

const stateOf = (...batch: readonly object[]) =>
  transitOne(emptyState('EndpointSlice'), 'slices', batch).state;

describe('a transition names the objects whose content is to be written', () => {
  const before = stateOf(put(service()), put(slice('a', [ONE], { version: 2 })), put(slice('b', [TWO])));
  const touched = (...batch: readonly object[]) => [...transitOne(before, 'slices', batch).touched];
  const cases: Readonly<Record<string, readonly [came: string[], want: string[]]>> = {
    'one that changed': [touched(put(slice('a', [TWO], { version: 3 }))), ['uid-a']],
    'one that is gone': [touched(gone(slice('a', [ONE], { version: 3 }))), ['uid-a']],
    'one that takes the place of another, and that other': [
      touched(put(slice('a', [ONE], { version: 3, uid: 'new' }))),
      ['uid-a', 'new'],
    ],
    'not a Service': [touched(put(service({ ports: [ADMIN] }, { version: 2 }))), []],
    'not one whose version alone is recorded (P5)': [
      touched({ ...put(slice('a', [ONE], { version: 3 })), confirm: true }),
      [],
    ],
    'not one that is stale': [touched(put(slice('a', [TWO], { version: 1 }))), []],
  };
  for (const [sentence, [came, want]] of Object.entries(cases))
    test(sentence, () => assert.deepEqual(came, want));
});

describe('a change costs what it touches', () => {
  const whole = stateOf(
    put(service()),
    put(slice('a', [ONE])),
    put(slice('b', [ONE, TWO])),
    put(slice('c', [THREE])),
  );
  const asked: string[][] = [];
  const holders = (ips: ReadonlySet<string>) => {
    asked.push([...ips].sort());
    return ['uid-a', 'uid-b'];
  };
  const unread = () => assert.fail('the content of a slice that shares no address is looked at');
  const objects = new Map(
    [...whole.objects].map(([uid, object]) => [
      uid,
      uid === 'uid-c' ? { ...object, content: unread } : object,
    ]),
  );

  test('only slices that hold its addresses are looked at', () => {
    const { deltas } = transitOne(
      { ...whole, objects },
      'slices',
      [put(slice('a', null, { version: 2 }))],
      holders,
    );
    assert.deepEqual(deltas, []);
    assert.deepEqual(asked, [[ONE]]);
  });
  test('a batch that changes nothing looks at nothing (S43, L43)', () => {
    const { isChanged, deltas } = transitOne({ ...whole, objects }, 'slices', [
      put(slice('a', [ONE], { version: 2 })),
    ]);
    assert.deepEqual([isChanged, deltas], [false, []]);
  });
  test('a Service alike with a new version writes nothing (P5)', () => {
    assert(!transitOne({ ...whole, objects }, 'slices', [put(service({}, { version: 2 }))]).isChanged);
  });
});

describe('while a cluster changes its mode (S12)', () => {
  const both = () => {
    const sliced = stateOf(put(service()), put(slice('a', [endpoint(ONE, 'ready', { zone: 'z' })])));
    const made = endpoints([{ addresses: [{ ip: ONE }, { ip: TWO }], ports: [HTTP_8080] }]);
    return transitOne(sliced, 'endpoints', [put(made)]);
  };
  test('the new kind adds to the old, and the old one prevails', () => {
    const { state, deltas } = both();
    assert.equal(state.preferredKind, 'EndpointSlice');
    assert.deepEqual(
      deltas.map(({ added, updated, removed }) => [added.map(addressKey), updated, removed]),
      [[['10.0.0.2:8080'], [], []]],
    );
  });
  test('when the old kind is gone the new one tells everything, in one difference', () => {
    const change = {
      index: 0,
      kind: 'remove',
      uid: 'uid-a',
      isForgotten: true,
      cause: { kind: 'EndpointSlice', name: 'a', type: 'RESYNC', resourceVersion: '1' },
      isStateUnknown: false,
      isConfirmed: false,
      triggeredAt: null,
      observedAt: NOW,
    } as const;
    for (const holders of [undefined, () => ['uid-web']]) {
      const context = { now: NOW, hash: hashKey, kind: 'Endpoints', ...(holders && { holders }) } as const;
      const { state, deltas } = transit(both().state, [change], context);
      assert.equal(state.preferredKind, 'Endpoints');
      assert.deepEqual(
        deltas.map(({ added, updated, removed }) => [
          added,
          updated.map(({ address }) => address.zone),
          removed,
        ]),
        [[[], [null], []]],
      );
    }
  });
  test('a service of which nothing is left takes the kind of the sender', () => {
    assert.equal(
      transitOne(emptyState('EndpointSlice'), 'endpoints', [put(service())]).state.preferredKind,
      'Endpoints',
    );
  });
});
