"""The sweeper's store.

- `ages`: for how long a document has been expired.
- `batch`: purging one batch of a collection.
- `due`: where expired documents are, and which of them are due: for how long, and how many.
- `leases`: leases in a collection: which sweeper of a database is at work, by the server's own
  clock.
- `store`: the sweeper's store for MongoDB: `MongoStore`, over PyMongo's asynchronous driver or
  Motor.
- `walks`: how a sweep goes from one default of a collection to the next.
"""
