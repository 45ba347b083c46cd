import type { KubeClient } from './kube-client.ts';

/** What a test says of a Service; the rest is as most Services are. */
export interface ServiceSpec {
  readonly selector?: Readonly<Record<string, string>> | null;
  readonly ports?: readonly object[];
  readonly [field: string]: unknown;
}

export const HTTP = { name: 'http', port: 80, targetPort: 8080, protocol: 'TCP' };

/** Creates a Service of pods labelled with its name. */
export async function createService(
  client: KubeClient,
  namespace: string,
  name: string,
  spec: ServiceSpec = {},
): Promise<void> {
  await client.create(
    'Service',
    { name, namespace },
    { spec: { selector: { app: name }, ports: [HTTP], ...spec } },
  );
}

/** Pods' template: one container with two named ports. */
function templateOf(app: string) {
  return {
    metadata: { labels: { app } },
    spec: {
      containers: [
        {
          name: 'main',
          image: 'web',
          ports: [
            { name: 'http', containerPort: 8080 },
            { name: 'other', containerPort: 9090 },
          ],
        },
      ],
    },
  };
}

export async function createDeployment(
  client: KubeClient,
  namespace: string,
  app: string,
  replicas: number,
): Promise<void> {
  const selector = { matchLabels: { app } };
  await client.create(
    'Deployment',
    { name: app, namespace },
    { spec: { replicas, selector, template: templateOf(app) } },
  );
}

export async function scale(
  client: KubeClient,
  namespace: string,
  app: string,
  replicas: number,
): Promise<void> {
  await client.patch({ kind: 'Deployment', namespace, name: app }, { spec: { replicas } });
}

/** Replaces all pods, as a new image does. */
export async function rollOut(
  client: KubeClient,
  namespace: string,
  app: string,
  version: string,
): Promise<void> {
  const template = { metadata: { annotations: { version } } };
  await client.patch({ kind: 'Deployment', namespace, name: app }, { spec: { template } });
}

/** Pods with names that last, behind a headless Service of the same name. */
export async function createStatefulSet(
  client: KubeClient,
  namespace: string,
  app: string,
  replicas: number,
): Promise<void> {
  await createService(client, namespace, app, { clusterIP: 'None' });
  const spec = { replicas, serviceName: app, selector: { matchLabels: { app } }, template: templateOf(app) };
  await client.create('StatefulSet', { name: app, namespace }, { spec });
}
