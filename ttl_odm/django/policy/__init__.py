"""What ``__ttl__`` means for a table.

- `associations`: which rows of a many-to-many relation's own table a query sees.
- `bindings`: what a policy means for one Django model, and which tables have one.
- `rules`: the seam for models without a policy, whose rows expire with rows of another model.
- `indexes`: `TTLIndex`, by which sweeps find expired rows; the indexes that a table has.
- `options`: what a query can ask of the gate; stored on Django's own Query, whose clones keep it.
- `sources`: the seam for default ttls that aren't in code.
- `predicate`: the one predicate: whether a row is live or expired, as SQL.
"""
