"""Removing rows inside a transaction.

- `errors`: which errors of MongoDB pass by themselves, and how each reads in one line.
- `modes`: what becomes of expired documents: ``__ttl_archive__``, and whom a class tells: its
  hooks.
- `raw_collection`: a collection as the sweeper sees it: everything that is stored, past the gate,
  by raw commands.
- `removal`: removing expired documents: archived if their class says so, and told to its hooks.
"""
