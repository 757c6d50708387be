"""The database's clock, and columns that hold instants.

- `clock`: the database's clock, as each of Django's backends spells it, and the forms that
  instants have.
- `expressions`: instants of the database's clock, for queries of our own: `DatabaseNow`, `Ahead`,
  `Cutoff`.
- `fields`: the two fields of the contract: `LastModifiedField` (column ``_ts``) and `TTLField`.
- `stamps`: what a write puts into the field of the last modification: the database's clock, and no
  other.
"""
