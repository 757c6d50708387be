"""Where statements pass: here a SELECT gets its filter.

- `compiler`: the gate: SQLAlchemy's statement compiler puts the live predicate into every statement
  (`GatedCompiler._compose_select_body` into a SELECT's WHERE), but not while a policy changes.
- `execution`: the execution context in which such a statement runs; what is out of date is compiled
  again there; writes are sent before their keys are freed, and again once one was taken.
- `functions`: the predicate and the expiry for users, as SQL: `live`, `expired`, `expires_at`.
- `preparations`: what has to happen just before a compiled statement runs.
- `recompile`: statements that were compiled before a policy came to a table, or went: outdated.

The condition itself is `ttl_odm.sqlalchemy.policy.predicate`; which FROM elements need it,
`ttl_odm.sqlalchemy.rewrite.from_clauses`.
"""
