import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { MAX_EVENTS, parseEventsRequest, parseWatchEvent } from '../../wire/events.ts';

const request = (over: object = {}) => ({ cluster: 'prod-eu', epoch: 7, events: [], ...over });

describe('the envelope of POST /v1/events', () => {
  test('only cluster, epoch and events are required; the rest has defaults', () => {
    assert.deepEqual(parseEventsRequest(request()), {
      kind: 'ok',
      request: { cluster: 'prod-eu', clusterUid: null, epoch: 7, relay: null, mode: 'slices', events: [] },
    });
  });

  const accepted: Record<string, object> = {
    'a cluster name of one character': { cluster: 'a' },
    'a cluster name of 63 characters': { cluster: 'a'.repeat(63) },
    'epoch 0': { epoch: 0 },
    'the largest safe epoch': { epoch: Number.MAX_SAFE_INTEGER },
    'endpoints mode': { mode: 'endpoints' },
    'null where a relay knows nothing': { clusterUid: null, relay: null },
    'members of a later version': { future: { a: [1] } },
    'events that are nonsense, which are refused one by one': { events: [null, 5, 'x', {}] },
    'as many events as allowed': { events: new Array(MAX_EVENTS).fill({}) },
  };
  for (const [name, over] of Object.entries(accepted))
    test(`takes ${name}`, () => assert.equal(parseEventsRequest(request(over)).kind, 'ok'));

  const refused: Record<string, { body: unknown; message: RegExp }> = {
    'no body': { body: null, message: /^body: must be an object$/ },
    'a list': { body: [], message: /^body: must be an object$/ },
    'no cluster': { body: { epoch: 7, events: [] }, message: /^cluster: required$/ },
    'a cluster name in capitals': {
      body: request({ cluster: 'Prod' }),
      message: /^cluster: must be 1 to 63 of/,
    },
    'a cluster name with a slash': {
      body: request({ cluster: 'a/b' }),
      message: /^cluster: must be 1 to 63 of/,
    },
    'a cluster name that ends with a dash': { body: request({ cluster: 'a-' }), message: /^cluster: / },
    'a cluster name of 64 characters': { body: request({ cluster: 'a'.repeat(64) }), message: /^cluster: / },
    'a cluster name with a line feed behind it': { body: request({ cluster: 'a\n' }), message: /^cluster: / },
    'no epoch': { body: { cluster: 'a', events: [] }, message: /^epoch: required$/ },
    'a negative epoch': { body: request({ epoch: -1 }), message: /^epoch: must be at least 0$/ },
    'half an epoch': { body: request({ epoch: 1.5 }), message: /^epoch: must be an integer$/ },
    'an epoch that a double cannot hold': {
      body: request({ epoch: 2 ** 53 }),
      message: /^epoch: must be at most/,
    },
    'an epoch in a string': { body: request({ epoch: '7' }), message: /^epoch: must be a number$/ },
    'another mode': {
      body: request({ mode: 'pods' }),
      message: /^mode: must be "slices" or "endpoints"$/,
    },
    'a relay that is an object': { body: request({ relay: {} }), message: /^relay: must be a string$/ },
    'a long clusterUid': {
      body: request({ clusterUid: 'x'.repeat(129) }),
      message: /^clusterUid: must have at most 128 characters$/,
    },
    'no events': { body: { cluster: 'a', epoch: 7 }, message: /^events: required$/ },
    'events that are an object': { body: request({ events: {} }), message: /^events: must be an array$/ },
  };
  for (const [name, { body, message }] of Object.entries(refused))
    test(`refuses ${name} and names the field`, () => {
      const parsed = parseEventsRequest(body);
      assert.equal(parsed.kind, 'invalid');
      assert.match(parsed.kind === 'invalid' ? parsed.message : '', message);
      assert.equal(parsed.kind === 'invalid' && parsed.message.startsWith(`${parsed.field}: `), true);
    });

  test('tells too many events apart', () => {
    const events = new Array(MAX_EVENTS + 1).fill({});
    assert.deepEqual(parseEventsRequest(request({ events })), { kind: 'tooMany' });
  });
});

const metadata = { namespace: 'default', name: 'web', uid: 'uid-1', resourceVersion: '12' };
const service = (over: object = {}) => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata,
  spec: { clusterIP: '10.0.0.1', ports: [{ name: 'http', port: 80, protocol: 'TCP', targetPort: 8080 }] },
  ...over,
});
const slice = (over: object = {}) => ({
  apiVersion: 'discovery.k8s.io/v1',
  kind: 'EndpointSlice',
  metadata: { ...metadata, labels: { 'kubernetes.io/service-name': 'web' } },
  addressType: 'IPv4',
  ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
  endpoints: [{ addresses: ['10.1.0.5'], conditions: { ready: true } }],
  ...over,
});
const endpoints = (over: object = {}) => ({
  apiVersion: 'v1',
  kind: 'Endpoints',
  metadata,
  subsets: [{ addresses: [{ ip: '10.1.0.5' }], ports: [{ port: 8080 }] }],
  ...over,
});
const event = (object: unknown, over: object = {}) => ({ type: 'MODIFIED', object, ...over });
const deleted = (meta: object, over: object = {}) => ({
  type: 'DELETED',
  object: { ...slice(), metadata: meta },
  ...over,
});
const named = { namespace: 'default', name: 'web-a' };

describe('one watch event', () => {
  test('defaults are filled in, what nothing reads is dropped', () => {
    const parsed = parseWatchEvent(
      event(service({ status: {}, metadata: { ...metadata, managedFields: [{}], generation: 1 } })),
    );
    assert.deepEqual(parsed, {
      kind: 'ok',
      event: {
        type: 'MODIFIED',
        object: {
          apiVersion: 'v1',
          kind: 'Service',
          metadata,
          spec: { clusterIP: '10.0.0.1', ports: [{ name: 'http', port: 80, protocol: 'TCP' }] },
        },
        stateUnknown: false,
        confirm: false,
        resync: false,
        former: [],
        observedAt: null,
        enrichVersion: null,
        enrich: null,
      },
    });
  });

  test('every optional part is read', () => {
    const parsed = parseWatchEvent(
      event(slice(), {
        stateUnknown: true,
        confirm: true,
        resync: true,
        former: ['old', 'Older_1'],
        observedAt: '2026-11-30T10:00:00.123456789+01:00',
        enrichVersion: 12,
        enrich: {
          'default/web-1': { owner: { kind: 'Deployment', name: 'web' }, node: 'n1', opaqueProtocol: true },
        },
      }),
    );
    assert.equal(parsed.kind, 'ok');
    if (parsed.kind !== 'ok') return;
    const { type: _type, object: _object, ...options } = parsed.event;
    assert.deepEqual(options, {
      stateUnknown: true,
      confirm: true,
      resync: true,
      former: ['old', 'Older_1'],
      observedAt: Date.parse('2026-11-30T09:00:00.123Z'),
      enrichVersion: 12,
      enrich: {
        'default/web-1': { owner: { kind: 'Deployment', name: 'web' }, node: 'n1', opaqueProtocol: true },
      },
    });
  });

  const accepted: Record<string, unknown> = {
    'a slice': event(slice()),
    'a slice of discovery.k8s.io/v1beta1, with its topology': event(
      slice({
        apiVersion: 'discovery.k8s.io/v1beta1',
        endpoints: [{ addresses: ['10.1.0.5'], topology: { a: 'b' } }],
      }),
    ),
    Endpoints: event(endpoints()),
    'S16: a placeholder with null lists': event(slice({ endpoints: null, ports: null })),
    'a slice without addressType, conditions and ports': event(
      slice({ addressType: undefined, ports: undefined, endpoints: [{ addresses: ['10.1.0.5'] }] }),
    ),
    'S41: Endpoints without subsets': event(endpoints({ subsets: undefined })),
    'a Service without spec': event(service({ spec: undefined })),
    'null wherever Go writes it': event(
      slice({
        metadata: { ...metadata, labels: null, annotations: null, ownerReferences: null },
        endpoints: [
          { addresses: null, conditions: null, hints: null, nodeName: null, targetRef: null, zone: null },
        ],
      }),
    ),
    'P6: an IP that is none': event(slice({ endpoints: [{ addresses: ['010.1.0.5', ''] }] })),
    'P6: an IP longer than any': event(slice({ endpoints: [{ addresses: ['1'.repeat(100_000)] }] })),
    'P6: an Endpoints IP that is none': event(endpoints({ subsets: [{ addresses: [{ ip: 'x' }] }] })),
    'P6, S20: port numbers that are none': event(
      slice({ ports: [-1, 0, 65_536, 1.5, null, 1e300, Number.POSITIVE_INFINITY].map((port) => ({ port })) }),
    ),
    'P6: Service ports whose numbers are none': event(
      service({ spec: { ports: [-1, 0, 65_536, null].map((port) => ({ port })) } }),
    ),
    'P6: protocols and families that Kubernetes does not know': event(
      slice({ addressType: 'FQDN', ports: [{ port: 80, protocol: 'HTTP' }] }),
    ),
    'an owner without a name': event(
      slice({ metadata: { ...metadata, ownerReferences: [{ kind: 'Service' }] } }),
    ),
    'a strange owner beside a label that decides': event(
      slice({
        metadata: { ...slice().metadata, ownerReferences: [{ kind: 'Service', name: 'a#b', uid: 'x' }] },
      }),
    ),
    'an empty service-name label': event(
      slice({ metadata: { ...metadata, labels: { 'kubernetes.io/service-name': '' } } }),
    ),
    'S44: a version of 30 digits': event(
      slice({ metadata: { ...metadata, resourceVersion: '9'.repeat(30) } }),
    ),
    'a deletion whose body is nonsense': {
      type: 'DELETED',
      object: { ...slice(), endpoints: 'none', ports: 5 },
    },
    'a deletion with nothing but its identity': deleted({ ...named, uid: 'u', resourceVersion: '5' }),
    'S45: a deletion by name with stateUnknown': deleted(named, { stateUnknown: true }),
    'S44: a deletion by uid with stateUnknown and without version': deleted(
      { ...named, uid: 'u' },
      { stateUnknown: true },
    ),
  };
  for (const [name, value] of Object.entries(accepted))
    test(`takes ${name}`, () => {
      const parsed = parseWatchEvent(value);
      assert.equal(parsed.kind, 'ok', parsed.kind === 'ok' ? '' : parsed.reason);
    });

  test('S45: a deletion by name has neither uid nor version', () => {
    const parsed = parseWatchEvent(
      deleted({ ...named, uid: '', resourceVersion: '' }, { stateUnknown: true }),
    );
    assert.equal(parsed.kind, 'ok');
    assert.deepEqual(parsed.kind === 'ok' && parsed.event.object.metadata, {
      ...named,
      uid: null,
      resourceVersion: null,
    });
  });

  const ignored: Record<string, unknown> = {
    'S46: a BOOKMARK': { type: 'BOOKMARK', object: { apiVersion: 'v1', kind: 'Service', metadata: {} } },
    "Knative's Service": event({ apiVersion: 'serving.knative.dev/v1', kind: 'Service', metadata: {} }),
    'a Pod': event({ apiVersion: 'v1', kind: 'Pod', metadata }),
    "S7: Linkerd's Server": event({ apiVersion: 'policy.linkerd.io/v1beta3', kind: 'Server', metadata }),
    'an EndpointSlice of another group': event({ ...slice(), apiVersion: 'example.com/v1' }),
    'Endpoints of the discovery group': event({ ...endpoints(), apiVersion: 'discovery.k8s.io/v1' }),
    'a kind with the name of an inherited member': event({ apiVersion: 'v1', kind: 'constructor' }),
    'a tombstone of another kind': { type: 'DELETED', object: { apiVersion: 'v1', kind: 'Pod' } },
  };
  for (const [name, value] of Object.entries(ignored))
    test(`ignores ${name}`, () => assert.equal(parseWatchEvent(value).kind, 'ignored'));

  const rejected: Record<string, { value: unknown; reason: RegExp }> = {
    nothing: { value: null, reason: /^event: must be an object$/ },
    'a list': { value: [], reason: /^event: must be an object$/ },
    'no type': { value: { object: slice() }, reason: /^type: must be "ADDED", "MODIFIED" or "DELETED"$/ },
    'an ERROR': { value: { type: 'ERROR', object: { kind: 'Status' } }, reason: /^type: must be/ },
    'no object': { value: { type: 'ADDED' }, reason: /^object: required$/ },
    'an object in a string': { value: event('{}'), reason: /^object: must be an object$/ },
    'no kind': { value: event({ ...slice(), kind: undefined }), reason: /^object\.kind: required$/ },
    'no apiVersion': {
      value: event({ ...slice(), apiVersion: '' }),
      reason: /^object\.apiVersion: required$/,
    },
    'no metadata': { value: event(slice({ metadata: undefined })), reason: /^object\.metadata: required$/ },
    'no name': {
      value: event(slice({ metadata: { ...metadata, name: undefined } })),
      reason: /metadata\.name: required$/,
    },
    'no namespace': {
      value: event(slice({ metadata: { ...metadata, namespace: undefined } })),
      reason: /^object\.metadata\.namespace: required$/,
    },
    'no uid': {
      value: event(slice({ metadata: { ...metadata, uid: undefined } })),
      reason: /^object\.metadata\.uid: required$/,
    },
    'an empty uid': {
      value: event(slice({ metadata: { ...metadata, uid: '' } })),
      reason: /^object\.metadata\.uid: must not be empty$/,
    },
    'no version': {
      value: event(slice({ metadata: { ...metadata, resourceVersion: undefined } })),
      reason: /^object\.metadata\.resourceVersion: required$/,
    },
    'a version that is a number': {
      value: event(slice({ metadata: { ...metadata, resourceVersion: 12 } })),
      reason: /resourceVersion: must be a string$/,
    },
    'S44: a version that is no decimal integer': {
      value: event(slice({ metadata: { ...metadata, resourceVersion: '0x1f' } })),
      reason: /resourceVersion: must be a decimal number in a string$/,
    },
    'a version of 65 digits': {
      value: event(slice({ metadata: { ...metadata, resourceVersion: '1'.repeat(65) } })),
      reason: /resourceVersion: must be a decimal number/,
    },
    'a name with a slash': {
      value: event(slice({ metadata: { ...metadata, name: 'a/b' } })),
      reason: /^object\.metadata\.name: must be a name of/,
    },
    'a service-name label that would break a key': {
      value: event(slice({ metadata: { ...metadata, labels: { 'kubernetes.io/service-name': 'a/b' } } })),
      reason: /^object\.metadata\.labels\["kubernetes\.io\/service-name"\]: must be the name of a Service/,
    },
    'an owning Service whose name would break a key': {
      value: event(slice({ metadata: { ...metadata, ownerReferences: [{ kind: 'Service', name: 'a#b' }] } })),
      reason: /^object\.metadata\.ownerReferences\[0\]\.name: must be the name of a Service/,
    },
    'a label that is a number': {
      value: event(slice({ metadata: { ...metadata, labels: { app: 5 } } })),
      reason: /^object\.metadata\.labels\.app: must be a string$/,
    },
    'S16: endpoints that are a string': {
      value: event(slice({ endpoints: 'none' })),
      reason: /^object\.endpoints: must be an array$/,
    },
    'ports that are an object': {
      value: event(slice({ ports: { http: 80 } })),
      reason: /^object\.ports: must be an array$/,
    },
    'a port number in a string': {
      value: event(slice({ ports: [{ port: '80' }] })),
      reason: /^object\.ports\[0\]\.port: must be a number$/,
    },
    'an endpoint that is null': {
      value: event(slice({ endpoints: [null] })),
      reason: /^object\.endpoints\[0\]: must be an object$/,
    },
    'a condition in a string': {
      value: event(slice({ endpoints: [{ addresses: ['10.1.0.5'], conditions: { ready: 'true' } }] })),
      reason: /^object\.endpoints\[0\]\.conditions\.ready: must be a boolean$/,
    },
    'an address that is no string': {
      value: event(slice({ endpoints: [{ addresses: [5] }] })),
      reason: /^object\.endpoints\[0\]\.addresses\[0\]: must be a string$/,
    },
    'a Service whose ports are a string': {
      value: event(service({ spec: { ports: '80' } })),
      reason: /^object\.spec\.ports: must be an array$/,
    },
    'subsets that are an object': {
      value: event(endpoints({ subsets: {} })),
      reason: /^object\.subsets: must be an array$/,
    },
    'a subset address without an IP': {
      value: event(endpoints({ subsets: [{ addresses: [{}] }] })),
      reason: /^object\.subsets\[0\]\.addresses\[0\]\.ip: required$/,
    },
    'more endpoints than any object has': {
      value: event(slice({ endpoints: new Array(10_001).fill({ addresses: ['10.1.0.5'] }) })),
      reason: /^object\.endpoints: must have at most 10000 items$/,
    },
    'more addresses over all subsets than any object has': {
      value: event(
        endpoints({
          subsets: new Array(2).fill({ notReadyAddresses: new Array(5001).fill({ ip: '10.1.0.5' }) }),
        }),
      ),
      reason: /^object\.subsets: must have at most 10000 addresses$/,
    },
    'more ports than any object has': {
      value: event(slice({ ports: new Array(1001).fill({ port: 80 }) })),
      reason: /^object\.ports: must have at most 1000 items$/,
    },
    'a node name longer than any': {
      value: event(slice({ endpoints: [{ nodeName: 'n'.repeat(254) }] })),
      reason: /^object\.endpoints\[0\]\.nodeName: must have at most 253 characters$/,
    },
    'P6: an endpoint with more names than are kept of one': {
      value: event(
        slice({ endpoints: [{ hints: { forZones: new Array(7).fill({ name: 'z'.repeat(253) }) } }] }),
      ),
      reason: /^object\.endpoints\[0\]: must have names of at most 1600 bytes together$/,
    },
    'P6: ports with more names than are kept of one object': {
      value: event(
        endpoints({ subsets: new Array(2).fill({ ports: new Array(150).fill({ name: 'p'.repeat(253) }) }) }),
      ),
      reason: /^object\.subsets: must have names of at most 70000 bytes together$/,
    },
    'a name that is half a character': {
      value: event(slice({ endpoints: [{ zone: '\ud800' }] })),
      reason: /^object\.endpoints\[0\]\.zone: must be Unicode text$/,
    },
    'S45: a deletion without uid': {
      value: deleted({ ...named, resourceVersion: '20' }),
      reason: /^object\.metadata\.uid: required$/,
    },
    'a deletion without version': {
      value: deleted({ ...named, uid: 'u' }),
      reason: /^object\.metadata\.resourceVersion: required$/,
    },
    'a deletion without name, stateUnknown or not': {
      value: deleted({ namespace: 'default', uid: 'u' }, { stateUnknown: true }),
      reason: /^object\.metadata\.name: required$/,
    },
    'an ADDED without uid, stateUnknown or not': {
      value: event(slice({ metadata: { ...named, resourceVersion: '5' } }), { stateUnknown: true }),
      reason: /^object\.metadata\.uid: required$/,
    },
    'stateUnknown in a string': {
      value: event(slice(), { stateUnknown: 'true' }),
      reason: /^stateUnknown: must be a boolean$/,
    },
    'an observedAt that is no instant': {
      value: event(slice(), { observedAt: 'yesterday' }),
      reason: /^observedAt: must be an RFC 3339 instant/,
    },
    'an observedAt without a zone': {
      value: event(slice(), { observedAt: '2026-11-30T10:00:00' }),
      reason: /^observedAt: must be an RFC 3339 instant/,
    },
    'more former services than any slice has': {
      value: event(slice(), { former: new Array(65).fill('old') }),
      reason: /^former: must have at most 64 items$/,
    },
    'a former service whose name would break a key': {
      value: event(slice(), { former: ['ok', 'a/b'] }),
      reason: /^former\[1\]: must be the name of a Service/,
    },
    'enrichment that is no object': {
      value: event(slice(), { enrich: { 'default/web-1': 'n1' } }),
      reason: /^enrich\["default\/web-1"\]: must be an object$/,
    },
    'a negative enrichVersion': {
      value: event(slice(), { enrichVersion: -1 }),
      reason: /^enrichVersion: must be at least 0$/,
    },
  };
  for (const [name, { value, reason }] of Object.entries(rejected))
    test(`rejects ${name} and names the field`, () => {
      const parsed = parseWatchEvent(value);
      assert.equal(parsed.kind, 'rejected');
      assert.match(parsed.kind === 'rejected' ? parsed.reason : '', reason);
    });

  test('a reason is one short line whatever keys come in', () => {
    const labels = { [`evil\n${'x'.repeat(10_000)}`]: 5 };
    const parsed = parseWatchEvent(event(slice({ metadata: { ...metadata, labels } })));
    assert.equal(parsed.kind, 'rejected');
    assert.match(parsed.kind === 'rejected' ? parsed.reason : '', /^[^\n]{1,200}$/);
  });

  test('a label named __proto__ changes no prototype', () => {
    const value = JSON.parse(
      JSON.stringify(event(slice())).replace('"labels":{', '"labels":{"__proto__":"x",'),
    );
    const parsed = parseWatchEvent(value);
    assert.equal(parsed.kind, 'ok');
    const labels = parsed.kind === 'ok' ? parsed.event.object.metadata.labels : null;
    assert.equal(Object.getPrototypeOf(labels), Object.prototype);
  });
});
