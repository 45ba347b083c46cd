import type { Objects } from '../../infra/local/cluster/object-store.ts';
import { systemTimers } from '../../relay/timers.ts';
import { createLogger, type Logger } from '../../wire/log.ts';

/** Keeps lines for a look at them. */
export function testLog(lines: string[] = []): Logger {
  return createLogger({ level: 'debug', clock: systemTimers, write: (line) => lines.push(line) });
}

/** A Service with one port. */
export function createService(objects: Objects, name: string, namespace = 'default'): void {
  objects.create({
    kind: 'Service',
    metadata: { name, namespace },
    spec: { selector: { app: name }, ports: [{ name: 'http', port: 80 }] },
  });
}

interface SliceInput {
  readonly name: string;
  readonly service: string | null;
  readonly namespace?: string;
  readonly ips?: readonly string[];
  readonly addressType?: 'IPv4' | 'FQDN';
}

function sliceOf({
  name,
  service,
  namespace = 'default',
  ips = ['10.0.0.1'],
  addressType = 'IPv4',
}: SliceInput) {
  return {
    kind: 'EndpointSlice',
    metadata: { name, namespace, labels: service === null ? {} : { 'kubernetes.io/service-name': service } },
    addressType,
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    endpoints: ips.map((ip) => ({ addresses: [ip], conditions: { ready: true } })),
  } as const;
}

export function createSlice(objects: Objects, input: SliceInput): void {
  objects.create(sliceOf(input));
}

export function updateSlice(objects: Objects, input: SliceInput): void {
  objects.update(sliceOf(input));
}

export function deleteSlice(objects: Objects, name: string, namespace = 'default'): void {
  objects.delete({ kind: 'EndpointSlice', namespace, name });
}
