"""Pure: from what the user wrote to what the server gets.

- `eager_joins`: joined eager loads never hide a live row behind an expired one.
- `from_clauses`: which condition a FROM element needs, by the way it enters a statement.
- `selections`: what an INSERT FROM SELECT selects.
- `statement_rules`: what a table's rule makes of statements.
- `target_lookup`: the tables that a write changes, when it is about to run.
- `unique_indexes`: the conditions of unique indexes over some rows, and those of MariaDB and MySQL
  over the first characters of a column.
- `upserts`: the update half of ON CONFLICT and ON DUPLICATE KEY keeps the contract too.
- `writes`: which tables a write changes, under which names, which of their rows, and what it sets:
  ``_ts`` by the server's clock, and the rest by column key.
"""
