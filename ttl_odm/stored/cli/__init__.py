"""Stored defaults on the command line.

- `policy`: ``ttl-odm policy``;
- `prompts`: the part that it shares with ``flask ttl policy``.
"""
