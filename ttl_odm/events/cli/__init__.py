"""Events on the command line.

- `commands`: ``ttl-odm events``;
- `checks`, `checks_mongodb`: what ``ttl-odm check`` finds of events;
- `status`: what ``ttl-odm status`` adds.
"""
