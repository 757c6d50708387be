"""The removal of rows inside a transaction.

- `removal`: removes expired rows as their model declares it, and reports them to its hooks.
- `archive`: copies expired rows to another table, in the transaction that deletes them.
- `ties`: removes rows together that refer to one another.
- `statements`: the sweepers' own statements, and the conditions that pick rows: by their keys, or a
  range of them.
- `errors`: the meaning of SQLAlchemy's errors; `ExpiredError`.
"""
