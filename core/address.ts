/** IP family of an address; a dual-stack pod has one address in each (S13). */
export type Family = 'IPv4' | 'IPv6';

/** Layer 4 protocol of a service port. */
export type Protocol = 'TCP' | 'UDP' | 'SCTP';

/** A reference to the object behind an address; `namespace` defaults to the slice's (S30). */
export interface Target {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
}

/** Topology hints of an endpoint, each list sorted and at least one of them not empty. Source: EndpointSlice endpoints[].hints. */
export interface Hints {
  readonly forZones: readonly string[];
  readonly forNodes: readonly string[];
}

/** One published address of a service port: its key (`ip` and `port`) and everything a consumer may see of it (S30). */
export interface Address {
  /** Canonical IP: IPv6 lower-case and compressed (S14). */
  readonly ip: string;
  /** Target port number; 0 for a headless Service without ports (S19). */
  readonly port: number;
  readonly family: Family;
  readonly hostname: string | null;
  readonly node: string | null;
  readonly zone: string | null;
  readonly target: Target | null;
  /** Controller of the pod, where the relay knows it: ReplicaSet and Job are replaced by their parent. */
  readonly owner: { readonly kind: string; readonly name: string } | null;
  readonly hints: Hints | null;
  /** Source: the slice port's appProtocol (S24). */
  readonly appProtocol: string | null;
  /** TLS identity of a mirrored service's gateway (S32). */
  readonly identity: string | null;
  /** `NAME:SERVICE-PORT` of a mirrored service (S32). */
  readonly authority: string | null;
  /** Target cluster, service and namespace of a mirrored service (S32); empty otherwise. */
  readonly labels: Readonly<Record<string, string>>;
  readonly opaqueProtocol: boolean;
}

/** `ip:port`, or `[ipv6]:port`: what identifies an address in a set (S1). */
export type AddressKey = string & { readonly __brand: 'AddressKey' };

/** The key of an address, from its canonical IP and target port (S1). */
export function addressKey(address: { readonly ip: string; readonly port: number }): AddressKey {
  const host = address.ip.includes(':') ? `[${address.ip}]` : address.ip;
  return `${host}:${address.port}` as AddressKey;
}

/** Orders by key in code units, the order of every published list (S6). */
export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
