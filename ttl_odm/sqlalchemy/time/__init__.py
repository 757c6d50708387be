"""The database's clock, and columns that hold instants.

- `clock`: the database's clock: in SQLAlchemy's expressions, and as this process knows it without
  asking; and the two columns of the contract: their types, and how ``_ts`` is compared with it.
- `dialect_time`: instants on each family of databases, in columns that are not ours.
- `formats`: the formats of columns that are not ours: how each keeps instants, and is compared with
  now.
- `instants`: the column that lifetimes are counted from: which types it may have, and how a policy
  reads it.
- `timestamps`: MariaDB's and MySQL's ``TIMESTAMP`` columns in sessions of any time zone.
- `zones`: the offsets of a time zone from UTC, from this host's tables of zones.
"""
