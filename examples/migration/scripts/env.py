"""Alembic's environment. The one line that ttl_odm asks for is its import."""

from __future__ import annotations

import os

from alembic import context
from models import Base
from sqlalchemy import create_engine

import ttl_odm.alembic  # noqa: F401 - registers op.add_ttl and teaches autogenerate

engine = create_engine(os.environ["DATABASE_URL"])

if context.is_offline_mode():
    context.configure(url=engine.url, target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=Base.metadata)
        with context.begin_transaction():
            context.run_migrations()
engine.dispose()
