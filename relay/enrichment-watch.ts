import type { Enrichment } from './enrichment.ts';
import { type FactKind, type Facts, readParent, readPod, readServer } from './enrichment-facts.ts';
import type { Reflector } from './reflector.ts';
import type { Resource } from './resources.ts';
import type { Pulse } from './timers.ts';

/** What can be asked for: pods with what owns them, and Linkerd's Servers, which say something of pods alone. */
export const ENRICHMENTS = ['pods', 'servers'] as const;
export type EnrichmentName = (typeof ENRICHMENTS)[number];

type FactResource = Resource<{ readonly held: Facts }, FactKind>;
export type FactReflector = Reflector<{ readonly held: Facts }, FactKind>;

/** What is watched for the sake of pods. */
export function factResources(names: readonly EnrichmentName[]): readonly FactResource[] {
  const keepsLabels = names.includes('servers');
  const pods: FactResource[] = [
    { kind: 'Pod', root: '/api/v1', plural: 'pods', read: (raw) => seen(readPod(raw, keepsLabels)) },
    parents('ReplicaSet', '/apis/apps/v1', 'replicasets'),
    parents('Job', '/apis/batch/v1', 'jobs'),
  ];
  const servers: FactResource[] = [
    {
      kind: 'Server',
      root: '/apis/policy.linkerd.io/v1beta3',
      plural: 'servers',
      isOptional: true,
      read: (raw) => seen(readServer(raw)),
    },
  ];
  return [...(names.includes('pods') ? pods : []), ...(names.includes('servers') ? servers : [])];
}

function parents(kind: 'ReplicaSet' | 'Job', root: string, plural: string): FactResource {
  return { kind, root, plural, isMetadataOnly: true, read: (raw) => seen(readParent(kind, raw)) };
}

function seen(held: Facts | null): { readonly held: Facts } | null {
  return held === null ? null : { held };
}

/** Brings what watches see to the enrichment. */
export class EnrichmentWatch {
  readonly reflectors: readonly FactReflector[];
  readonly #enrichment: Enrichment;
  readonly #pulse: Pulse;
  readonly #answered = new Set<FactReflector>();

  constructor(reflectors: readonly FactReflector[], enrichment: Enrichment, pulse: Pulse) {
    this.reflectors = reflectors;
    this.#enrichment = enrichment;
    this.#pulse = pulse;
  }

  /** Has each watch begun with its list, or been denied? */
  get isAnswered(): boolean {
    return this.#answered.size === this.reflectors.length;
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all(this.reflectors.map((reflector) => this.#follow(reflector, signal)));
  }

  async #follow(reflector: FactReflector, signal: AbortSignal): Promise<void> {
    for await (const observation of reflector.observations(signal)) {
      switch (observation.kind) {
        case 'listed':
          this.#enrichment.replace(reflector.resource.kind, reflector.namespace, observation.objects);
          this.#answered.add(reflector);
          break;
        case 'event':
          this.#enrichment.observe(observation.type, observation.held);
          break;
        case 'denied':
          this.#answered.add(reflector);
          break;
        default:
          return observation satisfies never;
      }
      this.#pulse.notify();
    }
  }
}
