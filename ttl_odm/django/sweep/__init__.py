"""The sweeper's store.

- `batch`: purging one batch of what has expired.
- `due`: what is due: whether a table has expired rows, since when, and how many.
- `orphans`: rows that follow others, and whose parent is missing.
- `leases`: leases in the table of `Lease`: which sweeper of a database is at work, by the
  database's clock.
- `transactions`: how long its statements wait for locks, and run.
- `replication`: a connection whose writes replicas and subscribers don't hear of.
- `store`: `DjangoStore`: what the sweeper needs to know of a database of Django's.
"""
