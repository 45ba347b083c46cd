import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startControllers } from '../../../../infra/local/cluster/controllers.ts';
import { createObjectStore, type ObjectStore } from '../../../../infra/local/cluster/object-store.ts';
import type {
  Endpoint,
  EndpointSlice,
  EndpointSubset,
  KubeObject,
} from '../../../../infra/local/cluster/resources.ts';
import { fakeClock, node, pod, readiness, service, terminate } from './cluster-builders.ts';

interface Scene {
  readonly objects: ObjectStore;
  /** Lets the controllers follow and answers what they wrote, and what the scene wrote, since the last call. */
  follow(): Promise<string[]>;
}

/** A scene with one node in zone a; slices are numbered in the order of their creation. */
async function scene(play: (scene: Scene) => Promise<void>, maxEndpointsPerSlice = 10): Promise<void> {
  const objects = createObjectStore({ clock: fakeClock(), historySize: 10_000 });
  const numbers = new Map<string, number>();
  let written: string[] = [];
  objects.create(node('node-1', 'a'));
  using controllers = startControllers({ objects, maxEndpointsPerSlice, random: () => 0 });
  objects.subscribe((change) => {
    const object = change?.object ?? change?.previous;
    if (object === undefined || object === null || object.kind === 'Pod' || object.kind === 'Node') return;
    const type = change?.object === null ? 'DELETED' : change?.previous === null ? 'ADDED' : 'MODIFIED';
    written.push(`${type} ${describe(object, numbers)}`);
  });
  await play({
    objects,
    follow: async () => {
      await controllers.idle();
      const events = written;
      written = [];
      return events;
    },
  });
}

/** `slice 1 IPv4 8080 [10.0.0.1 rs-]`: ready, serving, terminating; a placeholder is `null null`. */
function describe(object: KubeObject, numbers: Map<string, number>): string {
  if (object.kind === 'EndpointSlice') {
    const number = numbers.get(object.metadata.name) ?? numbers.size + 1;
    numbers.set(object.metadata.name, number);
    return `slice ${number} ${object.addressType} ${portsOf(object)} ${endpointsOf(object)}`;
  }
  if (object.kind === 'Endpoints')
    return `Endpoints ${(object.subsets ?? []).map(subsetText).join(' + ') || 'none'}`;
  return `${object.kind} ${object.metadata.name}`;
}

const portsOf = ({ ports }: EndpointSlice) =>
  ports === null ? 'null' : ports.map(({ port }) => port).join();

function endpointsOf({ endpoints }: EndpointSlice): string {
  if (endpoints === null) return 'null';
  if (endpoints.length > 4) return `${endpoints.length} endpoints`;
  return `[${endpoints.map(endpointText).join(', ')}]`;
}

function endpointText({ addresses, conditions = {}, hostname }: Endpoint): string {
  const flags = Object.entries(conditions).map(([name, holds]) => (holds ? name[0] : '-'));
  return `${addresses.join()} ${flags.join('')}${hostname === undefined ? '' : ` ${hostname}`}`;
}

function subsetText({ addresses = [], notReadyAddresses = [], ports = [] }: EndpointSubset): string {
  const ips = (list: readonly { readonly ip: string }[]) => list.map(({ ip }) => ip).join() || '-';
  return `${ips(addresses)}/${ips(notReadyAddresses)}:${ports.map(({ port }) => port).join()}`;
}

const ref = (kind: 'Service' | 'Pod' | 'Endpoints', name: string) =>
  ({ kind, namespace: 'default', name }) as const;
const web = (spec = {}) => service('web', { selector: { app: 'web' }, ...spec });
const addPods = (objects: ObjectStore, from: number, to: number) => {
  for (let n = from; n <= to; n += 1) objects.create(pod(`p${n}`, { ips: [`10.0.0.${n}`] }));
};

test('new Service, no pods: a placeholder with null endpoints and null ports', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    assert.deepEqual(await follow(), [
      'ADDED Service web',
      'ADDED slice 1 IPv4 null null',
      'ADDED Endpoints none',
    ]);
  }));

test('new dual-stack Service: a placeholder per family, then the address of each pod in its family', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web({ ipFamilies: ['IPv4', 'IPv6'] }));
    assert.deepEqual((await follow()).slice(1, 3), [
      'ADDED slice 1 IPv4 null null',
      'ADDED slice 2 IPv6 null null',
    ]);
    objects.create(pod('p', { ips: ['10.0.0.1', 'fd00::1'] }));
    assert.deepEqual(await follow(), [
      'MODIFIED slice 1 IPv4 8080 [10.0.0.1 rs-]',
      'MODIFIED slice 2 IPv6 8080 [fd00::1 rs-]',
      'MODIFIED Endpoints 10.0.0.1/-:8080',
    ]);
    objects.update(web({ ipFamilies: ['IPv4'] }));
    assert.deepEqual(await follow(), ['MODIFIED Service web', 'DELETED slice 2 IPv6 8080 [fd00::1 rs-]']);
  }));

test('0 to 1 pod: the placeholder becomes the slice, ports appear', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    await follow();
    addPods(objects, 1, 1);
    assert.deepEqual(await follow(), [
      'MODIFIED slice 1 IPv4 8080 [10.0.0.1 rs-]',
      'MODIFIED Endpoints 10.0.0.1/-:8080',
    ]);
  }));

test('N to 0 in one slice: MODIFIED to null and null', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    addPods(objects, 1, 2);
    await follow();
    objects.delete(ref('Pod', 'p1'));
    objects.delete(ref('Pod', 'p2'));
    assert.deepEqual(await follow(), ['MODIFIED slice 1 IPv4 null null', 'MODIFIED Endpoints none']);
  }));

test('N to 0 in k slices: one MODIFIED, then the others DELETED', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    addPods(objects, 1, 25);
    await follow();
    for (let n = 1; n <= 25; n += 1) objects.delete(ref('Pod', `p${n}`));
    const events = await follow();
    assert.deepEqual(
      events.map((event) => event.replace(/ slice \d/, ' slice').replace(/\d+ endpoints/, 'endpoints')),
      [
        'MODIFIED slice IPv4 null null',
        'DELETED slice IPv4 8080 endpoints',
        'DELETED slice IPv4 8080 endpoints',
        'MODIFIED Endpoints none',
      ],
    );
  }));

test('pod not ready: the address stays, ready and serving are false', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    addPods(objects, 1, 1);
    await follow();
    objects.patchStatus(ref('Pod', 'p1'), readiness(false, '2026-01-01T00:05:00Z'));
    assert.deepEqual(await follow(), [
      'MODIFIED slice 1 IPv4 8080 [10.0.0.1 ---]',
      'MODIFIED Endpoints -/10.0.0.1:8080',
    ]);
  }));

test('pod deleted: terminating but serving, then not serving, then gone; Endpoints drop it at once', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    addPods(objects, 1, 2);
    await follow();
    terminate(objects, 'p1');
    assert.deepEqual(await follow(), [
      'MODIFIED slice 1 IPv4 8080 [10.0.0.1 -st, 10.0.0.2 rs-]',
      'MODIFIED Endpoints 10.0.0.2/-:8080',
    ]);
    objects.patchStatus(ref('Pod', 'p1'), readiness(false));
    assert.deepEqual(await follow(), ['MODIFIED slice 1 IPv4 8080 [10.0.0.1 --t, 10.0.0.2 rs-]']);
    objects.delete(ref('Pod', 'p1'));
    assert.deepEqual(await follow(), ['MODIFIED slice 1 IPv4 8080 [10.0.0.2 rs-]']);
  }));

test('publishNotReadyAddresses: ready whatever the pod says', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web({ publishNotReadyAddresses: true }));
    objects.create(pod('p', { ips: ['10.0.0.1'], isReady: false }));
    assert.deepEqual((await follow()).slice(1), [
      'ADDED slice 1 IPv4 8080 [10.0.0.1 r--]',
      'ADDED Endpoints 10.0.0.1/-:8080',
    ]);
    terminate(objects, 'p');
    assert.deepEqual(await follow(), ['MODIFIED slice 1 IPv4 8080 [10.0.0.1 r-t]']);
  }));

test('targetPort changed: every slice MODIFIED in place, none added or deleted', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    addPods(objects, 1, 15);
    await follow();
    objects.update(web({ ports: [{ name: 'http', port: 80, targetPort: 9090 }] }));
    const [, ...events] = await follow();
    assert.deepEqual(events.map((event) => event.replace(/\d+ endpoints/, 'endpoints')).sort(), [
      `MODIFIED Endpoints ${Array.from({ length: 15 }, (_, n) => `10.0.0.${n + 1}`)
        .sort()
        .join()}/-:9090`,
      'MODIFIED slice 1 IPv4 9090 endpoints',
      'MODIFIED slice 2 IPv4 9090 endpoints',
    ]);
  }));

test('+15 pods on 6 of 10: new slices are filled, the old one is left alone, nothing is rebalanced', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    addPods(objects, 1, 6);
    await follow();
    addPods(objects, 7, 21);
    const slices = (await follow()).filter((event) => event.includes('slice'));
    assert.deepEqual(slices, ['ADDED slice 2 IPv4 8080 10 endpoints', 'ADDED slice 3 IPv4 8080 5 endpoints']);
    for (let n = 1; n <= 4; n += 1) objects.delete(ref('Pod', `p${n}`));
    assert.deepEqual((await follow())[0], 'MODIFIED slice 1 IPv4 8080 [10.0.0.5 rs-, 10.0.0.6 rs-]');
  }));

test('a few more pods go into the slice that is closest to full', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    addPods(objects, 1, 15);
    await follow();
    addPods(objects, 16, 20);
    assert.equal((await follow())[0], 'MODIFIED slice 2 IPv4 8080 10 endpoints');
  }));

test('pods with differing named ports: one slice for each set of ports, one subset for each', () =>
  scene(async ({ objects, follow }) => {
    const http = (containerPort: number) => [{ name: 'http', containerPort }];
    objects.create(web({ ports: [{ name: 'http', port: 80, targetPort: 'http' }] }));
    objects.create(pod('p1', { ips: ['10.0.0.1'], ports: http(8080) }));
    objects.create(pod('p2', { ips: ['10.0.0.2'], ports: http(9090) }));
    objects.create(pod('p3', { ips: ['10.0.0.3'] }));
    assert.deepEqual((await follow()).slice(1), [
      'ADDED slice 1 IPv4 8080 [10.0.0.1 rs-]',
      'ADDED slice 2 IPv4 9090 [10.0.0.2 rs-]',
      'ADDED slice 3 IPv4 null [10.0.0.3 rs-]',
      'ADDED Endpoints 10.0.0.1/-:8080 + 10.0.0.2/-:9090',
    ]);
  }));

test('Service recreated at once: new slices first, the old ones after', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    addPods(objects, 1, 1);
    await follow();
    objects.delete(ref('Service', 'web'));
    objects.create(web());
    assert.deepEqual(await follow(), [
      'DELETED Service web',
      'ADDED Service web',
      'ADDED slice 2 IPv4 8080 [10.0.0.1 rs-]',
      'DELETED slice 1 IPv4 8080 [10.0.0.1 rs-]',
    ]);
  }));

test('selector removed: the slices are frozen, mirrored ones come beside them and follow the Endpoints', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    addPods(objects, 1, 2);
    await follow();
    objects.update(service('web'));
    assert.deepEqual(await follow(), [
      'MODIFIED Service web',
      'ADDED slice 2 IPv4 8080 [10.0.0.1 r, 10.0.0.2 r]',
    ]);
    const [endpoints] = objects.list('Endpoints');
    const mirrored = objects
      .list('EndpointSlice')
      .find(({ metadata }) => metadata.ownerReferences?.[0]?.kind === 'Endpoints');
    assert.equal(mirrored?.metadata.ownerReferences?.[0]?.uid, endpoints?.metadata.uid);
    assert.equal(
      mirrored?.metadata.labels?.['endpointslice.kubernetes.io/managed-by'],
      'endpointslicemirroring-controller.k8s.io',
    );
    assert.equal(mirrored?.metadata.annotations, undefined);

    terminate(objects, 'p1');
    assert.deepEqual(await follow(), []);
    const write = (subsets: EndpointSubset[]) =>
      objects.update({ kind: 'Endpoints', metadata: { namespace: 'default', name: 'web' }, subsets });
    write([
      { addresses: [{ ip: '10.9.0.1' }], notReadyAddresses: [{ ip: '10.9.0.2' }], ports: [{ port: 8080 }] },
    ]);
    assert.deepEqual(await follow(), [
      'MODIFIED Endpoints 10.9.0.1/10.9.0.2:8080',
      'MODIFIED slice 2 IPv4 8080 [10.9.0.1 r, 10.9.0.2 -]',
    ]);
    write([]);
    assert.deepEqual(await follow(), [
      'MODIFIED Endpoints none',
      'DELETED slice 2 IPv4 8080 [10.9.0.1 r, 10.9.0.2 -]',
    ]);
    objects.update(web());
    assert.deepEqual(await follow(), [
      'MODIFIED Service web',
      'MODIFIED slice 1 IPv4 8080 [10.0.0.1 -st, 10.0.0.2 rs-]',
      'MODIFIED Endpoints 10.0.0.2/-:8080',
    ]);
  }));

test('type to ExternalName and back: only the Service is MODIFIED', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    addPods(objects, 1, 1);
    await follow();
    const external = objects.update(web({ type: 'ExternalName', externalName: 'example.org' }));
    assert.equal(external.spec.clusterIP, undefined);
    assert.deepEqual(await follow(), ['MODIFIED Service web']);
    assert.match(objects.update(web()).spec.clusterIP ?? '', /^10\.96\./);
    assert.deepEqual(await follow(), ['MODIFIED Service web']);
  }));

test('Service deleted: the Endpoints go at once, the slices by the garbage collector after', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    addPods(objects, 1, 1);
    await follow();
    objects.delete(ref('Service', 'web'));
    assert.deepEqual(await follow(), [
      'DELETED Service web',
      'DELETED Endpoints 10.0.0.1/-:8080',
      'DELETED slice 1 IPv4 8080 [10.0.0.1 rs-]',
    ]);
  }));

test('all pods of one slice change: the update of the other slice comes before the deletion', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    addPods(objects, 1, 2);
    await follow();
    addPods(objects, 3, 3);
    await follow();
    for (const n of [1, 2]) objects.delete(ref('Pod', `p${n}`));
    objects.patchStatus(ref('Pod', 'p3'), readiness(false));
    objects.create(pod('p4', { ips: ['10.0.0.4'] }));
    const events = await follow();
    assert.deepEqual(events.slice(0, 2), [
      'MODIFIED slice 2 IPv4 8080 [10.0.0.3 ---, 10.0.0.4 rs-]',
      'DELETED slice 1 IPv4 8080 [10.0.0.1 rs-, 10.0.0.2 rs-]',
    ]);
  }, 2));

test('blue-green by hand-written Endpoints: one update of one mirrored slice', () =>
  scene(async ({ objects, follow }) => {
    const endpoints = (...ips: string[]) => ({
      kind: 'Endpoints' as const,
      metadata: { namespace: 'default', name: 'my-app' },
      subsets: [{ addresses: ips.map((ip) => ({ ip })), ports: [{ port: 8080, protocol: 'TCP' as const }] }],
    });
    objects.create(service('my-app'));
    objects.create(endpoints('10.244.0.5', '10.244.0.6'));
    assert.equal((await follow()).at(-1), 'ADDED slice 1 IPv4 8080 [10.244.0.5 r, 10.244.0.6 r]');
    objects.update(endpoints('10.244.1.7', '10.244.1.8'));
    assert.equal((await follow()).at(-1), 'MODIFIED slice 1 IPv4 8080 [10.244.1.7 r, 10.244.1.8 r]');
    objects.delete(ref('Endpoints', 'my-app'));
    assert.deepEqual(await follow(), [
      'DELETED Endpoints 10.244.1.7,10.244.1.8/-:8080',
      'DELETED slice 1 IPv4 8080 [10.244.1.7 r, 10.244.1.8 r]',
    ]);
  }));

test('Endpoints that ask not to be mirrored, or elect a leader, are not', () =>
  scene(async ({ objects, follow }) => {
    const subsets = [{ addresses: [{ ip: '10.0.0.1' }] }];
    for (const [name, meta] of Object.entries({
      skipped: { labels: { 'endpointslice.kubernetes.io/skip-mirror': 'true' } },
      leader: { annotations: { 'control-plane.alpha.kubernetes.io/leader': '{}' } },
    })) {
      objects.create(service(name));
      objects.create({ kind: 'Endpoints', metadata: { namespace: 'default', name, ...meta }, subsets });
    }
    assert.deepEqual(
      (await follow()).filter((event) => event.includes('slice')),
      [],
    );
  }));

test('a headless StatefulSet pod keeps its hostname and gets another address', () =>
  scene(async ({ objects, follow }) => {
    const nginx = { hostname: 'web-0', subdomain: 'web' };
    objects.create(web({ clusterIP: 'None' }));
    objects.create(pod('web-0', { ips: ['10.0.0.1'], ...nginx }));
    assert.deepEqual((await follow()).slice(1), [
      'ADDED slice 1 IPv4 8080 [10.0.0.1 rs- web-0]',
      'ADDED Endpoints 10.0.0.1/-:8080',
    ]);
    objects.delete(ref('Pod', 'web-0'));
    objects.create(pod('web-0', { ips: ['10.0.0.9'], ...nginx }));
    assert.equal((await follow())[0], 'MODIFIED slice 1 IPv4 8080 [10.0.0.9 rs- web-0]');
  }));

test('a headless Service without ports: addresses in a slice without ports', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web({ clusterIP: 'None', ports: [] }));
    await follow();
    addPods(objects, 1, 1);
    assert.deepEqual(await follow(), [
      'MODIFIED slice 1 IPv4 null [10.0.0.1 rs-]',
      'MODIFIED Endpoints 10.0.0.1/-:',
    ]);
  }));

test('pods that are done, have no address, or a node that is gone, are left out', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    objects.create(pod('waiting'));
    const done = pod('done', { ips: ['10.0.0.2'] });
    objects.create({ ...done, status: { ...done.status, phase: 'Succeeded' } });
    const lost = pod('lost', { ips: ['10.0.0.3'] });
    objects.create({ ...lost, spec: { ...lost.spec, nodeName: 'gone' } });
    assert.deepEqual(
      (await follow()).filter((event) => event.includes('slice')),
      ['ADDED slice 1 IPv4 null null'],
    );
  }));

test('a slice looks as the endpointslice controller writes it', () =>
  scene(async ({ objects, follow }) => {
    const created = objects.create({
      ...web({ clusterIP: 'None', ports: [{ port: 80, targetPort: 8080, appProtocol: 'h2c' }] }),
      metadata: { namespace: 'default', name: 'web', labels: { team: 'x' } },
    });
    const p1 = objects.create(pod('p1', { ips: ['10.0.0.1'], hostname: 'p1', subdomain: 'web' }));
    await follow();
    const [slice] = objects.list('EndpointSlice');
    assert.ok(slice);
    const { name, uid, resourceVersion, creationTimestamp, managedFields, ...metadata } = slice.metadata;
    assert.match(name, /^web-[b-z2-9]{5}$/);
    assert.deepEqual(metadata, {
      generateName: 'web-',
      namespace: 'default',
      generation: 1,
      labels: {
        team: 'x',
        'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
        'kubernetes.io/service-name': 'web',
        'service.kubernetes.io/headless': '',
      },
      annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': '2026-01-01T00:00:00Z' },
      ownerReferences: [
        {
          apiVersion: 'v1',
          kind: 'Service',
          name: 'web',
          uid: created.metadata.uid,
          controller: true,
          blockOwnerDeletion: true,
        },
      ],
    });
    assert.deepEqual(slice.ports, [{ name: '', protocol: 'TCP', port: 8080, appProtocol: 'h2c' }]);
    assert.deepEqual(slice.endpoints, [
      {
        addresses: ['10.0.0.1'],
        conditions: { ready: true, serving: true, terminating: false },
        hostname: 'p1',
        targetRef: { kind: 'Pod', namespace: 'default', name: 'p1', uid: p1.metadata.uid },
        nodeName: 'node-1',
        zone: 'a',
      },
    ]);
    const [endpoints] = objects.list('Endpoints');
    assert.deepEqual(endpoints?.metadata.labels, {
      team: 'x',
      'endpoints.kubernetes.io/managed-by': 'endpoint-controller',
      'service.kubernetes.io/headless': '',
    });
    assert.deepEqual(endpoints?.subsets?.[0]?.addresses, [
      {
        ip: '10.0.0.1',
        hostname: 'p1',
        nodeName: 'node-1',
        targetRef: { kind: 'Pod', namespace: 'default', name: 'p1', uid: p1.metadata.uid },
      },
    ]);
    assert.deepEqual(endpoints?.subsets?.[0]?.ports, [{ port: 8080, protocol: 'TCP', appProtocol: 'h2c' }]);
  }));

test('the trigger time is the readiness change; without one it is cleared (S47)', () =>
  scene(async ({ objects, follow }) => {
    const triggerTime = () =>
      objects.list('EndpointSlice')[0]?.metadata.annotations?.[
        'endpoints.kubernetes.io/last-change-trigger-time'
      ];
    objects.create(web());
    await follow();
    assert.equal(triggerTime(), '2026-01-01T00:00:00Z');
    objects.create(pod('p1', { ips: ['10.0.0.1'], readyAt: '2026-01-01T00:03:00Z' }));
    objects.create(pod('p2', { ips: ['10.0.0.2'], readyAt: '2026-01-01T00:02:00Z' }));
    await follow();
    assert.equal(triggerTime(), '2026-01-01T00:02:00Z');
    terminate(objects, 'p1');
    await follow();
    assert.equal(triggerTime(), undefined);
    objects.patchStatus(ref('Pod', 'p1'), readiness(false, '2026-01-01T00:04:00Z'));
    await follow();
    assert.equal(triggerTime(), '2026-01-01T00:04:00Z');
  }));

test('a changed label of the Service is copied to its slices and Endpoints', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    addPods(objects, 1, 1);
    await follow();
    objects.update({ ...web(), metadata: { namespace: 'default', name: 'web', labels: { team: 'x' } } });
    assert.equal((await follow()).length, 3);
    assert.equal(objects.list('EndpointSlice')[0]?.metadata.labels?.team, 'x');
    assert.equal(objects.list('Endpoints')[0]?.metadata.labels?.team, 'x');
  }));

test('more than 1,000 addresses: Endpoints are truncated and say so, slices have all (S42)', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    for (let n = 0; n < 1_001; n += 1) {
      objects.create(pod(`p${n}`, { ips: [`10.1.${n >> 8}.${n & 255}`], isReady: n > 0 }));
    }
    await follow();
    const [endpoints] = objects.list('Endpoints');
    assert.equal(endpoints?.subsets?.[0]?.addresses?.length, 1_000);
    assert.equal(endpoints?.subsets?.[0]?.notReadyAddresses, undefined);
    assert.equal(endpoints?.metadata.annotations?.['endpoints.kubernetes.io/over-capacity'], 'truncated');
    const slices = objects.list('EndpointSlice');
    assert.deepEqual([slices.length, slices.flatMap(({ endpoints: all }) => all ?? []).length], [11, 1_001]);
    objects.delete(ref('Pod', 'p0'));
    await follow();
    assert.equal(
      objects.list('Endpoints')[0]?.metadata.annotations?.['endpoints.kubernetes.io/over-capacity'],
      undefined,
    );
  }, 100));

test('a slice that somebody deleted comes back', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    addPods(objects, 1, 1);
    await follow();
    const [slice] = objects.list('EndpointSlice');
    assert.ok(slice);
    objects.delete({ kind: 'EndpointSlice', namespace: 'default', name: slice.metadata.name });
    assert.deepEqual(await follow(), [
      'DELETED slice 1 IPv4 8080 [10.0.0.1 rs-]',
      'ADDED slice 2 IPv4 8080 [10.0.0.1 rs-]',
    ]);
  }));

test('after a restore everything is looked at again', () =>
  scene(async ({ objects, follow }) => {
    objects.create(web());
    await follow();
    addPods(objects, 1, 1);
    const snapshot = objects.snapshot();
    const followed = await follow();
    objects.restore(snapshot);
    assert.deepEqual(await follow(), followed);
    assert.equal(followed.length, 2);
  }));
