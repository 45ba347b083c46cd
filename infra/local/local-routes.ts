import { type Context, Hono } from 'hono';
import * as z from 'zod';
import { foreignMediaType, readJsonBody, respondBodyFailure } from '../../functions/http/body.ts';
import { respondInvalid, respondProblem } from '../../functions/http/problem-response.ts';
import type { SweepReport } from '../../functions/sweep/sweep.ts';
import { type Parsed, parse } from '../../wire/parse.ts';
import { busQuery, type LocalBus } from './bus.ts';
import type { Faults } from './faults.ts';
import type { StackClock } from './stack-clock.ts';
import type { Usage } from './usage.ts';

/** A clock is moved by at most a year at once. */
const MAX_ADVANCE_MS = 366 * 24 * 3_600_000;

const advanceBody = z.object({ advanceMs: z.int().min(0).max(MAX_ADVANCE_MS) });

/** What the routes of the stack act on. */
export interface LocalParts {
  readonly bus: LocalBus;
  readonly usage: Usage;
  readonly faults: Faults;
  readonly clock: StackClock;
  /** Runs the sweep once, whatever its lease says. */
  readonly sweep: () => Promise<SweepReport | null>;
  /** Does what the clock's new time makes due. */
  readonly clockMoved: () => Promise<void>;
}

/** What only a laptop stack serves, under `/local`: its bus, its clock, its faults. */
export function createLocalRoutes({ bus, usage, faults, clock, sweep, clockMoved }: LocalParts): Hono {
  const app = new Hono();
  app.get('/bus', async (context) => {
    const query = parse(busQuery, context.req.query(), 'query');
    if (query.kind === 'invalid') return respondInvalid(context, query);
    return context.json(await bus.read(query.value, context.req.raw.signal));
  });
  app.put('/bus/rules/:name', (context) =>
    withBody(context, (body) => {
      const rule = bus.putRule(context.req.param('name'), body);
      return rule.kind === 'ok' ? context.body(null, 204) : respondInvalid(context, rule);
    }),
  );
  app.post('/sweep', async (context) => {
    // Its body says nothing and may be absent, but one that a web page may send unasked is refused as elsewhere.
    const foreign =
      context.req.header('content-type') === undefined ? null : foreignMediaType(context.req.raw);
    return foreign === null ? context.json(await sweep()) : respondBodyFailure(context, foreign);
  });
  app.get('/usage', (context) => context.json(usage.report()));
  app.put('/faults', (context) =>
    withBody(context, (body) => {
      const put = faults.put(body);
      return put.kind === 'ok' ? context.body(null, 204) : respondInvalid(context, put);
    }),
  );
  app.post('/clock', (context) =>
    withBody(context, async (body) => {
      const parsed: Parsed<z.infer<typeof advanceBody>> = parse(advanceBody, body);
      if (parsed.kind === 'invalid') return respondInvalid(context, parsed);
      clock.advance(parsed.value.advanceMs);
      await clockMoved();
      return context.json({ now: new Date(clock.now()).toISOString() });
    }),
  );
  return app;
}

async function withBody(
  context: Context,
  apply: (body: unknown) => Response | Promise<Response>,
): Promise<Response> {
  const body = await readJsonBody(context.req.raw);
  return body.kind === 'ok' ? apply(body.value) : respondBodyFailure(context, body);
}

/** 403 for a name of this machine that is not its loopback's: a web page's rebound name must not get in. */
export function respondForeignHost(context: Context): Response {
  return respondProblem(context, 403, 'Forbidden', 'Host: must be 127.0.0.1 or localhost');
}
