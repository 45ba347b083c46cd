import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  type Change,
  type ChangeStatus,
  DELETION_MEMORY_MS,
  foldChanges,
  kindOfMode,
} from '../../core/changes.ts';
import type { Service } from '../../core/kubernetes.ts';
import { readService } from '../../core/service.ts';
import { emptyState, type ObjectKind, type ServiceState } from '../../core/service-state.ts';
import type { EpochMs } from '../../core/time.ts';
import { record, service, slice } from './builders.ts';

const NOW = 1_000_000_000_000 as EpochMs;

type Origin = Pick<
  Change,
  'index' | 'cause' | 'isStateUnknown' | 'isConfirmed' | 'triggeredAt' | 'observedAt'
>;
type Flags = Partial<Pick<Change, 'isStateUnknown' | 'isConfirmed'>>;

function origin(flags: Flags): Origin {
  const cause = { kind: 'EndpointSlice', name: 'a', type: 'MODIFIED', resourceVersion: '1' } as const;
  return {
    index: 0,
    cause,
    isStateUnknown: false,
    isConfirmed: false,
    triggeredAt: null,
    observedAt: NOW,
    ...flags,
  };
}

const putService = (raw: Service, flags: Flags = {}): Change => ({
  ...origin(flags),
  kind: 'putService',
  service: readService(raw).service,
});

/** A slice named `a` with one IP. */
function put(
  said: {
    readonly version: number;
    readonly uid?: string;
    readonly ip?: string;
    readonly enrichment?: [epoch: number, number: number];
  },
  flags: Flags = {},
): Change {
  const { version, uid = 'A', ip = '10.0.0.1', enrichment } = said;
  const [epoch = 0, number = 0] = enrichment ?? [];
  const object = record(slice('a', [ip], { version, uid }));
  return {
    ...origin(flags),
    kind: 'putObject',
    object: { ...object, enrichment: enrichment === undefined ? null : { epoch, number } },
  };
}

function remove(
  uid: string | null,
  version: number | null,
  flags: Flags & { readonly objectKind?: ObjectKind; readonly name?: string } = {},
): Change {
  const { objectKind = 'EndpointSlice', name = 'a', ...rest } = flags;
  return {
    ...origin(rest),
    kind: 'delete',
    objectKind,
    name,
    uid,
    version: version === null ? null : `${version}`,
  };
}

const leave = (uid: string, version: number): Change => ({
  ...origin({}),
  kind: 'leave',
  uid,
  version: `${version}`,
});
const forget = (uid: string, isForgotten: boolean): Change => ({
  ...origin({}),
  kind: 'remove',
  uid,
  isForgotten,
});

/** Changes one after the other, each a batch of its own; what became of the last, and what is recorded then. */
function after(...changes: readonly Change[]): Outcome {
  let state: ServiceState = emptyState('EndpointSlice');
  let outcome: Outcome = { status: undefined, isWritten: false, applied: 0, ...recordsOf(state) };
  for (const change of changes) {
    const { records, isChanged, applied, statuses } = foldChanges(state, [change], NOW);
    state = { ...state, ...records };
    outcome = {
      status: statuses.get(change),
      isWritten: isChanged,
      applied: applied.length,
      ...recordsOf(state),
    };
  }
  return outcome;
}

interface Outcome {
  readonly status: ChangeStatus | undefined;
  readonly isWritten: boolean;
  readonly applied: number;
  /** `uid@version` of the Service; null without one. */
  readonly service: string | null;
  /** `uid@version ip` each. */
  readonly objects: readonly string[];
  /** `uid@version` each. */
  readonly deletions: readonly string[];
}

function recordsOf({
  service: known,
  objects,
  deletions,
}: Pick<ServiceState, 'service' | 'objects' | 'deletions'>) {
  return {
    service: known === null ? null : `${known.uid}@${known.version}`,
    objects: [...objects.values()].map(
      ({ uid, version, content }) => `${uid}@${version} ${content().groups[0]?.endpoints[0]?.ip}`,
    ),
    deletions: [...deletions].map(([uid, { version }]) => `${uid}@${version}`),
  };
}

type Table = Readonly<Record<string, { readonly given: readonly Change[]; readonly want: Partial<Outcome> }>>;

function checkTable(title: string, table: Table) {
  describe(title, () => {
    for (const [sentence, { given, want }] of Object.entries(table))
      test(sentence, () => {
        const outcome = after(...given);
        assert.deepEqual({ ...outcome, ...want }, outcome);
      });
  });
}

const CONFIRMED = { isConfirmed: true };
const UNKNOWN = { isStateUnknown: true };
const OTHER_IP = '10.0.0.2';

checkTable('of one object the versions decide (S45)', {
  'the first is applied': {
    given: [put({ version: 10 })],
    want: { status: 'applied', objects: ['A@10 10.0.0.1'] },
  },
  'a newer one replaces it': {
    given: [put({ version: 9 }), put({ version: 10, ip: OTHER_IP })],
    want: { status: 'applied', objects: ['A@10 10.0.0.2'] },
  },
  'an older one is stale, by number and not by text': {
    given: [put({ version: 10 }), put({ version: 9, ip: OTHER_IP })],
    want: { status: 'stale', isWritten: false, objects: ['A@10 10.0.0.1'] },
  },
  'the same version is unchanged, whatever it says': {
    given: [put({ version: 10 }), put({ version: 10, ip: OTHER_IP })],
    want: { status: 'unchanged', isWritten: false, objects: ['A@10 10.0.0.1'] },
  },
  'a deletion removes and is remembered': {
    given: [put({ version: 10 }), remove('A', 11)],
    want: { status: 'applied', objects: [], deletions: ['A@11'] },
  },
  'an older deletion is stale': {
    given: [put({ version: 10 }), remove('A', 9)],
    want: { status: 'stale', isWritten: false, objects: ['A@10 10.0.0.1'] },
  },
  'a replay after the deletion does not revive it': {
    given: [put({ version: 10 }), remove('A', 12), put({ version: 11, ip: OTHER_IP })],
    want: { status: 'stale', isWritten: false, objects: [] },
  },
  'nor does one of the very version of the deletion': {
    given: [remove('A', 12), put({ version: 12 })],
    want: { status: 'stale', objects: [] },
  },
  'a deletion that comes first is recorded, and changes nothing (P5)': {
    given: [remove('A', 12)],
    want: { status: 'unchanged', isWritten: true, applied: 0, deletions: ['A@12'] },
  },
  'the same deletion again is unchanged and writes nothing': {
    given: [put({ version: 10 }), remove('A', 11), remove('A', 11)],
    want: { status: 'unchanged', isWritten: false, deletions: ['A@11'] },
  },
  'a newer deletion of what is gone is remembered': {
    given: [remove('A', 11), remove('A', 12)],
    want: { status: 'unchanged', isWritten: true, deletions: ['A@12'] },
  },
  'an older deletion of what is gone is stale': {
    given: [remove('A', 12), remove('A', 11)],
    want: { status: 'stale', isWritten: false, deletions: ['A@12'] },
  },
});

checkTable('between two uids of one name the version decides while both live (S45)', {
  'the newer takes the place of the older': {
    given: [put({ version: 10 }), put({ version: 20, uid: 'B', ip: OTHER_IP })],
    want: { status: 'applied', objects: ['B@20 10.0.0.2'], deletions: ['A@20'] },
  },
  'the older comes too late': {
    given: [put({ version: 20, uid: 'B' }), put({ version: 10, ip: OTHER_IP })],
    want: { status: 'stale', isWritten: false, objects: ['B@20 10.0.0.1'] },
  },
  'the late deletion of the replaced one does not touch its successor': {
    given: [put({ version: 10 }), put({ version: 20, uid: 'B' }), remove('A', 15)],
    want: { status: 'stale', isWritten: false, objects: ['B@20 10.0.0.1'] },
  },
  'nor does the deletion of one that was never seen': {
    given: [put({ version: 20, uid: 'B' }), remove('A', 15)],
    want: { status: 'unchanged', isWritten: true, objects: ['B@20 10.0.0.1'], deletions: ['A@15'] },
  },
  'a remembered deletion binds its own uid only': {
    given: [remove('A', 30), put({ version: 20, uid: 'B' })],
    want: { status: 'applied', objects: ['B@20 10.0.0.1'] },
  },
  'a late update of the replaced one is stale': {
    given: [put({ version: 10 }), put({ version: 20, uid: 'B' }), put({ version: 12, ip: OTHER_IP })],
    want: { status: 'stale', objects: ['B@20 10.0.0.1'] },
  },
  'of one version the larger uid stays, in either order': {
    given: [put({ version: 10, uid: 'B' }), put({ version: 10, ip: OTHER_IP })],
    want: { status: 'stale', objects: ['B@10 10.0.0.1'] },
  },
  'of one version the larger uid comes': {
    given: [put({ version: 10, ip: OTHER_IP }), put({ version: 10, uid: 'B' })],
    want: { status: 'applied', objects: ['B@10 10.0.0.1'] },
  },
});

checkTable('an unchanged event is not recorded (P5)', {
  'neither its content nor its version': {
    given: [put({ version: 10 }), put({ version: 11 })],
    want: { status: 'unchanged', isWritten: false, objects: ['A@10 10.0.0.1'] },
  },
  'unless it is confirmed: then its version is': {
    given: [put({ version: 10 }), put({ version: 11 }, CONFIRMED)],
    want: { status: 'unchanged', isWritten: true, objects: ['A@11 10.0.0.1'] },
  },
  'after which what came between is stale': {
    given: [put({ version: 10 }), put({ version: 12 }, CONFIRMED), put({ version: 11, ip: OTHER_IP })],
    want: { status: 'stale', objects: ['A@12 10.0.0.1'] },
  },
  'a confirmed one of the recorded version writes nothing': {
    given: [put({ version: 10 }), put({ version: 10 }, CONFIRMED)],
    want: { status: 'unchanged', isWritten: false },
  },
  'a confirmed one that is stale stays stale': {
    given: [put({ version: 10 }), put({ version: 9 }, CONFIRMED)],
    want: { status: 'stale', isWritten: false },
  },
  'a Service with another version alone': {
    given: [putService(service({}, { version: 1 })), putService(service({}, { version: 2 }))],
    want: { status: 'unchanged', isWritten: false, service: 'uid-svc@1' },
  },
  'unless it is confirmed': {
    given: [putService(service({}, { version: 1 })), putService(service({}, { version: 2 }), CONFIRMED)],
    want: { status: 'unchanged', isWritten: true, applied: 0, service: 'uid-svc@2' },
  },
});

checkTable('at one version only newer news of pods count', {
  'a higher number with another content is applied': {
    given: [put({ version: 10, enrichment: [1, 1] }), put({ version: 10, enrichment: [1, 2], ip: OTHER_IP })],
    want: { status: 'applied', objects: ['A@10 10.0.0.2'] },
  },
  'a lower number is not': {
    given: [put({ version: 10, enrichment: [1, 2] }), put({ version: 10, enrichment: [1, 1], ip: OTHER_IP })],
    want: { status: 'unchanged', isWritten: false, objects: ['A@10 10.0.0.1'] },
  },
  'a newer epoch goes before any number': {
    given: [put({ version: 10, enrichment: [1, 9] }), put({ version: 10, enrichment: [2, 1], ip: OTHER_IP })],
    want: { status: 'applied', objects: ['A@10 10.0.0.2'] },
  },
  'an older epoch never counts': {
    given: [put({ version: 10, enrichment: [2, 1] }), put({ version: 10, enrichment: [1, 9], ip: OTHER_IP })],
    want: { status: 'unchanged', isWritten: false },
  },
  'the first news of pods count': {
    given: [put({ version: 10 }), put({ version: 10, enrichment: [1, 1], ip: OTHER_IP })],
    want: { status: 'applied', objects: ['A@10 10.0.0.2'] },
  },
  'none told is never newer': {
    given: [put({ version: 10, enrichment: [1, 1] }), put({ version: 10, ip: OTHER_IP })],
    want: { status: 'unchanged', isWritten: false },
  },
  'an older version is stale, whatever its number': {
    given: [put({ version: 10, enrichment: [1, 1] }), put({ version: 9, enrichment: [1, 2], ip: OTHER_IP })],
    want: { status: 'stale', isWritten: false },
  },
  'a number that changes nothing is not recorded (P5)': {
    given: [put({ version: 10, enrichment: [1, 1] }), put({ version: 10, enrichment: [1, 3] })],
    want: { status: 'unchanged', isWritten: false },
  },
  'unless it is confirmed': {
    given: [put({ version: 10, enrichment: [1, 1] }), put({ version: 10, enrichment: [1, 3] }, CONFIRMED)],
    want: { status: 'unchanged', isWritten: true },
  },
  'after which a request that was given up changes nothing': {
    given: [
      put({ version: 10, enrichment: [1, 1] }),
      put({ version: 10, enrichment: [1, 3] }, CONFIRMED),
      put({ version: 10, enrichment: [1, 2], ip: OTHER_IP }),
    ],
    want: { status: 'unchanged', isWritten: false, objects: ['A@10 10.0.0.1'] },
  },
});

checkTable('of a state made up at a re-list the uid alone counts (S44)', {
  'a lower version replaces a higher one': {
    given: [put({ version: 10 }), put({ version: 5, ip: OTHER_IP }, UNKNOWN)],
    want: { status: 'applied', objects: ['A@5 10.0.0.2'] },
  },
  'a lower version alone is recorded too': {
    given: [put({ version: 10 }), put({ version: 5 }, UNKNOWN)],
    want: { status: 'unchanged', isWritten: true, objects: ['A@5 10.0.0.1'] },
  },
  'it revives what was deleted': {
    given: [remove('A', 10), put({ version: 5 }, UNKNOWN)],
    want: { status: 'applied', objects: ['A@5 10.0.0.1'], deletions: [] },
  },
  'it takes the place of another uid': {
    given: [put({ version: 10 }), put({ version: 5, uid: 'B' }, UNKNOWN)],
    want: { status: 'applied', objects: ['B@5 10.0.0.1'], deletions: ['A@10'] },
  },
  'a tombstone of an old version deletes': {
    given: [put({ version: 10 }), remove('A', 5, UNKNOWN)],
    want: { status: 'applied', objects: [], deletions: ['A@10'] },
  },
  'a tombstone of another uid does not': {
    given: [put({ version: 10 }), remove('B', 5, UNKNOWN)],
    want: { status: 'unchanged', objects: ['A@10 10.0.0.1'], deletions: ['B@5'] },
  },
  'without a uid the name is meant': {
    given: [put({ version: 10 }), remove(null, 12, UNKNOWN)],
    want: { status: 'applied', objects: [], deletions: ['A@12'] },
  },
  'without uid and version too': {
    given: [put({ version: 10 }), remove(null, null, UNKNOWN)],
    want: { status: 'applied', objects: [], deletions: ['A@10'] },
  },
  'a name that is not there means nothing': {
    given: [put({ version: 10 }), remove(null, 12, { ...UNKNOWN, name: 'b' })],
    want: { status: 'unchanged', isWritten: false, objects: ['A@10 10.0.0.1'] },
  },
  'nor does a name of another kind': {
    given: [put({ version: 10 }), remove(null, 12, { ...UNKNOWN, objectKind: 'Endpoints' })],
    want: { status: 'unchanged', isWritten: false, objects: ['A@10 10.0.0.1'] },
  },
  'a Service by its name': {
    given: [putService(service()), remove(null, null, { ...UNKNOWN, objectKind: 'Service', name: 'web' })],
    want: { status: 'applied', service: null, deletions: ['uid-svc@1'] },
  },
});

checkTable('a Service is recorded as any object (S35)', {
  'a recreated one takes its place': {
    given: [putService(service({}, { version: 1 })), putService(service({}, { version: 9, uid: 'new' }))],
    want: { status: 'applied', service: 'new@9', deletions: ['uid-svc@9'] },
  },
  'and the deletion of the former comes too late': {
    given: [
      putService(service({}, { version: 1 })),
      putService(service({}, { version: 9, uid: 'new' })),
      remove('uid-svc', 8, { objectKind: 'Service', name: 'web' }),
    ],
    want: { status: 'stale', isWritten: false, service: 'new@9' },
  },
  'the same version is unchanged, whatever it says': {
    given: [putService(service()), putService(service({ ports: [] }))],
    want: { status: 'unchanged', isWritten: false },
  },
  'another port is applied': {
    given: [putService(service({}, { version: 1 })), putService(service({ ports: [] }, { version: 2 }))],
    want: { status: 'applied', isWritten: true, applied: 1, service: 'uid-svc@2' },
  },
  'its deletion is remembered': {
    given: [
      putService(service({}, { version: 1 })),
      remove('uid-svc', 8, { objectKind: 'Service', name: 'web' }),
      putService(service({}, { version: 7 })),
    ],
    want: { status: 'stale', service: null, deletions: ['uid-svc@8'] },
  },
});

checkTable('a slice leaves the service that it no longer names (S10)', {
  'what it contributed goes, and the version is remembered': {
    given: [put({ version: 10 }), leave('A', 12)],
    want: { status: 'applied', objects: [], deletions: ['A@12'] },
  },
  'at the version that it has here too': {
    given: [put({ version: 10 }), leave('A', 10)],
    want: { status: 'applied', objects: [], deletions: ['A@10'] },
  },
  'an event from before its return is stale': {
    given: [put({ version: 12 }), leave('A', 10)],
    want: { status: 'stale', isWritten: false, objects: ['A@12 10.0.0.1'] },
  },
  'so is one from before its deletion here': {
    given: [remove('A', 12), leave('A', 10)],
    want: { status: 'stale', isWritten: false },
  },
  'where it never was, it is remembered all the same': {
    given: [leave('A', 12)],
    want: { status: 'unchanged', isWritten: true, applied: 0, deletions: ['A@12'] },
  },
  'so that what came before it is stale': {
    given: [leave('A', 12), put({ version: 11 })],
    want: { status: 'stale', objects: [] },
  },
  'it may come back later': {
    given: [put({ version: 10 }), leave('A', 12), put({ version: 13 })],
    want: { status: 'applied', objects: ['A@13 10.0.0.1'], deletions: [] },
  },
});

checkTable('what an inventory misses is removed', {
  'and remembered at the stored version': {
    given: [put({ version: 10 }), forget('A', false)],
    want: { status: 'applied', objects: [], deletions: ['A@10'] },
  },
  'but not what lives and is no longer watched': {
    given: [put({ version: 10 }), forget('A', true)],
    want: { status: 'applied', isWritten: true, objects: [], deletions: [] },
  },
  'a Service too': {
    given: [putService(service({}, { version: 3 })), forget('uid-svc', false)],
    want: { status: 'applied', service: null, deletions: ['uid-svc@3'] },
  },
  'what is not there is unchanged': {
    given: [forget('A', false)],
    want: { status: 'unchanged', isWritten: false },
  },
});

describe('a deletion is remembered for ten minutes at least (S45)', () => {
  const deleted = { ...emptyState('EndpointSlice'), deletions: new Map([['A', { version: '10', at: NOW }]]) };
  const later = (ms: number) => (NOW + ms) as EpochMs;

  test('until then', () => {
    const { records } = foldChanges(deleted, [put({ version: 1, uid: 'B' })], later(10 * 60_000));
    assert(records.deletions.has('A'));
  });
  test('afterwards the next write forgets it', () => {
    const { records } = foldChanges(deleted, [put({ version: 1, uid: 'B' })], later(DELETION_MEMORY_MS + 1));
    assert(!records.deletions.has('A'));
  });
  test('but it causes no write', () => {
    const { records, isChanged } = foldChanges(deleted, [], later(DELETION_MEMORY_MS + 1));
    assert.deepEqual([isChanged, records.deletions.has('A')], [false, true]);
  });
});

describe('a batch is folded in its order', () => {
  test('each change sees what the ones before it did', () => {
    const changes = [
      put({ version: 10 }),
      put({ version: 9 }),
      put({ version: 11, ip: OTHER_IP }),
      remove('A', 12),
    ];
    const { statuses, applied, records } = foldChanges(emptyState('EndpointSlice'), changes, NOW);
    assert.deepEqual(
      changes.map((change) => statuses.get(change)),
      ['applied', 'stale', 'applied', 'applied'],
    );
    assert.equal(applied.length, 3);
    assert.equal(records.objects.size, 0);
  });
  test('the state that it starts from stays as it is', () => {
    const state = emptyState('EndpointSlice');
    foldChanges(state, [put({ version: 10 }), remove('B', 1)], NOW);
    assert.deepEqual(state, emptyState('EndpointSlice'));
  });
});

test('a mode watches one kind of objects (S12)', () => {
  assert.equal(kindOfMode('slices'), 'EndpointSlice');
  assert.equal(kindOfMode('endpoints'), 'Endpoints');
});
