"""What the database deletes by itself.

- `azure`: the one index by which Azure Cosmos DB for MongoDB (RU) expires documents itself.
- `changes`: what has to be done to turn the indexes that are there into those that are wanted.
- `ensure`: `ensure_indexes`: bring a collection's ``__ttl_*`` indexes to what its policy needs.
- `maintenance`: what is done to the collections of document classes: `ensure_indexes`, and the two
  for strays.
- `strays`: documents that nobody who writes through ttl_odm would leave behind, found and fixed.
- `time_series`: time-series collections: MongoDB deletes from them by one number of seconds,
  without an index.
- `validator`: a validator that keeps other writers from making MongoDB delete a document too
  early.
"""
