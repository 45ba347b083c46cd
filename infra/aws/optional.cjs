/** Parts of the template that are there when a parameter of serverless.yml asks for them. osls calls each with its variables. */

const TO_CALL_A_URL = {
  InvokeFunctionUrl: { Action: 'lambda:InvokeFunctionUrl', FunctionUrlAuthType: 'AWS_IAM' },
  InvokeFunction: { Action: 'lambda:InvokeFunction', InvokedViaFunctionUrl: true },
};

/** The archive of the bus, for replays. */
async function archive({ resolveVariable }) {
  const days = Number(await resolveVariable('param:archiveDays'));
  if (!Number.isInteger(days) || days < 0)
    throw new Error('archiveDays: must be a whole number of days; 0: none');
  if (days === 0) return {};
  const Archive = {
    Type: 'AWS::Events::Archive',
    Properties: {
      SourceArn: { 'Fn::GetAtt': ['Bus', 'Arn'] },
      RetentionDays: days,
      EventPattern: { source: ['endpoints-watcher'] },
    },
  };
  return { Resources: { Archive } };
}

/** Both permissions that calling a function URL takes, for each principal that a parameter lists. */
async function callers({ resolveVariable }) {
  const relays = listOf(await resolveVariable('param:relays'));
  const readers = listOf(await resolveVariable('param:readers'));
  return { Resources: { ...permissions('Ingest', relays), ...permissions('Api', readers) } };
}

function permissions(name, principals) {
  const entries = principals.flatMap((principal, index) =>
    Object.entries(TO_CALL_A_URL).map(([title, action]) => {
      const target = {
        FunctionName: { 'Fn::GetAtt': [`${name}LambdaFunction`, 'Arn'] },
        Principal: principal,
      };
      return [
        `${name}${title}${index}`,
        { Type: 'AWS::Lambda::Permission', Properties: { ...target, ...action } },
      ];
    }),
  );
  return Object.fromEntries(entries);
}

/** What alarms tell: one topic, or nobody. */
async function alarmActions({ resolveVariable }) {
  return listOf(await resolveVariable('param:alarmTopic'));
}

function listOf(text) {
  return `${text}`
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '');
}

module.exports = { archive, callers, alarmActions };
