"""Rows in memory.

- `cache`: beanie's cache of query results (``use_cache``), bounded by what is in it.
- `lifetime`: what documents do to themselves: Beanie's instance methods, and changes of the
  lifetime.
"""
