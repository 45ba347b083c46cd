import type { Address } from '../../core/address.ts';
import type { PortAnswer } from '../../core/query.ts';
import { formatInstant } from '../../core/time.ts';
import { formatAddress } from '../../wire/address.ts';
import type { PortSet } from '../../wire/api.ts';
import { formatDigest } from '../../wire/key-hash.ts';
import type { AnswerBody } from './answer-body.ts';
import type { FoundEndpoints } from './endpoints.ts';

/** How the JSON is written. */
export interface EndpointsJsonOptions {
  /** One port's set by itself, or all sets in a list. */
  readonly isSingle: boolean;
  /** DNS domain of the cluster. */
  readonly clusterDomain: string;
}

/** Writes the endpoints of a service as JSON, address by address: the schema is `endpointsAnswer`. */
export function writeEndpointsJson(
  body: AnswerBody,
  found: FoundEndpoints,
  { isSingle, clusterDomain }: EndpointsJsonOptions,
): void {
  const writer = new SetWriter(body, found, clusterDomain);
  if (!isSingle) body.write('{"ports":[');
  found.ports.forEach((port, index) => {
    if (index > 0) body.write(',');
    writer.write(port);
  });
  if (!isSingle) body.write(']}');
}

/** The members before, between and behind the one that the ETag does not cover and the lists that may be long. */
type SetStart = Omit<PortSet, 'asOf' | 'stale' | 'truncated' | 'addresses' | 'draining' | 'notReady'>;

class SetWriter {
  private readonly body: AnswerBody;
  private readonly found: FoundEndpoints;
  /** What follows a hostname in an address's name; null where addresses have no names (S39). */
  private readonly nameSuffix: string | null;

  constructor(body: AnswerBody, found: FoundEndpoints, clusterDomain: string) {
    const { key, isHeadless } = found;
    this.body = body;
    this.found = found;
    this.nameSuffix = isHeadless ? `.${key.name}.${key.namespace}.svc.${clusterDomain}` : null;
  }

  write({ port, sequence, digest, size, isTruncated, addresses, draining, notReady }: PortAnswer): void {
    const { body } = this;
    const { key, asOf, isStale } = this.found;
    const start: SetStart = {
      cluster: key.cluster,
      namespace: key.namespace,
      service: key.name,
      port: port.port,
      portName: port.name,
      protocol: port.protocol,
      exists: true,
      sequence,
      digest: formatDigest(digest),
      size,
    };
    body.write(`${JSON.stringify(start).slice(0, -1)},"asOf":`);
    body.writePassing(JSON.stringify(formatInstant(asOf)));
    body.write(`,"stale":${isStale},"truncated":${isTruncated},"addresses":[`);
    this.writeAddresses(addresses);
    body.write('],"draining":[');
    this.writeAddresses(draining);
    body.write(`],"notReady":${notReady}}`);
  }

  private writeAddresses(addresses: readonly Address[]): void {
    addresses.forEach((address, index) => {
      const { hostname } = address;
      const name =
        this.nameSuffix !== null && hostname !== null ? { dnsName: `${hostname}${this.nameSuffix}` } : {};
      this.body.write(`${index > 0 ? ',' : ''}${JSON.stringify({ ...formatAddress(address), ...name })}`);
    });
  }
}
