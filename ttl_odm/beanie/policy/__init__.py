"""What ``__ttl__`` means for a collection.

- `bindings`: which policy each collection has, by its class and in its client's registry.
- `commands`: database commands on one collection, past the gate, for both drivers.
- `predicate`: which documents are expired: as an expression for the server, and in memory.
- `rules`: the seam for documents that have no policy and expire with those of a parent collection.
- `sources`: the seam for default ttls that aren't in code.
- `ttl_indexes`: the indexes by which MongoDB itself deletes expired documents, as plain values.
"""
