import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Hono } from 'hono';
import {
  type AuthenticatedEnv,
  type Authentication,
  authenticate,
  mayAdminister,
  mayWrite,
} from '../../../functions/http/authentication.ts';
import { serveApp } from './served-app.ts';

const ROLE = 'arn:aws:iam::123456789012:role/relay';
const SESSION = 'arn:aws:sts::123456789012:assumed-role/relay/eks-prod-1';
const USER = 'arn:aws:iam::123456789012:user/ci';

const appWith = (authentication: Authentication) =>
  new Hono<AuthenticatedEnv>()
    .use(authenticate(authentication))
    .get('/', (context) => context.json(context.get('caller')));

/** What Lambda binds; `userArn` undefined: IAM did not check the call. */
const lambdaEnv = (userArn?: string) => {
  const requestContext = userArn === undefined ? {} : { authorizer: { iam: { userArn } } };
  return { event: { requestContext }, requestContext };
};

describe('AUTH=iam', () => {
  const app = appWith({ kind: 'iam', relays: null, admins: [] });

  test('lets in whom IAM let in, and knows them by their ARN', async () => {
    const response = await app.request('/', {}, lambdaEnv(SESSION));
    assert.equal(response.status, 200);
    assert.deepEqual(await response.json(), { principal: SESSION });
  });

  const refused: Record<string, object> = {
    'an event without an authorizer': lambdaEnv(),
    'an authorizer of another kind': { event: {}, requestContext: { authorizer: { jwt: { claims: {} } } } },
    'an authorizer that is null': { event: {}, requestContext: { authorizer: null } },
    'an empty principal': lambdaEnv(''),
    'no event at all': {},
  };
  for (const [name, env] of Object.entries(refused)) {
    test(`refuses ${name}`, async () => {
      const response = await app.request('/', {}, env);
      assert.equal(response.status, 401);
      assert.equal(response.headers.get('content-type'), 'application/problem+json');
    });
  }
});

describe('AUTH=none', () => {
  const app = appWith({ kind: 'none' });

  test('lets in who comes over the loopback', async () => {
    await using server = await serveApp(app);
    const response = await fetch(server.url);
    assert.deepEqual(await response.json(), { principal: null });
  });

  test('lets in a call inside the process', async () => {
    assert.equal((await app.request('/')).status, 200);
  });

  const refused: Record<string, object> = {
    'a server that others can reach': { incoming: { socket: { localAddress: '192.168.1.7' } } },
    'a socket without an address': { incoming: { socket: {} } },
    'an event of Lambda': lambdaEnv(SESSION),
  };
  for (const [name, env] of Object.entries(refused))
    test(`refuses ${name}`, async () => assert.equal((await app.request('/', {}, env)).status, 403));
});

describe('which clusters a principal may write', () => {
  const cases: Record<string, { relays: Record<string, string[]> | null; principal: string; want: boolean }> =
    {
      'all, without RELAYS': { relays: null, principal: SESSION, want: true },
      'a cluster of its own': { relays: { [USER]: ['prod-eu'] }, principal: USER, want: true },
      'no other cluster': { relays: { [USER]: ['prod-us'] }, principal: USER, want: false },
      'none, when RELAYS does not know it': { relays: { [ROLE]: ['prod-eu'] }, principal: USER, want: false },
      'those of its role, when it is a session': {
        relays: { [ROLE]: ['prod-eu'] },
        principal: SESSION,
        want: true,
      },
      'those of its role, whose path a session does not tell': {
        relays: { 'arn:aws:iam::123456789012:role/teams/net/relay': ['prod-eu'] },
        principal: SESSION,
        want: true,
      },
      'not those of a role of another account': {
        relays: { 'arn:aws:iam::999999999999:role/relay': ['prod-eu'] },
        principal: SESSION,
        want: false,
      },
      'not those of another session of its role': {
        relays: { 'arn:aws:sts::123456789012:assumed-role/relay/other': ['prod-eu'] },
        principal: SESSION,
        want: false,
      },
      'not those of a user of its name': {
        relays: { 'arn:aws:iam::123456789012:user/relay': ['prod-eu'] },
        principal: SESSION,
        want: false,
      },
    };
  for (const [name, { relays, principal, want }] of Object.entries(cases))
    test(name, () =>
      assert.equal(mayWrite({ kind: 'iam', relays, admins: [] }, { principal }, 'prod-eu'), want),
    );

  test('all, where callers are not known', () => {
    assert.equal(mayWrite({ kind: 'none' }, { principal: null }, 'prod-eu'), true);
  });
});

describe('who may delete clusters', () => {
  const cases: Record<string, { admins: string[]; principal: string; want: boolean }> = {
    'nobody, without ADMINS': { admins: [], principal: USER, want: false },
    'whom it names': { admins: [ROLE, USER], principal: USER, want: true },
    'a session of a role that it names': { admins: [ROLE], principal: SESSION, want: true },
    'nobody else': { admins: [ROLE], principal: USER, want: false },
  };
  for (const [name, { admins, principal, want }] of Object.entries(cases))
    test(name, () => assert.equal(mayAdminister({ kind: 'iam', relays: null, admins }, { principal }), want));

  test('all, where callers are not known', () => {
    assert.equal(mayAdminister({ kind: 'none' }, { principal: null }), true);
  });
});
