"""The keys of expired rows are free.

- `conversions`: what the database stores for a value, where that is another one.
- `defaults`: what the database makes of a key: defaults, generated columns.
- `displace`: deleting the expired rows that stand in the way of a write, in the write's
  transaction.
- `ignored`: rows that an INSERT leaves out for a conflict.
- `ruled`: the rows that may hold a key of a table with a rule.
- `table_keys`: the keys of a table, and which of them a row has.
- `taken`: which keys a write is about to take, and the statement that frees them of expired rows
  just before it.
- `upserts`: the rows that an upsert meets, which its update half may move onto a key.
"""
