"""What ``__ttl__`` means for a table.

- `binding`: what a policy means for one table: which columns, and whose ``__ttl__`` is the
  default.
- `changes`: reading and changing a default that the database stores.
- `foreign_keys`: foreign keys between tables with a policy: which of them keep a row from being
  deleted.
- `known`: what a process knows of stored defaults, for rows in memory.
- `parameters`: what may be another each time a statement runs: the default ttl,
  ``include_expired`` and ``keep_last_modified``.
- `predicate`: the one predicate: whether a row is live or expired, as a SQL expression.
- `rules`: the seam for tables whose rows expire with rows of another table.
- `schema`: what ``create_all()`` adds to a model with the contract columns: a CHECK and two
  indexes.
- `stored`: where defaults are stored, and how a statement looks one up.
- `second_tables`: the policy of a table for its second Table objects: reflected, automapped.
- `whole`: a model's policy as one value over columns, as databases keep it, and a note of it.
"""
