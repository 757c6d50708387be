"""The database's clock, and columns that hold instants.

- `clock`: what time it is on the server, without asking it for every document.
- `durations`: a ttl that is given as a timedelta, which BSON doesn't have: Beanie writes its
  seconds, a float.
- `instants`: how fields keep instants: as dates, or as an adopted collection has them, numbers and
  strings.
"""
