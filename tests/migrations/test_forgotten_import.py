"""An env.py without ``import ttl_odm.alembic`` is told so, instead of writing what can't run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ttl_odm.integrations import alembic_plugin

pytest.importorskip("alembic.runtime.plugins", reason="plugins came with Alembic 1.18")

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
NAME = "alembic.autogenerate.ttl_odm"
PROBE = f"""
from alembic.autogenerate import produce_migrations
from alembic.migration import MigrationContext
from alembic.runtime import plugins
from alembic.util import CommandError
from sqlalchemy import create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm.integrations import alembic_plugin
from ttl_odm.sqlalchemy import TTLMixin

if {NAME!r} not in plugins._all_plugins:
    plugins.Plugin.setup_plugin_from_module(alembic_plugin, {NAME!r})


class Base(DeclarativeBase): ...


class Cart(TTLMixin, Base):
    __tablename__ = "carts"
    __ttl__ = 60
    id: Mapped[int] = mapped_column(primary_key=True)


with create_engine("sqlite://").connect() as connection:
    for before in ("SELECT 1", "CREATE TABLE carts (id INTEGER PRIMARY KEY)"):
        connection.execute(text(before))
        try:
            produce_migrations(MigrationContext.configure(connection), Base.metadata)
        except CommandError as error:
            print(error)
"""


def told(imports: str = "") -> list[str]:
    """What two runs say: for a new table, and for one that is there."""
    words = [sys.executable, "-W", "ignore", "-c", imports + PROBE]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


def test_it_is_told_for_a_new_table_and_for_one_that_is_there() -> None:
    said = (
        "carts has a TTL, of which autogenerate knows nothing: put 'import ttl_odm.alembic' into "
        "env.py, and call this again."
    )
    assert told() == [said, said]
    assert told("import ttl_odm.alembic") == []


def test_alembic_finds_the_plugin_by_a_name_that_it_runs() -> None:
    line = f'[project.entry-points."alembic.plugins"]\n"{NAME}" = "{alembic_plugin.__name__}"\n'
    assert line in PYPROJECT.read_text()
