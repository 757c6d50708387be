"""What ``__ttl__`` means for a table.

- `associations`: which ties of a many-to-many relation a query sees.
- `bindings`: what a policy means for one Django model, and which tables have one.
- `rules`: the seam for models whose rows expire with rows of another, by no policy of their own.
- `indexes`: `TTLIndex`, by which sweeps find expired rows; the indexes that a table has.
- `options`: what a query may ask of the gate; kept on Django's own Query, which hands it on to its
  clones.
- `sources`: the seam for default ttls that aren't in code.
- `timestamps`: which columns must not be a ``TIMESTAMP`` in sessions whose clocks change.
- `predicate`: the one predicate: whether a row is live or expired, as SQL.
"""
