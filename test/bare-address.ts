import type { Address } from '../core/address.ts';

/** An address of which nothing more is known than what is given. */
export function bareAddress(known: Partial<Address> = {}): Address {
  return {
    ip: '10.1.0.5',
    port: 8080,
    family: 'IPv4',
    hostname: null,
    node: null,
    zone: null,
    target: null,
    owner: null,
    hints: null,
    appProtocol: null,
    identity: null,
    authority: null,
    labels: {},
    opaqueProtocol: false,
    ...known,
  };
}
