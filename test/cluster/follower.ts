import { setTimeout as wait } from 'node:timers/promises';
import { compareVersions } from '../../core/version.ts';
import { Connection } from '../../relay/connection.ts';
import { type ListCause, type Observation, Reflector } from '../../relay/reflector.ts';
import { watchedResources } from '../../relay/resources.ts';
import { systemTimers } from '../../relay/timers.ts';
import { createLogger } from '../../wire/log.ts';
import { fastTimers } from '../fast-timers.ts';
import type { ControlPlane } from './control-plane.ts';
import type { KubeClient } from './kube-client.ts';

/** Back-offs and polls pass so much faster than by default. */
const SPEED = 10;
const [, SLICES] = watchedResources('slices');
export const SLICES_PATH = '/apis/discovery.k8s.io/v1/endpointslices';

/** Silent: what a connection has to say, the tests read from endings. */
const log = createLogger({ level: 'error', clock: systemTimers, write: () => {} });

export interface FollowerSettings {
  /** URL of a way round to the API server. */
  readonly server?: string;
  /** Called before each request. */
  readonly onRequest?: (path: string) => Promise<void> | void;
}

/** A way to the API server as the relay's user, whose requests are seen. */
export class RelayConnection extends Connection {
  readonly #onRequest: (path: string) => Promise<void> | void;

  /** @param token null for nobody's. */
  constructor(
    plane: ControlPlane,
    { server = plane.server, onRequest = () => {} }: FollowerSettings = {},
    token: string | null = plane.relayToken,
  ) {
    const headers = token === null ? {} : { authorization: `Bearer ${token}` };
    const readAccess = async () => ({ server, tls: { ca: plane.certificate }, proxy: null, headers });
    super({ readAccess, timers: fastTimers(SPEED), log });
    this.#onRequest = onRequest;
  }

  override async request(...[path, ...rest]: Parameters<Connection['request']>) {
    await this.#onRequest(path);
    return super.request(path, ...rest);
  }
}

/** Follows all EndpointSlices, and holds what it sees to what a follower may be told. */
export class Follower implements AsyncDisposable {
  readonly reflector: Reflector;
  /** Version of each object that is there, by name. */
  readonly held = new Map<string, string>();
  readonly lists: ListCause[] = [];
  readonly endings: string[] = [];
  /** What was seen and must not be. */
  readonly wrong: string[] = [];
  readonly #connection: RelayConnection;
  readonly #isGone: (name: string) => boolean;
  readonly #stop = new AbortController();
  readonly #done: Promise<void>;
  #newest = '';

  /** @param isGone was this object's deletion asked for? */
  constructor(plane: ControlPlane, isGone: (name: string) => boolean, settings: FollowerSettings = {}) {
    this.#isGone = isGone;
    this.#connection = new RelayConnection(plane, settings);
    this.reflector = new Reflector(SLICES, null, {
      connection: this.#connection,
      timers: fastTimers(SPEED),
      random: Math.random,
      log,
      onEnding: (kind) => this.endings.push(kind),
    });
    this.#done = this.#pull();
  }

  async #pull(): Promise<void> {
    for await (const seen of this.reflector.observations(this.#stop.signal)) this.#note(seen);
  }

  #note(seen: Observation): void {
    switch (seen.kind) {
      case 'listed': {
        this.lists.push(seen.cause);
        const listed = new Map(seen.objects.map(({ name, resourceVersion }) => [name, resourceVersion]));
        for (const name of this.held.keys()) if (!listed.has(name)) this.#remove(name, `list, ${seen.cause}`);
        for (const [name, version] of listed) this.held.set(name, version);
        this.#advance(seen.resourceVersion, 'list', 0);
        break;
      }
      case 'event': {
        const { name, resourceVersion } = seen.held;
        this.#advance(resourceVersion, `${seen.type} ${name}`, 1);
        if (seen.type === 'DELETED') this.#remove(name, 'event');
        else this.held.set(name, resourceVersion);
        break;
      }
      case 'denied':
        break;
      default:
        seen satisfies never;
    }
  }

  #remove(name: string, by: string): void {
    this.held.delete(name);
    if (!this.#isGone(name)) this.wrong.push(`${name} lives, and was deleted by ${by}`);
  }

  /** Nothing comes twice, nor out of order (W8). */
  #advance(version: string, what: string, least: number): void {
    if (compareVersions(version, this.#newest) < least)
      this.wrong.push(`${what} at ${version}, after ${this.#newest}`);
    this.#newest = version;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#done;
    await this.#connection[Symbol.asyncDispose]();
  }
}

/** Slices that belong to no Service, which nobody but the test writes. */
export class LooseSlices {
  readonly #client: KubeClient;
  readonly #namespace: string;
  /** Names whose deletion was asked for; none is used again. */
  readonly gone = new Set<string>();
  readonly names: string[] = [];
  #count = 0;

  constructor(client: KubeClient, namespace: string) {
    this.#client = client;
    this.#namespace = namespace;
  }

  async create(): Promise<void> {
    const name = `${this.#namespace}-${++this.#count}`;
    await this.#client.create(
      'EndpointSlice',
      { name, namespace: this.#namespace },
      { addressType: 'IPv4', endpoints: [{ addresses: ['192.0.2.1'] }], ports: [{ name: 'http', port: 80 }] },
    );
    this.names.push(name);
  }

  async createMany(count: number): Promise<void> {
    for (let left = count; left > 0; left -= 20) {
      await Promise.all(Array.from({ length: Math.min(left, 20) }, () => this.create()));
    }
  }

  /** Changes the oldest one. */
  async change(): Promise<void> {
    const [name = ''] = this.names;
    const id = { kind: 'EndpointSlice', namespace: this.#namespace, name } as const;
    await this.#client.patch(id, { ports: [{ name: 'http', port: 8000 + this.#count }] });
  }

  /** Deletes the oldest one. */
  async delete(): Promise<void> {
    const name = this.names.shift() ?? '';
    this.gone.add(name);
    await this.#client.delete({ kind: 'EndpointSlice', namespace: this.#namespace, name });
  }

  /** Creates, changes and deletes until told to stop. */
  churn(): AsyncDisposable {
    let isStopping = false;
    const run = async () => {
      while (!isStopping) {
        await this.create();
        await this.change();
        await this.delete();
        await wait(1);
      }
    };
    const done = run();
    return {
      [Symbol.asyncDispose]: async () => {
        isStopping = true;
        await done;
      },
    };
  }
}
