"""Where statements pass: here a SELECT gets its filter.

- `compiler`: the gate: SQLAlchemy's statement compiler puts the live predicate into every statement
  (`GatedCompiler._compose_select_body` into a SELECT's WHERE), and compiles statements again after
  a policy has changed.
- `execution`: the execution context in which such a statement runs; writes are sent before their
  keys are freed, and again after they met a taken one.
- `functions`: the predicate and the expiry for users, as SQL: `live`, `expired`, `expires_at`.
- `preparations`: what has to happen just before a compiled statement runs.

The condition itself is in `ttl_odm.sqlalchemy.policy.predicate`; which FROM elements need it, in
`ttl_odm.sqlalchemy.rewrite.from_clauses`.
"""
