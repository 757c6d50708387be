"""Write what the commands print into the pages about them: `python tools/cli_docs.py`.

In each console block that begins with `$ ttl-odm`, what follows the command is replaced by what it
prints in a folder of its own, one after the other on the same database. Nothing there is typed by
hand. tests/docs runs the blocks again, and compares all but their numbers.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = ("cli.md", "cli-check.md", "cli-plan.md", "cli-events.md")
DOCUMENTS: Final = [ROOT / "docs" / name for name in PAGES]
BLOCK: Final = re.compile(
    r"^```console\n\$ (?P<command>ttl-odm .+)\n(?P<said>[^$`].*\n)(?s:.*?)^```$", re.MULTILINE
)
# The option with the token of a preview: each has another one.
APPROVAL: Final = re.compile(r"--approve \d+-[0-9a-f]+")
# What a sweep prints every ten seconds on a busy machine; as in tests/docs/blocks.py.
PROGRESS: Final = re.compile(r"^\S+: [\d,]+ rows, [\d,]+/s\n", re.MULTILINE)

SHOP: Final = """\
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm.sqlalchemy import TTLMixin


class Base(DeclarativeBase):
    pass


class WebSession(TTLMixin, Base):
    __tablename__ = "web_sessions"
    __ttl__ = 3600

    id: Mapped[int] = mapped_column(primary_key=True)


class Cart(TTLMixin, Base):
    __tablename__ = "carts"
    __ttl__ = 7 * 24 * 3600

    id: Mapped[int] = mapped_column(primary_key=True)
"""
INBOX: Final = """\
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm import Stored
from ttl_odm.sqlalchemy import TTLMixin


class Base(DeclarativeBase):
    pass


class Message(TTLMixin, Base):
    __tablename__ = "messages"
    __ttl__ = Stored(90 * 86_400, by="tenant_id", least=86_400)

    id: Mapped[int] = mapped_column(primary_key=True)
    tenant_id: Mapped[int]


def app():
    return create_engine("sqlite:///shop.sqlite3"), Base
"""
HOLDS: Final = """\
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm.events import on_expired
from ttl_odm.sqlalchemy import TTLMixin


class Base(DeclarativeBase):
    pass


class SeatHold(TTLMixin, Base):
    __tablename__ = "seat_holds"
    __ttl__ = 900

    seat: Mapped[str] = mapped_column(primary_key=True)


@on_expired(SeatHold, name="release", attempts=1)
def release(event):
    if event.key == ("A2",):
        raise KeyError("no seat A2")


@on_expired(SeatHold, name="mailer")
def mail(event):
    raise ConnectionError("SMTP 421")
"""
SETTINGS: Final = """\
[tool.ttl_odm]
app = "shop:Base"
url = "$DATABASE_URL"

[tool.ttl_odm.sweep]
max_fraction = 0.9
"""
# The next row expires in half an hour, so that the blocks are the same on the slowest machine.
FILL: Final = """
import logging
import holds
import inbox
import shop
from sqlalchemy import create_engine, text
from ttl_odm.events import EventWorker
engine = create_engine("sqlite:///shop.sqlite3")
shop.Base.metadata.create_all(engine)
inbox.Base.metadata.create_all(engine)
numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
now = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
with engine.begin() as connection:
    for table, life in (("web_sessions", 3600), ("carts", 604800)):
        connection.execute(text(
            f"INSERT INTO {table} (id, ttl, _ts) {numbers} "
            f"SELECT i, CASE WHEN i % 10 = 0 THEN {2 * life} END, "
            f"{now} - (i % 1000 / 100 * 50 + i % 1000 / 500 * 200 + 100) * {life} * 2 FROM n"
        ))
with engine.begin() as connection:
    connection.execute(text(
        f"INSERT INTO messages (id, tenant_id, _ts) {numbers} "
        f"SELECT i, i % 50, {now} - (i % 1000 / 10) * 86400000 - 43200000 FROM n WHERE i <= 10000"
    ))
seats = create_engine("sqlite:///holds.sqlite3")
holds.Base.metadata.create_all(seats)
with seats.begin() as connection:  # of instants that don't change, nor do the ids of the events
    connection.execute(text(
        "INSERT INTO seat_holds (seat, _ts) VALUES ('A1', 1767225600000), ('A2', 1767225660000)"
    ))
logging.disable()  # that handlers fail is what is shown
EventWorker(seats, holds.Base).run_once()
legacy = create_engine("sqlite:///legacy.sqlite3")
with legacy.begin() as connection:
    connection.execute(text("CREATE TABLE login (id INTEGER PRIMARY KEY, expires_at DATETIME)"))
    connection.execute(text("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)"))
    connection.execute(text(
        "INSERT INTO login (expires_at) "
        "VALUES ('2026-01-01 00:00:00'), ('2199-01-01 00:00:00'), (NULL)"
    ))
"""
SPOIL: Final = (
    "import sqlite3; sqlite3.connect('shop.sqlite3').execute('DROP INDEX ix_carts_ttl_own')"
)


def run(command: str, folder: Path) -> str:
    """Return what a command prints; ``ttl-odm`` is this working tree's."""
    words = shlex.split(command)
    if words[0] == "ttl-odm":
        words[:1] = [sys.executable, "-m", "ttl_odm.cli"]
    environment = {  # as in tests/docs/blocks.py
        **{name: value for name, value in os.environ.items() if not name.startswith("TTL_ODM_")},
        "DATABASE_URL": "sqlite:///shop.sqlite3",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "80",
    }
    finished = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    status = f"$ echo $?\n{finished.returncode}\n" if finished.returncode else ""
    said = PROGRESS.sub("", f"{finished.stdout}{finished.stderr}")
    # Click calls the program by how it was started.
    said = said.replace("python -m ttl_odm.cli", "ttl-odm")
    return said.rstrip() + "\n" + status


def generated(text: str, folder: Path, only: str = "") -> str:
    """Return a document with its blocks made anew.

    Args:
        text: The document.
        folder: Where the commands run.
        only: What a command has to contain, or its block stays as it is.
    """
    approval = ""

    def replaced(found: re.Match[str]) -> str:
        nonlocal approval
        if only not in found["command"]:
            return found[0]
        command = APPROVAL.sub(approval, found["command"])
        if command == "ttl-odm check":  # with something to be found
            run(f"{shlex.quote(sys.executable)} -c {shlex.quote(SPOIL)}", folder)
        said = run(command, folder)
        approval = next(iter(APPROVAL.findall(said)), approval)
        return f"```console\n$ {command}\n{said}```"

    return BLOCK.sub(replaced, text)


def prepare(folder: Path) -> None:
    """Write the settings and models that the pages use, and fill their databases."""
    (folder / "shop.py").write_text(SHOP)
    (folder / "inbox.py").write_text(INBOX)
    (folder / "holds.py").write_text(HOLDS)
    (folder / "pyproject.toml").write_text(SETTINGS)
    (folder / "fill.py").write_text(FILL)
    printed = run(f"{shlex.quote(sys.executable)} fill.py", folder)
    if printed.strip():
        sys.exit(printed)


def main() -> None:
    """Write the documents."""
    with tempfile.TemporaryDirectory(prefix="ttl-odm-docs-") as name:
        folder = Path(name)
        prepare(folder)
        for document in DOCUMENTS:
            document.write_text(generated(document.read_text(), folder))


if __name__ == "__main__":
    main()
