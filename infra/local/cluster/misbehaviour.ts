/** What a request asks for. `other` is everything that is no request for a resource, such as /version. */
export type Verb = 'list' | 'watch' | 'get' | 'create' | 'update' | 'delete' | 'other';

export interface RequestFacts {
  readonly verb: Verb;
  /** Plural name of the resource, such as `endpointslices`; null for `other`. */
  readonly resource: string | null;
  /** Null for cluster-wide requests. */
  readonly namespace: string | null;
  readonly name: string | null;
  /** Path and query as they were sent. */
  readonly url: string;
}

/** HTTP errors that the server can be told to answer with, in the shape that Kubernetes gives each of them. */
export type FaultCode = 400 | 401 | 403 | 404 | 410 | 429 | 500 | 503 | 504;

/**
 * One way in which an API server, or the network before it, goes wrong.
 *
 * Where `afterLines` is absent it is 0: right after the headers. It counts the lines of a watch; any other answer is
 * cut in the middle of its body, whatever `afterLines` says.
 */
export type Fault =
  /** Stops listening and drops every connection: connects are refused until the misbehaviour is disposed of. */
  | { readonly kind: 'refuse' }
  /** Resets the connection (RST) before any byte of an answer. */
  | { readonly kind: 'resetBeforeHeaders' }
  /** Resets the connection (RST) within the answer. */
  | { readonly kind: 'resetMidStream'; readonly afterLines?: number }
  /** Half-open: takes the request and sends nothing, not even headers, and keeps the connection. */
  | { readonly kind: 'stallBeforeHeaders' }
  /** Half-open: stops sending within the answer and keeps the connection. */
  | { readonly kind: 'stallMidStream'; readonly afterLines?: number }
  /** Answers an HTTP error. 410 is Expired, 504 ResourceVersionTooLarge, 404 what an absent CRD answers. */
  | { readonly kind: 'status'; readonly code: FaultCode; readonly retryAfterSeconds?: number }
  /** Sends an ERROR event with the Status of that code in a watch that was answered 200, then ends it. */
  | {
      readonly kind: 'errorEvent';
      readonly code: FaultCode;
      readonly retryAfterSeconds?: number;
      readonly afterLines?: number;
    }
  /** Ends a watch cleanly long before its time: a "very short watch". */
  | { readonly kind: 'shortWatch'; readonly afterLines?: number }
  /** Closes the connection in the middle of a list, so that the JSON of its answer has no end. */
  | { readonly kind: 'cutList' }
  /** Answers the first page of a list as if it were the last: no `continue`. */
  | { readonly kind: 'omitContinue' }
  /** Answers a list with a `continue` that leads to the same page again, for ever. */
  | { readonly kind: 'repeatPage' }
  /** Sends a line that is no JSON in a watch, then goes on. */
  | { readonly kind: 'garbageLine'; readonly afterLines?: number }
  /** Sends these lines in a watch, whatever they say, then goes on. */
  | { readonly kind: 'extraLines'; readonly lines: readonly string[]; readonly afterLines?: number }
  /** Ends a watch cleanly in the middle of a line, and there in the middle of a character. */
  | { readonly kind: 'cutLine'; readonly afterLines?: number }
  /** Sends a BOOKMARK blown up to `bytes` with white space in a watch, then goes on. */
  | { readonly kind: 'longLine'; readonly bytes: number; readonly afterLines?: number }
  /** Ends a watch as soon as its reader is `pendingChanges` changes behind, as a loaded server does. */
  | { readonly kind: 'closeSlowReader'; readonly pendingChanges: number };

export interface Misbehaviour {
  readonly fault: Fault;
  /** Which requests it hits; absent fields match all. `refuse` hits everything. */
  readonly on?: { readonly verb?: Verb; readonly resource?: string };
  /** Matching requests that still go well first. Default 0. */
  readonly skip?: number;
  /** Matching requests that are hit. Default: all until it is disposed of. */
  readonly times?: number;
}

/** The misbehaviours in force, oldest first. */
export interface Misbehaviours {
  add(misbehaviour: Misbehaviour): void;
  remove(misbehaviour: Misbehaviour): void;
  /** The fault of this request, if any, and counts it. */
  next(request: RequestFacts): Fault | undefined;
}

export function createMisbehaviours(): Misbehaviours {
  const active = new Map<Misbehaviour, { skip: number; times: number }>();
  return {
    add: (misbehaviour) => {
      const { skip = 0, times = Number.POSITIVE_INFINITY } = misbehaviour;
      active.set(misbehaviour, { skip, times });
    },
    remove: (misbehaviour) => active.delete(misbehaviour),
    next: (request) => {
      for (const [{ fault, on = {} }, left] of active) {
        if (on.verb !== undefined && on.verb !== request.verb) continue;
        if (on.resource !== undefined && on.resource !== request.resource) continue;
        if (left.times <= 0) continue;
        if (left.skip > 0) {
          left.skip -= 1;
          continue;
        }
        left.times -= 1;
        return fault;
      }
      return undefined;
    },
  };
}
