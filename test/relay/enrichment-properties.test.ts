import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  EnrichmentRig,
  isFact,
  type PodInput,
  parent,
  pod,
  type RawObject,
  server,
  service,
  slice,
} from './enrichment-rig.ts';

const POD_NAMES = ['web-1', 'web-2', 'db-1'];
const SERVICE_PORTS = [
  { name: 'a', port: 80 },
  { name: 'b', port: 8080 },
];

const podObject = fc
  .record({
    name: fc.constantFrom(...POD_NAMES),
    labels: fc.constantFrom<Record<string, string>[]>({ app: 'web' }, { app: 'db' }, {}),
    owners: fc.constantFrom<NonNullable<PodInput['owners']>[]>(
      [],
      [['ReplicaSet', 'rs']],
      [['Job', 'job']],
      [
        ['A', 'a'],
        ['B', 'b'],
      ],
    ),
    node: fc.constantFrom('', 'n1', 'n2'),
    ports: fc.constantFrom<NonNullable<PodInput['ports']>[]>(
      [],
      [{ name: 'p', containerPort: 8080 }],
      [{ name: 'p', containerPort: 1, hostPort: 3306 }],
    ),
    annotation: fc.constantFrom(undefined, undefined, '', 'p', '8000-9000'),
  })
  .map(({ annotation, ...input }) =>
    pod({ ...input, ...(annotation !== undefined && { opaquePorts: annotation }) }),
  );

const parentObject = fc
  .tuple(
    fc.constantFrom(['ReplicaSet', 'rs'] as const, ['Job', 'job'] as const),
    fc.constantFrom<NonNullable<PodInput['owners']>[]>(
      [],
      [['Deployment', 'web']],
      [
        ['CronJob', 'x'],
        ['Y', 'y'],
      ],
    ),
  )
  .map(([[kind, name], owners]) => parent(kind, name, owners));

const serverObject = fc
  .record({
    name: fc.constantFrom('s1', 's2', 's3'),
    port: fc.constantFrom<(number | string)[]>(8080, 3306, 'p'),
    proxyProtocol: fc.constantFrom('opaque', 'opaque', 'HTTP/2'),
    podSelector: fc.constantFrom<unknown[]>(
      {},
      { matchLabels: { app: 'web' } },
      { matchLabels: { app: 'db' } },
      { matchLabels: { app: 7 } },
    ),
  })
  .map(({ name, ...spec }) => server(name, spec));

const sliceObject = fc
  .record({
    name: fc.constantFrom('x', 'y'),
    pods: fc.subarray(POD_NAMES),
    ports: fc.constantFrom(
      [],
      [{ name: 'a', port: 8080 }],
      [
        { name: 'a', port: 3306 },
        { name: 'b', port: 9 },
      ],
    ),
  })
  .map(slice);

const serviceObject = fc
  .constantFrom(undefined, '', '80', 'a', 'p', '9')
  .map((annotation) => service(SERVICE_PORTS, annotation));

const object = fc.oneof(
  podObject,
  podObject,
  parentObject,
  serverObject,
  serverObject,
  sliceObject,
  serviceObject,
);

type Step =
  | { readonly kind: 'put'; readonly object: RawObject }
  | { readonly kind: 'delete'; readonly object: RawObject }
  /** Lists what is there without some, whose events were missed. */
  | {
      readonly kind: 'list';
      readonly of: 'Pod' | 'ReplicaSet' | 'Job' | 'Server';
      readonly without: readonly string[];
    };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: object.map((object) => ({ kind: 'put', object }) as const) },
  { weight: 3, arbitrary: object.map((object) => ({ kind: 'delete', object }) as const) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('list' as const),
      of: fc.constantFrom('Pod', 'ReplicaSet', 'Job', 'Server'),
      without: fc.subarray([...POD_NAMES, 'rs', 'job', 's1', 's2', 's3']),
    }),
  },
);

const lives = (model: Model) => [...model.live.values()];
const idOf = ({ kind, metadata }: RawObject) => `${kind}/${metadata.name}`;

/** The objects that are there, and the ends that are not forgotten: of pods that slices name, and of what owns those. */
class Model {
  readonly live = new Map<string, RawObject>();
  readonly remembered = new Map<string, RawObject>();

  take(step: Step): void {
    if (step.kind === 'put') this.#put(step.object);
    else if (step.kind === 'delete') this.#delete(idOf(step.object));
    else for (const name of step.without) this.#delete(`${step.of}/${name}`);
    this.#forget();
  }

  #put(object: RawObject): void {
    this.live.set(idOf(object), object);
    this.remembered.set(idOf(object), object);
  }

  #delete(id: string): void {
    this.live.delete(id);
    const [kind] = id.split('/');
    if (kind !== 'Pod' && kind !== 'ReplicaSet' && kind !== 'Job') this.remembered.delete(id);
  }

  #forget(): void {
    const named = new Set(
      this.all('EndpointSlice').flatMap((each) => podNames(each).map((name) => `Pod/${name}`)),
    );
    const drop = (keeps: (id: string) => boolean) => {
      for (const id of this.remembered.keys())
        if (!this.live.has(id) && !keeps(id)) this.remembered.delete(id);
    };
    drop((id) => !id.startsWith('Pod/') || named.has(id));
    const owners = new Set(
      this.all('Pod').flatMap((each) =>
        ownersOf(each)
          .slice(0, 1)
          .map(({ kind, name }) => `${kind}/${name}`),
      ),
    );
    drop((id) => id.startsWith('Pod/') || owners.has(id));
  }

  all(kind: string): RawObject[] {
    return [...this.remembered.values()].filter((each) => each.kind === kind);
  }

  /** What is known of the pods of a slice, from all objects. */
  enrich(aSlice: RawObject): Record<string, unknown> {
    const known = podNames(aSlice).flatMap((name) => {
      const aPod = this.remembered.get(`Pod/${name}`);
      if (aPod === undefined) return [];
      const node = specOf(aPod).nodeName;
      const opaqueProtocol = portsOf(aSlice).some((port) => this.#isOpaque(aPod, port));
      return [
        [`default/${name}`, { owner: this.#owner(aPod), ...(node && { node }), opaqueProtocol }] as const,
      ];
    });
    return Object.fromEntries(known);
  }

  #owner(aPod: RawObject): unknown {
    const [only, ...others] = ownersOf(aPod);
    if (only === undefined || others.length > 0) return { kind: 'Pod', name: aPod.metadata.name };
    const [grand, ...rest] = ownersOf(this.remembered.get(`${only.kind}/${only.name}`));
    const { kind, name } = grand !== undefined && rest.length === 0 ? grand : only;
    return { kind, name };
  }

  #isOpaque(aPod: RawObject, { name, port }: Port): boolean {
    const { metadata } = aPod;
    const containerPorts = specOf(aPod).containers[0]?.ports ?? [];
    for (const { spec } of this.all('Server') as unknown as Server[]) {
      const [app] = Object.values(spec.podSelector.matchLabels ?? {});
      const selects = app === undefined || app === (metadata.labels as { app?: string }).app;
      if (spec.proxyProtocol !== 'opaque' || !selects) continue;
      if (spec.port === port) return true;
      if (
        containerPorts.some(
          (each) => each.name === spec.port && [each.containerPort, each.hostPort].includes(port),
        )
      )
        return true;
    }
    const isNamed = (text: string) =>
      containerPorts.some((each) => each.name === text && each.containerPort === port);
    const own = annotationOf(aPod);
    if (own !== undefined)
      return own === 'p' ? isNamed('p') : own === '8000-9000' && port >= 8000 && port <= 9000;
    const ofService = annotationOf(this.remembered.get('Service/web'));
    if (ofService === undefined) return port === 3306;
    if (ofService === 'p') return isNamed('p');
    if (ofService === 'a') return name === 'a';
    const number = SERVICE_PORTS.find((each) => each.name === name)?.port;
    return ofService !== '' && [port, number].includes(Number(ofService));
  }
}

interface Port {
  readonly name: string;
  readonly port: number;
}

interface Server {
  readonly spec: {
    readonly port: number | string;
    readonly proxyProtocol: string;
    readonly podSelector: { readonly matchLabels?: Record<string, unknown> };
  };
}

interface Spec {
  readonly nodeName: string;
  readonly containers: readonly { readonly ports?: NonNullable<PodInput['ports']> }[];
}

const specOf = (each: RawObject) => each.spec as Spec;
const portsOf = (each: RawObject) => each.ports as readonly Port[];
const podNames = (each: RawObject) =>
  (each.endpoints as readonly { targetRef: { name: string } }[]).map(({ targetRef }) => targetRef.name);
const ownersOf = (each: RawObject | undefined) =>
  (each?.metadata.ownerReferences ?? []) as readonly { readonly kind: string; readonly name: string }[];
const annotationOf = (each: RawObject | undefined) =>
  (each?.metadata.annotations as Record<string, string> | undefined)?.['config.linkerd.io/opaque-ports'];

/** Does to the rig what the model did. Slices are sent at once, as the relay would. */
function perform(rig: EnrichmentRig, step: Step, model: Model): void {
  if (step.kind === 'list') {
    const listed = model.all(step.of).filter((each) => model.live.has(idOf(each)));
    rig.list(step.of, null, listed);
    return;
  }
  const { object } = step;
  rig.see(step.kind === 'put' ? 'MODIFIED' : 'DELETED', object);
  if (object.kind !== 'EndpointSlice') return;
  if (step.kind === 'put') rig.tell(object);
  else rig.told.delete(object.metadata.name);
}

test('what is told of pods is what all objects together say, whatever came in which order, and changes alone are told', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const rig = new EnrichmentRig();
      const model = new Model();
      for (const step of steps) {
        model.take(step);
        perform(rig, step, model);
        const before = structuredClone(rig.told);
        for (const name of rig.resend()) {
          assert.notDeepEqual(
            rig.told.get(name)?.enrich,
            before.get(name)?.enrich,
            'an object is told twice',
          );
          assert.ok((rig.told.get(name)?.enrichVersion ?? 0) > (before.get(name)?.enrichVersion ?? 0));
        }
        for (const each of model.all('EndpointSlice')) {
          assert.deepEqual(rig.told.get(each.metadata.name)?.enrich ?? {}, model.enrich(each));
        }
      }
      for (const each of lives(model)) rig.see('DELETED', each);
      assert.deepEqual(rig.enrichment.counts, { pods: 0, owners: 0, traits: 0, servers: 0 });
      // In one go, in another order, and only from what is there.
      const fresh = new EnrichmentRig();
      for (const each of lives(model).filter(({ kind }) => !isFact(kind))) fresh.add(each);
      for (const each of lives(model)
        .filter(({ kind }) => isFact(kind))
        .toReversed())
        fresh.add(each);
      const isForgotten = model.remembered.size === model.live.size;
      for (const each of isForgotten ? model.all('EndpointSlice') : []) {
        assert.deepEqual(fresh.tell(each)?.enrich ?? {}, model.enrich(each));
      }
    }),
    { numRuns: 300 },
  );
});
