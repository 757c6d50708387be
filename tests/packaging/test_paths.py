"""How many modules a reader follows one request through: their numbers may fall, not rise.

Each path runs twice in a process of its own, on SQLite in memory. A module counts if any function
written in it is called.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ttl_odm

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

pytestmark = pytest.mark.slow

PINS = {
    ("sqlalchemy", "select"): (10, 3),
    ("sqlalchemy", "insert_over_expired"): (14, 9),
    ("sqlalchemy", "touch"): (12, 7),
    ("sqlalchemy", "one_batch"): (27, 22),
    ("sqlalchemy", "idle_sweep"): (22, 17),
    ("django", "find"): (10, 8),
    ("django", "insert_over_expired"): (22, 20),
    ("django", "touch"): (15, 13),
    ("django", "one_batch"): (32, 32),
    ("django", "idle_sweep"): (30, 29),
}
"""By adapter and path: modules that run at the first call, and once its statements are compiled.

Lower a pin with the change that shortens its path. To raise one, write the new number here, and
beside it why the further module can't be one of the others.
"""

TRACE = """
import gc
import json
import os
import sys

import ttl_odm

PACKAGE = os.path.dirname(ttl_odm.__file__) + os.sep


class Trace:
    def __init__(self):
        self.modules = set()

    def note(self, frame, event, argument):
        # What a dataclass generates has no file, and nobody reads it.
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE):
            self.modules.add(file.removeprefix(PACKAGE).replace(os.sep, "/"))

    def __enter__(self):
        gc.collect()
        gc.disable()  # what it finalizes belongs to no path
        sys.setprofile(self.note)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)
        gc.enable()
"""

REPORT = """

prepare, run = PATHS[sys.argv[1]]
traces = []
for _ in range(2):
    given = prepare()
    with Trace() as trace:
        run(given)
    traces.append(sorted(trace.modules))
print(json.dumps(traces))
"""

SQLALCHEMY = """
from sqlalchemy import create_engine, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import StaticPool

from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import Sweeper


class Base(DeclarativeBase):
    pass


class Note(TTLMixin, Base):
    __tablename__ = "notes"
    __ttl__ = 3600
    name: Mapped[str] = mapped_column(primary_key=True)


engine = create_engine("sqlite://", poolclass=StaticPool)
Base.metadata.create_all(engine)


def select_all(_):
    with Session(engine) as session:
        session.scalars(select(Note)).all()


def insert(_=None):
    with Session(engine) as session:
        session.add(Note(name="one"))
        session.commit()


def age():
    with engine.begin() as connection:
        connection.execute(text("UPDATE notes SET _ts = _ts - 7200000"))


def expired():
    age()
    insert()
    age()


def loaded():
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM notes"))
    insert()
    session = Session(engine)
    return session, session.get(Note, "one")


def touch(given):
    session, note = given
    note.touch()
    session.commit()
    session.close()


def due():
    expired()
    return swept()


def swept():
    return Sweeper(engine, Base)


def sweep(sweeper):
    sweeper.run_once()


PATHS = {
    "select": (lambda: None, select_all),
    "insert_over_expired": (expired, insert),
    "touch": (loaded, touch),
    "one_batch": (due, sweep),
    "idle_sweep": (swept, sweep),
}
"""

DJANGO = """
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

    class Meta:
        app_label = "notes"


call_command("migrate", verbosity=0)
with connection.schema_editor() as editor:
    editor.create_model(Note)


def find(_):
    list(Note.objects.all())


def insert(_=None):
    Note.objects.create(name="one")


def execute(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)


def age():
    execute(f"UPDATE {Note._meta.db_table} SET _ts = _ts - 7200000000")


def expired():
    age()
    insert()
    age()


def loaded():
    execute(f"DELETE FROM {Note._meta.db_table}")
    insert()
    return Note.objects.get(name="one")


def touch(note):
    note.touch()
    note.save()


def due():
    expired()
    return swept()


def swept():
    return Sweeper(connection, Note)


def sweep(sweeper):
    sweeper.run_once()


PATHS = {
    "find": (lambda: None, find),
    "insert_over_expired": (expired, insert),
    "touch": (loaded, touch),
    "one_batch": (due, sweep),
    "idle_sweep": (swept, sweep),
}
"""

MODELS = {"sqlalchemy": SQLALCHEMY, "django": DJANGO}


def modules_on(models: str, *words: str) -> dict[str, list[str]]:
    """Return the modules that run at the first call of a path, and at the second.

    Args:
        models: The code that declares the models and `PATHS`.
        words: The path, and further words of the command line.
    """
    run = subprocess.run(
        [sys.executable, "-c", TRACE + models + REPORT, *words],
        env={**os.environ, "PYTHONPATH": str(Path(ttl_odm.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    first, second = json.loads(run.stdout)
    return {"first": first, "second": second}


def check_pins(path: str, modules: Mapping[str, list[str]], pins: Iterable[int]) -> None:
    """Fail if more modules run than a path's pins say."""
    for (call, run), pin in zip(modules.items(), pins, strict=True):
        assert len(run) <= pin, (
            f"{path}, {call} call: {len(run)} modules run, not {pin}. If one more is meant, raise "
            f"the pin and say why beside it. They are: {' '.join(run)}"
        )


@pytest.mark.parametrize(("adapter", "path"), PINS)
def test_a_path_does_not_get_longer(adapter: str, path: str) -> None:
    modules = modules_on(MODELS[adapter], path)
    check_pins(f"{adapter}, {path}", modules, PINS[adapter, path])
