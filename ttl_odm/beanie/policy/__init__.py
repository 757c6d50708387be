"""What ``__ttl__`` means for a table.

- `binding`: which policy a collection has, and whose ``__ttl__`` it is.
- `commands`: database commands on one collection, the same for PyMongo's asynchronous driver and
  Motor.
- `errors`: the error of the MongoDB side for a document that no longer exists.
- `options`: the two options of ttl_odm on single operations, taken out before a driver sees them.
- `predicate`: the one predicate of the MongoDB side: which documents are expired, as the server
  sees it.
- `registry`: the one way from a class or a collection to its policy.
- `ttl_indexes`: the indexes by which MongoDB itself deletes what has expired, as plain values.
"""
