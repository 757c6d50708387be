"""Rows in memory.

- `arrivals`: rows that are loaded for objects in memory, and may be new rows under old keys.
- `bulk`: ``session.execute(update(Model))``: objects in memory agree with the rows.
- `ends`: what a session knows of the ends of the rows that it has in memory, and whether the rows
  that a flush writes are still those of its objects.
- `flush`: a flush that meets an expired row: `ExpiredError` instead of silence.
- `identity_map`: the identity map never serves an expired object.
- `lifetime`: what a program does with one row's lifetime, in whichever columns it is stored.
- `new_rows`: rows that a flush inserts, and whose stamps it reads.
- `renewals`: `touch` as a statement.
"""
