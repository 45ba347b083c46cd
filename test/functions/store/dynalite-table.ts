import { readFileSync } from 'node:fs';
import * as yaml from 'yaml';
import { createDynamoClient } from '../../../functions/store/dynamodb-client.ts';
import { type LocalTableOptions, startLocalTable, type TableDefinition } from '../../../infra/local/table.ts';

const TEMPLATE = new URL('../../../infra/aws/table.yml', import.meta.url);

/** The deployed table, in memory unless it is told otherwise. */
export async function startTable(options: Partial<LocalTableOptions> = {}) {
  const template = yaml.parse(readFileSync(TEMPLATE, 'utf8')) as {
    Resources: { Table: { Properties: TableDefinition } };
  };
  const definition = template.Resources.Table.Properties;
  const table = await startLocalTable({
    dataDir: null,
    tableName: 'endpoints',
    definition,
    ...options,
  });
  const credentials = { accessKeyId: 'local', secretAccessKey: 'local' };
  const { endpoint, tableName } = table;
  const newClient = () => createDynamoClient({ region: 'us-east-1', endpoint, credentials });
  return { endpoint, tableName, newClient, [Symbol.asyncDispose]: () => table[Symbol.asyncDispose]() };
}
