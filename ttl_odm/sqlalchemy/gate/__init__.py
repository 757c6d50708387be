"""Where statements and operations pass.

- `before`: what has to happen just before a compiled statement runs.
- `compiler`: the gate: SQLAlchemy's statement compiler, with the live predicate in every
  statement.
- `context`: the execution context of statements that passed the gate.
- `functions`: the predicate and the expiry for users, as SQL: `live`, `expired`, `expires_at`.
- `recompile`: statements that were compiled before a policy came to a table, or went: compiled
  again.
- `retry`: mariaDB and MySQL: a second try for a write that fails on an expired row it could not
  see.
"""
