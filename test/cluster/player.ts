import { setTimeout as wait } from 'node:timers/promises';
import type { KubeClient, KubeObject } from './kube-client.ts';

/** Time between two looks at the pods. */
const LOOK_MS = 50;
/** Where pods run; each node is a zone of its own. */
export const NODES = ['n0', 'n1', 'n2'] as const;

/** Plays the scheduler and the kubelets of a cluster that has none: pods run at once, and end at once. */
export class Player implements AsyncDisposable {
  readonly #client: KubeClient;
  readonly #done: Promise<void>;
  /** Names of pods, as `NAMESPACE/NAME`, whose probes fail. */
  readonly #unready = new Set<string>();
  #isStopping = false;
  #pods = 0;

  private constructor(client: KubeClient) {
    this.#client = client;
    this.#done = this.#play();
  }

  static async start(client: KubeClient): Promise<Player> {
    for (const name of NODES) {
      await client.create('Node', { name, labels: { 'topology.kubernetes.io/zone': `zone-${name}` } });
    }
    return new Player(client);
  }

  /** Makes a pod's probe fail, or succeed again. */
  setReady(namespace: string, name: string, isReady: boolean): void {
    if (isReady) this.#unready.delete(`${namespace}/${name}`);
    else this.#unready.add(`${namespace}/${name}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isStopping = true;
    await this.#done;
  }

  async #play(): Promise<void> {
    while (!this.#isStopping) {
      // The API server is away, or a pod has changed meanwhile: the next look sees what there is.
      const pods = await this.#client.list('Pod').catch(() => []);
      for (const pod of pods) await this.#follow(pod).catch(() => {});
      await wait(LOOK_MS);
    }
  }

  async #follow(pod: KubeObject): Promise<void> {
    const { namespace = '', name, deletionTimestamp } = pod.metadata;
    const id = { kind: 'Pod', namespace, name } as const;
    if (pod.spec.nodeName === undefined) {
      await this.#client.bind(pod, NODES[this.#pods % NODES.length] ?? NODES[0]);
      await this.#run(id);
      return;
    }
    if (pod.status.podIP === undefined) return this.#run(id);
    const isReady = pod.status.conditions?.some(
      ({ type, status }: { type: string; status: string }) => type === 'Ready' && status === 'True',
    );
    if (deletionTimestamp !== undefined) {
      // First it is unready, and the next look takes it away, as a container that ends.
      if (isReady) await this.#patchReady(id, false);
      else await this.#client.delete(id, { gracePeriodSeconds: 0 });
      return;
    }
    const shouldBeReady = !this.#unready.has(`${namespace}/${name}`);
    if (isReady !== shouldBeReady) await this.#patchReady(id, shouldBeReady);
  }

  /** Addresses are never given twice. */
  async #run(id: PodId): Promise<void> {
    const number = ++this.#pods;
    const podIPs = [
      { ip: `10.244.${number >> 8}.${number & 255}` },
      { ip: `fd00:10:244::${number.toString(16)}` },
    ];
    const isReady = !this.#unready.has(`${id.namespace}/${id.name}`);
    const status = { phase: 'Running', podIP: podIPs[0]?.ip, podIPs, conditions: conditionsOf(isReady) };
    await this.#client.patch(id, { status }, '/status');
  }

  async #patchReady(id: PodId, isReady: boolean): Promise<void> {
    await this.#client.patch(id, { status: { conditions: conditionsOf(isReady) } }, '/status');
  }
}

interface PodId {
  readonly kind: 'Pod';
  readonly namespace: string;
  readonly name: string;
}

function conditionsOf(isReady: boolean): readonly object[] {
  const status = isReady ? 'True' : 'False';
  return ['Ready', 'ContainersReady'].map((type) => ({ type, status }));
}
