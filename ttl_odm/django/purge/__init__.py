"""Removing rows inside a transaction.

- `removal`: removing expired rows for good: for the sweeper, and for writes that take their keys
- `archive`: where the rows are kept, ``__ttl_archive__`` in terms of Django's models
- `errors`: the sweeper's errors in place of Django's
"""
