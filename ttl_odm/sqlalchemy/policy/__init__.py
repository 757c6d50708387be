"""What ``__ttl__`` means for a table.

- `binding`: what a policy means for one table: which columns, and whose ``__ttl__`` is the
  default.
- `defaults`: the default ttl of a table, as its owner declares it at this moment.
- `foreign_keys`: foreign keys between tables with a policy: which of them keep a row from being
  deleted.
- `options`: ``include_expired`` and ``keep_last_modified``: the two ways around the contract.
- `parameters`: the values of a statement that may be others each time it runs, though its SQL is
  the same.
- `predicate`: the one predicate: whether a row is live or expired, as a SQL expression.
- `schema`: what ``create_all()`` adds to a model with the contract columns: a CHECK and two
  indexes.
- `tables`: tables, as SQLAlchemy hands them out.
"""
