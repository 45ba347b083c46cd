import { Agent } from 'undici';
import type { EndpointSlice, Endpoints, Service } from '../../core/kubernetes.ts';

/** Collections that the tests use: path of group and version, then the plural. */
const COLLECTIONS = {
  Namespace: ['/api/v1', 'namespaces'],
  Node: ['/api/v1', 'nodes'],
  Pod: ['/api/v1', 'pods'],
  Secret: ['/api/v1', 'secrets'],
  Service: ['/api/v1', 'services'],
  Endpoints: ['/api/v1', 'endpoints'],
  EndpointSlice: ['/apis/discovery.k8s.io/v1', 'endpointslices'],
  Deployment: ['/apis/apps/v1', 'deployments'],
  StatefulSet: ['/apis/apps/v1', 'statefulsets'],
  Lease: ['/apis/coordination.k8s.io/v1', 'leases'],
  ClusterRole: ['/apis/rbac.authorization.k8s.io/v1', 'clusterroles'],
  ClusterRoleBinding: ['/apis/rbac.authorization.k8s.io/v1', 'clusterrolebindings'],
  Role: ['/apis/rbac.authorization.k8s.io/v1', 'roles'],
  RoleBinding: ['/apis/rbac.authorization.k8s.io/v1', 'rolebindings'],
} as const;
export type Kind = keyof typeof COLLECTIONS;

/** An object of any kind; tests look at few fields. */
export interface KubeObject {
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly uid?: string;
    readonly resourceVersion?: string;
    readonly deletionTimestamp?: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
  // biome-ignore lint/suspicious/noExplicitAny: what a test reads of an object is as wide as Kubernetes' API.
  readonly [field: string]: any;
}

/** Which object. */
export interface Id {
  readonly kind: Kind;
  readonly name: string;
  readonly namespace?: string;
}

/** What a list tells of the sets (page of the truth). */
export interface ListedSets {
  readonly services: readonly Service[];
  readonly slices: readonly EndpointSlice[];
  readonly endpoints: readonly Endpoints[];
}

/** The API server as a test speaks to it: each call is one request, and a refusal is an Error. */
export class KubeClient implements AsyncDisposable {
  readonly #server: string;
  readonly #certificate: () => string;
  readonly #token: string;
  #agent: { readonly certificate: string; readonly agent: Agent } | null = null;

  constructor(server: string, certificate: () => string, token: string) {
    this.#server = server;
    this.#certificate = certificate;
    this.#token = token;
  }

  async isReady(): Promise<boolean> {
    try {
      return (await this.status('GET', '/readyz')).status === 200;
    } catch {
      return false;
    }
  }

  async list(kind: Kind): Promise<KubeObject[]> {
    const [root, plural] = COLLECTIONS[kind];
    const { items } = (await this.#send('GET', `${root}/${plural}`)) as { readonly items: KubeObject[] };
    // A list leaves out what all of its items share.
    return items.map((item) => ({ kind, ...item }));
  }

  /** Services, EndpointSlices and Endpoints, one list each. */
  async listSets(): Promise<ListedSets> {
    const [services, slices, endpoints] = await Promise.all([
      this.list('Service'),
      this.list('EndpointSlice'),
      this.list('Endpoints'),
    ]);
    return { services, slices, endpoints } as unknown as ListedSets;
  }

  get(id: Id): Promise<KubeObject> {
    return this.#send('GET', pathOf(id)) as Promise<KubeObject>;
  }

  create(kind: Kind, metadata: KubeObject['metadata'], rest: object = {}): Promise<KubeObject> {
    const [apiVersion] = COLLECTIONS[kind];
    const object = { apiVersion: apiVersion.replace(/^\/apis?\//, ''), kind, metadata, ...rest };
    return this.#send('POST', collectionOf({ kind, ...metadata }), object) as Promise<KubeObject>;
  }

  /** Source: JSON merge patch (RFC 7396). */
  patch(id: Id, patch: object, subresource = ''): Promise<KubeObject> {
    return this.#send('PATCH', pathOf(id) + subresource, patch) as Promise<KubeObject>;
  }

  replace(id: Id, object: object): Promise<KubeObject> {
    return this.#send('PUT', pathOf(id), object) as Promise<KubeObject>;
  }

  async delete(id: Id, options: { readonly gracePeriodSeconds?: number } = {}): Promise<void> {
    await this.#send('DELETE', pathOf(id), { apiVersion: 'v1', kind: 'DeleteOptions', ...options });
  }

  async bind(pod: KubeObject, node: string): Promise<void> {
    const { name, namespace = '' } = pod.metadata;
    const binding = { apiVersion: 'v1', kind: 'Binding', metadata: { name, namespace } };
    const target = { apiVersion: 'v1', kind: 'Node', name: node };
    await this.#send('POST', `${pathOf({ kind: 'Pod', name, namespace })}/binding`, { ...binding, target });
  }

  async #send(method: string, path: string, body?: object): Promise<unknown> {
    const { status, text } = await this.status(method, path, body);
    if (status >= 300) throw new Error(`${method} ${path}: ${status} ${text.slice(0, 500)}`);
    return JSON.parse(text);
  }

  /** One request, whatever the answer. */
  async status(
    method: string,
    path: string,
    body?: object,
  ): Promise<{ readonly status: number; readonly text: string }> {
    const type = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
    const { statusCode: status, body: answer } = await this.#dispatcher().request({
      origin: this.#server,
      path,
      method: method as 'GET',
      headers: { authorization: `Bearer ${this.#token}`, accept: 'application/json', 'content-type': type },
      body: body === undefined ? null : JSON.stringify(body),
    });
    return { status, text: await answer.text() };
  }

  #dispatcher(): Agent {
    const certificate = this.#certificate();
    if (this.#agent?.certificate === certificate) return this.#agent.agent;
    void this.#agent?.agent.close();
    const agent = new Agent({ connect: { ca: certificate } });
    this.#agent = { certificate, agent };
    return agent;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent?.agent.destroy();
  }
}

function collectionOf({
  kind,
  namespace,
}: {
  readonly kind: Kind;
  readonly namespace?: string | undefined;
}): string {
  const [root, plural] = COLLECTIONS[kind];
  return namespace === undefined ? `${root}/${plural}` : `${root}/namespaces/${namespace}/${plural}`;
}

function pathOf(id: Id): string {
  return `${collectionOf(id)}/${id.name}`;
}
