"""The removal of rows inside a transaction.

- `removal`: removes expired rows as their model declares it, and reports them to its hooks; what
  such a transaction locks first; the range of rows that a batch of a sweep removes.
- `orm_deletions`: removes expired rows as objects, through a session.
- `archive`: copies expired rows to another table, in the transaction that deletes them.
- `ties`: removes rows together that refer to one another.
- `statements`: the sweepers' own statements, and the conditions that pick rows by their keys.
- `errors`: the meaning of SQLAlchemy's errors; `ExpiredError`.
"""
