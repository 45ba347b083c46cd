import type {
  EndpointSlice,
  Endpoints,
  PodEnrichment,
  RawEndpoint,
  RawSlicePort,
  Service,
  WatchedObject,
} from '../../core/kubernetes.ts';
import { compareVersions } from '../../core/version.ts';

/**
 * What the rules say of a set of objects, computed from nothing and as plainly as they are written: no state, no order, no
 * sharing. It takes IPs as they stand, so objects must hold canonical ones.
 */
export interface NaiveSet {
  readonly name: string;
  /** What is published of each ready address, by key, sorted; null and false are left out. */
  readonly ready: Readonly<Record<string, NaiveAddress>>;
  readonly draining: readonly string[];
  readonly notReady: number;
}

export type NaiveAddress = Readonly<Record<string, unknown>>;

/** An object, and the version that is recorded for it (S11, P5). */
export interface RecordedObject {
  readonly object: EndpointSlice | Endpoints;
  readonly version: string;
  /** What the relay told of pods, by `NAMESPACE/POD` (S7). */
  readonly enrich?: Readonly<Record<string, PodEnrichment>>;
}

interface Claim {
  readonly key: string;
  readonly tier: 'ready' | 'draining' | 'notReady';
  readonly target: string;
  readonly address: NaiveAddress;
  readonly version: string;
  readonly uid: string;
}

/** The sets of all service ports, by `namespace/service:port`; objects of one kind (S12). */
export function naiveSets(
  services: readonly Service[],
  objects: readonly RecordedObject[],
): Record<string, NaiveSet> {
  const sets: [string, NaiveSet][] = [];
  for (const service of services) {
    if (service.spec?.type === 'ExternalName') continue;
    const { namespace, name } = service.metadata;
    const raw = service.spec?.ports ?? [];
    const isPortless = raw.length === 0 && service.spec?.clusterIP === 'None';
    for (const port of isPortless ? [{ name: '', port: 0, protocol: 'TCP' }] : raw) {
      const protocol = port.protocol ?? 'TCP';
      const id = protocol === 'TCP' ? `${port.port}` : `${port.port}/${protocol}`;
      const asked: AskedPort = { name: port.name ?? '', port: port.port ?? 0, protocol };
      const claims = objects
        .filter(({ object }) => isCounted(object, service))
        .flatMap((recorded) => claimsOf(recorded, asked));
      sets.push([`${namespace}/${name}:${id}`, toSet(asked.name, claims)]);
    }
  }
  return Object.fromEntries(sets.sort(([a], [b]) => (a < b ? -1 : 1)));
}

interface AskedPort {
  readonly name: string;
  readonly port: number;
  readonly protocol: string;
}

/** S8, S35. */
function isCounted(object: WatchedObject, service: Service): boolean {
  const { namespace, name, labels, ownerReferences } = object.metadata;
  if (namespace !== service.metadata.namespace) return false;
  if (object.kind === 'Endpoints') return name === service.metadata.name;
  const owners = (ownerReferences ?? []).filter(({ kind }) => kind === 'Service');
  const joined = labels?.['kubernetes.io/service-name'] || owners[0]?.name;
  if (joined !== service.metadata.name) return false;
  const namesakes = owners.filter((owner) => owner.name === service.metadata.name);
  return namesakes.length === 0 || namesakes.some(({ uid }) => uid === service.metadata.uid);
}

/** One claim a key: within an object the better tier, then the smallest target (S11). */
function claimsOf(recorded: RecordedObject, asked: AskedPort): Claim[] {
  const { object } = recorded;
  if (object.kind === 'Endpoints') return endpointsClaims(object, recorded, asked);
  if (object.addressType === 'FQDN') return [];
  const claims = (object.endpoints ?? []).flatMap((endpoint) =>
    portsFor(asked, object.ports ?? []).map(({ port, appProtocol }): Claim => {
      const ip = endpoint.addresses?.[0] ?? '';
      const claim = { ip, port, appProtocol, tier: tierOf(endpoint), endpoint };
      return toClaim(claim, recorded, asked);
    }),
  );
  return [...groupByKey(claims).values()].map((rivals) => rivals.sort(withinObject)[0] as Claim);
}

function endpointsClaims(object: Endpoints, recorded: RecordedObject, asked: AskedPort): Claim[] {
  const demoted = new Set<string>();
  const claims: Claim[] = [];
  for (const subset of object.subsets ?? []) {
    const ports = subset.ports ?? [];
    const numbers =
      asked.port === 0
        ? [0]
        : ports.filter(({ protocol }) => (protocol ?? 'TCP') === asked.protocol).map(({ port }) => port);
    for (const { ip } of subset.notReadyAddresses ?? [])
      for (const number of numbers) demoted.add(toKey(ip, number ?? 0));
    for (const tier of ['ready', 'notReady'] as const) {
      for (const { ip, ...endpoint } of (tier === 'ready' ? subset.addresses : subset.notReadyAddresses) ??
        [])
        for (const { port, appProtocol } of portsFor(asked, ports))
          claims.push(toClaim({ ip, port, appProtocol, tier, endpoint }, recorded, asked));
    }
  }
  return [...groupByKey(claims).values()]
    .map((rivals) => rivals.sort(withinObject)[0] as Claim)
    .map((claim) => (demoted.has(claim.key) ? { ...claim, tier: 'notReady' } : claim));
}

/** S17, S19. */
function portsFor(asked: AskedPort, ports: readonly RawSlicePort[]) {
  if (asked.port === 0) return [{ port: 0, appProtocol: null }];
  return ports
    .filter(({ name, protocol }) => (name ?? '') === asked.name && (protocol ?? 'TCP') === asked.protocol)
    .flatMap(({ port, appProtocol }) => (port ? [{ port, appProtocol: appProtocol ?? null }] : []));
}

/** S25–S27. */
function tierOf({ conditions }: RawEndpoint): Claim['tier'] {
  if (conditions?.ready ?? true) return 'ready';
  return (conditions?.serving ?? true) && (conditions?.terminating ?? false) ? 'draining' : 'notReady';
}

function toClaim(
  claim: {
    readonly ip: string;
    readonly port: number;
    readonly appProtocol: string | null;
    readonly tier: Claim['tier'];
    readonly endpoint: RawEndpoint;
  },
  { object: { metadata }, version, enrich = {} }: RecordedObject,
  asked: AskedPort,
): Claim {
  const { ip, port, appProtocol, tier, endpoint } = claim;
  const ref = endpoint.targetRef;
  const target = ref?.name
    ? { kind: ref.kind, namespace: ref.namespace || metadata.namespace, name: ref.name }
    : null;
  const pod = target?.kind === 'Pod' ? enrich[`${target.namespace}/${target.name}`] : undefined;
  const forZones = endpoint.hints?.forZones?.map(({ name }) => name).sort() ?? [];
  const forNodes = endpoint.hints?.forNodes?.map(({ name }) => name).sort() ?? [];
  const hints = {
    ...(forZones.length > 0 && { forZones }),
    ...(forNodes.length > 0 && { forNodes }),
  };
  const address = {
    ip,
    port,
    family: ip.includes(':') ? 'IPv6' : 'IPv4',
    hostname: endpoint.hostname,
    node: endpoint.nodeName || pod?.node,
    zone: endpoint.zone,
    target,
    owner: pod?.owner,
    opaqueProtocol: pod?.opaqueProtocol || null,
    hints: Object.keys(hints).length > 0 ? hints : null,
    appProtocol,
    ...(target === null && mirrorOf(metadata, asked)),
  };
  return {
    key: toKey(ip, port),
    tier,
    target: target === null ? '' : `${target.kind}/${target.namespace}/${target.name}`,
    address: Object.fromEntries(Object.entries(address).filter(([, value]) => (value ?? '') !== '')),
    version,
    uid: metadata.uid,
  };
}

/** S32. */
function mirrorOf({ annotations, labels }: WatchedObject['metadata'], asked: AskedPort): object {
  const remote = annotations?.['mirror.linkerd.io/remote-svc-fq-name'];
  const cluster = labels?.['mirror.linkerd.io/cluster-name'];
  const [service, namespace] = remote?.split('.') ?? [];
  return {
    identity: annotations?.['mirror.linkerd.io/remote-gateway-identity'],
    authority: remote && `${remote}:${asked.port}`,
    labels: cluster && {
      target_cluster: cluster,
      ...(service && { target_service: service }),
      ...(namespace && { target_service_namespace: namespace }),
    },
  };
}

const RANKS = { ready: 0, draining: 1, notReady: 2 };

function withinObject(a: Claim, b: Claim): number {
  return RANKS[a.tier] - RANKS[b.tier] || (a.target < b.target ? -1 : a.target > b.target ? 1 : 0);
}

/** Ready anywhere is ready; the newest of the ready, else the newest, tells the rest (S11). */
function toSet(name: string, claims: readonly Claim[]): NaiveSet {
  const winners = [...groupByKey(claims).values()].map((rivals) => {
    const ready = rivals.filter(({ tier }) => tier === 'ready');
    const eligible = ready.length > 0 ? ready : rivals;
    return eligible.reduce((best, claim) => (isNewer(claim, best) ? claim : best));
  });
  const of = (tier: Claim['tier']) =>
    winners.filter((claim) => claim.tier === tier).sort((a, b) => (a.key < b.key ? -1 : 1));
  return {
    name,
    ready: Object.fromEntries(of('ready').map(({ key, address }) => [key, address])),
    draining: of('draining').map(({ key }) => key),
    notReady: of('notReady').length,
  };
}

function isNewer(a: Claim, b: Claim): boolean {
  const order = compareVersions(a.version, b.version);
  return order === 0 ? a.uid > b.uid : order > 0;
}

function groupByKey(claims: readonly Claim[]): Map<string, Claim[]> {
  return Map.groupBy(claims, ({ key }) => key);
}

function toKey(ip: string, port: number): string {
  return ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`;
}
