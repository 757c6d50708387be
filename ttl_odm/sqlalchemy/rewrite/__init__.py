"""Pure functions: from what the user wrote to what the server gets.

- `from_clauses`: which condition a FROM element needs, by the way it enters a statement; joined
  eager loads never hide a live row behind an expired one.
- `selections`: the rows that an INSERT FROM SELECT selects.
- `statement_rules`: what a table's rule changes in statements.
- `unique_indexes`: the conditions of unique indexes over some rows, and those of MariaDB and MySQL
  over the first characters of a column.
- `upserts`: the update half of ON CONFLICT and ON DUPLICATE KEY keeps the contract too.
- `writes`: which tables a write changes, under which names, which of their rows, and what it sets:
  ``_ts`` by the server's clock, and the rest by column key.
"""
