"""Dropping of what no kept version of a bank needs."""

from jaxrl_guided.complementary.bank.log import Log


def compact(log: Log, branch: int) -> tuple[int, int]:
    """Drops what neither a checkpoint nor the head of `branch` needs; versions between go.

    Returns:
      Entries and events that were dropped.

    Raises:
      StorageError: nothing was written.
    """
    database, execute = log.database, log.database.execute
    head = log.head(branch)
    kept = {head, *log.checkpoints().values()}
    entries = {entry for version in kept for entry in log.read(version).entries}
    upto: dict[int, int] = {}
    for version in kept:
        for seen, last in log.lineage(version):
            upto[seen] = max(last, upto.get(seen, 0))
    before = _counts(log)
    with database.transaction():
        execute("CREATE TEMP TABLE needed(entry INTEGER PRIMARY KEY)")
        execute("CREATE TEMP TABLE seen(branch INTEGER PRIMARY KEY, upto INTEGER)")
        many = database.connection.executemany
        many("INSERT INTO needed VALUES (?)", [(entry,) for entry in entries])
        many("INSERT INTO seen VALUES (?, ?)", list(upto.items()))
        execute(
            "DELETE FROM versions WHERE NOT EXISTS (SELECT 1 FROM seen "
            "WHERE seen.branch = versions.branch AND versions.id <= seen.upto)"
        )
        execute(
            "DELETE FROM branches WHERE id NOT IN (SELECT branch FROM seen) AND id != ?", (branch,)
        )
        execute(
            "DELETE FROM events WHERE version NOT IN (SELECT id FROM versions) "
            "OR entry NOT IN (SELECT entry FROM needed)"
        )
        execute("DELETE FROM entries WHERE id NOT IN (SELECT entry FROM needed)")
        database.set_fact("compacted", head)
        execute("DROP TABLE needed")
        execute("DROP TABLE seen")
    execute("VACUUM")
    after = _counts(log)
    return before[0] - after[0], before[1] - after[1]


def _counts(log: Log) -> tuple[int, int]:
    (entries,) = log.database.one("SELECT count(*) FROM entries")
    (events,) = log.database.one("SELECT count(*) FROM events")
    return entries, events
