"""Rows in memory.

- `querysets`: `TTLQuerySet` and its manager: the flags of `ttl_odm.django.policy.options` as
  methods.
- `save`: what saving an instance of an expired row comes to: an error, never a new row.
"""
