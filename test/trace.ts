import { readdirSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import type { EndpointSlice, Endpoints, Service } from '../core/kubernetes.ts';

const FOLDER = new URL('traces/', import.meta.url);

/** What a real control plane sent, and its lists at the end. */
export interface Trace {
  /** Milliseconds from the start, and the watch event. */
  readonly events: readonly { readonly t: number; readonly event: unknown }[];
  readonly final: {
    readonly services: readonly Service[];
    readonly endpointslices: readonly EndpointSlice[];
    readonly endpoints: readonly Endpoints[];
  };
}

/** File names of all recorded streams. */
export function traceFiles(): string[] {
  return readdirSync(FOLDER).filter((name) => name.endsWith('.jsonl.gz'));
}

export function readTrace(file: string): Trace {
  const lines = gunzipSync(readFileSync(new URL(file, FOLDER)))
    .toString('utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
  return { events: lines.filter(({ event }) => event), final: lines.find(({ final }) => final).final };
}

/** The endpoint objects of the last list of a mode; items of a list leave their kind out. */
export function listedObjects({ final }: Trace, mode: 'slices' | 'endpoints') {
  const listed = mode === 'slices' ? final.endpointslices : final.endpoints;
  const kind = mode === 'slices' ? 'EndpointSlice' : 'Endpoints';
  return listed.map((object) => ({
    object: { ...object, kind } as EndpointSlice | Endpoints,
    version: object.metadata.resourceVersion,
  }));
}
