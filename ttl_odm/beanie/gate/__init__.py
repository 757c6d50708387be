"""Where statements and operations pass.

- `bulk`: bulk writes through the gate: every request as its own method would do it.
- `collection_rules`: what a rule makes of reads and writes: `CollectionRule`, the half of `Rule`
  that the gate asks.
- `cursors`: what a find sends, and how its documents are judged here, by what the driver knows of
  the server's clock.
- `database`: `ttl_database`: the database that `init_beanie` is given.
- `gate`: the gate: what each method of a collection does where documents may expire.
- `handle`: one collection, as all of the gate knows it: the plain one, its policy, its stamps, the
  clock.
- `migrations`: the gate in Beanie's migrations, which keeps lifetimes as they are.
- `motor`: the gated database, collections and cursors of Motor, which Beanie 1.30 speaks to.
- `pymongo`: the gated database, collections and cursors of PyMongo's asynchronous driver.
- `views`: views over collections whose documents expire: the predicate stands in the view itself.
- `writes`: inserts, updates, replacements and upserts through the gate, and whether they found
  their document.
"""
