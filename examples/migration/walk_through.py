"""A table with data gets a time to live, by a revision that autogenerate writes.

Run it: ``python examples/migration/walk_through.py``. It works in a temporary folder, on SQLite or
on the database of a URL that it is given, where it uses a table ``logins``.

It does what one does by hand: ``alembic upgrade head``, some work, ``__ttl__`` on the model,
``alembic revision --autogenerate``, a look at what was written, ``alembic upgrade head``. Each
stage is a process of its own, since the model is another one.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

HERE = Path(__file__).parent


def before(db: Any, login: Any, alembic: Any, config: Any) -> None:
    """Years ago: the table is made, and people log in."""
    alembic.upgrade(config, "head")
    db.add(login(user="ann", seen_at=datetime(2026, 1, 1, 10)))  # noqa: DTZ001 (a naive column)
    db.add(login(user="bob"))
    db.commit()
    print("before:", users(db, login))


def after(db: Any, login: Any, alembic: Any, config: Any) -> None:
    """The model has got ``__ttl__``: autogenerate, look, migrate."""
    alembic.revision(config, "ttl", rev_id="0002", autogenerate=True)
    revision = HERE_NOW / "scripts" / "versions" / "0002_ttl.py"
    written = revision.read_text()
    print("autogenerate wrote:")
    print(*(f"    {line.strip()}" for line in written.splitlines() if "_ttl(" in line), sep="\n")
    # Old logins began when they were last seen, not today.
    revision.write_text(written.replace("backfill='now'", "backfill='seen_at'"))
    alembic.upgrade(config, "head")
    alembic.check(config)
    print("after:", users(db, login))


def back(db: Any, login: Any, alembic: Any, config: Any) -> None:
    """And without it again: nobody was deleted."""
    alembic.downgrade(config, "-1")
    print("and back:", users(db, login))
    db.rollback()
    alembic.downgrade(config, "base")


def users(db: Any, login: Any) -> str:
    """Who is logged in."""
    found = ", ".join(sorted(each.user for each in db.query(login)))
    db.rollback()
    return found


STAGES = {"before": before, "after": after, "back": back}
HERE_NOW = Path.cwd()


def stage(name: str) -> None:
    """Be one of the processes, in the project's folder."""
    from models import Login  # noqa: PLC0415 (it depends on the stage)

    config = Config(
        HERE_NOW / "alembic.ini", stdout=io.StringIO(), cmd_opts=argparse.Namespace(quiet=True)
    )
    engine = create_engine(os.environ["DATABASE_URL"])
    with Session(engine) as db:
        STAGES[name](db, Login, command, config)
    engine.dispose()


def main() -> None:
    """Walk through it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "project"
        shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder / 'logins.sqlite3'}"
        for name in STAGES:
            with_ttl = "1" if name == "after" else ""
            subprocess.run(  # noqa: S603 (this file)
                [sys.executable, str(folder / "walk_through.py"), "--stage", name],
                cwd=folder,
                env={**os.environ, "DATABASE_URL": url, "WITH_TTL": with_ttl},
                check=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stage"]:
        stage(sys.argv[2])
    else:
        main()
