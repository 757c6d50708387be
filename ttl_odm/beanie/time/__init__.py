"""The database's clock, and fields that hold instants.

- `clock`: what time it is on the server, without asking it for every document.
- `formats`: how fields keep instants and durations: what is stored for each.
"""
