import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { canonicalIp } from '../../core/ip.ts';

describe('an IP has one form (S14)', () => {
  const forms: Readonly<Record<string, readonly [text: string, ip: string]>> = {
    'IPv4 stands as it is': ['10.244.0.5', '10.244.0.5'],
    'the lowest IPv4': ['0.0.0.0', '0.0.0.0'],
    'the highest IPv4': ['255.255.255.255', '255.255.255.255'],
    'IPv6 in lower case': ['2001:DB8::A', '2001:db8::a'],
    'leading zeros of groups go': ['2001:0db8:0000:0000:0000:0000:0000:0010', '2001:db8::10'],
    'the longest run of zeros is compressed': ['2001:0:0:1:0:0:0:1', '2001:0:0:1::1'],
    'of two equal runs the first': ['2001:0:0:1:1:0:0:1', '2001::1:1:0:0:1'],
    'one zero group alone is not compressed': ['2001:db8:0:1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
    'a compressed single group is written out': ['2001:db8::1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
    'zeros at the start': ['0:0:0:0:0:0:0:1', '::1'],
    'zeros at the end': ['fe80:0:0:0:0:0:0:0', 'fe80::'],
    'nothing but zeros': ['0:0:0:0:0:0:0:0', '::'],
    'no zeros at all': ['1:2:3:4:5:6:7:8', '1:2:3:4:5:6:7:8'],
    'the end written as IPv4': ['64:ff9b::192.0.2.33', '64:ff9b::c000:221'],
    'nor is ffff behind anything else': ['64:ff9b::ffff:a00:1', '64:ff9b::ffff:a00:1'],
    'IPv4-compatible is not IPv4-mapped': ['::192.0.2.1', '::c000:201'],
  };
  for (const [sentence, [text, ip]] of Object.entries(forms))
    test(`${sentence}: ${text}`, () => {
      const family = ip.includes(':') ? 'IPv6' : 'IPv4';
      assert.deepEqual(canonicalIp(text), { ip, family });
      assert.deepEqual(canonicalIp(ip), { ip, family }, 'the canonical form is its own');
    });
});

describe('what is no IP, or an ambiguous one, is none (S14)', () => {
  const refusals: Readonly<Record<string, readonly string[]>> = {
    'leading zeros in IPv4': ['10.244.0.05', '010.0.0.1', '10.00.0.1'],
    'IPv4-mapped IPv6': ['::ffff:10.0.0.1', '::FFFF:0a00:0001', '0:0:0:0:0:ffff:a00:1'],
    'a zone': ['fe80::1%eth0', 'fe80::1%25'],
    'an octet above 255': ['10.0.0.256', '1.2.3.999'],
    'too few or too many octets': ['10.0.0', '10.0.0.1.2', '10.0.0.', '.10.0.0'],
    'too few or too many groups': ['1:2:3:4:5:6:7', '1:2:3:4:5:6:7:8:9', '::1:2:3:4:5:6:7:8'],
    'two compressions': ['1::2::3', ':::', '1:::2'],
    'a lone colon at an end': [':1:2:3:4:5:6:7', '1:2:3:4:5:6:7:', '1:2:3:4:5:6:7:8:'],
    'a group of five digits, or no hex': ['2001:db800::1', '2001:dg::1', '1:2:3:4:5:6:7:-8'],
    'IPv4 anywhere but at the end': ['1.2.3.4::1', '::1.2.3.4:5', '1:2:3:4:5:6:7:1.2.3.4'],
    'names, numbers and nothing': [
      'web-0',
      '',
      ' ',
      '10',
      '0x0a.0.0.1',
      '10.0.0.1 ',
      '+1.2.3.4',
      '１0.0.0.1',
    ],
  };
  for (const [sentence, texts] of Object.entries(refusals))
    test(sentence, () => {
      for (const text of texts) assert.equal(canonicalIp(text), null, text);
    });
});
