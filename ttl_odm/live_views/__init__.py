"""``enforce=`` of a migration: hide expired rows from readers outside Python.

An extension for SQLAlchemy's tables; MongoDB's view of live documents is in `ttl_odm.beanie`.

- `alembic`: the view of a table's live rows, and PostgreSQL's row-level security.
"""
