/**
 * Stands in for `@aws-sdk/credential-provider-node` in bundled functions: Lambda hands credentials over in the environment,
 * and nowhere else. The SDK's chain of files, SSO, STS and metadata services is a quarter of a function's bytes, and of the
 * time that it takes to load.
 */
export function defaultProvider(): () => Promise<LambdaCredentials> {
  return async () => {
    const { AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN } = process.env;
    if (AWS_ACCESS_KEY_ID === undefined || AWS_SECRET_ACCESS_KEY === undefined)
      throw new Error(
        'no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set, as Lambda does',
      );
    const key = { accessKeyId: AWS_ACCESS_KEY_ID, secretAccessKey: AWS_SECRET_ACCESS_KEY };
    return AWS_SESSION_TOKEN === undefined ? key : { ...key, sessionToken: AWS_SESSION_TOKEN };
  };
}

/** Credentials as the SDK takes them. */
interface LambdaCredentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
}
