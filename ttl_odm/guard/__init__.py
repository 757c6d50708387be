"""The guard: raw SQL that would see expired rows is reported, rejected or rewritten.

The gate sees statements that SQLAlchemy's compiler makes of models and Tables; raw SQL bypasses it.
After `ttl_odm.sqlalchemy.guard`, an engine checks raw SQL, too, and so does a test with
`ttl_odm.testing.assert_no_leaks`. SQL is parsed with sqlglot, which the extra ``guard`` installs.

- `tables`: which tables raw SQL reads, where it names them, and which columns its conditions use.
- `statements`: which statements can be understood.
- `words`: the words of a text, before it is parsed.
- `sqlalchemy`: how SQLAlchemy's engines use these.
"""
