"""The database's clock, and fields that hold instants.

- `clock`: an estimate of the server's clock, without asking the server for every document.
- `formats`: how fields store instants and durations.
"""
