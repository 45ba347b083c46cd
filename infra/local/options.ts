import { parseArgs } from 'node:util';
import * as z from 'zod';
import { enrichmentList } from '../../relay/config.ts';
import { clusterName, mode, objectName } from '../../wire/envelope.ts';

/** The port that `npm start` listens on when none is named. */
const DEFAULT_PORT = 3000;

const FLAGS = {
  cluster: { type: 'string' },
  kubeconfig: { type: 'string' },
  context: { type: 'string' },
  namespaces: { type: 'string' },
  mode: { type: 'string' },
  diagnose: { type: 'boolean' },
  enrich: { type: 'string' },
  'inline-bytes': { type: 'string' },
  'no-sweep': { type: 'boolean' },
  port: { type: 'string' },
  data: { type: 'string' },
  'cluster-name': { type: 'string' },
  json: { type: 'boolean' },
  quiet: { type: 'boolean' },
  help: { type: 'boolean' },
} as const;

export const USAGE = `usage: npm start -- [flags]

  --cluster demo|none|kubeconfig   what is watched: a demo cluster (default), nothing, or yours
  --kubeconfig FILE                kubeconfig of your cluster (default: as kubectl finds it)
  --context NAME                   context in it (default: the current one)
  --namespaces a,b                 watch these namespaces alone
  --mode slices|endpoints          watch EndpointSlices (default) or Endpoints
  --enrich pods,servers            tell owners and nodes of pods, and opaque ports of Linkerd's Servers
  --cluster-name NAME              name of the cluster in keys and deltas (default: demo, or local)
  --port N                         listen on 127.0.0.1:N (default ${DEFAULT_PORT}; 0 = any free port)
  --data DIR                       keep the table and the bus's log in DIR (default: in memory)
  --inline-bytes N                 packed endpoints that a service's head holds itself (0 = always chunks)
  --no-sweep                       do not sweep each minute
  --json                           one JSON object a line on stdout
  --quiet                          print the address alone`;

const flagValues = z.object({
  cluster: z.enum(['demo', 'none', 'kubeconfig'], 'must be demo, none or kubeconfig').default('demo'),
  kubeconfig: z.string().min(1, 'must name a file').optional(),
  context: z.string().min(1, 'must name a context').optional(),
  namespaces: z
    .string()
    .transform((list) => list.split(',').map((name) => name.trim()))
    .pipe(z.array(objectName).min(1))
    .optional(),
  mode: mode.default('slices'),
  /** Taken, so that command lines for it run; the relay judges no services yet, and the stack says so. */
  diagnose: z.boolean().default(false),
  enrich: enrichmentList.default([]),
  'inline-bytes': wholeNumber(1_000_000).optional(),
  'no-sweep': z.boolean().default(false),
  port: wholeNumber(65_535).default(DEFAULT_PORT),
  data: z.string().min(1, 'must name a directory').optional(),
  'cluster-name': clusterName.optional(),
  json: z.boolean().default(false),
  quiet: z.boolean().default(false),
  help: z.boolean().default(false),
});

function wholeNumber(max: number) {
  const fix = `must be a whole number from 0 to ${max}`;
  return z
    .string()
    .regex(/^\d{1,9}$/, fix)
    .transform(Number)
    .refine((value) => value <= max, fix);
}

/** What the laptop stack was asked to do. */
export type StackOptions = z.infer<typeof flagValues>;

/** Reads the command line; `invalid` carries one line that names the flag and the fix. */
export function parseOptions(
  args: readonly string[],
):
  | { readonly kind: 'ok'; readonly options: StackOptions }
  | { readonly kind: 'invalid'; readonly message: string } {
  let values: Record<string, unknown>;
  try {
    ({ values } = parseArgs({ args: [...args], options: FLAGS, strict: true, allowPositionals: false }));
  } catch (error) {
    const [reason = ''] = (error instanceof Error ? error.message : String(error)).split(/\.\s/);
    return { kind: 'invalid', message: `${reason}; --help lists the flags` };
  }
  const parsed = flagValues.safeParse(values);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    return { kind: 'invalid', message: `--${issue?.path[0]?.toString() ?? ''}: ${issue?.message}` };
  }
  const misplaced = (['kubeconfig', 'context'] as const).find(
    (flag) => parsed.data[flag] !== undefined && parsed.data.cluster !== 'kubeconfig',
  );
  if (misplaced !== undefined)
    return { kind: 'invalid', message: `--${misplaced}: only with --cluster kubeconfig` };
  return { kind: 'ok', options: parsed.data };
}
