"""Tables that the database sweeps itself, by a job: ``sweep="database"``.

An extension for SQLAlchemy. Models don't declare it: the database has such a job, or hasn't.

- `jobs`: a job's names, and what its last run did, for status, checks and metrics;
- `sqlalchemy`: reading a job;
- `alembic`: creating a job;
- `cli`: ``ttl-odm install-sweep``, and the checks for ``ttl-odm check``.
"""
