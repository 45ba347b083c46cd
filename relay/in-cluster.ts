import { readFile } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import type { Access } from './connection.ts';

const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';

/** Is this a pod which is told of no other cluster than its own? */
export function isInCluster(kubeconfig: string | null, env: NodeJS.ProcessEnv): boolean {
  return kubeconfig === null && !env.KUBECONFIG && Boolean(env.KUBERNETES_SERVICE_HOST);
}

/**
 * Namespace of this pod.
 * @throws the system's error when the file cannot be read.
 */
export async function readPodNamespace(folder = SERVICE_ACCOUNT): Promise<string> {
  return (await readFile(`${folder}/namespace`, 'utf8')).trim();
}

/**
 * What a pod is given to reach its own API server. Written here, since client-node would take a fifth of the relay's memory.
 * @param folder where the service account's token and CA are mounted; they are replaced while the pod runs.
 * @throws the system's error when a file cannot be read.
 */
export async function readInClusterAccess(env: NodeJS.ProcessEnv, folder = SERVICE_ACCOUNT): Promise<Access> {
  const { KUBERNETES_SERVICE_HOST: host = '', KUBERNETES_SERVICE_PORT: port = '443' } = env;
  const token = await readFile(`${folder}/token`, 'utf8');
  return {
    server: `https://${isIPv6(host) ? `[${host}]` : host}:${port}`,
    tls: { ca: await readFile(`${folder}/ca.crt`) },
    proxy: null,
    headers: { authorization: `Bearer ${token.trim()}` },
  };
}
