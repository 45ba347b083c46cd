import type { Context, MiddlewareHandler } from 'hono';
import { createMiddleware } from 'hono/factory';
import * as z from 'zod';
import { respondProblem } from './problem-response.ts';

/** Clusters that each principal may write, by its ARN. */
export type Relays = Readonly<Record<string, readonly string[]>>;

/** How callers are known. */
export type Authentication =
  /**
   * By IAM, in front of the function. `relays` null: whoever IAM lets in may write every cluster. `admins`: ARNs of who may
   * delete clusters; nobody when there are none, since readers come by the same URL.
   */
  | { readonly kind: 'iam'; readonly relays: Relays | null; readonly admins: readonly string[] }
  /** Not at all: on this machine's loopback alone. */
  | { readonly kind: 'none' };

/** Who calls, as far as authentication tells; null with `none`. */
export interface Caller {
  readonly principal: string | null;
}

/** What routes behind `authenticate` find in their context. */
export interface AuthenticatedEnv {
  Variables: { readonly caller: Caller };
}

/** What Lambda says of a call that IAM let in. Source: Lambda function URLs, request payload. */
const iamBindings = z.object({
  requestContext: z.object({ authorizer: z.object({ iam: z.object({ userArn: z.string().min(1) }) }) }),
});

/** What any call by Lambda has, and none by a server on a socket. */
const lambdaBindings = z.object({ event: z.unknown() });

/** What a server on a socket says of a call. */
const socketBindings = z.object({
  incoming: z.object({ socket: z.object({ localAddress: z.string().optional() }) }),
});

const LOOPBACK_ADDRESS = /^(::1|(::ffff:)?127\.\d+\.\d+\.\d+)$/;

/** Lets in whom the setting knows: 401 for a call that IAM did not check, 403 for one from outside to an open server. */
export function authenticate(authentication: Authentication): MiddlewareHandler<AuthenticatedEnv> {
  return createMiddleware<AuthenticatedEnv>(async (context, next) => {
    switch (authentication.kind) {
      case 'iam': {
        const bindings = iamBindings.safeParse(context.env);
        if (!bindings.success)
          return respondProblem(
            context,
            401,
            'Unauthorized',
            'sign the request with AWS credentials (SigV4)',
          );
        context.set('caller', { principal: bindings.data.requestContext.authorizer.iam.userArn });
        return next();
      }
      case 'none':
        if (!isOnLoopback(context)) {
          const detail = 'this server knows no callers, so it answers on the loopback address alone';
          return respondProblem(context, 403, 'Forbidden', detail);
        }
        context.set('caller', { principal: null });
        return next();
      default:
        return authentication satisfies never;
    }
  });
}

/** May this caller send a cluster's events? */
export function mayWrite(authentication: Authentication, { principal }: Caller, cluster: string): boolean {
  if (authentication.kind === 'none' || authentication.relays === null) return true;
  if (principal === null) return false;
  return Object.entries(authentication.relays).some(
    ([arn, clusters]) => isMeant(arn, principal) && clusters.includes(cluster),
  );
}

/** May this caller delete clusters? */
export function mayAdminister(authentication: Authentication, { principal }: Caller): boolean {
  if (authentication.kind === 'none') return true;
  return principal !== null && authentication.admins.some((arn) => isMeant(arn, principal));
}

/** A setting names the principal itself, or the role that its session has assumed. */
function isMeant(arn: string, principal: string): boolean {
  return arn === principal || (ROLE.test(arn) && roleOf(arn) === roleOf(principal));
}

const ASSUMED_ROLE = /^arn:([^:]+):sts::(\d+):assumed-role\/([^/]+)\/[^/]+$/;
const ROLE = /^arn:([^:]+):iam::(\d+):role\/(?:.*\/)?([^/]+)$/;

/** The role behind a session, without the path that sessions do not tell; any other principal as it is. */
function roleOf(arn: string): string {
  const [, partition, account, name] = ASSUMED_ROLE.exec(arn) ?? ROLE.exec(arn) ?? [];
  return name === undefined ? arn : `arn:${partition}:iam::${account}:role/${name}`;
}

/** A call that came over no socket at all, inside the process, is on this machine too; an event of Lambda is not. */
function isOnLoopback({ env }: Context): boolean {
  const socket = socketBindings.safeParse(env);
  if (socket.success) return LOOPBACK_ADDRESS.test(socket.data.incoming.socket.localAddress ?? '');
  return !lambdaBindings.safeParse(env).success;
}
