"""The sweeper's store.

The route of one batch: `SQLAlchemyStore.purge` runs `batch.purge` in a transaction. `next_range` of
the table's whereabouts (`Plain` for most tables) asks `due` or `table_walk` for the next expired
rows, `Batch._remove` builds the DELETE, and `Removal.by_statement` in the room of purge sends it.
Locked or referenced rows go through `CarefulBatch`.

- `store`: the sweeper's stores for SQLAlchemy, their targets, and how workers divide a table.
- `batch`: the purge of one batch of expired rows.
- `due`: whether a table has expired rows, and where the next ones are, by the sweeper's indexes;
  and which of these indexes a table has.
- `table_walk`: the walk through a table without an index, stretch by stretch, to its expired rows.
- `whereabouts`: the seams for tables whose rows aren't all in one place, can be removed as a whole,
  or have several defaults.
- `rings`: expired rows that stay only because expired rows refer to them.
- `foreign_keys`: foreign keys that refer to a swept table, from the live database.
- `counts`: the number of rows in a table, and how many of them have expired.
- `transactions`: the sweeper's transactions: short waits for locks, errors of the sweeper's own,
  and writes that can be kept from replicas.
- `leases`: leases in a table, which elect the sweeper of a database by the database's own clock.
- `advisory_leases`: leases by PostgreSQL's advisory locks, which end with their holder, at once.
"""
