import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import * as yaml from 'yaml';
import { parseWatchEvent } from '../../wire/events.ts';

const CASES = new URL('../cases/', import.meta.url);
const TRACES = new URL('../traces/', import.meta.url);

interface Step {
  readonly event?: string;
  readonly object?: unknown;
  readonly stateUnknown?: boolean;
  readonly expectStatus?: string | readonly string[];
}

describe('the events of the cases parse as the cases expect', () => {
  for (const file of readdirSync(CASES).filter((name) => name.endsWith('.yaml'))) {
    const story = yaml.parse(readFileSync(new URL(file, CASES), 'utf8')) as {
      readonly name: string;
      readonly steps: readonly Step[];
    };
    test(story.name, () => {
      for (const [index, { event, expectStatus, ...step }] of story.steps.entries()) {
        if (event === undefined) continue;
        const wanted = [expectStatus ?? []].flat();
        const { kind } = parseWatchEvent({ ...step, type: event });
        const isForeign = event === 'BOOKMARK' || !isWatched(step.object);
        if (isForeign) assert.equal(kind, 'ignored', `step ${index}`);
        else assert.equal(kind, wanted.includes('rejected') ? 'rejected' : 'ok', `step ${index}`);
      }
    });
  }
});

function isWatched(object: unknown): boolean {
  return ['Service', 'EndpointSlice', 'Endpoints'].includes((object as { kind: string }).kind);
}

describe('what a real control plane sent parses', () => {
  for (const file of readdirSync(TRACES).filter((name) => name.endsWith('.jsonl.gz')))
    test(file, () => {
      const lines = gunzipSync(readFileSync(new URL(file, TRACES)))
        .toString('utf8')
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as { readonly event?: unknown });
      assert.notEqual(lines.length, 0);
      for (const { event } of lines) {
        if (event === undefined) continue;
        const parsed = parseWatchEvent(event);
        assert.equal(parsed.kind, 'ok', parsed.kind === 'ok' ? '' : parsed.reason);
      }
    });
});
