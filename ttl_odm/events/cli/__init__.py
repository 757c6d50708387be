"""Events on the command line.

- `commands`: ``ttl-odm events``, and the consumers in ``ttl-odm status``;
- `checks`, `checks_mongodb`: the findings of ``ttl-odm check`` about events.
"""
