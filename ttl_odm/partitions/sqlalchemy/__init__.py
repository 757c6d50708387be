"""Partitions on SQLAlchemy.

- `whereabouts`: all that a sweep asks: where the rows are, and which partitions go whole.
"""
