/**
 * The parts of Kubernetes objects that this project reads, as the API server sends them: Go writes `null` for empty
 * lists and absent pointers, so every optional field may be either. Sources: core/v1 and discovery/v1 `types.go`.
 */

type Optional<T> = T | null | undefined;

export interface ObjectMeta {
  readonly name: string;
  readonly namespace: string;
  readonly uid: string;
  /** Decimal integer of any length; compare with `compareVersions`, never as a number (S44). */
  readonly resourceVersion: string;
  readonly labels?: Optional<Readonly<Record<string, string>>>;
  readonly annotations?: Optional<Readonly<Record<string, string>>>;
  readonly ownerReferences?: Optional<readonly OwnerReference[]>;
}

export interface OwnerReference {
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
}

/** core/v1 Service. */
export interface Service {
  readonly kind: 'Service';
  readonly metadata: ObjectMeta;
  readonly spec?: Optional<{
    readonly type?: Optional<string>;
    /** `None` marks a headless Service. */
    readonly clusterIP?: Optional<string>;
    readonly selector?: Optional<Readonly<Record<string, string>>>;
    readonly ports?: Optional<readonly RawServicePort[]>;
    readonly internalTrafficPolicy?: Optional<string>;
    readonly externalName?: Optional<string>;
  }>;
}

export interface RawServicePort {
  readonly name?: Optional<string>;
  readonly port?: Optional<number>;
  readonly protocol?: Optional<string>;
}

/** discovery.k8s.io/v1 EndpointSlice. */
export interface EndpointSlice {
  readonly kind: 'EndpointSlice';
  readonly metadata: ObjectMeta;
  /** IPv4, IPv6 or FQDN; old mirrors leave it out. */
  readonly addressType?: Optional<string>;
  readonly ports?: Optional<readonly RawSlicePort[]>;
  readonly endpoints?: Optional<readonly RawEndpoint[]>;
}

/** A port of a slice or of an Endpoints subset. */
export interface RawSlicePort {
  readonly name?: Optional<string>;
  readonly protocol?: Optional<string>;
  readonly port?: Optional<number>;
  readonly appProtocol?: Optional<string>;
}

export interface RawEndpoint {
  readonly addresses?: Optional<readonly string[]>;
  readonly conditions?: Optional<{
    readonly ready?: Optional<boolean>;
    readonly serving?: Optional<boolean>;
    readonly terminating?: Optional<boolean>;
  }>;
  readonly hostname?: Optional<string>;
  readonly nodeName?: Optional<string>;
  readonly zone?: Optional<string>;
  readonly hints?: Optional<{
    readonly forZones?: Optional<readonly { readonly name: string }[]>;
    readonly forNodes?: Optional<readonly { readonly name: string }[]>;
  }>;
  readonly targetRef?: Optional<RawTargetRef>;
}

export interface RawTargetRef {
  readonly kind?: Optional<string>;
  readonly namespace?: Optional<string>;
  readonly name?: Optional<string>;
}

/** core/v1 Endpoints. */
export interface Endpoints {
  readonly kind: 'Endpoints';
  readonly metadata: ObjectMeta;
  readonly subsets?: Optional<readonly RawSubset[]>;
}

export interface RawSubset {
  readonly addresses?: Optional<readonly RawEndpointAddress[]>;
  readonly notReadyAddresses?: Optional<readonly RawEndpointAddress[]>;
  readonly ports?: Optional<readonly RawSlicePort[]>;
}

export interface RawEndpointAddress {
  readonly ip: string;
  readonly hostname?: Optional<string>;
  readonly nodeName?: Optional<string>;
  readonly targetRef?: Optional<RawTargetRef>;
}

/** The objects that make address sets. */
export type WatchedObject = Service | EndpointSlice | Endpoints;

/** What the relay knows of a pod and an endpoint object does not say; it only enriches an address (S7). */
export interface PodEnrichment {
  readonly owner?: Optional<{ readonly kind: string; readonly name: string }>;
  readonly node?: Optional<string>;
  readonly opaqueProtocol?: Optional<boolean>;
}
