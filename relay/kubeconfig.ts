import { readFile } from 'node:fs/promises';
import type { RequestOptions } from 'node:https';
import { homedir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import type { KubeConfig } from '@kubernetes/client-node/dist/config.js';
import type { Access, ReadAccess } from './connection.ts';
import { isInCluster, readInClusterAccess } from './in-cluster.ts';

/** Where the configuration of the API server's clients is. */
export interface KubeconfigSource {
  /** A kubeconfig file; null: `$KUBECONFIG`, then inside a pod its service account, then `~/.kube/config`. */
  readonly kubeconfig: string | null;
  /** A context of the file; null: its current one. */
  readonly context: string | null;
}

/**
 * Reads a cluster's address and credentials by client-node, whose exec plugins (`aws eks get-token`) keep a token until
 * it expires.
 * @throws an Error with one line for people when there is no usable configuration.
 */
export function kubeconfigAccess(source: KubeconfigSource): ReadAccess {
  let exec: KubeConfig | null = null;
  return async (reason) => {
    if (isInCluster(source.kubeconfig, process.env)) return readInClusterAccess(process.env);
    const config = reason === 'aged' && exec !== null ? exec : await loadConfig(source);
    exec = config.getCurrentUser()?.exec === undefined ? null : config;
    return accessOf(config);
  };
}

/** client-node is loaded only where it is needed: it takes 35 MB. */
async function loadConfig({ kubeconfig, context }: KubeconfigSource): Promise<KubeConfig> {
  const { KubeConfig } = await import('@kubernetes/client-node/dist/config.js');
  const loaded = new KubeConfig();
  try {
    if (kubeconfig !== null) loaded.loadFromFile(kubeconfig);
    else loaded.loadFromDefault();
  } catch (error) {
    const reason = error instanceof Error ? error.message.split('\n')[0] : String(error);
    throw new Error(`kubeconfig ${kubeconfig ?? process.env.KUBECONFIG ?? ''}: ${reason}`, { cause: error });
  }
  const name = context ?? loaded.currentContext;
  const names = loaded.contexts.map((known) => known.name);
  // client-node makes this context up, for localhost:8080, where it finds no configuration.
  if (name === 'loaded-context')
    throw new Error('no kubeconfig found: set KUBECONFIG, or run inside a cluster');
  if (!names.includes(name))
    throw new Error(`kubeconfig: no context "${name ?? ''}"; it has: ${names.join(', ') || 'none'}`);
  loaded.setCurrentContext(name);
  const cluster = loaded.getCurrentCluster();
  if (!cluster?.server) throw new Error(`kubeconfig: context "${name}" names no cluster with a server`);
  if (cluster.proxyUrl !== undefined && !/^https?:/.test(cluster.proxyUrl))
    throw new Error(`kubeconfig: proxy-url ${cluster.proxyUrl} is not supported, only http and https`);
  // client-node reads a CA only beside a user, and speaks plain HTTP only where TLS is not verified.
  const skipTLSVerify = cluster.skipTLSVerify || cluster.server.startsWith('http:');
  const user = loaded.getCurrentUser() ?? { name: 'anonymous' };
  const token = await readTokenFile(kubeconfig, user.name);
  const config = new KubeConfig();
  config.loadFromClusterAndUser({ ...cluster, skipTLSVerify }, { ...user, ...(token !== null && { token }) });
  return config;
}

/**
 * The token in the file that a user names; null when it names none. client-node knows no `tokenFile`, and would speak for
 * nobody. It goes before `token`. Source: client-go, AuthInfo of clientcmd.
 */
async function readTokenFile(kubeconfig: string | null, name: string): Promise<string | null> {
  const { loadYaml } = await import('@kubernetes/client-node/dist/yaml.js');
  const listed = process.env.KUBECONFIG || join(homedir(), '.kube', 'config');
  const files = kubeconfig === null ? listed.split(delimiter).filter(Boolean) : [kubeconfig];
  for (const file of files) {
    const { users } = loadYaml<RawConfig>(await readFile(file, 'utf8'));
    const user = users?.find((known) => known.name === name)?.user;
    if (user == null) continue;
    if (!user.tokenFile) return null;
    const path = resolve(dirname(file), user.tokenFile);
    try {
      return (await readFile(path, 'utf8')).trim();
    } catch (error) {
      throw new Error(`kubeconfig: tokenFile ${path} of user "${name}" cannot be read`, { cause: error });
    }
  }
  return null;
}

interface RawConfig {
  readonly users?:
    | readonly { readonly name?: string; readonly user?: { readonly tokenFile?: string } | null }[]
    | null;
}

async function accessOf(config: KubeConfig): Promise<Access> {
  const options: RequestOptions = {};
  await config.applyToHTTPSOptions(options);
  const { ca, cert, key, servername, rejectUnauthorized, auth } = options;
  const headers: Record<string, string> = {};
  if (auth) headers.authorization = `Basic ${Buffer.from(auth).toString('base64')}`;
  for (const [name, value] of Object.entries(options.headers ?? {})) {
    headers[name.toLowerCase()] = String(value).trim();
  }
  const cluster = config.getCurrentCluster();
  return {
    server: cluster?.server ?? '',
    tls: {
      ...(ca !== undefined && { ca }),
      ...(cert !== undefined && { cert }),
      ...(key !== undefined && { key }),
      ...(servername !== undefined && { servername }),
      ...(rejectUnauthorized !== undefined && { rejectUnauthorized }),
    },
    proxy: cluster?.proxyUrl ?? null,
    headers,
  };
}
