"""The sweeper's store.

- `batch`: how one batch of a collection is purged.
- `due`: where expired documents are, how many there are, and for how long they have been expired.
- `leases`: leases in a collection: which sweeper of a database works, by the server's clock.
- `store`: `MongoStore`, the sweeper's store over PyMongo's asynchronous driver or Motor.
- `walks`: how a sweep goes from one default of a collection to the next.
"""
