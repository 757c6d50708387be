"""Removing rows inside a transaction.

- `errors`: which of Django's database errors pass by themselves, and how each reads in one line.
- `removal`: removing expired rows for good: for the sweeper, and for writes that take their keys.
"""
