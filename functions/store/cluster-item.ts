import { type ClusterRecord, UnknownFormatError } from './store.ts';

const FORMAT = 1;

/** A cluster as text: the same text for the same record, so that a write can make sure of what it replaces. */
export function packCluster(record: ClusterRecord): string {
  const { uid, epoch, epochRaisedAt, hadFormerEpoch, mode, namespaces, versions } = record;
  const { lastHeartbeat, lastSynced, lostSince, histograms, lastEventAges, resyncs, deletion } = record;
  return JSON.stringify({
    format: FORMAT,
    uid,
    epoch,
    epochRaisedAt,
    hadFormerEpoch,
    mode,
    namespaces,
    versions,
    lastHeartbeat,
    lastSynced,
    lostSince,
    histograms,
    lastEventAges,
    resyncs,
    ...(deletion !== null && { deletion }),
  });
}

/** @throws UnknownFormatError when a later release wrote it. */
export function unpackCluster(name: string, text: string): ClusterRecord {
  const { format, ...record } = JSON.parse(text) as Omit<ClusterRecord, 'name' | 'deletion'> & {
    readonly format: number;
    readonly deletion?: NonNullable<ClusterRecord['deletion']>;
  };
  if (format !== FORMAT) throw new UnknownFormatError(`cluster of format ${format}`);
  return { name, deletion: null, ...record };
}
