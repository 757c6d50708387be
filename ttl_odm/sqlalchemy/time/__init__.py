"""The database's clock, and columns that hold instants.

- `clock`: the database's clock: in SQLAlchemy's expressions, and as this process knows it without
  asking; and the two columns of the contract: their types, and how ``_ts`` is compared with it.
- `dialect_time`: what instants look like on each family of databases, in columns that are not ours.
- `formats`: how columns that are not ours keep instants, and how each kind is compared with now.
- `instants`: the column that lifetimes are counted from: what it may be, and how a policy reads
  it.
- `timestamps`: MariaDB's and MySQL's ``TIMESTAMP`` columns in sessions of any time zone.
- `zones`: what the clocks of a time zone show: its offsets from UTC, as this host's tables have
  them.
"""
