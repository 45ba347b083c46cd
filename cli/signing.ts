import { Sha256 } from '@aws-crypto/sha256-js';
import { defaultProvider } from '@aws-sdk/credential-provider-node';
import { SignatureV4 } from '@smithy/signature-v4';
import type { Authorize } from './api-reader.ts';

/** Signs reads of a function URL (SigV4, service `lambda`) with the credentials of the SDK's default chain. */
export function awsAuthorization(region: string): Authorize {
  const signer = new SignatureV4({
    service: 'lambda',
    region,
    credentials: defaultProvider(),
    sha256: Sha256,
  });
  return async (url) => {
    const signed = await signer.sign({
      method: 'GET',
      protocol: url.protocol,
      hostname: url.hostname,
      ...(url.port !== '' && { port: Number(url.port) }),
      path: url.pathname,
      query: Object.fromEntries(url.searchParams),
      headers: { host: url.host },
    });
    return signed.headers;
  };
}
