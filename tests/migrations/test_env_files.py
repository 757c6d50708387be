"""An env.py without `import ttl_odm.alembic`, and revisions that name types of ours with it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_MODELS = """
from datetime import datetime
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from ttl_odm import TTL, ExpireAt
from ttl_odm.sqlalchemy import TTLMixin

class Base(DeclarativeBase): ...

class Token(TTLMixin, Base):
    __tablename__ = "tokens"
    __ttl__ = {policy}
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
"""
_ENV = """
{imported}
from alembic import context
from models import Base
from sqlalchemy import create_engine

with create_engine("sqlite:///tokens.db").connect() as connection:
    context.configure(connection=connection, target_metadata=Base.metadata)
    with context.begin_transaction():
        context.run_migrations()
"""
_TABLE = "import sqlite3; sqlite3.connect('tokens.db').execute('CREATE TABLE tokens (id INTEGER NOT NULL PRIMARY KEY, at DATETIME NOT NULL)')"  # noqa: E501
_ALONE = (
    "Add the line `import ttl_odm.alembic` at the top of env.py, and generate the revision again."
)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False
    )


def alembic(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.path.append(''); from alembic.config import main; main(prog='alembic')"
    return run(folder, "-c", code, *words)


def project(folder: Path, policy: str, imported: str) -> None:
    """A project as `alembic init` makes it, in a process of its own: nothing is imported here."""
    assert alembic(folder, "init", "scripts").returncode == 0
    (folder / "models.py").write_text(_MODELS.format(policy=policy))
    (folder / "scripts" / "env.py").write_text(_ENV.format(imported=imported))


@pytest.mark.slow
@pytest.mark.parametrize("exists", [True, False], ids=["a table that exists", "a new table"])
@pytest.mark.parametrize("policy", ["3600", 'ExpireAt("at")'])
def test_without_the_import_no_revision_is_written_that_could_not_run(
    tmp_path: Path, policy: str, *, exists: bool
) -> None:
    project(tmp_path, policy, "")
    if exists:
        assert run(tmp_path, "-c", _TABLE).returncode == 0
    written = alembic(tmp_path, "revision", "--autogenerate", "-m", "ttl")
    revisions = [*(tmp_path / "scripts" / "versions").glob("*.py")]
    if exists and policy != "3600":  # nothing of ours is written: only an index
        assert (written.returncode, len(revisions)) == (0, 1)
        return
    assert written.returncode != 0
    said = " ".join((written.stdout + written.stderr).split())
    assert "FAILED: env.py doesn't import ttl_odm.alembic" in said
    assert "NameError: name 'ttl_odm' is not defined" in said
    assert _ALONE in said
    assert "Traceback" not in said
    assert revisions == []


@pytest.mark.slow
@pytest.mark.parametrize("policy", ['TTL(3600, last_modified="at")', "TTL(3600, override=None)"])
def test_a_revision_that_names_our_types_imports_them(tmp_path: Path, policy: str) -> None:
    project(tmp_path, policy, "import ttl_odm.alembic")
    written = alembic(tmp_path, "revision", "--autogenerate", "-m", "ttl")
    assert written.returncode == 0, written.stderr
    (revision,) = (tmp_path / "scripts" / "versions").glob("*.py")
    text = revision.read_text()
    assert re.search(r"ttl_odm\.sqlalchemy\.\S+\(", text)
    assert "\nimport ttl_odm.alembic\n" in text
    upgraded = alembic(tmp_path, "upgrade", "head")
    assert upgraded.returncode == 0, upgraded.stderr
    assert alembic(tmp_path, "check").returncode == 0


@pytest.mark.slow
def test_whoever_else_asks_gets_the_representation(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(_MODELS.format(policy="3600"))
    code = (
        "import sys, alembic.autogenerate; from models import Token; "
        "print(repr(Token.__table__), Token.__table__.info, 'ttl_odm.alembic' in sys.modules)"
    )
    said = run(tmp_path, "-c", f"import sys; sys.path.append(''); {code}")
    assert "LastModified(timezone=True)" in said.stdout, said.stderr
    assert said.stdout.endswith("{'ttl_odm': <TTL(3600) of table 'tokens'>} False\n")
