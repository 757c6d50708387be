"""The keys of expired rows are free.

- `displace`: expired documents that are in the way of a write: purged like any others, at once.
- `holders`: keys of expired documents are free: who holds one gives way to a write that needs it.
"""
