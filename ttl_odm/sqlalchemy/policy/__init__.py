"""What ``__ttl__`` means for a table.

- `bindings`: the policy of one table: its columns, and the class whose ``__ttl__`` is the default.
- `looked_up`: a base for defaults that statements look up in the database, for extensions.
- `predicate`: the one predicate: whether a row is live or expired, as a SQL expression; and the
  ways around it: ``include_expired`` and ``keep_last_modified``.
- `references`: which rows expire with others, or keep others from going: rules, and foreign keys.
- `rules`: the seam for tables without a policy, whose rows expire with rows of another table.
- `schema`: the policy in the database's schema: a CHECK and two indexes, and the form in which
  views and jobs keep it.
- `second_tables`: the policy of a table for its second Table objects: reflected, automapped.
- `sources`: where the default of a table comes from: the class, or for extensions the database.
"""
