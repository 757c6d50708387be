"""Events on the command line.

- `commands`: ``ttl-odm events``;
- `checks`: what ``ttl-odm check`` finds of events;
- `status`: what ``ttl-odm status`` adds.
"""
