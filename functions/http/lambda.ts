import { Hono } from 'hono';
// Hono 5 moves both to a package of their own: this file is the one place that knows where they are.
import { handle, type LambdaContext, type LambdaEvent, streamHandle } from 'hono/aws-lambda';

/** The part of an app that answers requests; apps differ in the types of their variables only. */
type App = Pick<Hono, 'fetch'>;

interface LambdaEnv {
  Bindings: { readonly lambdaContext?: LambdaContext; readonly context?: LambdaContext };
}

/** A handler whose answer goes out in one piece, of at most 6 MB. */
export function bufferedHandler(app: App) {
  const answer = handle(withoutLingering(app));
  return (event: LambdaEvent, context: LambdaContext) => answer(event, context);
}

/** A handler whose answer goes out as it is made: for a function URL with invoke mode RESPONSE_STREAM. */
export function streamingHandler(app: App) {
  return streamHandle(withoutLingering(app));
}

/** An idle connection to AWS must not keep an invocation, which is billed, from ending with its answer. */
function withoutLingering(app: App): Hono<LambdaEnv> {
  return new Hono<LambdaEnv>().all('*', (context) => {
    const lambdaContext = context.env.context ?? context.env.lambdaContext;
    if (lambdaContext !== undefined) lambdaContext.callbackWaitsForEmptyEventLoop = false;
    return app.fetch(context.req.raw, context.env);
  });
}
