"""Where statements and operations pass.

- `bulk`: bulk writes through the gate: every request as its own method would do it.
- `cursors`: documents that are judged here, by what the driver knows of the server's clock.
- `database`: `ttl_database`: the database that `init_beanie` is given.
- `gate`: the gate: what each method of a collection does where documents may expire.
- `methods`: the public methods of a collection, by what the gate does with them.
- `motor`: the gated database, collections and cursors of Motor, which Beanie 1.30 speaks to.
- `pymongo`: the gated database, collections and cursors of PyMongo's asynchronous driver.
- `views`: views over collections whose documents expire: the predicate stands in the view itself.
- `watch`: how the gate tells a document's own write whether it found the document.
- `writes`: inserts, updates, replacements, upserts and bulk writes through the gate.
"""
