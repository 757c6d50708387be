"""The base works by itself: extensions are imported by the models that declare them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from pymongo import MongoClient

import ttl_odm

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTENSIONS = (
    "ttl_odm.database_sweep",
    "ttl_odm.events",
    "ttl_odm.follows",
    "ttl_odm.guard",
    "ttl_odm.live_views",
    "ttl_odm.replication",
    "ttl_odm.partitions",
    "ttl_odm.stored",
)
"""What every adapter does without, until a model or a command asks for it."""

PLAIN_MODEL = """
import sys

from sqlalchemy import create_engine, func, insert, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import StaticPool

from ttl_odm.sqlalchemy import TTLMixin, expires_at
from ttl_odm.sweeper import Sweeper


class Base(DeclarativeBase):
    pass


class Note(TTLMixin, Base):
    __tablename__ = "notes"
    __ttl__ = 3600
    name: Mapped[str] = mapped_column(primary_key=True)


engine = create_engine("sqlite://", poolclass=StaticPool)
Base.metadata.create_all(engine)


def age():
    with engine.begin() as connection:
        connection.execute(text("UPDATE notes SET _ts = _ts - 7200000"))


with Session(engine) as session:
    session.add(Note(name="one"))
    session.commit()
    age()
    session.expire_all()
    assert session.scalars(select(Note)).all() == []
with Session(engine) as session:
    session.add(Note(name="one"))
    session.flush()
    session.get(Note, "one").touch()
    session.commit()
    assert session.scalar(select(expires_at(Note))) is not None
    session.delete(session.get(Note, "one"))
    session.execute(insert(Note), [{"name": "two"}, {"name": "three"}])
    session.commit()
age()
report = Sweeper(engine, Base).run_once()
assert report.deleted == 2, report
"""

FOLLOWER = """
from sqlalchemy import ForeignKey

from ttl_odm import Follows

assert "ttl_odm.follows.sqlalchemy" not in sys.modules


class Line(TTLMixin, Base):
    __tablename__ = "lines"
    __ttl__ = Follows("note")
    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str] = mapped_column(ForeignKey("notes.name"))
"""

STORED = """
from ttl_odm import Stored

assert "ttl_odm.stored.sqlalchemy" not in sys.modules

from ttl_odm.sqlalchemy import stored_policies


class Page(TTLMixin, Base):
    __tablename__ = "pages"
    __ttl__ = Stored(3600)
    id: Mapped[int] = mapped_column(primary_key=True)


Base.metadata.create_all(engine)
with engine.connect() as connection:
    assert [policy.ttl for policy in stored_policies(connection, Page)] == [3600]
    assert connection.scalars(select(Page)).all() == []
"""

GUARDED = """
from ttl_odm.sqlalchemy import RawSQLError, guard

assert "ttl_odm.guard.sqlalchemy.engines" not in sys.modules
assert "sqlglot" not in sys.modules

guard(engine, raw="raise")
with engine.connect() as connection:
    assert connection.scalars(select(Note.name)).all() == []
    try:
        connection.execute(text("SELECT name FROM notes"))
    except RawSQLError as error:
        assert "names notes without a condition on notes._ts" in str(error), error
    else:
        raise AssertionError("raw SQL was sent")
"""

DJANGO_MODEL = """
import sys

import django
from django.conf import settings
from django.db import connection, models

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["ttl_odm.django"],
    USE_TZ=True,
)
django.setup()

from django.core.management import call_command

from ttl_odm.django import TTLModel
from ttl_odm.sweeper import Sweeper


class Note(TTLModel):
    __ttl__ = 3600
    name = models.CharField(max_length=9, primary_key=True)
    number = models.IntegerField(default=0)

    class Meta:
        app_label = "notes"


call_command("migrate", verbosity=0)
with connection.schema_editor() as editor:
    editor.create_model(Note)


def age():
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {Note._meta.db_table} SET _ts = _ts - 7200000000")


Note.objects.create(name="one")
age()
assert list(Note.objects.all()) == []
note = Note.objects.create(name="one")
note.touch()
note.save()
assert note.expires_at is not None and not note.is_expired
Note.objects.filter(name="one").update(number=1)
note.delete()
Note.objects.bulk_create([Note(name="two"), Note(name="three")])
age()
call_command("check")
report = Sweeper(connection, Note).run_once()
assert report.deleted == 2, report
"""

DJANGO_FOLLOWER = """
from ttl_odm import Follows

assert "ttl_odm.follows.django" not in sys.modules


class Line(TTLModel):
    __ttl__ = Follows("note")
    note = models.ForeignKey(Note, models.CASCADE)

    class Meta:
        app_label = "notes"
"""

DJANGO_STORED = """
from ttl_odm import Stored

assert "ttl_odm.stored.django" not in sys.modules


class Page(TTLModel):
    __ttl__ = Stored(3600)

    class Meta:
        app_label = "notes"


from ttl_odm.django.checks import check_policies

(error,) = check_policies()
assert (error.id, error.obj) == ("ttl_odm.E004", Page)
"""

PLAIN_DOCUMENT = """
import asyncio
import sys
from datetime import datetime, timezone

from beanie import Document, init_beanie
from pymongo import MongoClient

from tests.mongo.models import collection_of, connect
from ttl_odm.beanie import TTLMixin, ensure_indexes, expires_at, ttl_database
from ttl_odm.sweeper import AsyncSweeper

url, name = sys.argv[1:]


class Note(TTLMixin, Document):
    __ttl__ = 3600
    __ttl_purge__ = "sweeper"
    id: str


def age():
    with MongoClient(url) as client:
        ages = {"_ts": datetime(2020, 1, 1, tzinfo=timezone.utc)}
        client[name].Note.update_many({}, {"$set": ages})


async def main():
    database = ttl_database(connect(url)[name])
    await init_beanie(database=database, document_models=[Note])
    await ensure_indexes(Note)
    await Note(id="one").insert()
    age()
    assert await Note.find().to_list() == []
    note = await Note(id="one").insert()
    await note.touch()
    await note.save()
    assert note.expires_at is not None
    assert await expires_at(note) is not None
    assert len(await Note.aggregate([{"$match": {"_id": "one"}}]).to_list()) == 1
    await note.delete()
    await Note.insert_many([Note(id="two"), Note(id="three")])
    age()
    counted = await AsyncSweeper(database, Note, dry_run=True).run_once()
    assert counted.targets[0].due == 2, counted
    report = await AsyncSweeper(database, Note).run_once()
    assert report.deleted == 2, report
    await collection_of(Note).drop()


asyncio.run(main())
"""

FOLLOWING_DOCUMENT = """
from ttl_odm import Follows

assert "ttl_odm.follows.beanie" not in sys.modules


class Line(TTLMixin, Document):
    __ttl__ = Follows(Note, on={"note": "id"})
    note: str
"""

STORED_DOCUMENT = """
from ttl_odm import Stored

assert "ttl_odm.stored.beanie" not in sys.modules

from ttl_odm.beanie import stored_policies


class Page(TTLMixin, Document):
    __ttl__ = Stored(3600)
    id: str


async def begin():
    database = ttl_database(connect(url)[name])
    await init_beanie(database=database, document_models=[Page])
    await ensure_indexes(Page)
    assert [policy.ttl for policy in await stored_policies(Page)] == [3600]
    assert await Page.find().to_list() == []
    await collection_of(Page).drop()


asyncio.run(begin())
"""

MODELS = {
    "sqlalchemy": (PLAIN_MODEL, FOLLOWER),
    "django": (DJANGO_MODEL, DJANGO_FOLLOWER),
    "beanie": (PLAIN_DOCUMENT, FOLLOWING_DOCUMENT),
}

PARTITIONED = """
from datetime import datetime

from ttl_odm import ExpireAfter, Partitions

assert "ttl_odm.partitions.sqlalchemy" not in sys.modules


class Event(Base):
    __tablename__ = "events"
    __ttl__ = ExpireAfter("created", 3600)
    __ttl_partition__ = Partitions("1 day")
    id: Mapped[int] = mapped_column(primary_key=True)
    created: Mapped[datetime] = mapped_column(primary_key=True)


assert "ttl_odm.partitions.sqlalchemy" in sys.modules
assert "ttl_odm.partitions.sqlalchemy.whereabouts" not in sys.modules
Base.metadata.create_all(engine)
assert Sweeper(engine, Event).run_once().deleted == 0
"""

TYPED = """
import sqlite3
import sys
from pathlib import Path

from ttl_odm.cli.commands import cli

folder = Path(sys.argv[1])
with sqlite3.connect(folder / "notes.db") as connection:
    connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, ends TIMESTAMP)")
settings = folder / "settings.toml"
settings.write_text(
    '[tool.ttl_odm]\\nurl = "sqlite:///notes.db"\\n'
    "[tool.ttl_odm.tables.notes]\\npolicy = 'ExpireAt(\\"ends\\")'\\n"
)
try:
    cli.main(["--config", str(settings), *sys.argv[2:]])
except SystemExit as end:
    assert not end.code
"""

MIGRATION = """
import sys

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine

import ttl_odm.alembic


def migrate(**options):
    with create_engine("sqlite://").connect() as connection:
        connection.exec_driver_sql("CREATE TABLE notes (name TEXT PRIMARY KEY)")
        connection.commit()
        operations = Operations(MigrationContext.configure(connection))
        operations.add_ttl("notes", 3600, **options)


migrate(sweep="scan", touch_trigger=True)
"""

SHOWN = """
print(*sorted(name for name in sys.modules if name.startswith("ttl_odm")))
"""


def modules_after(script: str, *arguments: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", script + SHOWN, *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(ttl_odm.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def extensions_in(modules: set[str]) -> set[str]:
    return {name for name in EXTENSIONS if name in modules}


@pytest.fixture(scope="module")
def mongodb_database(mongodb_url: str) -> Iterator[tuple[str, str]]:
    """Return the address of a server, and the name of a database there."""
    name = f"ttl_odm_{uuid4().hex}"
    yield mongodb_url, name
    with MongoClient[dict[str, object]](mongodb_url) as client:
        client.drop_database(name)


def check_plain(adapter: str, *arguments: str) -> None:
    plain, _ = MODELS[adapter]

    modules = modules_after(plain, *arguments)

    prefixes = tuple(f"{extension}." for extension in EXTENSIONS)
    assert [name for name in modules if f"{name}.".startswith(prefixes)] == []


def check_follower(adapter: str, *arguments: str) -> None:
    modules = modules_after("".join(MODELS[adapter]), *arguments)

    in_follows = {name for name in modules if name.startswith("ttl_odm.follows")}
    others = {f"ttl_odm.follows.{other}" for other in MODELS if other != adapter}
    assert {"ttl_odm.follows", f"ttl_odm.follows.{adapter}"} <= in_follows
    assert not in_follows & others


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ["sqlalchemy", "django"])
def test_a_plain_model_is_declared_written_read_and_swept_without_extensions(adapter: str) -> None:
    check_plain(adapter)


@pytest.mark.slow
def test_a_plain_document_lives_its_life_without_extensions(
    mongodb_database: tuple[str, str],
) -> None:
    check_plain("beanie", *mongodb_database)


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ["sqlalchemy", "django"])
def test_a_model_that_follows_another_brings_in_what_its_adapter_needs_for_that(
    adapter: str,
) -> None:
    check_follower(adapter)


@pytest.mark.slow
def test_a_document_that_follows_another_brings_in_what_its_adapter_needs(
    mongodb_database: tuple[str, str],
) -> None:
    check_follower("beanie", *mongodb_database)


@pytest.mark.slow
def test_a_model_whose_default_is_stored_brings_in_what_its_adapter_needs_for_that() -> None:
    modules = modules_after(PLAIN_MODEL + STORED)

    assert "ttl_odm.stored.sqlalchemy.source" in modules
    assert not any(name.startswith(("ttl_odm.follows", "ttl_odm.partitions")) for name in modules)


@pytest.mark.slow
def test_a_django_model_whose_default_is_stored_brings_in_all_but_the_tables_of_its_app() -> None:
    modules = modules_after(DJANGO_MODEL + DJANGO_STORED)

    assert "ttl_odm.stored.django.source" in modules
    assert not modules & {"ttl_odm.stored.django.models", "ttl_odm.stored.sqlalchemy"}
    assert not any(name.startswith(("ttl_odm.follows", "ttl_odm.partitions")) for name in modules)


@pytest.mark.slow
def test_a_document_whose_default_is_stored_brings_in_what_its_adapter_needs_for_that(
    mongodb_database: tuple[str, str],
) -> None:
    modules = modules_after(PLAIN_DOCUMENT + STORED_DOCUMENT, *mongodb_database)

    assert "ttl_odm.stored.beanie.source" in modules
    others = ("ttl_odm.follows", "ttl_odm.partitions", "ttl_odm.stored.sqlalchemy")
    assert not any(name.startswith(others) for name in modules)


@pytest.mark.slow
def test_an_engine_that_is_guarded_brings_in_what_reads_raw_sql() -> None:
    modules = modules_after(PLAIN_MODEL + GUARDED)

    assert {"ttl_odm.guard.sqlalchemy.engines", "ttl_odm.guard.tables"} <= modules
    others = ("ttl_odm.follows", "ttl_odm.partitions", "ttl_odm.stored")
    assert not any(name.startswith(others) for name in modules)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["sweep", "status", "plan notes"])
def test_commands_of_the_base_bring_in_no_command_of_an_extension(
    tmp_path: Path, command: str
) -> None:
    modules = modules_after(TYPED, str(tmp_path), *command.split())

    assert "ttl_odm.cli.commands" in modules
    assert [
        name for name in modules if name.startswith(("ttl_odm.follows", "ttl_odm.stored"))
    ] == []
    assert "ttl_odm.database_sweep.cli" not in modules


@pytest.mark.slow
def test_a_command_of_an_extension_brings_that_extension_in(tmp_path: Path) -> None:
    modules = modules_after(TYPED, str(tmp_path), "policy", "show")

    assert "ttl_odm.stored.cli.policy" in modules
    assert "ttl_odm.database_sweep.cli" not in modules


@pytest.mark.slow
def test_flask_brings_in_no_extension_before_a_command_of_it_is_typed() -> None:
    modules = modules_after("import sys\nimport ttl_odm.integrations.flask")

    assert "ttl_odm.integrations.flask.commands" in modules
    assert not any(name.startswith("ttl_odm.stored") for name in modules)


@pytest.mark.slow
def test_a_model_that_is_cut_by_time_brings_in_what_its_adapter_and_the_sweeper_need() -> None:
    modules = modules_after(PLAIN_MODEL + PARTITIONED)

    assert "ttl_odm.partitions.sqlalchemy.whereabouts" in modules


@pytest.mark.slow
def test_a_plain_table_is_migrated_without_extensions() -> None:
    assert extensions_in(modules_after(MIGRATION)) == set()


@pytest.mark.slow
def test_an_argument_of_a_migration_brings_in_the_extension_that_it_asks_for() -> None:
    migration = f"{MIGRATION}migrate(enforce='view')\n"

    assert extensions_in(modules_after(migration)) == {"ttl_odm.live_views"}
