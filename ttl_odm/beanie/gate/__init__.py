"""Where statements and operations pass.

- `bulk`: bulk writes through the gate: every request as its own method would do it.
- `cursors`: documents that are judged here, by what the driver knows of the server's clock.
- `database`: `ttl_database`: the database that `init_beanie` is given.
- `followed`: reads and writes of documents that follow others, where a filter would have to look
  elsewhere.
- `followed_find`: finds of such documents: sent as a pipeline, read as a find.
- `followed_parents`: the parents that written documents name: whether they live, and how their
  life starts again.
- `gate`: the gate: what each method of a collection does where documents may expire.
- `handle`: one collection, as all of the gate knows it: the plain one, its policy, its stamps, the
  clock.
- `motor`: the gated database, collections and cursors of Motor, which Beanie 1.30 speaks to.
- `pymongo`: the gated database, collections and cursors of PyMongo's asynchronous driver.
- `views`: views over collections whose documents expire: the predicate stands in the view itself.
- `writes`: inserts, updates, replacements and upserts through the gate, and whether they found
  their document.
"""
