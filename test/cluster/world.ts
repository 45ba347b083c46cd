import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as yaml from 'yaml';
import { compareText } from '../../core/address.ts';
import type { LocalStack } from '../../infra/local/stack.ts';
import { noAuthorization } from '../../relay/authorization.ts';
import type { EnrichmentName } from '../../relay/enrichment-watch.ts';
import { kubeconfigAccess } from '../../relay/kubeconfig.ts';
import { type Relay, startRelay } from '../../relay/relay.ts';
import { systemTimers, type Timers } from '../../relay/timers.ts';
import type { Mode } from '../../wire/envelope.ts';
import { createLogger } from '../../wire/log.ts';
import { naiveSets } from '../core/naive-model.ts';
import { eventually } from '../eventually.ts';
import { startQuietStack } from '../quiet-stack.ts';
import type { Replica } from '../replica.ts';
import { assertReplayed, readSets, toNaiveSets } from '../system/served-sets.ts';
import { type LoggedEntry, Subscriber } from '../system/subscriber.ts';
import { ControlPlane } from './control-plane.ts';
import type { KubeClient, KubeObject } from './kube-client.ts';
import { Player } from './player.ts';

/** Where the relay's own objects are: its Lease, and what allows it. */
export const RELAY_NAMESPACE = 'default';
const ROLE_FILES = new URL('../../infra/chart/', import.meta.url);

export interface RelaySettings {
  readonly mode: Mode;
  /** The only ones it watches; all by default. */
  readonly namespaces?: readonly string[];
  readonly timers?: Timers;
  readonly enrich?: readonly EnrichmentName[];
  /** URL of a way round to the API server. */
  readonly server?: string;
  /** File that holds the relay's token; it may change. */
  readonly tokenFile?: string;
}

interface TruthOptions {
  /** Its name in the cloud. */
  readonly cluster?: string;
  readonly namespaces?: readonly string[];
}

/** A real control plane, somebody who plays its nodes, and the cloud half with relays that come and go. */
export class World implements AsyncDisposable {
  readonly plane: ControlPlane;
  readonly player: Player;
  readonly stack: LocalStack;
  readonly folder = mkdtempSync(join(tmpdir(), 'cluster-world-'));
  readonly #subscribers = new Map<string, Subscriber>();
  #position = 0;
  #epoch = 0;

  private constructor(plane: ControlPlane, player: Player, stack: LocalStack) {
    this.plane = plane;
    this.player = player;
    this.stack = stack;
  }

  /** @param namespaces the only ones in which relays may read; they are created. */
  static async start(namespaces?: readonly string[]): Promise<World> {
    await using opened = new AsyncDisposableStack();
    const plane = opened.use(await ControlPlane.start());
    for (const name of namespaces ?? []) await plane.client.create('Namespace', { name });
    await allowRelay(plane.client, namespaces);
    const player = opened.use(await Player.start(plane.client));
    const stack = opened.use(await startQuietStack());
    opened.move();
    return new World(plane, player, stack);
  }

  get client(): KubeClient {
    return this.plane.client;
  }

  /** A relay in this process, under its roles alone; each mode tells a cluster of its own in the cloud. */
  startRelay({ mode, namespaces, timers = systemTimers, enrich = [], ...access }: RelaySettings): Relay {
    const kubeconfig = join(this.folder, `kubeconfig-${++this.#epoch}`);
    writeFileSync(kubeconfig, this.plane.kubeconfig(access));
    return startRelay({
      cluster: mode,
      relay: 'test',
      epoch: this.#epoch,
      mode,
      namespaces: namespaces ?? null,
      enrich,
      settleMs: 25,
      maxRemoved: 0.5,
      readAccess: kubeconfigAccess({ kubeconfig, context: null }),
      ingestUrl: new URL(this.stack.url),
      authorize: noAuthorization,
      timers,
      random: Math.random,
      log: createLogger({ level: 'error', clock: systemTimers, write: writeToStderr }),
    });
  }

  /** What the bus took of a cluster so far, as its subscriber keeps it. */
  async subscriber(cluster: string): Promise<Subscriber> {
    for (;;) {
      const { entries, last } = await this.stack.bus.read({ after: this.#position, limit: 1_000, wait: 0 });
      this.#position = last;
      if (entries.length === 0) break;
      for (const subscriber of this.#subscribers.values()) subscriber.take(entries as readonly LoggedEntry[]);
    }
    const known = this.#subscribers.get(cluster);
    if (known !== undefined) return known;
    const subscriber = new Subscriber(cluster);
    this.#subscribers.set(cluster, subscriber);
    this.#position = 0;
    // A delivery that comes again is known by its id.
    return this.subscriber(cluster);
  }

  /**
   * Waits until the api answers what one LIST says, and the replayed bus is the same (P1, P2); of all namespaces unless
   * some are named.
   */
  async isTrue(mode: Mode, { cluster = mode, namespaces }: TruthOptions = {}): Promise<Replica> {
    let replayed: Replica | undefined;
    await eventually(async () => {
      const { services: listed, slices, endpoints } = await this.client.listSets();
      const services = listed.filter(({ metadata }) => namespaces?.includes(metadata.namespace) ?? true);
      const objects = (mode === 'slices' ? slices : endpoints).map((object) => ({
        object,
        version: object.metadata.resourceVersion,
      }));
      const truth = naiveSets(services, objects);
      const replica = (await this.subscriber(cluster)).replay();
      const groups = Object.keys(truth).map((port) => `${cluster}/${port}`);
      const sets = await readSets((path) => this.#get(path), [...groups, ...replica.groups()]);
      assert.deepEqual(toNaiveSets(sets), truth);
      assertReplayed(replica, sets);
      replayed = replica;
    });
    assert(replayed !== undefined);
    return replayed;
  }

  /** Waits until so many endpoints of a Service are ready, as its slices say. */
  async hasReady(namespace: string, name: string, count: number): Promise<void> {
    await eventually(async () => assert.equal((await this.readyIps(namespace, name)).length, count, name));
  }

  async readyIps(namespace: string, name: string): Promise<string[]> {
    const { slices } = await this.client.listSets();
    const own = slices.filter(
      ({ metadata }) =>
        metadata.namespace === namespace && metadata.labels?.['kubernetes.io/service-name'] === name,
    );
    const ready = own.flatMap(({ endpoints }) =>
      (endpoints ?? []).filter(({ conditions }) => conditions?.ready ?? true),
    );
    return ready.flatMap(({ addresses }) => addresses?.[0] ?? []).sort(compareText);
  }

  async #get(path: string) {
    const response = await fetch(this.stack.url + path);
    return { status: response.status, body: await response.json() };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.player[Symbol.asyncDispose]();
    await this.plane[Symbol.asyncDispose]();
    await this.stack[Symbol.asyncDispose]();
    rmSync(this.folder, { recursive: true });
  }
}

/** Gives the relay's user the roles of the chart, in all namespaces unless some are named, and nothing else. */
export async function allowRelay(client: KubeClient, namespaces?: readonly string[]): Promise<void> {
  const [clusterRole, leaseRole] = ['cluster-role.yaml', 'lease-role.yaml'].map(
    (file) => yaml.parse(readFileSync(new URL(file, ROLE_FILES), 'utf8')) as KubeObject,
  );
  assert(clusterRole !== undefined && leaseRole !== undefined);
  const subjects = [{ kind: 'User', name: 'relay', apiGroup: 'rbac.authorization.k8s.io' }];
  const refTo = (kind: string, { metadata }: KubeObject) => ({
    subjects,
    roleRef: { kind, name: metadata.name, apiGroup: 'rbac.authorization.k8s.io' },
  });
  await client.create('ClusterRole', clusterRole.metadata, { rules: clusterRole.rules });
  const reading = refTo('ClusterRole', clusterRole);
  if (namespaces === undefined) await client.create('ClusterRoleBinding', clusterRole.metadata, reading);
  for (const namespace of namespaces ?? [])
    await client.create('RoleBinding', { ...clusterRole.metadata, namespace }, reading);
  const metadata = { ...leaseRole.metadata, namespace: RELAY_NAMESPACE };
  await client.create('Role', metadata, { rules: leaseRole.rules });
  await client.create('RoleBinding', metadata, refTo('Role', leaseRole));
}

function writeToStderr(line: string): void {
  process.stderr.write(`${line}\n`);
}
