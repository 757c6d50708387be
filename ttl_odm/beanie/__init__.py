"""The MongoDB adapter: Beanie documents with a time-to-live.

What exists so far is `ttl_odm.beanie.predicate`, the aggregation expression that says which
documents are expired. This package imports the core; the core and the SQL adapters never import
it.
"""
