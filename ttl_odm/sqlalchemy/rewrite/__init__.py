"""Pure: from what the user wrote to what the server gets.

- `from_clauses`: which condition a FROM element needs, by the way it enters a statement.
- `stamps`: what an INSERT or UPDATE writes: ``_ts`` by the server's clock, and the rest by column
  key.
- `upserts`: the update half of ON CONFLICT and ON DUPLICATE KEY keeps the contract too.
"""
