"""Pure: from what the user wrote to what the server gets.

- `from_clauses`: which condition a FROM element needs, by the way it enters a statement.
- `parents`: conditions for the parents that a statement puts rows under, where SQL names them.
- `prefixes`: unique indexes of MariaDB and MySQL over the first characters of a column.
- `raw_sql`: which tables raw SQL reads, and where they stand; `raw_statements`: which of its
  statements can be understood; `raw_words`: its words.
- `stamps`: what an INSERT or UPDATE writes: ``_ts`` by the server's clock, and the rest by column
  key.
- `targets`: which tables a write changes, under which names, and which of their rows.
- `upserts`: the update half of ON CONFLICT and ON DUPLICATE KEY keeps the contract too.
"""
