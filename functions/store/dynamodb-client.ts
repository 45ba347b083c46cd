import { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { TRY_TIMEOUT_MS } from './retry.ts';

/** Half of a try at most for a connection, so that its request still has time. */
const CONNECTION_TIMEOUT_MS = 500;
/** Connections kept alive; more calls at once wait for one. */
const MAX_SOCKETS = 64;

export interface DynamoClientOptions {
  readonly region: string;
  /** Another endpoint than the region's. */
  readonly endpoint?: string;
  /** Found by the SDK's default chain when absent. */
  readonly credentials?: { readonly accessKeyId: string; readonly secretAccessKey: string };
}

/** A client whose calls are single tries with a timeout: the store retries itself, since it must know of each try (P8). */
export function createDynamoClient(options: DynamoClientOptions): DynamoDBClient {
  const agent = { keepAlive: true, maxSockets: MAX_SOCKETS };
  return new DynamoDBClient({
    ...options,
    maxAttempts: 1,
    requestHandler: {
      connectionTimeout: CONNECTION_TIMEOUT_MS,
      requestTimeout: TRY_TIMEOUT_MS,
      throwOnRequestTimeout: true,
      httpAgent: agent,
      httpsAgent: agent,
    },
  });
}
