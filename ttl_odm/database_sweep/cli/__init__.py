"""The command line for tables that the database sweeps itself.

- `install_sweep`: ``ttl-odm install-sweep``;
- `checks`: what ``ttl-odm check`` reports of their jobs.
"""
