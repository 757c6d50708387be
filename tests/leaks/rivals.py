"""The worlds of two other ways to hide rows, and the verdicts on them and on ours.

| column | world |
|---|---|
| `ours` | `tests.leaks.living.LivingWorld` |
| `recipe` | `RecipeWorld`: `do_orm_execute` and `with_loader_criteria` |
| `easy` | `EasyWorld`: sqlalchemy-easy-softdelete |

``python -m tests.leaks.rivals COLUMN`` prints the verdicts as JSON. It runs on SQLite, in a process
of its own for each column, because the other two hook into every `Session`, and it runs where
ttl_odm is not installed: only `ours` imports it. `tools/leaks.py` makes docs/leaks.md of this.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
import tempfile
import warnings
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy
from sqlalchemy import DateTime, column, event, inspect, select, update
from sqlalchemy.orm import (
    Mapped,
    ORMExecuteState,
    Session,
    declared_attr,
    mapped_column,
    with_loader_criteria,
)
from sqlalchemy.orm.attributes import set_committed_value

from tests.leaks.data import ROWS, Row
from tests.leaks.registry import Path, Sees, all_paths
from tests.leaks.worlds import CleanWorld, TimelessWorld, delete_rows, lasting_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Table, Update

Verdict = Literal["right", "wrong", "raises"]

NEVER = datetime(9999, 12, 31)  # noqa: DTZ001 - SQLite's columns know no time zone
LONG_AGO = timedelta(hours=1)


def utc_now() -> datetime:
    """This moment, as SQLite stores it."""
    return datetime.now(timezone.utc).replace(tzinfo=None)


class Expiring:
    """A mixin with the instant of a row's end, for the usual recipe.

    Its default is the class's ttl from now; the classes of the matrix give that as an argument.
    """

    lifetime: int = -1

    def __init_subclass__(cls, ttl: int | None = None, **kw: Any) -> None:
        if ttl is not None:
            cls.lifetime = ttl
        if vars(cls).get("__mapper_args__", {}).get("concrete"):
            # SQLAlchemy asks of a concrete class that it declares all its columns again.
            setattr(cls, "expires_at", mapped_column(DateTime, default=_end_for(cls)))  # noqa: B010
        super().__init_subclass__(**kw)

    @declared_attr
    def expires_at(cls) -> Mapped[datetime]:  # noqa: N805 - as SQLAlchemy has it
        """When the row ends; `NEVER` if it doesn't."""
        return mapped_column(DateTime, default=_end_for(cls))


def _end_for(cls: Any) -> Callable[[], datetime]:
    return lambda: end(cls.lifetime)


def end(seconds: int, age: int = 0) -> datetime:
    """The instant at which a row of this age ends."""
    return NEVER if seconds == -1 else utc_now() + timedelta(seconds=seconds - age)


def hide_expired(state: ORMExecuteState) -> None:
    """Add the criteria, as SQLAlchemy's own example does (examples/extending_query)."""
    # The option goes along to relationship loads by itself.
    if not state.is_column_load and not state.is_relationship_load:
        now = utc_now()
        state.statement = state.statement.options(
            with_loader_criteria(Expiring, lambda cls: cls.expires_at > now, include_aliases=True)
        )


class RivalWorld(TimelessWorld):
    """A world whose expired rows keep their keys until a job deletes them."""

    def clean_up(self, session: Session, *objects: Any) -> None:
        """Be that job, so that what is judged is what a session has for the keys afterwards."""
        delete_rows(session, *objects)


class RecipeWorld(RivalWorld):
    """All rows, with the instant of their end, read through the usual recipe."""

    mixin = Expiring

    def __init__(self, url: str) -> None:
        super().__init__(url)
        event.listen(Session, "do_orm_execute", hide_expired)

    def give_lifetime(self, connection: Connection, table: Table, row: Row) -> None:
        """Set the instant of its end."""
        if "expires_at" not in table.c:
            return
        own, default = row.life.ttl, getattr(self, row.model).lifetime
        ends = end(default if own is None else own, row.life.age)
        assert (ends > utc_now()) is row.life.live, f"{row} would end at {ends}"
        changed = _update(table, row.values["id"])
        connection.execute(changed.values(expires_at=ends))

    def pass_time(self, session: Session, *objects: Any) -> None:
        """Move the ends into the past, in the table and in memory."""
        past = utc_now() - LONG_AGO
        for each in objects:
            table, key = _place(each)
            changed = _update(table, key).values(expires_at=past)
            session.connection().execute(changed)
            if "expires_at" in vars(each):
                set_committed_value(each, "expires_at", past)

    def let_pass(self, session: Session, model: Any, seconds: int) -> None:
        """Move the ends towards now."""
        table, connection = lasting_table(inspect(model)), session.connection()
        for key, ends in connection.execute(select(table.c.id, table.c.expires_at)).all():
            if ends != NEVER:
                changed = _update(table, key)
                connection.execute(changed.values(expires_at=ends - timedelta(seconds=seconds)))


class EasyWorld(RivalWorld):
    """All rows, read through sqlalchemy-easy-softdelete; those that have expired are marked."""

    def __init__(self, url: str) -> None:
        self.mixin = _easy_mixin()
        super().__init__(url)

    def give_lifetime(self, connection: Connection, table: Table, row: Row) -> None:
        """Mark a row that has expired."""
        if "deleted_at" in table.c and not row.life.live:
            self._mark(connection, table, row.values["id"])

    def pass_time(self, session: Session, *objects: Any) -> None:
        """Mark the rows in the table, as a job would that looks for expired rows."""
        for each in objects:
            self._mark(session.connection(), *_place(each))

    @staticmethod
    def _mark(connection: Connection, table: Table, key: int) -> None:
        now = datetime.now(timezone.utc)
        connection.execute(_update(table, key).values(deleted_at=now))


def _update(table: Table, key: int) -> Update:
    """An UPDATE of a row that sets nothing by itself: no ``onupdate``."""
    bare = sqlalchemy.table(table.name, *(column(c.name, c.type) for c in table.c))
    return update(bare).where(bare.c.id == key)


def _place(obj: Any) -> tuple[Table, int]:
    """The table that has an object's end, and its key there."""
    return lasting_table(inspect(obj).mapper), inspect(obj).identity[0]


def _easy_mixin() -> type:
    """The package's mixin, which takes a ttl (and does nothing with it)."""
    from sqlalchemy_easy_softdelete.mixin import (  # type: ignore[import-not-found,unused-ignore]
        generate_soft_delete_mixin_class,
    )

    generated: Any = generate_soft_delete_mixin_class()

    class SoftDeleted(generated):  # type: ignore[misc,unused-ignore]
        def __init_subclass__(cls, ttl: int | None = None, **kw: Any) -> None:
            if vars(cls).get("__mapper_args__", {}).get("concrete"):
                cls.deleted_at = mapped_column(DateTime(timezone=True))
            super().__init_subclass__(**kw)

    return SoftDeleted


def _living(url: str) -> TimelessWorld:
    from tests.leaks.living import LivingWorld

    return LivingWorld(url)


COLUMNS: dict[str, Callable[[str], TimelessWorld]] = {
    "ours": _living,
    "recipe": RecipeWorld,
    "easy": EasyWorld,
}


def compared_paths() -> list[Path]:
    """The paths that can be compared: not those about ttl_odm's options, nor what SQLite lacks."""
    paths = all_paths(without=("escapes",))  # these import ttl_odm
    return [path for path in paths if not path.own and "sqlite" not in path.without]


def right_answers(paths: list[Path], url: str) -> dict[str, Any]:
    """What each path has to give.

    Where the matrix allows that everything is seen, because no compiler filters raw text, the
    right answer here is still that of a world without the expired rows.
    """
    clean = CleanWorld(url)
    answers = {
        path.name: clean.answer(path) if isinstance(path.answer, Sees) else path.answer
        for path in paths
    }
    clean.engine.dispose()
    return answers


WRITES = {"writes", "aliased_writes", "computed_keys", "generated_keys", "insert_forms", "upserts"}
"""The themes about what a write changes."""


class Judge:
    """Asks a world for its answers.

    Args:
        world: all rows, hidden in some way.
    """

    def __init__(self, world: TimelessWorld) -> None:
        self._world = world
        self._content = self._dump()
        with world.engine.connect() as connection:
            self._expired = self._expired_rows(connection)

    def verdict(self, path: Path, right: Any) -> Verdict:
        """Ask twice, the second time out of SQLAlchemy's cache of statements."""
        try:
            good = [self._is_right(path, right) for _ in range(2)]
        except Exception:  # noqa: BLE001 - whatever it is
            return "raises"
        finally:
            assert self._dump() == self._content, f"{path.name!r} has left something changed"
        return "right" if all(good) else "wrong"

    def _is_right(self, path: Path, right: Any) -> bool:
        with Session(self._world.engine) as session:
            answer = path.run(session, self._world)
            # Elsewhere a write only sets the scene; and a flush that failed has changed nothing.
            judged = path.theme in WRITES and path.writes and session.is_active
            if judged and self._has_changed_expired(session):
                return False
        return bool(answer == right)

    def _has_changed_expired(self, session: Session) -> bool:
        """Whether a row that had expired has other values, without a new lifetime."""
        now = self._expired_rows(session.connection())
        for number, before in self._expired.items():
            after, own = now[number], ROWS[number].values.keys() | {"kind"}
            if not after or after == before:  # deleted, or untouched
                continue
            if all(after.get(name) == before[name] for name in before.keys() - own):
                return True
        return False

    def _expired_rows(self, connection: Connection) -> dict[int, dict[str, Any]]:
        """The rows that have expired, by their place among `ROWS`, by raw SQL."""
        found: dict[int, dict[str, Any]] = {}
        for number, row in enumerate(ROWS):
            if row.life.live:
                continue
            found[number] = {}
            for table in inspect(getattr(self._world, row.model)).tables:
                # A row with a key of several columns has its number beside it.
                key = table.c.id if len(table.primary_key) > 1 else next(iter(table.primary_key))
                sql = f"SELECT * FROM {table.name} WHERE {key.name} = {row.values['id']}"  # noqa: S608
                for values in connection.exec_driver_sql(sql).mappings():
                    found[number].update(values)
        return found

    def _dump(self) -> list[str]:
        with self._world.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            return list(driver.iterdump())


def measure(column: str) -> dict[str, Any]:
    """Judge every path of one column, on SQLite.

    Returns:
        The verdicts as ``[theme, path, verdict]``, what the themes are, and the versions.
    """
    paths = compared_paths()
    with tempfile.TemporaryDirectory() as folder:
        # First of all: the other packages' hooks would be asked about the clean world, too.
        right = right_answers(paths, f"sqlite:///{folder}/clean.sqlite3")
        world = COLUMNS[column](f"sqlite:///{folder}/{column}.sqlite3")
        # A warning in ours is a mistake; others may have theirs.
        with warnings.catch_warnings():
            warnings.simplefilter("error" if column == "ours" else "ignore")
            judge = Judge(world)
            verdicts = [
                (path.theme, path.name, judge.verdict(path, right[path.name])) for path in paths
            ]
        world.engine.dispose()
    return {
        "verdicts": verdicts,
        "themes": {path.theme: _first_line(sys.modules[path.run.__module__]) for path in paths},
        "python": platform.python_version(),
        "sqlalchemy": sqlalchemy.__version__,
        "package": _easy_version() if column == "easy" else None,
    }


def _first_line(module: Any) -> str:
    return str(module.__doc__).partition("\n")[0]


def _easy_version() -> str:
    return importlib.metadata.version("sqlalchemy-easy-softdelete")


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))  # noqa: T201 - it is what the process is for
