"""The database's clock, and columns that hold instants.

- `clock`: the database's clock, as each dialect spells it, and the unit ``_ts`` is kept in.
- `clock_sample`: what this process knows of a database's clock, without asking it each time.
- `column_types`: the column types of the two contract columns.
- `dialect_time`: what instants look like on each database, in columns that are not ours.
- `formats`: how columns keep instants: in which kind, and what that means for a comparison with
  now.
- `instants`: the column that lifetimes are counted from: what it may be, and how a policy reads
  it.
- `zones`: what the clocks of a time zone show: its offsets from UTC, as this host's tables have
  them.
"""
