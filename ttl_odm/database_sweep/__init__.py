"""Tables that the database sweeps by itself, by a job: ``sweep="database"``.

An extension for SQLAlchemy, whose models say nothing of it: the database has such a job, or not.

- `jobs`: what a job has done, for status, checks and metrics;
- `names`: what its parts are called;
- `sqlalchemy`: reading it;
- `alembic`: making it;
- `cli`: ``ttl-odm install-sweep``, and what ``ttl-odm check`` looks at.
"""
