"""The database's clock, and columns that hold instants.

- `clock`: the database's clock for Django's backends, and the forms that instants have
- `fields`: the contract's two fields, and expressions of the clock that may be assigned to them
"""
