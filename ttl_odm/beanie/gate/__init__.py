"""Where statements and operations pass.

- `bulk`: bulk writes: every request does what its own method would do.
- `collection_rules`: the half of a `Rule` that reads and writes ask: `CollectionRule`.
- `cursors`: what a find sends, and how the documents in a cursor's buffer are judged.
- `database`: the gated databases: `ttl_database`, and `keep_lifetimes` for Beanie's migrations.
- `gate`: what each method of a collection does where documents may expire.
- `handle`: one collection, as the gate sees it: the plain one, its policy, its stamps, the clock.
- `motor`: the gated database, collections and cursors of Motor, which Beanie 1.30 uses.
- `pymongo`: the gated database, collections and cursors of PyMongo's asynchronous driver.
- `views`: views of collections whose documents expire: the predicate is in their definition.
- `writes`: inserts, updates, replacements and upserts, and whether they found their document.
"""
