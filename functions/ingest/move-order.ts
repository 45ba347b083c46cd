import type { ServiceChanges } from './intake.ts';

/**
 * Orders the services of a batch so that a moving slice has left its former services before it joins the new one (S10):
 * waves that follow each other, the services of one wave independent. Where moves run in a circle, one service's leaving
 * is done first, on its own.
 */
export function orderMoves(services: readonly ServiceChanges[]): ServiceChanges[][] {
  const waves: ServiceChanges[][] = [];
  let rest = [...services];
  while (rest.length > 0) {
    const leaving = leaversByIndex(rest);
    const isFree = ({ changes }: ServiceChanges, own: ServiceChanges) =>
      changes.every(
        (change) =>
          change.kind === 'leave' || (leaving.get(change.index) ?? []).every((other) => other === own),
      );
    const wave = rest.filter((service) => isFree(service, service));
    if (wave.length > 0) {
      waves.push(wave);
      rest = rest.filter((service) => !wave.includes(service));
      continue;
    }
    const [first, ...others] = splitLeaves(rest);
    if (first === undefined) throw new Error('a circle of moves without a leave');
    waves.push([first]);
    rest = others;
  }
  return waves;
}

/** For each event, the services that its object leaves. */
function leaversByIndex(services: readonly ServiceChanges[]): Map<number, ServiceChanges[]> {
  const leavers = new Map<number, ServiceChanges[]>();
  for (const service of services) {
    for (const { kind, index } of service.changes) {
      if (kind === 'leave') leavers.set(index, [...(leavers.get(index) ?? []), service]);
    }
  }
  return leavers;
}

/** The leaves of the first service that has some, then everything else. */
function splitLeaves(services: readonly ServiceChanges[]): ServiceChanges[] {
  const chosen = services.find(({ changes }) => changes.some(({ kind }) => kind === 'leave'));
  if (chosen === undefined) return [];
  const { place, changes } = chosen;
  const leaves = changes.filter(({ kind }) => kind === 'leave');
  const others = changes.filter(({ kind }) => kind !== 'leave');
  const remaining = services.filter((service) => service !== chosen);
  return [
    { place, changes: leaves },
    ...remaining,
    ...(others.length > 0 ? [{ place, changes: others }] : []),
  ];
}
