"""Removing documents inside a transaction.

- `errors`: which errors of MongoDB pass by themselves, and how each reads in one line.
- `removal`: what becomes of expired documents: archived if their class says so, told to its hooks,
  deleted.
"""
