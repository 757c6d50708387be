"""What the database deletes by itself.

- `archives`: TTL indexes of archives: MongoDB must not delete what a class means to keep.
- `changes`: what has to be done to turn the indexes that are there into those that are needed.
- `ensure`: `ensure_indexes`: bring a collection's ``__ttl_*`` indexes to what its policy needs.
- `live_view`: a view of a collection's live documents, for readers that go past the gate.
- `sources`: what a default ttl that isn't in code needs in the schema.
- `strays`: documents that nobody who writes through ttl_odm would leave behind, found and fixed.
- `validator`: a validator that keeps other writers from making MongoDB delete a document too
  early.
"""
