"""Rows in memory.

- `bulk`: ``session.execute(update(Model))``: objects in memory follow the rows, not a guess.
- `flush`: a flush that meets an expired row: `ExpiredError` instead of silence.
- `identity_map`: the identity map never serves an expired object.
- `lifetime`: what a program does with one row's lifetime, whichever columns hold it.
"""
