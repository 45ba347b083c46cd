import { createSigner } from '../wire/signature.ts';
import type { Authorize } from './authorization.ts';

/** Signs POSTs to ingest's function URL in a region. */
export function awsAuthorization(region: string): Authorize {
  const sign = createSigner(region);
  return (request) => sign({ method: 'POST', ...request });
}
