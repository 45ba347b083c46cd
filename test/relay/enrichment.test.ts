import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  EnrichmentRig,
  type PodInput,
  parent,
  pod,
  type RawObject,
  server,
  service,
  slice,
  targetRef,
} from './enrichment-rig.ts';

const RS = ['ReplicaSet', 'web-5d9f'] as const;
const JOB = ['Job', 'nightly-287'] as const;
const DEPLOYMENT = ['Deployment', 'web'] as const;

const owners: Record<
  string,
  { owners?: PodInput['owners']; parents?: RawObject[]; want: readonly string[] }
> = {
  'a pod without an owner is its own': { want: ['Pod', 'web-1'] },
  'one with several owners too': {
    owners: [RS, ['Node', 'n1']],
    parents: [parent(...RS, [DEPLOYMENT])],
    want: ['Pod', 'web-1'],
  },
  'the only owner': { owners: [['StatefulSet', 'web']], want: ['StatefulSet', 'web'] },
  'the Deployment of a ReplicaSet': {
    owners: [RS],
    parents: [parent(...RS, [DEPLOYMENT])],
    want: DEPLOYMENT,
  },
  'whatever else owns a ReplicaSet': {
    owners: [RS],
    parents: [parent(...RS, [['Rollout', 'web']])],
    want: ['Rollout', 'web'],
  },
  'a ReplicaSet without an owner': { owners: [RS], parents: [parent(...RS)], want: RS },
  'a ReplicaSet with two': { owners: [RS], parents: [parent(...RS, [DEPLOYMENT, ['Node', 'n1']])], want: RS },
  'a ReplicaSet that is not known': { owners: [RS], want: RS },
  'the CronJob of a Job': {
    owners: [JOB],
    parents: [parent(...JOB, [['CronJob', 'nightly']])],
    want: ['CronJob', 'nightly'],
  },
  'a Job of its own': { owners: [JOB], parents: [parent(...JOB)], want: JOB },
  'a Job of the name of a ReplicaSet is another thing': {
    owners: [RS],
    parents: [parent('Job', RS[1], [['CronJob', 'x']])],
    want: RS,
  },
};

describe('the owner of a pod', () => {
  for (const [name, { owners: references, parents = [], want }] of Object.entries(owners)) {
    test(name, () => {
      const aPod = pod({ ...(references && { owners: references }) });
      for (const objects of [
        [...parents, aPod],
        [aPod, ...parents],
      ]) {
        const rig = new EnrichmentRig().add(slice(), ...objects);
        const [kind, owner] = want;
        assert.deepEqual(rig.web1(slice())?.owner, { kind, name: owner });
      }
    });
  }
});

const HTTP = [{ name: 'http', containerPort: 8080 }];

/** Of pod web-1 at port 8080, unless said otherwise. */
const opaque: Record<
  string,
  {
    pod?: PodInput;
    service?: RawObject;
    servers?: RawObject[];
    slice?: Parameters<typeof slice>[0];
    want: boolean;
  }
> = {
  'a port that nobody speaks of': { want: false },
  'a default port': { slice: { ports: [{ port: 3306 }] }, want: true },
  'a default port at which the pod is annotated otherwise': {
    pod: { opaquePorts: '8080' },
    slice: { ports: [{ port: 3306 }] },
    want: false,
  },
  'an empty annotation has none': {
    pod: { opaquePorts: '' },
    slice: { ports: [{ port: 3306 }] },
    want: false,
  },
  "the pod's annotation": { pod: { opaquePorts: '665, 8080' }, want: true },
  "the pod's annotation by a container's port": { pod: { opaquePorts: 'http', ports: HTTP }, want: true },
  "the pod's annotation by an init container's port": {
    pod: { opaquePorts: 'http', initPorts: HTTP },
    want: true,
  },
  "the Service's annotation, by the target's number": {
    service: service([{ port: 80 }], '8080'),
    want: true,
  },
  "the Service's annotation, by its own number": {
    service: service([{ name: 'http', port: 80 }], '80'),
    slice: { ports: [{ name: 'http', port: 8080 }] },
    want: true,
  },
  "the Service's annotation, by its own name": {
    service: service([{ name: 'web', port: 80 }], 'web'),
    slice: { ports: [{ name: 'web', port: 8080 }] },
    want: true,
  },
  "the Service's annotation, by the container's name": {
    pod: { ports: HTTP },
    service: service([{ port: 80 }], 'http'),
    want: true,
  },
  'the number of another port of the Service': {
    service: service(
      [
        { name: 'a', port: 80 },
        { name: 'b', port: 81 },
      ],
      '81',
    ),
    slice: { ports: [{ name: 'a', port: 8080 }] },
    want: false,
  },
  "the Service's annotation replaces the defaults": {
    service: service([{ port: 80 }], ''),
    slice: { ports: [{ port: 3306 }] },
    want: false,
  },
  "the pod's annotation comes before the Service's": {
    pod: { opaquePorts: '' },
    service: service([{ port: 80 }], '8080'),
    want: false,
  },
  "a Server's number": { servers: [server('a', { port: 8080 })], want: true },
  'a Server is opaque whatever the annotation says': {
    pod: { opaquePorts: '' },
    servers: [server('a', { port: 8080 })],
    want: true,
  },
  'another number': { servers: [server('a', { port: 8081 })], want: false },
  'a Server of another protocol': {
    servers: [server('a', { port: 8080, proxyProtocol: 'HTTP/1' })],
    want: false,
  },
  'a Server of another namespace': { servers: [server('a', { port: 8080 }, 'other')], want: false },
  'a Server that does not select the pod': {
    servers: [server('a', { port: 8080, podSelector: { matchLabels: { app: 'db' } } })],
    want: false,
  },
  'a Server that selects by an expression': {
    servers: [
      server('a', {
        port: 8080,
        podSelector: { matchExpressions: [{ key: 'app', operator: 'In', values: ['web'] }] },
      }),
    ],
    want: true,
  },
  'a Server that selects every pod': { servers: [server('a', { port: 8080, podSelector: {} })], want: true },
  'a Server of external workloads': {
    servers: [server('a', { port: 8080, podSelector: null, externalWorkloadSelector: {} })],
    want: false,
  },
  'a port by the name of a container': {
    pod: { ports: HTTP },
    servers: [server('a', { port: 'http' })],
    want: true,
  },
  'a port by the name of an init container': {
    pod: { initPorts: HTTP },
    servers: [server('a', { port: 'http' })],
    want: true,
  },
  'a name that no container has': {
    pod: { ports: HTTP },
    servers: [server('a', { port: 'grpc' })],
    want: false,
  },
  'L21: two Servers select the port, one opaque': {
    servers: [server('a', { port: 8080 }), server('b', { port: 8080, proxyProtocol: 'HTTP/2' })],
    want: true,
  },
  'L22: a named host port counts': {
    pod: { ports: [{ name: 'http', containerPort: 80, hostPort: 8080 }] },
    servers: [server('a', { port: 'http' })],
    want: true,
  },
  'L31: an invalid selector leaves the other Servers alone': {
    servers: [
      server('a', {
        port: 8080,
        podSelector: { matchExpressions: [{ key: 'app', operator: 'Near', values: ['x'] }] },
      }),
      server('b', { port: 8080 }),
    ],
    want: true,
  },
  'L31: an invalid selector alone': {
    servers: [server('a', { port: 8080, podSelector: { matchLabels: { app: 1 } } })],
    want: false,
  },
  'of several ports, one': {
    slice: {
      ports: [
        { name: 'a', port: 9090 },
        { name: 'b', port: 3306 },
      ],
    },
    want: true,
  },
  'no port': { slice: { ports: [] }, want: false },
};

describe('is a pod opaque', () => {
  for (const [name, given] of Object.entries(opaque)) {
    test(`${name}: ${given.want}, in any order of events`, () => {
      const aSlice = slice(given.slice);
      const objects = [
        aSlice,
        pod(given.pod),
        ...(given.service ? [given.service] : []),
        ...(given.servers ?? []),
      ];
      for (const order of [objects, objects.toReversed()]) {
        const rig = new EnrichmentRig().add(...order);
        assert.equal(rig.web1(aSlice)?.opaqueProtocol, given.want);
      }
      const rig = new EnrichmentRig();
      for (const object of objects) {
        rig.add(object);
        rig.resend();
      }
      const told = rig.told.get('web-abc')?.enrich['default/web-1'] as PodFlags | undefined;
      assert.equal(told?.opaqueProtocol ?? false, given.want);
    });
  }

  test('L31: the invalid Server is named, with what is wrong', () => {
    const rig = new EnrichmentRig().add(
      server('bad', { port: 8080, podSelector: { matchLabels: { app: 1 } } }),
    );
    const { message, namespace, name, reason } = JSON.parse(rig.logged[0] ?? '{}');
    assert.deepEqual([message, namespace, name], ['Server skipped', 'default', 'bad']);
    assert.match(reason, /^podSelector\.matchLabels\.app: /);
  });

  test('Endpoints: a pod is opaque at the ports of its own subsets', () => {
    const endpoints = {
      kind: 'Endpoints',
      metadata: { name: 'web', namespace: 'default' },
      subsets: [
        { addresses: [{ ip: '10.0.0.1', targetRef: targetRef('web-1') }], ports: [{ port: 8080 }] },
        { notReadyAddresses: [{ ip: '10.0.0.2', targetRef: targetRef('web-2') }], ports: [{ port: 3306 }] },
      ],
    };
    const rig = new EnrichmentRig().add(endpoints, pod(), pod({ name: 'web-2' }));
    const flags = Object.entries(rig.tell(endpoints)?.enrich ?? {});
    assert.deepEqual(
      flags.map(([id, known]) => [id, (known as PodFlags).opaqueProtocol]),
      [
        ['default/web-1', false],
        ['default/web-2', true],
      ],
    );
  });
});

test('a pod in two subsets is opaque when a port of either is', () => {
  for (const ports of [
    [8080, 3306],
    [3306, 8080],
  ]) {
    const endpoints = {
      kind: 'Endpoints',
      metadata: { name: 'web', namespace: 'default' },
      subsets: ports.map((port) => ({
        addresses: [{ ip: '10.0.0.1', targetRef: targetRef('web-1') }],
        ports: [{ port }],
      })),
    };
    assert.equal(new EnrichmentRig().add(endpoints, pod()).web1(endpoints)?.opaqueProtocol, true);
  }
});

interface PodFlags {
  readonly opaqueProtocol: boolean;
}

/** What the rig sent before anything else happened is told. */
function toldRig(...objects: readonly RawObject[]): EnrichmentRig {
  const rig = new EnrichmentRig().add(...objects);
  rig.resend();
  return rig;
}

const again: Record<string, { given: RawObject[]; change: (rig: EnrichmentRig) => unknown; want: string[] }> =
  {
    'a pod that becomes known': { given: [slice()], change: (rig) => rig.add(pod()), want: ['web-abc'] },
    'a pod that becomes known in several objects': {
      given: [slice(), slice({ name: 'other' }), slice({ name: 'third', pods: ['web-2'] })],
      change: (rig) => rig.add(pod()),
      want: ['other', 'web-abc'],
    },
    'S7: a pod that nobody names': {
      given: [slice()],
      change: (rig) => rig.add(pod({ name: 'web-9' })),
      want: [],
    },
    'S5: a pod whose version alone changed': {
      given: [slice(), pod()],
      change: (rig) => rig.see('MODIFIED', pod()),
      want: [],
    },
    'a label that nobody selects by': {
      given: [slice(), pod()],
      change: (rig) => rig.see('MODIFIED', pod({ labels: { app: 'web', x: 'y' } })),
      want: [],
    },
    'a pod that is scheduled': {
      given: [slice(), pod({ node: '' })],
      change: (rig) => rig.see('MODIFIED', pod()),
      want: ['web-abc'],
    },
    'a label that takes it out of a Server': {
      given: [slice(), pod(), server('a', { port: 8080 })],
      change: (rig) => rig.see('MODIFIED', pod({ labels: { app: 'db' } })),
      want: ['web-abc'],
    },
    "S7: a pod's end alone": { given: [slice(), pod()], change: (rig) => rig.delete(pod()), want: [] },
    'S7: a list without the pod': {
      given: [slice(), pod()],
      change: (rig) => rig.list('Pod', null, []),
      want: [],
    },
    'a ReplicaSet that becomes known': {
      given: [slice(), pod({ owners: [RS] })],
      change: (rig) => rig.add(parent(...RS, [DEPLOYMENT])),
      want: ['web-abc'],
    },
    "a ReplicaSet's end alone": {
      given: [slice(), parent(...RS, [DEPLOYMENT]), pod({ owners: [RS] })],
      change: (rig) => rig.delete(parent(...RS)),
      want: [],
    },
    'a ReplicaSet that went and came back under another owner': {
      given: [slice(), parent(...RS, [DEPLOYMENT]), pod({ owners: [RS] })],
      change: (rig) => rig.delete(parent(...RS)).add(parent(...RS, [['Rollout', 'web']])),
      want: ['web-abc'],
    },
    'a Server that appears': {
      given: [slice(), pod()],
      change: (rig) => rig.add(server('a', { port: 8080 })),
      want: ['web-abc'],
    },
    'a Server for a port that no object has': {
      given: [slice(), pod()],
      change: (rig) => rig.add(server('a', { port: 1 })),
      want: [],
    },
    'L21: a second Server of another protocol': {
      given: [slice(), pod(), server('a', { port: 8080 })],
      change: (rig) => rig.add(server('b', { port: 8080, proxyProtocol: 'HTTP/2' })),
      want: [],
    },
    'L21: the second of two opaque Servers goes': {
      given: [slice(), pod(), server('a', { port: 8080 }), server('b', { port: 8080 })],
      change: (rig) => rig.delete(server('b', {})),
      want: [],
    },
    'the last opaque Server goes': {
      given: [slice(), pod(), server('a', { port: 8080 })],
      change: (rig) => rig.delete(server('a', {})),
      want: ['web-abc'],
    },
    'L23: the last opaque Server is missing in a list, without an event': {
      given: [slice(), pod(), server('a', { port: 8080 })],
      change: (rig) => rig.list('Server', null, []),
      want: ['web-abc'],
    },
    'L23: an event of the end of a Server that was never seen': {
      given: [slice(), pod()],
      change: (rig) => rig.delete({ kind: 'Server', metadata: { name: 'a', namespace: 'default' } }),
      want: [],
    },
    'a list of another namespace leaves a Server alone': {
      given: [slice(), pod(), server('a', { port: 8080 })],
      change: (rig) => rig.list('Server', 'other', []),
      want: [],
    },
    'a Server that turns to another protocol': {
      given: [slice(), pod(), server('a', { port: 8080 })],
      change: (rig) => rig.see('MODIFIED', server('a', { port: 8080, proxyProtocol: 'unknown' })),
      want: ['web-abc'],
    },
    'a Server that becomes invalid': {
      given: [slice(), pod(), server('a', { port: 8080 })],
      change: (rig) =>
        rig.see('MODIFIED', server('a', { port: 8080, podSelector: { matchLabels: { app: 1 } } })),
      want: ['web-abc'],
    },
    'a Server that selects other pods': {
      given: [
        slice(),
        slice({ name: 'db', pods: ['db-1'] }),
        pod(),
        pod({ name: 'db-1', labels: { app: 'db' } }),
        server('a', { port: 8080 }),
      ],
      change: (rig) =>
        rig.see('MODIFIED', server('a', { port: 8080, podSelector: { matchLabels: { app: 'db' } } })),
      want: ['db', 'web-abc'],
    },
    'L22: the named host port of a Server that appears': {
      given: [slice(), pod({ ports: [{ name: 'http', containerPort: 80, hostPort: 8080 }] })],
      change: (rig) => rig.add(server('a', { port: 'http' })),
      want: ['web-abc'],
    },
    "the Service's annotation": {
      given: [service(), slice(), slice({ name: 'other', service: 'db' }), pod()],
      change: (rig) => rig.see('MODIFIED', service([{ port: 80 }], '8080')),
      want: ['web-abc'],
    },
    "the Service's annotation goes": {
      given: [service([{ port: 80 }], '8080'), slice(), pod()],
      change: (rig) => rig.see('MODIFIED', service()),
      want: ['web-abc'],
    },
    'another annotation of a Service, by which nothing is opaque': {
      given: [service([{ port: 80 }], '9'), slice(), pod()],
      change: (rig) => rig.see('MODIFIED', service([{ port: 80 }], '10')),
      want: [],
    },
    'a change and back': {
      given: [slice(), pod()],
      change: (rig) => rig.add(server('a', { port: 8080 })).delete(server('a', {})),
      want: [],
    },
    'an object that is gone': {
      given: [slice(), pod()],
      change: (rig) => rig.add(server('a', { port: 8080 })).delete(slice()),
      want: [],
    },
  };

describe('what is sent again', () => {
  for (const [name, { given, change, want }] of Object.entries(again)) {
    test(`${name}: ${want.join(' and ') || 'nothing'}`, () => {
      const rig = toldRig(...given);
      change(rig);
      assert.deepEqual(rig.resend(), want);
      assert.deepEqual(rig.resend(), []);
    });
  }

  test('at the first look everything that was not told, and nothing of which nothing is known', () => {
    const rig = new EnrichmentRig().add(
      slice(),
      slice({ name: 'told' }),
      slice({ name: 'empty', pods: [] }),
      pod(),
    );
    rig.tell(slice({ name: 'told' }));
    assert.deepEqual(rig.resend(), ['web-abc']);
  });

  test('what touches many objects is told by and by, each once', () => {
    const names = Array.from({ length: 120 }, (_, index) => `web-${1000 + index}`);
    const rig = new EnrichmentRig().add(pod(), ...names.map((name) => slice({ name })));
    const resendAll = () => {
      const looks: string[][] = [];
      while (rig.enrichment.hasSuspects) looks.push(rig.resend());
      return looks;
    };
    for (const change of [() => {}, () => rig.add(server('a', { port: 8080 }))]) {
      change();
      const looks = resendAll();
      assert.ok(looks.length > 1);
      assert.deepEqual(looks.flat().sort(), names);
    }
  });

  test('a pod that is gone stays known as long as an object names it', () => {
    const rig = toldRig(slice(), pod({ owners: [['StatefulSet', 'web']] }));
    rig.delete(pod());
    const more = slice({ pods: ['web-1', 'web-2'] });
    rig.add(more);
    assert.deepEqual(rig.web1(more)?.owner, { kind: 'StatefulSet', name: 'web' });
    rig.add(slice({ pods: [] }), slice());
    assert.equal(rig.tell(slice()), null);
  });
});

describe('enrichVersion', () => {
  test('rises with each change of what is told of an object, and with nothing else', () => {
    const rig = new EnrichmentRig().add(slice(), pod());
    const first = rig.tell(slice())?.enrichVersion ?? 0;
    assert.equal(rig.tell(slice())?.enrichVersion, first);
    rig.add(server('a', { port: 8080 }));
    const second = rig.tell(slice())?.enrichVersion ?? 0;
    assert.ok(second > first);
    rig.delete(server('a', {}));
    const third = rig.tell(slice())?.enrichVersion ?? 0;
    assert.ok(third > second);
    assert.equal(rig.tell(slice())?.enrichVersion, third);
  });

  test('an object of whose pods nothing is known says nothing, so what the cloud knew stays', () => {
    assert.equal(new EnrichmentRig().add(slice()).tell(slice()), null);
  });
});
