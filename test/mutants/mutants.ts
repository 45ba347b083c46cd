// biome-ignore-all lint/suspicious/noTemplateCurlyInString: texts of code

/** A rule broken on purpose: tests that let it stand prove nothing of that rule. */
export interface Mutant {
  /** Rules that the code breaks when it is changed so. */
  readonly rules: readonly string[];
  /** From the root of the project. */
  readonly file: string;
  /** Text that occurs exactly once in the file, and what takes its place. */
  readonly find: string;
  readonly replace: string;
  /** What the broken code does. */
  readonly sentence: string;
}

/** A mutant of a file: rules, sentence, text, what takes its place. */
type Row = readonly [rules: string, sentence: string, find: string, replace: string];

const BY_FILE: Readonly<Record<string, readonly Row[]>> = {
  'core/address.ts': [
    ['S1', 'an address is known by its IP alone', '`${host}:${address.port}` as', 'host as'],
    [
      'S1',
      'IPv6 keys have no brackets',
      "address.ip.includes(':') ? `[${address.ip}]` : address.ip",
      'address.ip',
    ],
    [
      'S6',
      'published lists are sorted backwards',
      'a < b ? -1 : a > b ? 1 : 0',
      'a < b ? 1 : a > b ? -1 : 0',
    ],
  ],

  'core/address-set.ts': [
    [
      'S11',
      'the newest slice tells the tier, though another says ready',
      "if (isReady !== (b.entry.condition === 'ready')) return isReady;",
      '',
    ],
    [
      'S11',
      'the oldest slice tells the metadata',
      '(a.object.uid < b.object.uid ? -1 : 1)) > 0',
      '(a.object.uid < b.object.uid ? 1 : -1)) < 0',
    ],
    ['S11', 'of one version the smaller uid tells', 'b.object.uid ? -1 : 1', 'b.object.uid ? 1 : -1'],
    [
      'S11',
      'within a slice the last endpoint of an IP counts',
      'compareWithinObject(entry, other.entry) < 0',
      'true',
    ],
    [
      'S2 S11',
      'the first slice alone tells of an address',
      'prevails(candidate, other, counted.preferredKind)) union',
      'false) union',
    ],
    [
      'S12 S44',
      'versions of two kinds are compared',
      'if (a.object.kind !== b.object.kind) return a.object.kind === preferredKind;',
      '',
    ],
    [
      'S17',
      'a slice port of another protocol counts beside one of the right one',
      'ports.filter((port) => port.name === name && port.protocol === protocol)',
      'ports.filter((port) => port.name === name)',
    ],
    [
      'S17 S21',
      'a name is in use whatever its protocol',
      'port.name === name && port.protocol === lookup.servicePort.protocol',
      'port.name === name',
    ],
    [
      'S17',
      'a slice without the name exposes all its ports',
      'name === null ? [] : ports.filter',
      'name === null ? ports : ports.filter',
    ],
    [
      'S18',
      'an IP with two numbers is one address',
      'const key = addressKey({ ip: entry.ip, port });',
      'const key = addressKey({ ip: entry.ip, port: lookup.servicePort.port });',
    ],
    [
      'S19',
      'a headless Service without ports has no addresses',
      'if (number === 0) return () =>',
      'if (number < 0) return () =>',
    ],
    [
      'S23',
      'the oldest former name counts first',
      'formerNames.findLast(carries)',
      'formerNames.find(carries)',
    ],
    [
      'S23',
      'the former name goes before the present one',
      'carries(name) ? name : (lookup.formerNames.findLast(carries) ?? null)',
      'lookup.formerNames.findLast(carries) ?? (carries(name) ? name : null)',
    ],
    [
      'S32',
      'a pod of a mirror has the identity of its gateway',
      'target === null ? object.content().mirror : null',
      'object.content().mirror',
    ],
    [
      'S32',
      "the authority has the endpoint's port",
      '`${mirror.remoteName}:${servicePort.port}`',
      '`${mirror.remoteName}:${port}`',
    ],
    [
      'S40',
      'in two subsets an address is as ready as in the better one',
      "object.kind === 'Endpoints' ? demote(object, lookup, byKey) : byKey",
      'byKey',
    ],
    [
      'S40',
      'an address that is not ready under one protocol is not ready under any',
      'ports.filter((port) => port.protocol === protocol).map(({ port }) => port)',
      'ports.map(({ port }) => port)',
    ],
    [
      'S40',
      'an address that is not ready on one port is not ready on any',
      'const candidate = byKey.get(addressKey({ ip: entry.ip, port }));',
      'const candidate = [...byKey.values()].find((other) => other.entry.ip === entry.ip);',
    ],
    ['S5', 'a new zone is no change', 'a.zone === b.zone &&', ''],
    ['S5', 'a new hostname is no change', 'a.hostname === b.hostname &&', ''],
    ['S5', 'a new pod under one address is no change', 'equalTargets(a.target, b.target) &&', ''],
    ['S5 S24', 'another appProtocol is no change', 'a.appProtocol === b.appProtocol &&', ''],
    ['S5', 'an opaque protocol is no change', 'a.opaqueProtocol === b.opaqueProtocol &&', ''],
    ['S5', 'lost hints are no change', 'JSON.stringify(a.hints) === JSON.stringify(b.hints) &&', ''],
  ],

  'core/changes.ts': [
    [
      'S2',
      'what a deleted slice said stays',
      '      this.objects.delete(uid);\n      this.applied.push',
      '      this.applied.push',
    ],
    [
      'S45',
      'an older version takes the place of a newer one',
      "if (order < 0) return { kind: 'stale' };",
      '',
    ],
    [
      'S3 S45',
      'of two uids with one version the last to come stays',
      "return uid > rival.uid ? { kind: 'news', replaced } : { kind: 'stale' };",
      "return { kind: 'news', replaced };",
    ],
    ['S45', 'the same version is news', "if (replaced === null) return { kind: 'known' };", ''],
    [
      'S45',
      'a replay revives what was deleted',
      "if (deletion !== undefined && compareVersions(version, deletion.version) <= 0) return { kind: 'stale' };",
      '',
    ],
    [
      'S45',
      'a replay of the very version of the deletion revives',
      'compareVersions(version, deletion.version) <= 0',
      'compareVersions(version, deletion.version) < 0',
    ],
    [
      'S45',
      'a deletion of what was never seen is not remembered',
      '    if (live === null) {\n      this.remember(uid, remembered);',
      '    if (live === null) {',
    ],
    [
      'S45',
      'an older deletion takes a newer object away',
      'if (recorded !== null && !change.isStateUnknown && compareVersions(version, recorded) < 0)',
      'if (false)',
    ],
    ['S45', 'a deletion is remembered for one minute', '= 10 * 60_000', '= 60_000'],
    ['S45', 'deletions are never forgotten', 'if (this.now - at > DELETION_MEMORY_MS)', 'if (this.now < at)'],
    [
      'S45',
      'a namesake with another uid stays beside the new one',
      'this.objects.delete(verdict.replaced);',
      '',
    ],
    ['S45', 'the replaced uid may come back', '      this.rememberReplaced(rival, object.version);\n', ''],
    [
      'S35 S45',
      'the deletion of a former Service takes the present one away',
      "if (kind === 'Service') return this.service?.uid === uid ? this.service : null;",
      "if (kind === 'Service') return this.service;",
    ],
    [
      'S45',
      'a deletion by name means any kind',
      'if (object.kind === kind && object.name === name) return object.uid;',
      'if (object.name === name) return object.uid;',
    ],
    [
      'S44',
      'a made-up state has to be newer',
      "if (change.isStateUnknown) return { kind: 'news', replaced };",
      '',
    ],
    [
      'S45 P5',
      'a confirmed version is not recorded',
      'return isConfirmed || isStateUnknown;',
      'return isStateUnknown;',
    ],
    ['P5', 'an unchanged version is recorded', 'return isConfirmed || isStateUnknown;', 'return true;'],
    [
      'S5',
      'a Service of a new version alone is a change',
      "JSON.stringify({ ...a, version: '' }) === JSON.stringify({ ...b, version: '' })",
      'JSON.stringify(a) === JSON.stringify(b)',
    ],
    [
      'S7',
      'news of pods at one version never count',
      "verdict.kind === 'known' && !isNewerEnrichment(object, current)",
      "verdict.kind === 'known'",
    ],
    [
      'S7',
      'older news of pods count',
      "verdict.kind === 'known' && !isNewerEnrichment(object, current)",
      'false',
    ],
    [
      'S10',
      'a leave that comes first is not remembered',
      '      this.remember(change.uid, change.version);\n',
      '',
    ],
    [
      'S10',
      'a leave from before the return takes the slice away',
      'compareVersions(recorded, change.version) > 0)',
      'compareVersions(recorded, change.version) > 1e9)',
    ],
  ],

  'core/delta.ts': [
    ['P2', 'removed keys stay in the digest', 'sum -= hash(key)', 'sum -= 0n'],
    [
      'P2',
      'a digest falls below nothing',
      '((sum % DIGEST_MODULUS) + DIGEST_MODULUS)',
      '(sum % DIGEST_MODULUS)',
    ],
  ],

  'core/diff.ts': [
    ['S26', 'what is not ready is published', "if (occurrence.condition !== 'ready') continue;", ''],
    [
      'S4',
      'an address that stays is removed and added',
      "occurrence.condition === 'ready' && readyAt(after, key) === null",
      "occurrence.condition === 'ready'",
    ],
    [
      'S28',
      'an address that is no longer ready stays',
      "return occurrence?.condition === 'ready' ? occurrence : null;",
      'return occurrence ?? null;',
    ],
    ['S6', 'what was added is in the order of the slices', 'added: added.sort(byKey)', 'added'],
    ['S6', 'what was removed is in the order of the slices', 'removed: removed.sort(byKey)', 'removed'],
    [
      'S5',
      'a new zone is a removal and an addition',
      'updated.push({ address: occurrence.address, former: former.address });',
      '{ removed.push(former.address); added.push(occurrence.address); }',
    ],
  ],

  'core/endpoint-object.ts': [
    [
      'S43 S5',
      'an annotation alone is a change',
      'a === b || JSON.stringify(a) === JSON.stringify(b)',
      'a === b',
    ],
    ['S6', 'the order of endpoints is a change', '.sort((a, b) => compareText(a.ip, b.ip))', ''],
    [
      'S6',
      'the order of ports is a change',
      '[...ports].sort(([a], [b]) => compareText(a, b))',
      '[...ports]',
    ],
    ['S11', 'draining is no better than not ready', 'draining: 1,', 'draining: 2,'],
    [
      'S11',
      'within a slice the largest target counts',
      'compareText(targetText(a.target), targetText(b.target))',
      'compareText(targetText(b.target), targetText(a.target))',
    ],
    ['S17', 'a nil name is not the empty one', "name: name ?? ''", "name: name ?? 'null'"],
    [
      'S20',
      'a slice port without a number is one',
      '!isPortNumber(port) || protocol === null',
      'protocol === null',
    ],
    ['S24', 'the appProtocol is not published', 'appProtocol: appProtocol || null', 'appProtocol: null'],
    [
      'S30',
      'a target without a namespace is in none',
      'namespace: ref.namespace || namespace',
      "namespace: ref.namespace ?? ''",
    ],
    ['S31', 'only pods are targets', 'if (!ref?.name)', "if (!ref?.name || ref.kind !== 'Pod')"],
    ['S32', 'an empty identity is one', "value === undefined || value === '' ||", 'value === undefined ||'],
    [
      'S32',
      'the cluster of a mirror is not told',
      'mirrorValue(metadata.labels?.[MIRROR_CLUSTER])',
      'mirrorValue(undefined)',
    ],
    ['S7', "the pod's node goes before the slice's", 'known.node ?? pod?.node', 'pod?.node ?? known.node'],
    ['S7', 'what is known of pods counts for any kind', "known.target?.kind === 'Pod' ?", 'known.target ?'],
    [
      'S35',
      'an owner of any name makes a left-over',
      "owner.kind === 'Service' && owner.name === service",
      "owner.kind === 'Service'",
    ],
  ],

  'core/endpoints.ts': [
    ['S41', 'absent subsets are an error', 'object.subsets ?? []', '(object.subsets as RawSubset[])'],
    ['S40', 'in both lists means ready', 'ready.filter((entry) => !demoted.has(entry.ip))', 'ready'],
    ['S42', 'any capacity annotation means truncated', "=== 'truncated'", '!== undefined'],
    ['S14', 'a senseless IP of Endpoints is published', 'if (address === null) continue;', ''],
    ['S39', 'Endpoints have no hostnames', 'hostname: hostname || null', 'hostname: null'],
  ],

  'core/ip.ts': [
    ['S14', 'leading zeros of IPv4 are read', '/^(?:0|[1-9]\\d{0,2})$/', '/^\\d{1,3}$/'],
    ['S14', 'IPv4-mapped IPv6 is read', 'groups === null || isIpv4Mapped(groups)', 'groups === null'],
    ['S14', 'upper-case IPv6 is none', 'parseIpv6(text.toLowerCase())', 'parseIpv6(text)'],
    [
      'S14',
      'the last longest run of zeros is compressed',
      'end - start > best.length',
      'end - start >= best.length',
    ],
    ['S14', 'an octet may be above 255', 'Number(octet) <= 255', 'Number(octet) <= 999'],
  ],

  'core/query.ts': [
    [
      'S22',
      'a hostname does not make a port raw',
      'state.service?.isHeadless || filter.hostname !== undefined',
      'state.service?.isHeadless',
    ],
    [
      'S22',
      'every number is answered for every pod',
      '(state.service?.isHeadless || filter.hostname !== undefined)',
      'true',
    ],
    ['S22', 'a raw port has the number of the slice', '      port: asked.port,\n', ''],
    [
      'S22 S32',
      'a raw port has the authority of a headless one',
      'address.authority?.replace(/\\d+$/, `${asked.port}`) ?? null',
      'address.authority',
    ],
    [
      'S27',
      'effective falls back only when nobody is ready anywhere',
      "filter.tier === 'effective' && near.length === 0",
      "filter.tier === 'effective' && ready.length === 0",
    ],
    [
      'S27',
      'draining counts as not ready',
      'occurrences.length - ready.length - allDraining.length',
      'occurrences.length - ready.length',
    ],
    [
      'S33',
      'hints count though an address has none',
      'place === undefined || addresses.some((address) => (address.hints?.[hint].length ?? 0) === 0)',
      'place === undefined',
    ],
    ['S33', 'a zone without hints gets nothing', 'near.length === 0 ? null : near', 'near'],
    [
      'S33',
      'zone hints go before node hints',
      "byHint(named, 'forNodes', filter.node) ?? byHint(named, 'forZones', filter.zone) ?? named",
      "byHint(named, 'forZones', filter.zone) ?? byHint(named, 'forNodes', filter.node) ?? named",
    ],
    ['S33', 'Local policy counts without a node', 'isLocal && filter.node !== undefined;', 'isLocal;'],
    [
      'S33',
      'Local policy falls back on all',
      'isLocal && node !== undefined ? addresses.filter((address) => address.node === node) : addresses',
      'addresses',
    ],
    [
      'S33',
      'the family goes before the hints',
      'byHostname(ready, filter);',
      'byFamily(byHostname(ready, filter), filter);',
    ],
    ['S33', 'hints are looked for before the hostname', 'byHostname(ready, filter);', 'ready;'],
    [
      'S39',
      'a hostname is found by its beginning',
      'address.hostname === hostname',
      'address.hostname?.startsWith(hostname)',
    ],
  ],

  'core/rename-window.ts': [
    [
      'S23',
      'a re-pointed port opens a window',
      'if (counted.some((object) => carriesPort(object, from) && carriesPort(object, port))) return undefined;',
      '',
    ],
    ['S23', 'a window never closes by time', 'if (now >= window.until) return true;', ''],
    [
      'S23',
      'after a second rename the window closes when all follow',
      'if (window.isRepeated) return false;',
      '',
    ],
    [
      'S23',
      'a window stays open when all have followed',
      'return counted.every((object) =>',
      'return false && counted.every((object) =>',
    ],
    ['S23', 'a window lasts a minute', '= 10_000', '= 60_000'],
    [
      'S23',
      'a second rename does not prolong the window',
      'until: (now + RENAME_WINDOW_MS) as EpochMs',
      'until: open?.until ?? ((now + RENAME_WINDOW_MS) as EpochMs)',
    ],
    [
      'S23',
      'a second rename forgets the first name',
      '(open?.formerNames ?? []).filter((name) => name !== from.name)',
      '[] as string[]',
    ],
    [
      'S23 S35',
      'a recreated Service keeps the former names of its ports',
      'before.service !== null && before.service.uid === after.service?.uid',
      'before.service !== null && after.service !== null',
    ],
  ],

  'core/service-port.ts': [
    [
      'S21',
      'two protocols on one number are one service port',
      "port.protocol === 'TCP' ? `${port.port}` : `${port.port}/${port.protocol}`",
      '`${port.port}`',
    ],
    ['S17', 'a nil protocol is none', "raw === null || raw === undefined || raw === ''", "raw === ''"],
    ['S20', 'port 0 is a number', 'value >= 1', 'value >= 0'],
  ],

  'core/service-state.ts': [
    [
      'S35',
      'left-overs of a former Service count',
      'return ownerUids.length > 0 && !ownerUids.includes(service.uid);',
      'return false;',
    ],
    ['S35 S37', 'slices without an owner do not count', 'ownerUids.length > 0 && !', '!'],
    ['S2', 'one slice counts', '[...among].filter(', '[...among].slice(0, 1).filter('],
    [
      'S37',
      'a Service without a selector has no ports',
      '(state.service?.ports ?? [])',
      '(state.service?.hasSelector ? state.service.ports : [])',
    ],
    ['S42', 'a truncated set is not said to be', 'if (object.isTruncated) return true;', 'continue;'],
  ],

  'core/service.ts': [
    ['S19', 'a headless Service without ports has no port', '? [PORTLESS] : ports', '? [] : ports'],
    [
      'S36',
      'an ExternalName has the ports that it lists',
      'isExternalName ? { ports: [], skipped: 0 } : readPorts',
      'readPorts',
    ],
    ['S33', 'internalTrafficPolicy is not read', "spec?.internalTrafficPolicy === 'Local'", 'false'],
    [
      'S20 P6',
      'a Service port without a number is one',
      '!isPortNumber(port) || protocol === null',
      'protocol === null',
    ],
  ],

  'core/slice.ts': [
    ['S8', 'an empty label names a service', 'if (label) return', 'if (label !== undefined) return'],
    [
      'S8',
      'a slice without a label is nobody’s',
      "metadata.ownerReferences?.find((owner) => owner.kind === 'Service' && owner.name)?.name ?? null",
      'null',
    ],
    ['S8', 'an owner of any kind names a service', "owner.kind === 'Service' && owner.name)", 'owner.name)'],
    [
      'S9',
      'slices that nobody manages do not count',
      'if (label) return',
      "if (label && metadata.labels?.['endpointslice.kubernetes.io/managed-by']) return",
    ],
    [
      'S13',
      'FQDN slices are read',
      "return !slice.addressType || slice.addressType === 'IPv4'",
      "return slice.addressType !== '' || slice.addressType === 'IPv4'",
    ],
    ['S13', 'IPv6 slices are ignored', " || slice.addressType === 'IPv6'", ''],
    [
      'S14',
      'an IP of the other family is published',
      'return !addressType || addressType === family;',
      'return true;',
    ],
    [
      'S15',
      'the last address of an endpoint counts',
      "raw.addresses?.[0] ?? ''",
      "raw.addresses?.at(-1) ?? ''",
    ],
    ['S16', 'null endpoints are an error', 'slice.endpoints ?? []', '(slice.endpoints as RawEndpoint[])'],
    ['S16', 'null ports are an error', 'slice.ports ?? []', '(slice.ports as [])'],
    ['S25', 'nil ready is not ready', 'conditions?.ready ?? true', 'conditions?.ready ?? false'],
    ['S25', 'nil serving is not serving', 'conditions?.serving ?? true', 'conditions?.serving ?? false'],
    [
      'S25',
      'nil terminating is terminating',
      'conditions?.terminating ?? false',
      'conditions?.terminating ?? true',
    ],
    [
      'S26',
      'a terminating endpoint is not ready',
      "if (isReady) return 'ready';",
      "if (isReady && !isTerminating) return 'ready';",
    ],
    [
      'S26',
      'an endpoint that does not serve is not ready',
      "if (isReady) return 'ready';",
      "if (isReady && isServing) return 'ready';",
    ],
    ['S27', 'nothing drains', "return isServing ? 'draining' : 'terminating';", "return 'terminating';"],
    ['S30', 'node hints are not published', 'names(raw?.forNodes)', 'names(null)'],
    ['S30', 'the zone is not published', 'zone: raw.zone || null', 'zone: null'],
    [
      'S5 S30',
      'empty hints are hints',
      'forZones.length === 0 && forNodes.length === 0 ? null : { forZones, forNodes }',
      '({ forZones, forNodes })',
    ],
    [
      'S6',
      'the order of hints is a change',
      '.map((item) => item.name))].sort(compareText)',
      '.map((item) => item.name))]',
    ],
  ],

  'core/transition.ts': [
    ['S12', 'the sender’s kind prevails at once', 'isKindLeft ? before.preferredKind : kind', 'kind'],
    ['S29', 'a deleted Service is no reason', "if (!exists) return () => 'serviceDeleted';", ''],
    [
      'S29',
      'a removed port is no reason',
      "if (port === undefined) return () => 'portRemoved';",
      "if (port === undefined) return () => 'gone';",
    ],
    [
      'S29',
      'terminating is no reason',
      "if (condition === 'terminating' || condition === 'draining') return 'terminating';",
      '',
    ],
    ['S29', 'notReady is no reason', "if (condition === 'notReady') return 'notReady';", ''],
    [
      'S10 S29',
      'a move is no reason',
      "=== 'ready' ? 'sliceMoved' : 'gone'",
      "=== 'ready' ? 'gone' : 'gone'",
    ],
    [
      'S34',
      'slices alone make a service exist',
      'const exists = after.service !== null;',
      'const exists = after.service !== null || after.objects.size > 0;',
    ],
    [
      'S38',
      'a Service first seen without addresses says nothing',
      '? is !== undefined :',
      '? set.size > 0 :',
    ],
    ['S38', 'an empty Service that goes says nothing', 'said.exists !== exists || ', ''],
    ['S38', 'a port removed earlier never speaks again', ', ...before.ports.keys()]', ']'],
    [
      'S38 P2',
      'sequences restart with a new Service',
      '(said?.sequence ?? 0) + 1',
      '(said?.exists ? said.sequence : 0) + 1',
    ],
    [
      'S38',
      'every change of a slice is told',
      '|| !isEmptyDifference(difference);',
      '|| applied.length > 0;',
    ],
    [
      'S42',
      'the flag alone makes a delta',
      '|| !isEmptyDifference(difference);',
      '|| !isEmptyDifference(difference) || isTruncated(before) !== isTruncated(after);',
    ],
    [
      'S23',
      'a window closes only when the Service changes',
      'before.windows.size === 0 && !applied',
      '!applied',
    ],
    [
      'S23',
      'while a window is open only what was touched is looked at',
      'before.windows.size + after.windows.size > 0 ||',
      '',
    ],
    [
      'S47',
      'the newest trigger of a batch counts',
      'isEarlier(triggeredAt, oldest)',
      'isEarlier(oldest, triggeredAt)',
    ],
    [
      'S43 S5',
      'a batch that changes nothing is computed',
      'isChanged || after.windows !== before.windows ? diffPorts(before, after, applied, context) : []',
      'diffPorts(before, after, applied, context)',
    ],
    [
      'S38',
      'what is removed still counts in the size',
      '(said?.size ?? 0) + added.length - removed.length',
      '(said?.size ?? 0) + added.length',
    ],
  ],

  'core/version.ts': [
    [
      'S44',
      'versions are compared as text',
      'if (left.length !== right.length) return left.length - right.length;',
      '',
    ],
    [
      'S44',
      'versions are compared as numbers',
      'return left < right ? -1 : left > right ? 1 : 0;',
      'return Number(left) - Number(right);',
    ],
    [
      'S44',
      'leading zeros count',
      "version.startsWith('0') ? version.replace(/^0+(?=\\d)/, '') : version",
      'version',
    ],
  ],

  'functions/ingest/intake.ts': [
    [
      'S4',
      'each event of a batch is a batch of its own',
      '`${where.namespace}/${where.name}`',
      '`${where.namespace}/${where.name}/${index}`',
    ],
    ['S10', 'a moved slice stays in its former service', '(service) => service !== name', '() => false'],
    ['S10', 'a slice leaves the service that it is in', '(service) => service !== name', '() => true'],
    [
      'S8 S10',
      'a slice that is nobody’s now stays where it was',
      "if (name === null) return ignored('the slice names no Service: neither label nor owner (S8)', leaves);",
      "if (name === null) return ignored('the slice names no Service: neither label nor owner (S8)');",
    ],
    [
      'S10',
      'a deleted slice stays in its former service',
      'return { changes: [...leaves, own], unplaced: null, ignored: null, skipped: 0 };',
      'return { changes: [own], unplaced: null, ignored: null, skipped: 0 };',
    ],
    [
      'S12',
      'both kinds count in every mode',
      "const isOtherMode = kind !== 'Service' &&",
      "const isOtherMode = kind === 'Service' &&",
    ],
    [
      'S13',
      'FQDN slices count',
      "kind === 'EndpointSlice' && !isIpSlice",
      "kind !== 'EndpointSlice' && !isIpSlice",
    ],
    ['S45', 'a deletion without service is dropped', 'if (!event.stateUnknown) return', 'if (event) return'],
    [
      'S47',
      'what is no time is a trigger',
      'parsed.success ? parsed.data : null',
      'annotations?.[TRIGGER_TIME] ?? null',
    ],
    ['S47', 'deletions have a trigger', "event.type === 'DELETED' ? null : ", ''],
    [
      'S47',
      'the time of observation is that of receipt',
      'event.observedAt ?? context.receivedAt',
      'context.receivedAt',
    ],
    [
      'S44',
      'a made-up state is an event like any other',
      'isStateUnknown: event.stateUnknown',
      'isStateUnknown: false',
    ],
    ['S7', 'what the relay knows of pods is dropped', 'event.enrich ?? {}', '{}'],
    ['P6', 'skipped values are not counted', 'skipped += placement.skipped;', ''],
  ],

  'functions/ingest/move-order.ts': [
    [
      'S10',
      'a slice joins before it has left',
      '(leaving.get(change.index) ?? []).every((other) => other === own)',
      'leaving.size >= 0',
    ],
    ['S10', 'where moves run in a circle the rest is lost', 'rest = others;', 'rest = [];'],
    [
      'S10',
      'what the opener of a circle joins is lost',
      '...(others.length > 0 ? [{ place, changes: others }] : []),',
      '',
    ],
  ],

  'wire/events.ts': [
    ['S46', 'a BOOKMARK is an object', "if (type === 'BOOKMARK')", "if (type === 'bookmark')"],
    [
      'S45',
      'a deletion without uid is taken',
      'object.metadata[field] !== null || stateUnknown',
      'object.metadata[field] !== undefined',
    ],
  ],
};

/** Every rule of sets that has code is broken at least once. */
export const MUTANTS: readonly Mutant[] = Object.entries(BY_FILE).flatMap(([file, rows]) =>
  rows.map(([rules, sentence, find, replace]) => ({
    rules: rules.split(' '),
    file,
    find,
    replace,
    sentence,
  })),
);
