/**
 * The Kubernetes resources of the demo cluster and the shapes of their objects, as far as its controllers and its
 * life write them. Sources: core/v1, apps/v1, batch/v1, discovery/v1, coordination/v1 `types.go`.
 */

export type Labels = Readonly<Record<string, string>>;

export interface OwnerReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
  readonly controller?: boolean;
  readonly blockOwnerDeletion?: boolean;
}

/** What a client may say about an object; the server adds the rest. */
export interface MetaInput {
  /** Absent with `generateName`: the server appends five random characters to that. */
  readonly name?: string;
  readonly generateName?: string;
  readonly namespace?: string;
  readonly labels?: Labels;
  readonly annotations?: Labels;
  readonly ownerReferences?: readonly OwnerReference[];
  readonly deletionTimestamp?: string;
  readonly deletionGracePeriodSeconds?: number;
  /** On an update: the version it is based on, else whatever is stored is replaced. */
  readonly resourceVersion?: string;
}

export interface ObjectMeta extends MetaInput {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  /** Counts changes of the content; the server keeps it for EndpointSlices, as Kubernetes does. */
  readonly generation?: number;
  /** RFC 3339 in whole seconds. */
  readonly creationTimestamp: string;
  readonly managedFields?: readonly unknown[];
}

interface ObjectOf<K extends string> {
  readonly kind: K;
  readonly apiVersion: string;
  readonly metadata: ObjectMeta;
}

export type IpFamily = 'IPv4' | 'IPv6';
type Protocol = 'TCP' | 'UDP' | 'SCTP';

export interface ServicePort {
  readonly name?: string;
  readonly protocol?: Protocol;
  readonly port: number;
  /** A number, or the name of a container port. */
  readonly targetPort?: number | string;
  readonly appProtocol?: string;
}

export interface Service extends ObjectOf<'Service'> {
  /** Absent fields are filled in by the server: see `withDefaults`. */
  readonly spec: {
    readonly type?: 'ClusterIP' | 'NodePort' | 'LoadBalancer' | 'ExternalName';
    /** `None` makes the Service headless. */
    readonly clusterIP?: string;
    readonly clusterIPs?: readonly string[];
    /** Absent: hand-written Endpoints or slices, which the mirroring controller and users keep. */
    readonly selector?: Labels;
    readonly ports?: readonly ServicePort[];
    readonly ipFamilies?: readonly IpFamily[];
    readonly ipFamilyPolicy?: 'SingleStack' | 'PreferDualStack' | 'RequireDualStack';
    readonly internalTrafficPolicy?: 'Cluster' | 'Local';
    readonly publishNotReadyAddresses?: boolean;
    readonly externalName?: string;
    readonly sessionAffinity?: string;
  };
  readonly status?: unknown;
}

interface TargetRef {
  readonly kind: string;
  readonly namespace?: string;
  readonly name: string;
  readonly uid?: string;
}

/** A port of a slice. The endpointslice controller always writes `name`, empty for an unnamed port. */
export interface SlicePort {
  readonly name?: string;
  readonly protocol?: Protocol;
  readonly port?: number;
  readonly appProtocol?: string;
}

export interface Endpoint {
  readonly addresses: readonly string[];
  readonly conditions?: {
    readonly ready?: boolean;
    readonly serving?: boolean;
    readonly terminating?: boolean;
  };
  readonly hostname?: string;
  readonly targetRef?: TargetRef;
  readonly nodeName?: string;
  readonly zone?: string;
}

export interface EndpointSlice extends ObjectOf<'EndpointSlice'> {
  readonly addressType: IpFamily | 'FQDN';
  /** Null where Go has an empty list. */
  readonly endpoints: readonly Endpoint[] | null;
  readonly ports: readonly SlicePort[] | null;
}

export interface EndpointAddress {
  readonly ip: string;
  readonly hostname?: string;
  readonly nodeName?: string;
  readonly targetRef?: TargetRef;
}

/** A port of an Endpoints subset: other than in a slice, an unnamed port has no `name`. */
export interface SubsetPort {
  readonly name?: string;
  readonly port: number;
  readonly protocol?: Protocol;
  readonly appProtocol?: string;
}

export interface EndpointSubset {
  readonly addresses?: readonly EndpointAddress[];
  readonly notReadyAddresses?: readonly EndpointAddress[];
  readonly ports?: readonly SubsetPort[];
}

export interface Endpoints extends ObjectOf<'Endpoints'> {
  /** Absent when there are none. */
  readonly subsets?: readonly EndpointSubset[];
}

export interface ContainerPort {
  readonly name?: string;
  readonly containerPort: number;
  readonly hostPort?: number;
  readonly protocol?: Protocol;
}

interface PodCondition {
  readonly type: string;
  readonly status: 'True' | 'False';
  readonly lastTransitionTime: string;
}

export interface Pod extends ObjectOf<'Pod'> {
  readonly spec: {
    readonly nodeName?: string;
    readonly hostname?: string;
    readonly subdomain?: string;
    readonly serviceAccountName?: string;
    readonly containers: readonly {
      readonly name: string;
      readonly image: string;
      readonly ports?: readonly ContainerPort[];
    }[];
    readonly initContainers?: Pod['spec']['containers'];
  };
  readonly status?: {
    readonly phase?: 'Pending' | 'Running' | 'Succeeded' | 'Failed';
    readonly podIP?: string;
    readonly podIPs?: readonly { readonly ip: string }[];
    readonly conditions?: readonly PodCondition[];
  };
}

interface ReplicaSet extends ObjectOf<'ReplicaSet'> {
  readonly spec?: { readonly selector: { readonly matchLabels: Labels } };
  readonly status?: unknown;
}

interface Job extends ObjectOf<'Job'> {
  readonly spec?: { readonly parallelism?: number };
  readonly status?: unknown;
}

export interface Node extends ObjectOf<'Node'> {
  readonly spec?: { readonly podCIDR?: string };
  readonly status?: unknown;
}

interface Namespace extends ObjectOf<'Namespace'> {
  readonly spec?: unknown;
  readonly status?: unknown;
}

interface Lease extends ObjectOf<'Lease'> {
  readonly spec?: {
    readonly holderIdentity?: string | null;
    readonly leaseDurationSeconds?: number;
    readonly acquireTime?: string;
    readonly renewTime?: string;
    readonly leaseTransitions?: number;
  };
}

/** Linkerd's policy.linkerd.io Server. */
interface Server extends ObjectOf<'Server'> {
  readonly spec: {
    readonly podSelector?: {
      readonly matchLabels?: Labels;
      readonly matchExpressions?: readonly {
        readonly key: string;
        readonly operator: string;
        readonly values?: readonly string[];
      }[];
    };
    readonly port: number | string;
    readonly proxyProtocol?: string;
  };
}

interface Kinds {
  Service: Service;
  Endpoints: Endpoints;
  EndpointSlice: EndpointSlice;
  Pod: Pod;
  ReplicaSet: ReplicaSet;
  Job: Job;
  Node: Node;
  Namespace: Namespace;
  Lease: Lease;
  Server: Server;
}

export type Kind = keyof Kinds;
export type KubeObject<K extends Kind = Kind> = Kinds[K];
/** An object as a client sends it. */
export type ObjectInput<K extends Kind = Kind> = {
  [P in K]: Omit<Kinds[P], 'apiVersion' | 'metadata'> & { readonly metadata: MetaInput };
}[K];

export interface Resource {
  readonly kind: Kind;
  /** Empty for the core group. */
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly isNamespaced: boolean;
  /** What Go writes for the zero value of the kind: a BOOKMARK is this with a version (S46). */
  readonly zeroValue: Readonly<Record<string, unknown>>;
}

const NODE_ZERO_STATUS = {
  daemonEndpoints: { kubeletEndpoint: { Port: 0 } },
  nodeInfo: {
    machineID: '',
    systemUUID: '',
    bootID: '',
    kernelVersion: '',
    osImage: '',
    containerRuntimeVersion: '',
    kubeletVersion: '',
    kubeProxyVersion: '',
    operatingSystem: '',
    architecture: '',
  },
};

const RESOURCE_BY_KIND: { readonly [K in Kind]: Resource } = {
  Service: core('Service', 'services', true, { spec: {}, status: { loadBalancer: {} } }),
  Endpoints: core('Endpoints', 'endpoints', true, {}),
  Pod: core('Pod', 'pods', true, { spec: { containers: null }, status: {} }),
  Node: core('Node', 'nodes', false, { spec: {}, status: NODE_ZERO_STATUS }),
  Namespace: core('Namespace', 'namespaces', false, { spec: {}, status: {} }),
  ReplicaSet: {
    kind: 'ReplicaSet',
    group: 'apps',
    version: 'v1',
    plural: 'replicasets',
    isNamespaced: true,
    zeroValue: {
      spec: { selector: null, template: { metadata: {}, spec: { containers: null } } },
      status: { replicas: 0 },
    },
  },
  Job: {
    kind: 'Job',
    group: 'batch',
    version: 'v1',
    plural: 'jobs',
    isNamespaced: true,
    zeroValue: { spec: { template: { metadata: {}, spec: { containers: null } } }, status: {} },
  },
  EndpointSlice: {
    kind: 'EndpointSlice',
    group: 'discovery.k8s.io',
    version: 'v1',
    plural: 'endpointslices',
    isNamespaced: true,
    zeroValue: { addressType: '', endpoints: null, ports: null },
  },
  Lease: {
    kind: 'Lease',
    group: 'coordination.k8s.io',
    version: 'v1',
    plural: 'leases',
    isNamespaced: true,
    zeroValue: { spec: {} },
  },
  Server: {
    kind: 'Server',
    group: 'policy.linkerd.io',
    version: 'v1beta3',
    plural: 'servers',
    isNamespaced: true,
    zeroValue: {},
  },
};

export const RESOURCES: readonly Resource[] = Object.values(RESOURCE_BY_KIND);

export function resourceOf(kind: Kind): Resource {
  return RESOURCE_BY_KIND[kind];
}

/** `v1` for the core group, else `group/version`. */
export function apiVersionOf(resource: Resource): string {
  return resource.group === '' ? resource.version : `${resource.group}/${resource.version}`;
}

/** `services`, `leases.coordination.k8s.io`: how error messages name a resource. */
export function qualifiedName(resource: Resource): string {
  return resource.group === '' ? resource.plural : `${resource.plural}.${resource.group}`;
}

function core(kind: Kind, plural: string, isNamespaced: boolean, zeroValue: Resource['zeroValue']): Resource {
  return { kind, group: '', version: 'v1', plural, isNamespaced, zeroValue };
}
