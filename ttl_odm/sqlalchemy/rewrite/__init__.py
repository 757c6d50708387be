"""Pure: from what the user wrote to what the server gets.

- `from_clauses`: which condition a FROM element needs, by the way it enters a statement.
- `stamps`: resetting ``_ts`` by the server's clock on every write that passes the gate.
- `upserts`: upserts: the update half of ON CONFLICT and ON DUPLICATE KEY keeps the contract too.
- `values`: what an INSERT or UPDATE writes, by column key.
"""
