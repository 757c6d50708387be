"""A process in which Django runs, measured by `benchmarks.django_overhead`.

Run as ``python -m benchmarks.django_worker BACKEND``; see `benchmarks.workers`. A policy belongs to
a table, so the model without one has a table of its own, with the same rows, and with an indexed
``expires_at``, as one would do it by hand.

The deletions are samples too: asked for as many runs as there are rows to delete, they fill the
table anew and tell the seconds of deleting.
"""

# ruff: noqa: DJ008 - nobody looks at these models
from __future__ import annotations

import sys
from datetime import timedelta
from importlib import import_module
from itertools import count, cycle
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import django
from django.conf import settings
from django.db import connection, models, transaction
from django.utils import timezone
from sqlalchemy import create_engine

from benchmarks.harness import timed, undisturbed
from benchmarks.sweeping_tables import AT_ONCE, DAY, LIVE, NUMBERS, ROW_BY_ROW, SWEEPER
from benchmarks.workers import serve
from tests.backends import Backend
from tests.django_app.project import database_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from benchmarks.harness import Sample

GATE: Final = "gate"
BY_HAND: Final = "by hand"
NOTHING: Final = "nothing"
AGAIN: Final = "nothing, again"
WAYS: Final = (GATE, BY_HAND, NOTHING, AGAIN)

READS: Final = ("get() by key", "list of 100")
WRITES: Final = ("create(), its own key", "save() of a change")
RENEWAL: Final = "touch() by key"
OTHER: Final = "SQLAlchemy's sweeper"
DELETIONS: Final = (SWEEPER, OTHER, AT_ONCE, ROW_BY_ROW)

_ROWS: Final = 10_000
_EXPIRES_EVERY: Final = 71
_LIST: Final = 100
_STEP: Final = 7
SETTLE: Final = {"postgresql": "VACUUM ANALYZE {}", "mysql": "ANALYZE TABLE {}"}
"""What a table is told once it is full; ANALYZE where there is nothing of a database."""


def set_up(backend: str, url: str, *apps: str) -> None:
    """Configure Django for one database.

    Args:
        backend: as `tests.backends` calls it.
        url: SQLAlchemy's URL of the database.
        apps: those to install besides ours.
    """
    pymysql: Any = import_module("pymysql")  # it has no types
    pymysql.version_info = (2, 2, 7, "final", 0)  # what Django asks of mysqlclient
    pymysql.install_as_MySQLdb()
    database = database_settings(Backend(backend, url, None))
    if database["ENGINE"].endswith("sqlite3"):
        del database["OPTIONS"]  # the tests' own: to write nothing to disk
    settings.configure(
        USE_TZ=True,
        SECRET_KEY="benchmarks",  # noqa: S106 - no secret
        INSTALLED_APPS=["ttl_odm.integrations.django", *apps],
        DATABASES={"default": database},
    )
    django.setup()


def _declare() -> tuple[Any, Any]:
    """The two models; not before Django is set up."""
    from ttl_odm.django import TTLModel  # noqa: PLC0415 - as said

    class Entry(TTLModel):
        """With a policy."""

        __ttl__ = DAY
        id: models.BigIntegerField[int, int] = models.BigIntegerField(primary_key=True)
        payload: models.CharField[str, str] = models.CharField(max_length=100)

        class Meta:  # pyright: ignore[reportIncompatibleVariableOverride]
            """Django's."""

            app_label = "benchmarks"
            db_table = "entries"

    class PlainEntry(models.Model):
        """Without."""

        id: models.BigIntegerField[int, int] = models.BigIntegerField(primary_key=True)
        payload: models.CharField[str, str] = models.CharField(max_length=100)
        expires_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(db_index=True)

        class Meta:
            """Django's."""

            app_label = "benchmarks"
            db_table = "plain_entries"

    return Entry, PlainEntry


class Tables:
    """Both tables, made anew for what is measured next."""

    def __init__(self, entry: Any, plain: Any) -> None:
        """Nothing is there yet."""
        self.entry = entry
        self.plain = plain
        self._there: set[Any] = set()

    def fill(self, model: Any, rows: int, expired: str) -> None:
        """Make and fill one.

        Args:
            model: whose table.
            rows: how many.
            expired: SQL over the key ``i``: whether the row has expired.
        """
        with connection.schema_editor() as editor:
            if model in self._there:
                editor.delete_model(model)
            editor.create_model(model)
        self._there.add(model)
        is_mariadb = getattr(connection, "mysql_is_mariadb", False)
        kind = "mariadb" if is_mariadb else connection.vendor
        numbers = NUMBERS[kind].format(rows=rows)
        payload = f"substr('{'some payload ' * 8}', 1, 100)"
        if model is self.entry:
            column = "_ts"
            value = ago(f"CASE WHEN {expired} THEN {2 * DAY} - i * 0.01 ELSE 0 END")
        else:
            column = "expires_at"
            value = f"CASE WHEN {expired} THEN '2000-01-01 00:00:00' ELSE '2100-01-01 00:00:00' END"
            if connection.vendor == "postgresql":
                value = f"({value})::timestamptz"
        table = model._meta.db_table  # noqa: SLF001 - Django's documented API
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {table} (id, payload, {column}) "  # noqa: S608
                f"SELECT i, {payload}, {value} FROM ({numbers}) AS n"
            )
            cursor.execute(SETTLE.get(connection.vendor, "ANALYZE").format(table))


def ago(seconds: str) -> str:
    """The instant so many seconds before now, as the gate stores it, in SQL.

    Args:
        seconds: SQL.
    """
    from ttl_odm.django.time import clock  # noqa: PLC0415 - not before Django is set up

    return clock.ago(connection, "instant", f"({seconds})", writing=True).replace("%%", "%")


def _reads(tables: Tables) -> dict[str, Sample]:
    keys = cycle([key for key in range(1, _ROWS - 2 * _LIST, _STEP) if key % _EXPIRES_EVERY])
    querysets: dict[str, Callable[[], Any]] = {
        GATE: tables.entry.objects.all,
        BY_HAND: lambda: tables.plain.objects.filter(expires_at__gt=timezone.now()),
        NOTHING: tables.plain.objects.all,
        AGAIN: tables.plain.objects.all,
    }
    by_key, hundred = READS

    def sample(read: Callable[[Any], object], rows: Callable[[], Any]) -> Sample:
        return timed(lambda: read(rows()))

    def one(rows: Any) -> object:
        return rows.get(pk=next(keys))

    def listed(rows: Any) -> object:
        return list(rows.filter(pk__gte=next(keys)).order_by("pk")[:_LIST])

    return {
        f"{what}; {way}": sample(read, rows)
        for what, read in ((by_key, one), (hundred, listed))
        for way, rows in querysets.items()
    }


def _writes(tables: Tables) -> dict[str, Sample]:
    given = {GATE: tables.entry, NOTHING: tables.plain, AGAIN: tables.plain}
    ends = timezone.now()
    create, save = WRITES

    def creating(model: Any) -> Callable[[], object]:
        keys, more = count(_ROWS + 1), {} if model is tables.entry else {"expires_at": ends}
        return lambda: model.objects.create(id=next(keys), payload="x" * 100, **more)

    def saving(model: Any) -> Callable[[], object]:
        row, numbers = model.objects.get(pk=1), count()

        def change() -> None:
            row.payload = f"{next(numbers):0>100}"
            row.save()

        return change

    return {
        f"{what}; {way}": _rolled_back(write(model))
        for what, write in ((create, creating), (save, saving))
        for way, model in given.items()
    }


def _rolled_back(write: Callable[[], object]) -> Sample:
    """Time writes in a transaction that is rolled back."""
    run = timed(write)

    def taken(runs: int) -> float:
        with transaction.atomic():  # pyright: ignore[reportGeneralTypeIssues]
            seconds = run(runs)
            transaction.set_rollback(True)
        return seconds

    return taken


def _renewals(tables: Tables) -> dict[str, Sample]:
    """One row's life begins again, without being loaded; by hand, in the very same table."""
    from ttl_odm.django.policy.bindings import table_policy  # noqa: PLC0415 - as said
    from ttl_odm.django.policy.predicate import Predicate  # noqa: PLC0415 - as said
    from ttl_odm.django.time import clock  # noqa: PLC0415 - as said

    policy = table_policy("entries")
    assert policy is not None  # noqa: S101 - it was declared
    compiler = tables.entry.objects.all().query.get_compiler(connection=connection)
    live, _ = Predicate(policy, "entries", "live", writing=True).as_sql(compiler, connection)
    now = clock.now(connection, "instant", writing=True)
    statement = f"UPDATE entries SET _ts = {now} WHERE id = %s AND {live}"  # noqa: S608
    keys = cycle([key for key in range(1, _ROWS - 2 * _LIST, _STEP) if key % _EXPIRES_EVERY])

    def by_hand() -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement, [next(keys)])

    def plain() -> object:
        now = timezone.now()
        rows = tables.plain.objects.filter(pk=next(keys), expires_at__gt=now)
        return rows.update(expires_at=now + timedelta(days=1))

    ways: dict[str, Callable[[], object]] = {
        GATE: lambda: tables.entry.objects.filter(pk=next(keys)).touch(),
        BY_HAND: by_hand,
        NOTHING: plain,
        AGAIN: plain,
    }

    return {f"{RENEWAL}; {name}": _rolled_back(way) for name, way in ways.items()}


def _deletions(tables: Tables, url: str) -> dict[str, Sample]:
    from benchmarks import sweeping_tables  # noqa: PLC0415 - its model has the same table
    from ttl_odm.sweeper import Sweeper  # noqa: PLC0415 - it looks for stores

    engine = create_engine(url)

    def sweep() -> None:
        Sweeper(connection, [tables.entry], lease=False).run_once().raise_for_failures()

    def sweep_otherwise() -> None:
        sweeping_tables.sweep(engine)

    def delete() -> None:
        with connection.cursor() as cursor:
            cutoff = ago(str(DAY))
            cursor.execute(f"DELETE FROM entries WHERE ttl IS NULL AND _ts <= {cutoff}")  # noqa: S608

    def delete_each() -> None:
        for row in tables.plain.objects.filter(expires_at__lte=timezone.now()):
            row.delete()

    def sample(way: Callable[[], None], model: Any) -> Sample:
        def taken(rows: int) -> float:
            tables.fill(model, rows + LIVE, f"i > {LIVE}")
            with undisturbed():
                begin = perf_counter()
                way()
                return perf_counter() - begin

        return taken

    return {
        SWEEPER: sample(sweep, tables.entry),
        OTHER: sample(sweep_otherwise, tables.entry),
        AT_ONCE: sample(delete, tables.entry),
        ROW_BY_ROW: sample(delete_each, tables.plain),
    }


def _open(backend: str, url: str) -> Mapping[str, Sample]:
    set_up(backend, url)
    tables = Tables(*_declare())
    for model in (tables.entry, tables.plain):
        tables.fill(model, _ROWS, f"i % {_EXPIRES_EVERY} = 0")
    timings = {**_reads(tables), **_writes(tables), **_renewals(tables)}
    return {**timings, **_deletions(tables, url)}


if __name__ == "__main__":
    serve(lambda url: _open(sys.argv[1], url))
