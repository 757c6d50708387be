"""The sweeper's store.

- `batch`: purging one batch of a collection.
- `due`: what has expired and was not purged yet: which part of a collection, for how long, how
  many.
- `leases`: leases in a collection: which sweeper of a database is at work, by the server's own
  clock.
- `outcome`: what came of a batch whose documents go by their keys: all at once, or as many as will
  go.
- `stages`: where expired documents are: the ranges of indexes that a sweep goes through, part by
  part.
- `store`: the sweeper's store for MongoDB: `MongoStore`, over PyMongo's asynchronous driver or
  Motor.
- `targets`: what to sweep: the collections of Beanie's document classes, in one database.
"""
