import { execFile } from 'node:child_process';
import { cp, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import * as z from 'zod';

const ROOT = join(import.meta.dirname, '../..');
const PACKAGE_FOLDER = '.serverless';
/** Where `npm run package` leaves the template and the zips. */
export const PACKAGE = join(ROOT, PACKAGE_FOLDER);

const resource = z.object({
  Type: z.string(),
  Properties: z.unknown(),
  DeletionPolicy: z.string().optional(),
  UpdateReplacePolicy: z.string().optional(),
});
const templateFile = z.object({ Resources: z.record(z.string(), resource) });
type Resources = z.infer<typeof templateFile>['Resources'];

/** A packaged CloudFormation template, read by type of resource. */
export class Template {
  readonly #resources: Resources;

  private constructor(resources: Resources) {
    this.#resources = resources;
  }

  /** Reads what `osls package` left in a directory. */
  static async read(directory: string): Promise<Template> {
    const text = await readFile(join(directory, 'cloudformation-template-update-stack.json'), 'utf8');
    return new Template(templateFile.parse(JSON.parse(text)).Resources);
  }

  /** Resources of one type by logical id, their properties in the shape that a test reads. */
  all<T extends z.ZodType>(type: string, properties: T): [id: string, properties: z.infer<T>][] {
    return Object.entries(this.#resources)
      .filter(([, { Type }]) => Type === type)
      .map(([id, { Properties }]) => [id, properties.parse(Properties)]);
  }

  /** The type of a resource; undefined when there is none of this id. */
  typeOf(id: string | undefined): string | undefined {
    return id === undefined ? undefined : this.#resources[id]?.Type;
  }

  /** What CloudFormation does with a resource that leaves the template or is replaced. */
  policiesOf(id: string): readonly unknown[] {
    return [this.#resources[id]?.DeletionPolicy, this.#resources[id]?.UpdateReplacePolicy];
  }
}

/**
 * Packages a copy of the project, with parameters: osls clears its own folder in whatever project it packages.
 * @returns the directory of the template and the zips, inside `directory`.
 */
export async function packageCopy(
  directory: string,
  params: Readonly<Record<string, string>>,
): Promise<string> {
  for (const part of ['serverless.yml', 'infra/aws', 'dist/functions'])
    await cp(join(ROOT, part), join(directory, part), { recursive: true });
  const osls = join(ROOT, 'node_modules/osls/bin/serverless.js');
  const flags = Object.entries(params).map(([name, value]) => `--param=${name}=${value}`);
  await promisify(execFile)(process.execPath, [osls, 'package', ...flags], { cwd: directory });
  return join(directory, PACKAGE_FOLDER);
}

const reference = z.union([
  z.object({ Ref: z.string() }).transform(({ Ref }) => Ref),
  z.object({ 'Fn::GetAtt': z.tuple([z.string(), z.string()]) }).transform((it) => it['Fn::GetAtt'][0]),
]);

/** The logical id that a `Ref` or `Fn::GetAtt` names; undefined for anything else. */
export function idOf(value: unknown): string | undefined {
  const parsed = reference.safeParse(value);
  return parsed.success ? parsed.data : undefined;
}

/** A property that is one thing or a list of them, as IAM's documents have them. */
export function listOf<T extends z.ZodType>(item: T) {
  return z.union([z.array(item), item.transform((it) => [it])]);
}
