"""The guard: raw SQL that would see expired rows is reported, rejected or rewritten.

The gate sees what SQLAlchemy's compiler makes of models and Tables; raw SQL goes around it. An
engine that `ttl_odm.sqlalchemy.guard` was called for reads raw SQL, too, and so does a test with
`ttl_odm.testing.assert_no_leaks`. SQL is read with sqlglot, which the extra ``guard`` installs.

- `tables`: which tables raw SQL reads, where their names stand in it, and what it asks of them.
- `statements`: which statements can be understood.
- `words`: the words of a text, before it is parsed.
- `sqlalchemy`: what SQLAlchemy's engines do with that.
"""
