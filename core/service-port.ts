import type { Protocol } from './address.ts';

/** One port of a Service: the unit that has an address set (S1). */
export interface ServicePort {
  /** 1–65535, or 0 for a headless Service without ports (S19). */
  readonly port: number;
  readonly protocol: Protocol;
  /** Joins the Service with its slices (S17); empty when unnamed. */
  readonly name: string;
}

/** `80`, or `53/UDP`: number and protocol, which together identify a service port (S21). */
export type PortId = string & { readonly __brand: 'PortId' };

/** The port to which the addresses of a headless Service without ports belong (S19). */
export const PORTLESS: ServicePort = { port: 0, protocol: 'TCP', name: '' };

const MAX_PORT = 65_535;
const PORT_ID = /^(\d{1,5})(?:\/(TCP|UDP|SCTP))?$/;

/** The id of a service port: TCP is not named. */
export function portId(port: { readonly port: number; readonly protocol: Protocol }): PortId {
  return (port.protocol === 'TCP' ? `${port.port}` : `${port.port}/${port.protocol}`) as PortId;
}

/** Reads `80`, `80/TCP` or `53/UDP`; null for anything else. */
export function parsePortId(text: string): { readonly port: number; readonly protocol: Protocol } | null {
  const match = PORT_ID.exec(text);
  if (match === null || Number(match[1]) > MAX_PORT) return null;
  return { port: Number(match[1]), protocol: (match[2] ?? 'TCP') as Protocol };
}

/** Is this a port number that a connection can be made to? */
export function isPortNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= MAX_PORT;
}

/** The protocol of a port as objects write it: absent means TCP (S17); null for one that Services do not know. */
export function protocolOf(raw: string | null | undefined): Protocol | null {
  if (raw === null || raw === undefined || raw === '') return 'TCP';
  return raw === 'TCP' || raw === 'UDP' || raw === 'SCTP' ? raw : null;
}
