"""Tables that the database sweeps by itself, by a job: ``sweep="database"``.

An extension. What makes and reads a job is still in `ttl_odm.alembic` and in the rooms of
`ttl_odm.sqlalchemy`, which import `jobs`.

- `jobs`: what a job has done, for status, checks and metrics;
- `cli`: ``ttl-odm install-sweep``, and what ``ttl-odm check`` looks at.
"""
