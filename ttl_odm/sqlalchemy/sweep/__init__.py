"""The sweeper's store.

- `advisory_leases`: leases by PostgreSQL's advisory locks: one that ends with its holder, at once.
- `batch`: purging one batch of expired rows.
- `due`: what has expired and was not purged yet: which part of a table's rows, for how long, how
  many.
- `foreign_keys`: foreign keys that refer to a swept table, as the live database has them.
- `index_windows`: where the next expired rows are, by the sweeper's indexes: one window after the
  other.
- `leases`: leases in a table: which sweeper of a database is at work, by the database's own clock.
- `partitions`: the partitions of a table on PostgreSQL, each of which is swept by itself.
- `store`: the sweeper's stores for SQLAlchemy: `SQLAlchemyStore` and `AsyncSQLAlchemyStore`.
- `table_walk`: where the next expired rows are, without an index: the table is walked, stretch by
  stretch.
- `targets`: what to sweep: the TTL tables of a declarative base, a registry, a MetaData, models or
  Tables.
- `transactions`: a connection in the sweeper's hands: how its transactions are kept short and out
  of the way.
"""
