"""Removing documents inside a transaction.

- `errors`: `ExpiredError` as Beanie's users know it, and which errors of MongoDB are transient.
- `removal`: how expired documents are archived, reported to hooks, and deleted.
"""
