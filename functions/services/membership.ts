/** Which objects of a service hold an IP: what lets a change look only at the objects that it touches. */
export class Membership {
  /** Nearly every IP is in one object, so a lone holder is kept without a set around it. */
  private readonly holdersByIp = new Map<string, string | Set<string>>();

  add(uid: string, ips: Iterable<string>): void {
    for (const ip of ips) {
      const holders = this.holdersByIp.get(ip);
      if (holders === undefined) this.holdersByIp.set(ip, uid);
      else if (typeof holders !== 'string') holders.add(uid);
      else if (holders !== uid) this.holdersByIp.set(ip, new Set([holders, uid]));
    }
  }

  remove(uid: string, ips: Iterable<string>): void {
    for (const ip of ips) {
      const holders = this.holdersByIp.get(ip);
      if (holders === uid) this.holdersByIp.delete(ip);
      else if (holders instanceof Set) {
        holders.delete(uid);
        const [last, ...others] = holders;
        if (last !== undefined && others.length === 0) this.holdersByIp.set(ip, last);
      }
    }
  }

  /** uids of the objects that hold any of these IPs. */
  holders(ips: Iterable<string>): Set<string> {
    const uids = new Set<string>();
    for (const ip of ips) {
      const holders = this.holdersByIp.get(ip);
      if (typeof holders === 'string') uids.add(holders);
      else for (const uid of holders ?? []) uids.add(uid);
    }
    return uids;
  }

  /** Number of IPs, for the bounds of a cache. */
  get size(): number {
    return this.holdersByIp.size;
  }
}
