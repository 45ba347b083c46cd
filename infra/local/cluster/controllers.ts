import timers from 'node:timers/promises';
import { planEndpoints } from './endpoints-controller.ts';
import { isMirrored, MIRRORING_CONTROLLER, planMirror } from './mirroring-controller.ts';
import type { Change, Objects } from './object-store.ts';
import type { EndpointSlice, KubeObject, Pod, Service } from './resources.ts';
import { isSelected } from './selector.ts';
import {
  MANAGED_BY,
  planSlices,
  SERVICE_NAME,
  SLICE_CONTROLLER,
  type SliceWrite,
} from './slice-controller.ts';
import { ApiError } from './status.ts';
import { createTriggerTimes } from './trigger-time.ts';

export interface ControllersOptions {
  readonly objects: Objects;
  /** Endpoints in a slice of the endpointslice controller, 1 to 1,000. Default 100, as in kube-controller-manager. */
  readonly maxEndpointsPerSlice?: number;
  /** Pause before each write: real ones are 2 to 5 ms apart. Default 0: everything in one turn of the event loop. */
  readonly writeGapMs?: number;
  /** From 0 to below 1; decides in which order endpoints are dealt out to slices. Default `Math.random`. */
  readonly random?: () => number;
}

/** The controllers of kube-controller-manager that make endpoints, and the garbage collector for what they own. */
export interface Controllers extends Disposable {
  /** Resolves when everything written so far has been followed. */
  idle(): Promise<void>;
}

type ControllerName = 'slices' | 'endpoints' | 'mirror' | 'garbage';

/** What one controller is to look at again; the name is the uid of a vanished owner for `garbage`. */
interface Task {
  readonly controller: ControllerName;
  readonly namespace: string;
  readonly name: string;
}

/**
 * Starts them on what is there and on every change. They are level-triggered and take one Service at a time, in the
 * order in which they heard of it.
 */
export function startControllers(options: ControllersOptions): Controllers {
  const { objects, maxEndpointsPerSlice = 100, writeGapMs = 0, random = Math.random } = options;
  const sliceTimes = createTriggerTimes();
  const endpointsTimes = createTriggerTimes();
  const queue = new Map<string, Task>();
  const stopping = new AbortController();
  let running: Promise<void> | null = null;

  const enqueue = (namespace: string, name: string, ...controllers: readonly ControllerName[]) => {
    for (const controller of controllers) {
      queue.set(`${controller} ${namespace}/${name}`, { controller, namespace, name });
    }
    if (queue.size > 0) running ??= drain();
  };

  const drain = async () => {
    // The rest of the turn belongs to whoever is writing: controllers follow, they do not interrupt.
    await Promise.resolve();
    for (const [key, task] of queue) {
      if (stopping.signal.aborted) break;
      queue.delete(key);
      try {
        await sync(task);
      } catch (error) {
        if (stopping.signal.aborted) break;
        // Somebody else was faster: look again.
        if (!(error instanceof ApiError)) throw error;
        queue.set(key, task);
      }
    }
    running = null;
  };

  const write = async (writes: readonly SliceWrite[]) => {
    for (const planned of writes) {
      await pause();
      if (planned.kind === 'delete') objects.delete(refOf(planned.slice));
      else objects[planned.kind](planned.slice);
    }
  };

  const pause = async () => {
    if (writeGapMs > 0) await timers.setTimeout(writeGapMs, undefined, { signal: stopping.signal });
  };

  const sync = async ({ controller, namespace, name }: Task) => {
    switch (controller) {
      case 'slices':
        return syncSlices(namespace, name);
      case 'endpoints':
        return syncEndpoints(namespace, name);
      case 'mirror':
        return syncMirror(namespace, name);
      case 'garbage':
        return write(
          objects
            .list('EndpointSlice', namespace)
            .filter(({ metadata }) => metadata.ownerReferences?.some(({ uid }) => uid === name))
            .map((slice) => ({ kind: 'delete', slice })),
        );
      default:
        return controller satisfies never;
    }
  };

  const syncSlices = async (namespace: string, name: string) => {
    const service = objects.get({ kind: 'Service', namespace, name });
    if (service === undefined) return sliceTimes.forget(namespace, name);
    // The slices of a Service that loses its selector, or becomes an ExternalName, stay as they are.
    if (!hasEndpoints(service)) return;
    const pods = podsOf(service);
    await write(
      planSlices({
        service,
        pods,
        nodeOf: (node) => objects.get({ kind: 'Node', name: node }),
        slices: slicesOf(namespace, name, SLICE_CONTROLLER),
        maxEndpoints: maxEndpointsPerSlice,
        triggerTime: sliceTimes.next(service, pods),
        random,
      }),
    );
  };

  const syncEndpoints = async (namespace: string, name: string) => {
    const service = objects.get({ kind: 'Service', namespace, name });
    const current = objects.get({ kind: 'Endpoints', namespace, name });
    if (service === undefined) {
      endpointsTimes.forget(namespace, name);
      if (current === undefined) return;
      await pause();
      objects.delete(refOf(current));
    } else if (hasEndpoints(service)) {
      const pods = podsOf(service);
      const planned = planEndpoints(service, pods, current, endpointsTimes.next(service, pods));
      if (planned === null) return;
      await pause();
      if (current === undefined) objects.create(planned);
      else objects.update(planned);
    }
  };

  const syncMirror = (namespace: string, name: string) => {
    const service = objects.get({ kind: 'Service', namespace, name });
    const endpoints = objects.get({ kind: 'Endpoints', namespace, name });
    const slices = slicesOf(namespace, name, MIRRORING_CONTROLLER);
    const isWanted = service !== undefined && service.spec.selector === undefined;
    if (!isWanted || endpoints === undefined || !isMirrored(endpoints)) {
      return write(slices.map((slice) => ({ kind: 'delete', slice })));
    }
    return write(planMirror(endpoints, slices, random));
  };

  const podsOf = ({ metadata, spec }: Service): readonly Pod[] =>
    objects
      .list('Pod', metadata.namespace)
      .filter((pod) => isSelected(spec.selector ?? {}, pod.metadata.labels));

  const slicesOf = (namespace: string, service: string, manager: string): readonly EndpointSlice[] =>
    objects
      .list('EndpointSlice', namespace)
      .filter(
        ({ metadata }) =>
          metadata.labels?.[SERVICE_NAME] === service && metadata.labels[MANAGED_BY] === manager,
      );

  const follow = ({ object, previous }: Change) => {
    const changed = object ?? previous;
    if (changed === null) return;
    const { namespace = '', name, uid } = changed.metadata;
    const isDeleted = object === null;
    switch (changed.kind) {
      case 'Service':
        enqueue(namespace, name, 'slices', 'endpoints', 'mirror');
        if (isDeleted) enqueue(namespace, uid, 'garbage');
        return;
      case 'Endpoints':
        enqueue(namespace, name, 'mirror');
        if (isDeleted) enqueue(namespace, name, 'endpoints');
        if (isDeleted) enqueue(namespace, uid, 'garbage');
        return;
      case 'EndpointSlice':
        // One of theirs that somebody deleted comes back.
        if (isDeleted) enqueue(namespace, changed.metadata.labels?.[SERVICE_NAME] ?? '', 'slices', 'mirror');
        return;
      case 'Pod':
        for (const service of objects.list('Service', namespace)) {
          const { selector } = service.spec;
          const isHit = [object, previous].some(
            (pod) => selector !== undefined && pod !== null && isSelected(selector, pod.metadata.labels),
          );
          if (isHit) enqueue(namespace, service.metadata.name, 'slices', 'endpoints');
        }
        return;
      case 'Node':
        followAll('slices');
        return;
      default:
        // Nothing else makes endpoints.
        return;
    }
  };

  const followAll = (...controllers: readonly ControllerName[]) => {
    for (const { metadata } of objects.list('Service')) {
      enqueue(metadata.namespace ?? '', metadata.name, ...controllers);
    }
  };

  const unsubscribe = objects.subscribe((change) => {
    if (change === null) followAll('slices', 'endpoints', 'mirror');
    else follow(change);
  });
  followAll('slices', 'endpoints', 'mirror');

  return {
    idle: async () => {
      while (running !== null) await running;
    },
    [Symbol.dispose]: () => {
      unsubscribe();
      stopping.abort();
    },
  };
}

/** True when the endpoint controllers keep endpoints for it: they leave ExternalNames and selectorless ones alone. */
function hasEndpoints({ spec }: Service): boolean {
  return spec.selector !== undefined && spec.type !== 'ExternalName';
}

function refOf<K extends 'Endpoints' | 'EndpointSlice'>({ kind, metadata }: KubeObject<K>) {
  const { namespace = '', name } = metadata;
  return { kind, namespace, name };
}
