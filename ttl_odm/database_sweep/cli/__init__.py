"""Tables that the database sweeps by itself, on the command line.

- `install_sweep`: ``ttl-odm install-sweep``;
- `checks`: what ``ttl-odm check`` reports of their jobs.
"""
