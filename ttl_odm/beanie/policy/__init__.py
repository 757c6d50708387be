"""What ``__ttl__`` means for a collection.

- `bindings`: which policy each collection has, by its class and in its client's registry.
- `commands`: database commands on one collection, the same for PyMongo's asynchronous driver and
  Motor.
- `entries`: what a client's registry keeps of a collection whose documents expire.
- `errors`: what Beanie's users are told by an error of their own kind.
- `predicate`: the one predicate of the MongoDB side: which documents are expired, as the server
  sees it.
- `rules`: the seam for documents that expire with those of another collection, by no policy of
  their own.
- `signs`: collections whose documents expire, though no class with a policy has them here.
- `sources`: the seam for default ttls that aren't in code.
- `ttl_indexes`: the indexes by which MongoDB itself deletes what has expired, as plain values.
"""
