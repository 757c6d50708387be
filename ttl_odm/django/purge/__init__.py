"""Removing rows inside a transaction.

- `removal`: removing expired rows for good: for the sweeper, and for writes that take their keys
- `references`: foreign keys: what refers to expired rows, what keeps them, what goes along
- `displace`: expired rows that are in the way of a write, or of rows that are deleted
- `archive`: where the rows are kept, ``__ttl_archive__`` in terms of Django's models
- `errors`: the error for rows that have expired; the sweeper's errors in place of Django's
"""
