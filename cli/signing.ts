import { createSigner } from '../wire/signature.ts';
import type { Authorize } from './api-reader.ts';

/** Signs reads of the api's function URL in a region. */
export function awsAuthorization(region: string): Authorize {
  const sign = createSigner(region);
  return (url) => sign({ method: 'GET', url });
}
