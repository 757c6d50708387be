"""Removing rows inside a transaction.

- `removal`: removing expired rows for good, for the sweeper and for writes that take their keys
- `references`: foreign keys: what refers to expired rows, what keeps them, what goes along
- `displacement`: removing expired rows that block a write or a deletion
- `archive`: ``__ttl_archive__`` in terms of Django's models
- `errors`: the error for expired rows; Django's errors as the sweeper's
"""
