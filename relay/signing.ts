import { Sha256 } from '@aws-crypto/sha256-js';
import { defaultProvider } from '@aws-sdk/credential-provider-node';
import { SignatureV4 } from '@smithy/signature-v4';
import type { Authorize } from './authorization.ts';

/**
 * Signs requests to a function URL (SigV4, service `lambda`). Credentials come from the SDK's default chain: Pod
 * Identity, a web identity, environment or files; it renews them before they expire.
 */
export function awsAuthorization(region: string): Authorize {
  const signer = new SignatureV4({
    service: 'lambda',
    region,
    credentials: defaultProvider(),
    sha256: Sha256,
  });
  return async ({ url, headers, body }) => {
    const signed = await signer.sign({
      method: 'POST',
      protocol: url.protocol,
      hostname: url.hostname,
      ...(url.port !== '' && { port: Number(url.port) }),
      path: url.pathname,
      query: {},
      headers: { ...headers, host: url.host },
      body,
    });
    return signed.headers;
  };
}
