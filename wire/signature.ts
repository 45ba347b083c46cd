import { Sha256 } from '@aws-crypto/sha256-js';
import { defaultProvider } from '@aws-sdk/credential-provider-node';
import { SignatureV4 } from '@smithy/signature-v4';

/** A request to a function URL, before it is signed. */
export interface UnsignedRequest {
  readonly method: 'GET' | 'POST';
  readonly url: URL;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
}

/** Answers all headers that a request is to have, those it had among them. */
export type Sign = (request: UnsignedRequest) => Promise<Record<string, string>>;

/**
 * Signs requests to function URLs of a region (SigV4, service `lambda`). Credentials come from the SDK's default chain: Pod
 * Identity, a web identity, environment or files; it renews them before they expire.
 */
export function createSigner(region: string): Sign {
  const credentials = defaultProvider();
  const signer = new SignatureV4({ service: 'lambda', region, credentials, sha256: Sha256 });
  return async ({ method, url, headers = {}, body }) => {
    const signed = await signer.sign({
      method,
      protocol: url.protocol,
      hostname: url.hostname,
      ...(url.port !== '' && { port: Number(url.port) }),
      path: url.pathname,
      query: Object.fromEntries(url.searchParams),
      headers: { ...headers, host: url.host },
      ...(body !== undefined && { body }),
    });
    return signed.headers;
  };
}
