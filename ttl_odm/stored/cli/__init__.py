"""Stored defaults on the command line.

- `policy`: ``ttl-odm policy``;
- `prompts`: what it has in common with ``flask ttl policy``.
"""
