"""What ``__ttl__`` means for a table.

- `bindings`: what a policy means for one table: which columns, and whose ``__ttl__`` is the
  default.
- `foreign_keys`: foreign keys between tables with a policy: which of them keep a row from being
  deleted.
- `looked_up`: a base for defaults that statements look up in the database, for extensions.
- `predicate`: the one predicate: whether a row is live or expired, as a SQL expression; and the
  ways around it: ``include_expired`` and ``keep_last_modified``.
- `rules`: the seam for tables whose rows expire with rows of another table.
- `schema`: what ``create_all()`` adds to a model with the contract columns: a CHECK and two
  indexes.
- `second_tables`: the policy of a table for its second Table objects: reflected, automapped.
- `sources`: where the default of a table comes from: the class, or for extensions the database.
- `whole`: a model's policy as one value over columns, as databases keep it, and a note of it.
"""
