"""The sweeper's store.

- `batch`: purging one batch of what has expired.
- `due`: what is due: whether a table has expired rows, since when, and which are next.
- `counts`: how many those are.
- `subqueries`: several querysets in one statement.
- `scopes`: which scopes of a stored default have expired rows.
- `scope_ranges`: the rows to delete where each scope has its own end.
- `stored_indexes`: the index by which a sweep comes from one scope to the next.
- `leases`: leases in the table of `Lease`: which sweeper of a database is at work, by the
  database's clock.
- `transactions`: how long its statements wait for locks, and run.
- `replication`: a connection whose writes replicas and subscribers don't hear of.
- `store`: `DjangoStore`: what the sweeper needs to know of a database of Django's.
"""
