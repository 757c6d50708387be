"""Events on the command line.

- `commands`: ``ttl-odm events``.
"""
