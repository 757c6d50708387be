"""Rows in memory.

- `azure`: documents on Azure Cosmos DB for MongoDB (RU), whose last modification is the service's
  own.
- `cache`: beanie's cache of query results (``use_cache``), bounded by what is in it.
- `copies`: what a document in memory knows of the stored one that it is a copy of.
- `ends`: when a stored document expires, as the database has it.
- `lifetime`: what documents do to themselves: Beanie's instance methods, and changes of the
  lifetime.
- `renewals`: `touch` of a query: documents are renewed without being loaded before.
"""
