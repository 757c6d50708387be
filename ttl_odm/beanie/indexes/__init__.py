"""What the database deletes by itself.

- `changes`: which commands turn a collection's indexes into the needed ones.
- `ensure`: `ensure_indexes`: bring a collection's ``__ttl_*`` indexes to what its policy needs.
- `live_view`: a view of a collection's live documents, for readers that bypass the gate.
- `strays`: inconsistent documents that other programs left behind, found and fixed.
- `validator`: a validator that keeps other programs from making MongoDB delete too early.
"""
