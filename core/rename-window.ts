import { carriesPort, nameInUse } from './address-set.ts';
import type { AppliedChange } from './changes.ts';
import type { EndpointObject } from './endpoint-object.ts';
import type { PortId, ServicePort } from './service-port.ts';
import {
  type Cause,
  countedObjects,
  definedPorts,
  type RenameWindow,
  type ServiceState,
} from './service-state.ts';
import type { EpochMs } from './time.ts';

/** How long slices may take to follow a renamed port, in milliseconds (S23). */
export const RENAME_WINDOW_MS = 10_000;

/** Opens, keeps and closes rename windows (S23). Returns the former map itself when nothing changed. */
export function nextWindows(
  before: ServiceState,
  after: ServiceState,
  applied: readonly AppliedChange[],
  now: EpochMs,
): ReadonlyMap<PortId, RenameWindow> {
  const windows = new Map<PortId, RenameWindow>();
  const isSameService = before.service !== null && before.service.uid === after.service?.uid;
  const formerPorts = definedPorts(before);
  const counted = isSameService ? [...countedObjects(after).objects] : [];
  for (const [id, port] of isSameService ? definedPorts(after) : []) {
    const renamed = renameOf(formerPorts.get(id), port, applied);
    const window =
      renamed === null
        ? before.windows.get(id)
        : openWindow(before.windows.get(id), port, renamed, counted, now);
    if (window !== undefined && !isOver(window, port, counted, now)) windows.set(id, window);
  }
  const isSame =
    windows.size === before.windows.size &&
    [...windows].every(([id, window]) => before.windows.get(id) === window);
  return isSame ? before.windows : windows;
}

interface Rename {
  readonly from: ServicePort;
  readonly cause: Cause;
}

function renameOf(
  former: ServicePort | undefined,
  port: ServicePort,
  applied: readonly AppliedChange[],
): Rename | null {
  if (former === undefined || former.name === port.name) return null;
  const change = applied.findLast(({ kind }) => kind === 'service')?.change;
  return change === undefined ? null : { from: former, cause: change.cause };
}

/** No window where a slice carries both names: the port was re-pointed, not renamed. */
function openWindow(
  open: RenameWindow | undefined,
  port: ServicePort,
  { from, cause }: Rename,
  counted: readonly EndpointObject[],
  now: EpochMs,
): RenameWindow | undefined {
  if (counted.some((object) => carriesPort(object, from) && carriesPort(object, port))) return undefined;
  const formerNames = [...(open?.formerNames ?? []).filter((name) => name !== from.name), from.name];
  return {
    formerNames: formerNames.filter((name) => name !== port.name),
    until: (now + RENAME_WINDOW_MS) as EpochMs,
    isRepeated: open !== undefined,
    cause,
  };
}

function isOver(
  window: RenameWindow,
  port: ServicePort,
  counted: readonly EndpointObject[],
  now: EpochMs,
): boolean {
  if (now >= window.until) return true;
  if (window.isRepeated) return false;
  const lookup = { servicePort: port, formerNames: window.formerNames };
  return counted.every((object) => [null, port.name].includes(nameInUse(object, lookup)));
}

/** Until when a rename window stands open; null when none does. The sweep returns then (S23). */
export function windowsUntil(state: ServiceState): EpochMs | null {
  const instants = [...state.windows.values()].map((window) => window.until);
  return instants.length === 0 ? null : (Math.min(...instants) as EpochMs);
}
