/**
 * Runs a task for each item, at most `limit` at a time, in order. After a failure no new one is started; those under way
 * are waited for.
 * @throws the first failure.
 */
export async function inParallel<T>(
  limit: number,
  items: Iterable<T>,
  task: (item: T) => Promise<void>,
): Promise<void> {
  const queue = items[Symbol.iterator]();
  let failure: { readonly cause: unknown } | null = null;
  const work = async () => {
    for (let next = queue.next(); !next.done && failure === null; next = queue.next()) {
      try {
        await task(next.value);
      } catch (cause) {
        failure ??= { cause };
      }
    }
  };
  await Promise.all(Array.from({ length: limit }, work));
  if (failure !== null) throw (failure as { readonly cause: unknown }).cause;
}
