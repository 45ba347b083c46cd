import fc from 'fast-check';
import type { Fault } from '../../infra/local/cluster/misbehaviour.ts';

/**
 * What may go wrong with the next request to an API server, whichever it is: a watch, a list beside one, a page, a look how far
 * the server is.
 */
export const anyFault = fc.oneof(
  fc.constantFrom<Fault>(
    { kind: 'resetBeforeHeaders' },
    { kind: 'garbageLine' },
    { kind: 'shortWatch' },
    { kind: 'cutLine' },
    { kind: 'cutList' },
    { kind: 'repeatPage' },
    { kind: 'closeSlowReader', pendingChanges: 2 },
  ),
  fc.record({
    kind: fc.constant('status' as const),
    code: fc.constantFrom(400, 401, 403, 404, 410, 429, 500, 503, 504),
  }),
  fc.record({
    kind: fc.constant('errorEvent' as const),
    code: fc.constantFrom(401, 403, 410, 429, 500, 504),
    afterLines: fc.nat(6),
  }),
  fc.record({
    kind: fc.constantFrom('resetMidStream' as const, 'shortWatch' as const, 'cutLine' as const),
    afterLines: fc.nat(6),
  }),
) as fc.Arbitrary<Fault>;
