"""The sweeper's store.

- `batch`: purging one batch of expired rows.
- `due`: which rows are due: whether a table has expired rows, since when, and which are next.
- `counts`: how many rows are due.
- `walks`: the seam for sweeps that go from one default of a table to the next.
- `leases`: leases in the table of `Lease`, by the database's clock.
- `transactions`: the session of a sweep: how long its statements wait and run, its time zone, and
  whether its writes are replicated.
- `store`: `DjangoStore`, the sweeper's access to a database of Django's.
"""
