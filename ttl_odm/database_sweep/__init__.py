"""Tables that the database sweeps by itself, by a job: ``sweep="database"``.

An extension. So far it holds what has no adapter; the rest is still in `ttl_odm.alembic` and in the
rooms of `ttl_odm.sqlalchemy`, which import these modules.

- `jobs`: what a job has done, for status, checks and metrics.
"""
