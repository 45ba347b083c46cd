import type { Pod, Service } from './resources.ts';

/** Annotation with the instant of the change that a slice or an Endpoints object reflects, RFC 3339 (S47). */
const TRIGGER_TIME = 'endpoints.kubernetes.io/last-change-trigger-time';

/**
 * Finds out which change a sync reflects. Source: client of both endpoint controllers, `TriggerTimeTracker`: the
 * creation of a Service it sees first, else the earliest readiness change since the last sync, else nothing.
 */
export interface TriggerTimes {
  /** Null when nothing that has a time has changed: a pod that began to terminate, or is gone. */
  next(service: Service, pods: readonly Pod[]): string | null;
  forget(namespace: string, name: string): void;
}

export function createTriggerTimes(): TriggerTimes {
  const seen = new Map<string, { readonly service: string; readonly pods: ReadonlyMap<string, string> }>();
  return {
    next: (service, pods) => {
      const { namespace, name, creationTimestamp } = service.metadata;
      const key = `${namespace}/${name}`;
      const before = seen.get(key);
      const times = new Map(pods.flatMap((pod) => readyTimeOf(pod)));
      seen.set(key, { service: creationTimestamp, pods: times });
      if (before === undefined) return creationTimestamp;
      const changed = [...times]
        .filter(([pod, time]) => time > (before.pods.get(pod) ?? ''))
        .map(([, time]) => time);
      if (creationTimestamp > before.service) changed.push(creationTimestamp);
      return changed.sort()[0] ?? null;
    },
    forget: (namespace, name) => {
      seen.delete(`${namespace}/${name}`);
    },
  };
}

/** The annotations with the trigger time set, or cleared when there is none; all others are kept. */
export function withTriggerTime(
  annotations: Readonly<Record<string, string>> | undefined,
  triggerTime: string | null,
): Readonly<Record<string, string>> {
  const { [TRIGGER_TIME]: _, ...kept } = annotations ?? {};
  return triggerTime === null ? kept : { ...kept, [TRIGGER_TIME]: triggerTime };
}

function readyTimeOf({ metadata, status }: Pod): [string, string][] {
  const ready = status?.conditions?.find(({ type }) => type === 'Ready');
  return ready === undefined ? [] : [[metadata.name, ready.lastTransitionTime]];
}
