import assert from 'node:assert/strict';
import { addressKey } from '../../core/address.ts';
import type { SweepReport } from '../../functions/sweep/sweep.ts';
import { startLocalStack } from '../../infra/local/stack.ts';
import { StackClock } from '../../infra/local/stack-clock.ts';
import type { UsageReport } from '../../infra/local/usage.ts';
import type { ClustersAnswer, PortSet, ServicesAnswer } from '../../wire/api.ts';
import type { EventStatus, EventsAnswer } from '../../wire/events.ts';
import type { InventoryAnswer } from '../../wire/inventory.ts';
import { createLogger } from '../../wire/log.ts';
import type { ReceivedDelta } from '../replica.ts';
import { Subscriber } from './subscriber.ts';

/** An answer, read. */
export interface Answer<T = unknown> {
  readonly status: number;
  readonly headers: Headers;
  readonly body: T;
}

/** What a problem document says. */
export interface Problem {
  readonly detail: string;
  readonly error?: string;
}

/** A laptop stack that sweeps only when told, spoken to over HTTP alone. */
export class Laptop implements AsyncDisposable {
  readonly url: string;
  readonly #stack: Awaited<ReturnType<typeof startLocalStack>>;
  /** Messages of the log's errors. */
  readonly errors: string[] = [];

  private constructor(stack: Awaited<ReturnType<typeof startLocalStack>>, errors: string[]) {
    this.url = stack.url;
    this.#stack = stack;
    this.errors = errors;
  }

  /** @param inlineBytes 0 puts every object into chunks. */
  static async start({ inlineBytes, dataDir = null }: LaptopOptions = {}): Promise<Laptop> {
    const clock = new StackClock();
    const errors: string[] = [];
    const logger = createLogger({ level: 'error', clock, write: (line) => void errors.push(line) });
    const options = { port: 0, dataDir, inlineBytes, isSweeping: false, logger, clock };
    return new Laptop(await startLocalStack(options), errors);
  }

  async call<T = unknown>(method: string, path: string, body?: unknown): Promise<Answer<T>> {
    const init =
      body === undefined
        ? {}
        : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
    const response = await fetch(`${this.url}${path}`, { method, ...init });
    const text = await response.text();
    const isJson = /json/.test(response.headers.get('content-type') ?? '');
    return {
      status: response.status,
      headers: response.headers,
      body: (isJson ? JSON.parse(text) : text) as T,
    };
  }

  /** Moves the stack's clock. */
  async advance(ms: number): Promise<void> {
    assert.equal((await this.call('POST', '/local/clock', { advanceMs: ms })).status, 200);
  }

  async sweep(): Promise<SweepReport> {
    const { status, body } = await this.call<SweepReport>('POST', '/local/sweep');
    assert.equal(status, 200);
    return body;
  }

  async usage(): Promise<UsageReport> {
    return (await this.call<UsageReport>('GET', '/local/usage')).body;
  }

  /** What a piece of work costs: calls by operation, those that did not happen left out. */
  async costOf(work: () => Promise<unknown>): Promise<Record<string, number>> {
    const before = await this.usage();
    await work();
    const after = await this.usage();
    const calls = Object.entries({ ...after.calls, PutEvents: after.putEvents.entries }).map(
      ([name, count]): [string, number] => [
        name,
        count - (name === 'PutEvents' ? before.putEvents.entries : (before.calls[name] ?? 0)),
      ],
    );
    return Object.fromEntries(calls.filter(([, count]) => count > 0));
  }

  async faults(...faults: readonly object[]): Promise<void> {
    assert.equal((await this.call('PUT', '/local/faults', { faults })).status, 204);
  }

  /** All that the bus has, of every cluster, in its order. */
  async busEntries() {
    return (await this.#stack.bus.read({ after: 0, limit: 10_000, wait: 0 })).entries;
  }

  /** What a subscriber of one cluster has got. */
  async subscriber(cluster: string): Promise<Subscriber> {
    const subscriber = new Subscriber(cluster);
    const entries = await this.busEntries();
    subscriber.take(entries.filter(({ detailType }) => !detailType.startsWith('Relay')));
    return subscriber;
  }

  async clusters(): Promise<ClustersAnswer['items']> {
    return (await this.call<ClustersAnswer>('GET', '/v1/clusters')).body.items;
  }

  async metrics(): Promise<string> {
    return (await this.call<string>('GET', '/metrics')).body;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack[Symbol.asyncDispose]();
  }
}

interface LaptopOptions {
  readonly inlineBytes?: number;
  readonly dataDir?: string | null;
}

interface NamedService {
  readonly name: string;
  readonly namespace?: string;
  readonly uid?: string | null;
  readonly version?: number;
  /** Its objects: name, version, and a uid that follows from the name unless it is told. */
  readonly objects?: readonly (readonly [name: string, version: number, uid?: string])[];
}

/** One cluster, as its relay and its readers see it. */
export class LaptopCluster {
  readonly laptop: Laptop;
  readonly name: string;
  epoch: number;
  uid: string | undefined;
  mode: 'slices' | 'endpoints' = 'slices';
  #taken = 0;

  constructor(laptop: Laptop, name: string, { epoch = 1, uid }: { epoch?: number; uid?: string } = {}) {
    this.laptop = laptop;
    this.name = name;
    this.epoch = epoch;
    this.uid = uid;
  }

  post<T>(path: string, body: object): Promise<Answer<T>> {
    const { name: cluster, epoch, mode, uid: clusterUid } = this;
    return this.laptop.call('POST', path, { cluster, clusterUid, epoch, mode, ...body });
  }

  heartbeat(more: object = {}) {
    return this.post<{ epoch: number; waitMs: number; versions: Record<string, string> } & Problem>(
      '/v1/heartbeat',
      more,
    );
  }

  /** Sends ADDED events of objects, or events as they are. */
  send(...events: readonly object[]): Promise<Answer<EventsAnswer & Problem>> {
    const toEvent = (event: object) => ('type' in event ? event : { type: 'ADDED', object: event });
    return this.post('/v1/events', { events: events.map(toEvent) });
  }

  /** Sends events that must be taken; answers what became of each. */
  async apply(...events: readonly object[]): Promise<EventStatus[]> {
    const { status, body } = await this.send(...events);
    assert.equal(status, 200, JSON.stringify(body));
    return body.results.map((result) => result.status);
  }

  page(services: readonly NamedService[], more: object = {}): Promise<Answer<InventoryAnswer & Problem>> {
    return this.post('/v1/inventory', {
      id: 'list',
      resourceVersions: { Service: '1000', EndpointSlice: '1000', Endpoints: '1000' },
      ...{ namespaces: null, after: null, last: true },
      services: services.map(({ name, namespace = 'default', uid, version = 1, objects = [] }) => ({
        ...{ namespace, name },
        ...(uid === null ? {} : { uid: uid ?? `uid-${name}`, resourceVersion: `${version}` }),
        objects: objects.map(([object, objectVersion, objectUid]) => ({
          name: object,
          uid: objectUid ?? `uid-${object}`,
          resourceVersion: `${objectVersion}`,
        })),
      })),
      ...more,
    });
  }

  /** A page that must be taken. */
  async reconcile(services: readonly NamedService[], more: object = {}): Promise<InventoryAnswer> {
    const { status, body } = await this.page(services, more);
    assert.equal(status, 200, JSON.stringify(body));
    return body;
  }

  /** Deltas that the bus got since this was asked for last, by port and sequence. */
  async takeDeltas(): Promise<ReceivedDelta[]> {
    const entries = await this.laptop.busEntries();
    const subscriber = new Subscriber(this.name);
    subscriber.take(entries.slice(this.#taken).filter(({ detailType }) => !detailType.startsWith('Relay')));
    this.#taken = entries.length;
    return subscriber.deltas();
  }

  path(service: string, namespace = 'default'): string {
    return `/v1/clusters/${this.name}/namespaces/${namespace}/services/${service}`;
  }

  /** The set of a port; null when there is none. */
  async set(service: string, { namespace = 'default', port = 80 } = {}): Promise<PortSet | null> {
    const path = `${this.path(service, namespace)}/endpoints?port=${port}`;
    const { status, body } = await this.laptop.call<PortSet>('GET', path);
    assert(status === 200 || status === 404, `${status}`);
    return status === 200 ? body : null;
  }

  /** Keys of a port's set; null when there is no such Service. */
  async keys(service: string, namespace = 'default'): Promise<string[] | null> {
    const set = await this.set(service, { namespace });
    return set?.addresses.map(addressKey) ?? null;
  }

  async services(): Promise<string[]> {
    const path = `/v1/clusters/${this.name}/namespaces/_all/services`;
    const { body } = await this.laptop.call<ServicesAnswer>('GET', path);
    return body.items.map(({ namespace, name }) => `${namespace}/${name}`);
  }

  /** Everything published, replayed from nothing: it must be what readers get (P1, P2). */
  async replayed(): Promise<Record<string, string[]>> {
    const replica = (await this.laptop.subscriber(this.name)).replay();
    return Object.fromEntries(
      replica
        .groups()
        .map((group) => [group.slice(this.name.length + 1), [...replica.port(group).addresses.keys()]]),
    );
  }
}

interface ObjectOptions {
  readonly name?: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly version?: number;
}

/** A Service with one port, 80, named http. */
export function service({ name = 'web', namespace = 'default', uid, version = 1 }: ObjectOptions = {}) {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { namespace, name, uid: uid ?? `uid-${name}`, resourceVersion: `${version}` },
    spec: { clusterIP: '10.96.0.1', ports: [{ name: 'http', port: 80, protocol: 'TCP' }] },
  };
}

/** `SERVICE-a` unless it has a name, with ready endpoints on port 8080. */
export function slice(
  serviceName: string,
  ips: readonly string[],
  { name = `${serviceName}-a`, namespace = 'default', uid, version = 1 }: ObjectOptions = {},
) {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      ...{ namespace, name, uid: uid ?? `uid-${name}`, resourceVersion: `${version}` },
      labels: { 'kubernetes.io/service-name': serviceName },
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    endpoints: ips.map((ip) => ({ addresses: [ip], conditions: { ready: true } })),
  };
}

/** An Endpoints object with ready addresses on port 8080. */
export function endpoints(
  name: string,
  ips: readonly string[],
  { namespace = 'default', uid, version = 1 }: ObjectOptions = {},
) {
  return {
    apiVersion: 'v1',
    kind: 'Endpoints',
    metadata: { namespace, name, uid: uid ?? `endpoints-${name}`, resourceVersion: `${version}` },
    subsets: [{ addresses: ips.map((ip) => ({ ip })), ports: [{ name: 'http', port: 8080 }] }],
  };
}

/** So many addresses, each other than those of another `net`. */
export function ips(count: number, net = 0): string[] {
  return Array.from({ length: count }, (_, index) => `10.${net}.${index >> 8}.${index & 255}`);
}
