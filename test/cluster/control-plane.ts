import { type ChildProcess, spawn } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, cpSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { type BinaryName, findBinaries } from './binaries.ts';
import { KubeClient } from './kube-client.ts';

const READY_LOOK_MS = 100;
const MAX_READY_LOOKS = 600;
const LOG_TAIL = 2_000;
const ADMIN_TOKEN = 'admin-token';

/** Small slices: many of them with few pods. */
const MAX_ENDPOINTS_PER_SLICE = 10;
const CONTROLLERS = [
  'endpointslice-controller',
  'endpoints-controller',
  'endpointslice-mirroring-controller',
  'deployment-controller',
  'replicaset-controller',
  'statefulset-controller',
  'garbage-collector-controller',
].join(',');

/** Who may speak to the API server: the test itself, and the relay, which may do what its roles say. */
function tokensFile(relayToken: string): string {
  return `${ADMIN_TOKEN},admin,admin,"system:masters"\n${relayToken},relay,relay,\n`;
}

/**
 * etcd, kube-apiserver and kube-controller-manager of a folder of their own, on loopback. There is neither scheduler nor
 * kubelet: `player.ts` plays them.
 */
export class ControlPlane implements AsyncDisposable {
  /** As the test, which may do anything. */
  readonly client: KubeClient;
  readonly server: string;
  readonly #folder: string;
  readonly #paths: Readonly<Record<BinaryName, string>>;
  readonly #ports: Readonly<Record<'etcd' | 'etcdPeer' | 'apiServer' | 'controllers', number>>;
  readonly #running = new Map<BinaryName, Running>();
  readonly #flags: readonly string[];
  relayToken = 'relay-token';

  private constructor(
    folder: string,
    paths: Readonly<Record<BinaryName, string>>,
    [etcd = 0, etcdPeer = 0, apiServer = 0, controllers = 0]: readonly number[],
    flags: readonly string[],
  ) {
    this.#folder = folder;
    this.#paths = paths;
    this.#ports = { etcd, etcdPeer, apiServer, controllers };
    this.#flags = flags;
    this.server = `https://127.0.0.1:${apiServer}`;
    const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    writeFileSync(this.#path('account.key'), privateKey.export({ type: 'pkcs8', format: 'pem' }));
    writeFileSync(this.#path('account.pub'), publicKey.export({ type: 'spki', format: 'pem' }));
    this.client = new KubeClient(this.server, () => this.certificate, ADMIN_TOKEN);
  }

  /** @param flags further ones of the API server. */
  static async start(flags: readonly string[] = []): Promise<ControlPlane> {
    const paths = await findBinaries();
    const ports = await Promise.all(Array.from({ length: 4 }, freePort));
    const folder = mkdtempSync(join(tmpdir(), 'control-plane-'));
    const plane = new ControlPlane(folder, paths, ports, flags);
    try {
      plane.#startEtcd();
      await plane.startApiServer();
      plane.#startControllers();
      return plane;
    } catch (error) {
      await plane[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Of the API server, in PEM. */
  get certificate(): string {
    return readFileSync(this.#path('certificates/apiserver.crt'), 'utf8');
  }

  /** A kubeconfig of the relay's user; `server` may be a way round to the API server. */
  kubeconfig({ server = this.server, tokenFile }: { server?: string; tokenFile?: string } = {}): string {
    return kubeconfig(server, this.certificate, tokenFile ? { tokenFile } : { token: this.relayToken });
  }

  /** As the relay, which may do what its roles say. */
  relayClient(): KubeClient {
    return new KubeClient(this.server, () => this.certificate, this.relayToken);
  }

  async startApiServer(): Promise<void> {
    writeFileSync(this.#path('tokens.csv'), tokensFile(this.relayToken));
    this.#spawn('kube-apiserver', [
      `--etcd-servers=http://127.0.0.1:${this.#ports.etcd}`,
      '--bind-address=127.0.0.1',
      `--secure-port=${this.#ports.apiServer}`,
      `--cert-dir=${this.#path('certificates')}`,
      '--service-account-issuer=https://kubernetes.default.svc',
      `--service-account-signing-key-file=${this.#path('account.key')}`,
      `--service-account-key-file=${this.#path('account.pub')}`,
      '--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112',
      '--authorization-mode=RBAC',
      `--token-auth-file=${this.#path('tokens.csv')}`,
      '--disable-admission-plugins=ServiceAccount',
      '--endpoint-reconciler-type=none',
      '--min-request-timeout=5',
      ...this.#flags,
    ]);
    for (let look = 1; !(await this.client.isReady()); look++) {
      const ended = [...this.#running].find(([, { child }]) => child.exitCode !== null);
      if (ended !== undefined || look > MAX_READY_LOOKS)
        throw new Error(`the control plane does not become ready\n${this.#logs()}`);
      await wait(READY_LOOK_MS);
    }
  }

  /** kill -9. */
  async killApiServer(): Promise<void> {
    await this.#kill('kube-apiserver');
  }

  /** Forgets what things were before now, as the API server has etcd do every few minutes. */
  async compact(): Promise<void> {
    const send = async (call: string, body: object) => {
      const url = `http://127.0.0.1:${this.#ports.etcd}/v3/kv/${call}`;
      const response = await fetch(url, { method: 'POST', body: JSON.stringify(body) });
      if (!response.ok) throw new Error(`etcd: ${call}: ${await response.text()}`);
      return (await response.json()) as { readonly header: { readonly revision: string } };
    };
    const anyKey = Buffer.from([0]).toString('base64');
    const { header } = await send('range', { key: anyKey });
    await send('compaction', { revision: header.revision, physical: true });
  }

  /** Copies what is stored, as a backup does; the API server and the controllers stand still meanwhile. */
  async backUp(): Promise<void> {
    await this.#withEverythingStopped(() =>
      cpSync(this.#path('etcd'), this.#path('backup'), { recursive: true }),
    );
  }

  /** Goes back to what was stored at the backup, with the versions of then. */
  async restore(): Promise<void> {
    await this.#withEverythingStopped(() => {
      rmSync(this.#path('etcd'), { recursive: true });
      cpSync(this.#path('backup'), this.#path('etcd'), { recursive: true });
    });
  }

  async #withEverythingStopped(work: () => void): Promise<void> {
    for (const name of ['kube-controller-manager', 'kube-apiserver', 'etcd'] as const) await this.#kill(name);
    work();
    this.#startEtcd();
    await this.startApiServer();
    this.#startControllers();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#running.keys()].map((name) => this.#kill(name)));
    await this.client[Symbol.asyncDispose]();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #startEtcd(): void {
    const client = `http://127.0.0.1:${this.#ports.etcd}`;
    const peer = `http://127.0.0.1:${this.#ports.etcdPeer}`;
    this.#spawn('etcd', [
      `--data-dir=${this.#path('etcd')}`,
      `--listen-client-urls=${client}`,
      `--advertise-client-urls=${client}`,
      `--listen-peer-urls=${peer}`,
      `--initial-advertise-peer-urls=${peer}`,
      `--initial-cluster=default=${peer}`,
      '--unsafe-no-fsync',
    ]);
  }

  #startControllers(): void {
    const file = this.#path('controllers.kubeconfig');
    writeFileSync(file, kubeconfig(this.server, this.certificate, { token: ADMIN_TOKEN }));
    this.#spawn('kube-controller-manager', [
      `--kubeconfig=${file}`,
      `--controllers=${CONTROLLERS}`,
      '--leader-elect=false',
      '--bind-address=127.0.0.1',
      `--secure-port=${this.#ports.controllers}`,
      `--cert-dir=${this.#path('certificates-of-controllers')}`,
      `--max-endpoints-per-slice=${MAX_ENDPOINTS_PER_SLICE}`,
    ]);
  }

  #spawn(name: BinaryName, args: readonly string[]): void {
    const log = openSync(this.#path(`${name}.log`), 'a');
    const child = spawn(this.#paths[name], args, { cwd: this.#folder, stdio: ['ignore', log, log] });
    closeSync(log);
    const onExit = () => child.kill('SIGKILL');
    process.once('exit', onExit);
    const ended = once(child, 'exit').then(() => void process.removeListener('exit', onExit));
    this.#running.set(name, { child, ended });
  }

  async #kill(name: BinaryName): Promise<void> {
    const running = this.#running.get(name);
    running?.child.kill('SIGKILL');
    await running?.ended;
    this.#running.delete(name);
  }

  #path(name: string): string {
    return join(this.#folder, name);
  }

  /** The last words of each program. */
  #logs(): string {
    const names = [...this.#running.keys()];
    return names
      .map((name) => `${name}: ${readFileSync(this.#path(`${name}.log`), 'utf8').slice(-LOG_TAIL)}`)
      .join('\n');
  }
}

interface Running {
  readonly child: ChildProcess;
  readonly ended: Promise<void>;
}

function kubeconfig(server: string, certificate: string, user: object): string {
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [
      {
        name: 'test',
        cluster: { server, 'certificate-authority-data': Buffer.from(certificate).toString('base64') },
      },
    ],
    users: [{ name: 'test', user }],
    contexts: [{ name: 'test', context: { cluster: 'test', user: 'test' } }],
    'current-context': 'test',
  });
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}
