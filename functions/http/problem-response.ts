import type { Context, ErrorHandler, NotFoundHandler } from 'hono';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import type { Logger } from '../../wire/log.ts';
import type { Invalid } from '../../wire/parse.ts';
import { PROBLEM_TYPE, problem } from '../../wire/problem.ts';
import { BusUnavailableError } from '../bus/bus.ts';
import { FencedError, StoreUnavailableError, UnknownFormatError } from '../store/store.ts';

/** Seconds after which an unavailable answer asks to be called again: about as long as DynamoDB throttles in a row. */
const RETRY_AFTER_SECONDS = 1;

/** Errors that say "not now": what they stand for passes, or is passed by another instance. */
const UNAVAILABLE = [StoreUnavailableError, FencedError, UnknownFormatError, BusUnavailableError];

/** Answers an error (RFC 9457). `extra` are further members of its document. */
export function respondProblem(
  context: Context,
  status: ContentfulStatusCode,
  title: string,
  detail: string,
  extra: Readonly<Record<string, unknown>> = {},
): Response {
  return context.body(JSON.stringify(problem(status, title, detail, extra)), status, {
    'content-type': PROBLEM_TYPE,
    'cache-control': 'no-store',
  });
}

/** 400: a part of the request is wrong, and the message names it. */
export function respondInvalid(context: Context, { message }: Pick<Invalid, 'message'>): Response {
  return respondProblem(context, 400, 'Bad request', message);
}

/** 404 for a path that nothing serves. */
export const respondNotFound: NotFoundHandler = (context) =>
  respondProblem(context, 404, 'Not found', `nothing is served at ${context.req.method} ${context.req.path}`);

/**
 * Answers what no route decided: 503 for a store or bus that is away for now, else 500 without the inside of the error,
 * which is logged once, here.
 */
export function createErrorHandler(logger: Logger): ErrorHandler {
  return (error, context) => {
    const request = { method: context.req.method, path: context.req.path };
    if (UNAVAILABLE.some((unavailable) => error instanceof unavailable)) {
      logger.warn('unavailable', { ...request, error });
      context.header('retry-after', `${RETRY_AFTER_SECONDS}`);
      return respondProblem(
        context,
        503,
        'Unavailable',
        'the store or the bus is throttled or away; try again',
      );
    }
    logger.error('request failed', { ...request, error });
    return respondProblem(context, 500, 'Internal error', 'the request failed; the log has the reason');
  };
}
