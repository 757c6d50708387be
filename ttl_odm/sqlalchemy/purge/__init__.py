"""Removing rows inside a transaction.

- `errors`: which errors of a database pass by themselves, and how each reads in one line.
- `modes`: what becomes of expired rows: ``__ttl_purge__``, and whom a model tells:
  ``__ttl_on_purged__``.
- `orm`: the mode ``"orm"``: expired rows are loaded and deleted as objects, with all that hangs on
  that.
- `removal`: removing expired rows in a transaction: archived if their model says so, and told to
  its hooks.
- `statements`: the statement that deletes expired rows, and the conditions that pick rows by their
  keys.
- `subtables`: joined inheritance: what sub-tables hold of a row goes with the row.
"""
