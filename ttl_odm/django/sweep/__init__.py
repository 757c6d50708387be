"""The sweeper's store.

- `batch`: purging one batch of what has expired.
- `due`: what is due: whether a table has expired rows, since when, and which are next.
- `counts`: how many those are.
- `subqueries`: several querysets in one statement.
- `walks`: the seam for sweeps that go from one default of a table to the next.
- `stored_indexes`: the indexes that a table has in the database.
- `leases`: leases in the table of `Lease`: which sweeper of a database is at work, by the
  database's clock.
- `transactions`: how long its statements wait for locks, and run.
- `replication`: a connection whose writes replicas and subscribers don't hear of.
- `store`: `DjangoStore`: what the sweeper needs to know of a database of Django's.
"""
