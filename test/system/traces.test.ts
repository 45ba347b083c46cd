import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { addressKey, compareText } from '../../core/address.ts';
import type { LocalStack } from '../../infra/local/stack.ts';
import { naiveSets } from '../core/naive-model.ts';
import { startQuietStack } from '../quiet-stack.ts';
import { Replica } from '../replica.ts';
import { listedObjects, readTrace, traceFiles } from '../trace.ts';
import { StackCluster } from './stack-cluster.ts';

describe('recorded streams over HTTP, table and bus', () => {
  let stack: LocalStack;
  before(async () => {
    stack = await startQuietStack();
  });
  after(() => stack[Symbol.asyncDispose]());

  for (const mode of ['slices', 'endpoints'] as const) {
    for (const file of traceFiles()) {
      test(`${file} in ${mode} mode: the answers are what the last lists say, and the bus replays to them (P1, P2)`, async () => {
        const trace = readTrace(file);
        const cluster = new StackCluster(stack, `${mode}-${file.split('.')[0]?.replaceAll('_', '-')}`, mode);
        const replica = new Replica();
        for (const { event } of trace.events) {
          const status = await cluster.send(event as Parameters<StackCluster['send']>[0]);
          assert(status !== 'rejected' && status !== 'stale', `status ${status}`);
        }
        await cluster.advance(15_000);
        for (const delta of await cluster.takeDeltas()) replica.apply(delta);
        for (const [port, expected] of Object.entries(
          naiveSets(trace.final.services, listedObjects(trace, mode)),
        )) {
          const [service = '', number = ''] = port.split(':');
          const [namespace = '', name = ''] = service.split('/');
          const { set } = await cluster.answer({ namespace, name }, { port: number });
          assert.deepEqual(
            set?.addresses.map(addressKey),
            Object.keys(expected.ready).sort(compareText),
            port,
          );
          assert.deepEqual(set?.draining.map(addressKey), expected.draining, port);
          assert.equal(set?.notReady, expected.notReady, port);
          const group = replica.groups().find((candidate) => candidate.endsWith(`/${port}`)) ?? port;
          assert.deepEqual(
            [...replica.port(group).addresses.keys()].sort(compareText),
            set?.addresses.map(addressKey),
          );
        }
      });
    }
  }
});
