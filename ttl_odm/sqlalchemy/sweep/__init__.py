"""The sweeper's store.

- `store`: the sweeper's stores for SQLAlchemy, what they sweep, and what their workers share.
- `batch`: purging one batch of expired rows.
- `due`: what has expired, by the sweeper's indexes: whether, and where next; and which of these
  indexes a table has.
- `table_walk`: where the next expired rows are without an index: the table is read in stretches.
- `whereabouts`: the seam for tables whose rows aren't all in one place, can be removed as a whole,
  or have several defaults.
- `rings`: expired rows that stay only because expired rows refer to them.
- `foreign_keys`: foreign keys that refer to a swept table, as the live database has them.
- `counts`: how many rows a table has, and how many of them have expired.
- `transactions`: a connection in the sweeper's hands: its transactions are short, its errors are
  the sweeper's, and its writes can be kept from replicas.
- `leases`: leases in a table: which sweeper of a database is at work, by the database's own clock.
- `advisory_leases`: leases by PostgreSQL's advisory locks: one that ends with its holder, at once.
"""
