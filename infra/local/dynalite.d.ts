declare module 'dynalite' {
  import type { Server } from 'node:http';

  /** Source: dynalite's readme; only what is used here. */
  export interface DynaliteOptions {
    /** Directory of LevelDB; absent keeps all in memory. */
    readonly path?: string;
    /** Milliseconds that a table stays in CREATING. */
    readonly createTableMs?: number;
  }

  /** Closing the server also closes its database. */
  export default function dynalite(options?: DynaliteOptions): Server;
}
