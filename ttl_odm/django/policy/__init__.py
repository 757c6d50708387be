"""What ``__ttl__`` means for a table.

- `associations`: which ties of a many-to-many relation a query sees.
- `binding`: what a policy means for one Django model, and which tables have one.
- `following`: models whose rows follow those of another, and what they follow.
- `joins`: which rows of a query need no look at their parents.
- `references`: which foreign keys keep expired rows.
- `indexes`: `TTLIndex` and `FollowsIndex`, by which sweeps find expired rows and their followers.
- `options`: what a query may ask of the gate; kept on Django's own Query, which hands it on to its
  clones.
- `stored`: how a statement looks up a default that the database stores.
- `timestamps`: which columns must not be a ``TIMESTAMP`` in sessions whose clocks change.
- `predicate`: the one predicate: whether a row is live or expired, as SQL.
"""
