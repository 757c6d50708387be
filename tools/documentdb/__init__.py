"""documentdb behind MongoDB's protocol, for tests only: what `documentdb_gateway.py` is made of.

- `wire`: messages, as bytes and as what they say.
- `errors`: the engine's errors, under MongoDB's numbers.
- `engine`: the engine's connections, and the transactions and cursors that hold some.
- `commands`: MongoDB's commands, by the engine's SQL functions.

Nothing here knows `ttl_odm`.
"""
