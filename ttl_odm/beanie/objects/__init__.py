"""Documents in memory.

- `cache`: Beanie's queries: their cache of results, bounded by expiry, and their `touch`.
- `copies`: what a document in memory knows of the stored document that it is a copy of.
- `document_writes`: Beanie's insert, save, update, replace and delete of documents.
- `lifetime`: when documents expire, and the functions that change it.
- `renewals`: how `touch` of a query renews documents without loading them.
"""
