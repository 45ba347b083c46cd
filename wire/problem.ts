import * as z from 'zod';
import { count } from './envelope.ts';

/** Media type of every error. Source: RFC 9457. */
export const PROBLEM_TYPE = 'application/problem+json';

/** An error as HTTP tells it (RFC 9457); further members say what a program can use. */
export const problemDocument = z
  .looseObject({
    type: z.string().describe('about:blank: the status says what kind of problem it is.'),
    title: z.string().describe('What went wrong, the same for every such problem.'),
    status: z.int().min(400).max(599),
    detail: z.string().describe('What went wrong this time, and what to do.'),
  })
  .describe('An error (RFC 9457).');
export type ProblemDocument = z.infer<typeof problemDocument>;

/** Makes the body of an error; `extra` are further members, such as a conflict's or `oldest`. */
export function problem(
  status: number,
  title: string,
  detail: string,
  extra: Readonly<Record<string, unknown>> = {},
): ProblemDocument {
  return { type: 'about:blank', title, status, detail, ...extra };
}

/** Why a well-formed request must not be applied: further members of a 409's problem document. */
export const conflict = z.union([
  z
    .object({ error: z.literal('epoch'), current: count })
    .describe('A newer leader has written; current is its epoch.'),
  z.object({ error: z.literal('clusterUid') }).describe('Another cluster holds this name.'),
  z
    .object({ error: z.literal('guard'), services: z.array(z.string()) })
    .describe('An inventory page would remove too much of these services, NAMESPACE/NAME.'),
]);
export type Conflict = z.infer<typeof conflict>;

/** Body of a 409. */
export const conflictDocument = z.intersection(problemDocument, conflict);
