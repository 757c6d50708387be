"""What it costs on Django that rows follow a parent: against an Exists that is written by hand.

Run as ``python -m benchmarks.django_follows BACKEND`` this is the process in which Django runs, as
`benchmarks.django_worker` is. A policy belongs to a table, so the models without one have tables of
their own, with the same rows, and with an indexed ``expires_at`` where the others have a lifetime.
"""

# ruff: noqa: DJ008 - nobody looks at these models
from __future__ import annotations

import sys
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.db import connection, models
from django.db.models.functions import Now
from django.utils import timezone

from benchmarks.bench import tell
from benchmarks.django_worker import SETTLE, ago, set_up
from benchmarks.findings import ratio
from benchmarks.goals import DJANGO_FOLLOWS_KEY
from benchmarks.harness import rotated, sitting, timed
from benchmarks.sql_models import DAY, ROWS
from benchmarks.workers import sample, serve, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from benchmarks.bench import Bench, Database
    from benchmarks.findings import Finding
    from benchmarks.harness import Round, Sample

OVER_EXISTS: Final = "Django: rows that follow a parent / an Exists by hand"
OVER_PREPARED: Final = "Django: rows that follow a parent / an Exists by hand, made once"
OVER_JOIN: Final = "Django: rows that follow a parent / a join by hand"
NOISE: Final = "Noise: the same Exists by hand on Django, twice"

_FOLLOWER: Final = "follower"
_EXISTS: Final = "exists"
_PREPARED: Final = "prepared"
_JOIN: Final = "join"
_AGAIN: Final = "exists, again"
_WAYS: Final = (_FOLLOWER, _EXISTS, _PREPARED, _JOIN, _AGAIN)

_BY_KEY: Final = "get() by key"
_HUNDRED: Final = "list of 100"
_READS: Final = (_BY_KEY, _HUNDRED)
_COMPARED: Final = (
    (OVER_EXISTS, _FOLLOWER, _EXISTS),
    (OVER_PREPARED, _FOLLOWER, _PREPARED),
    (OVER_JOIN, _FOLLOWER, _JOIN),
    (NOISE, _AGAIN, _EXISTS),
)

_LINES = 4
"""Of each cart."""

_EXPIRES_EVERY: Final = 71
_LIST: Final = 100
_CARTS: Final = range(1, ROWS // _LINES)
_KEYS: Final = [_LINES * cart for cart in range(1, _CARTS.stop - _LIST, 7) if cart % _EXPIRES_EVERY]


class _Models(NamedTuple):
    cart: Any
    line: Any
    plain_cart: Any
    plain_line: Any


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on every SQL database.

    Args:
        bench: what there is.
    """
    for database in bench.databases:
        found: dict[str, list[list[Round]]] = {what: [] for what in _READS}
        for number in range(bench.scale.sittings):
            tell(f"  {database.name}: sitting {number + 1} of {bench.scale.sittings}")
            _sit(database, bench.scale.rounds, number, found)
        for what, sittings in found.items():
            for section, over, under in _COMPARED:
                is_goal = (section, what) == (OVER_EXISTS, _BY_KEY)
                goal = DJANGO_FOLLOWS_KEY if is_goal else None
                yield ratio(section, what, database.name, sittings, over, under, goal)


def _sit(database: Database, rounds: int, number: int, found: dict[str, list[list[Round]]]) -> None:
    with database.made() as url, worker(__name__, database.backend, url=url) as ask:
        for what, sittings in found.items():
            samples = {way: sample(ask, f"{what}; {way}") for way in rotated(_WAYS, number)}
            sittings.append(sitting(samples, rounds))


def _declare() -> _Models:
    """The models; not before Django is set up."""
    from ttl_odm import Follows  # noqa: PLC0415 - beside the next
    from ttl_odm.django import TTLModel  # noqa: PLC0415 - as said

    class FollowedCart(TTLModel):
        """Parents."""

        __ttl__ = DAY
        id: models.BigIntegerField[int, int] = models.BigIntegerField(primary_key=True)

        class Meta:  # pyright: ignore[reportIncompatibleVariableOverride]
            """Django's."""

            app_label = "benchmarks"

    class FollowingLine(TTLModel):
        """Rows that live while their parents do."""

        __ttl__ = Follows("cart")
        id: models.BigIntegerField[int, int] = models.BigIntegerField(primary_key=True)
        cart: Any = models.ForeignKey(FollowedCart, models.CASCADE)
        payload: models.CharField[str, str] = models.CharField(max_length=100)

        class Meta:  # pyright: ignore[reportIncompatibleVariableOverride]
            """Django's."""

            app_label = "benchmarks"

    class PlainCart(models.Model):
        """Parents without a policy."""

        id: models.BigIntegerField[int, int] = models.BigIntegerField(primary_key=True)
        expires_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(db_index=True)

        class Meta:
            """Django's."""

            app_label = "benchmarks"

    class PlainLine(models.Model):
        """Their rows."""

        id: models.BigIntegerField[int, int] = models.BigIntegerField(primary_key=True)
        cart: Any = models.ForeignKey(PlainCart, models.CASCADE)
        payload: models.CharField[str, str] = models.CharField(max_length=100)

        class Meta:
            """Django's."""

            app_label = "benchmarks"

    return _Models(FollowedCart, FollowingLine, PlainCart, PlainLine)


def _create_tables(made: _Models) -> None:
    now = timezone.now()
    ends = {True: now.replace(year=now.year + 30), False: now.replace(year=now.year - 30)}
    with connection.schema_editor() as editor:
        for model in made:
            editor.create_model(model)
    made.cart.objects.bulk_create([made.cart(id=key) for key in _CARTS])
    made.plain_cart.objects.bulk_create(
        [made.plain_cart(id=key, expires_at=ends[key % _EXPIRES_EVERY > 0]) for key in _CARTS]
    )
    for line in (made.line, made.plain_line):
        keys = range(_LINES, _LINES * _CARTS.stop)
        lines = [line(id=key, cart_id=key // _LINES, payload="x" * 100) for key in keys]
        line.objects.bulk_create(lines, batch_size=1_000)
    with connection.cursor() as cursor:
        carts = made.cart._meta.db_table  # noqa: SLF001 - Django's documented API
        expired = f"UPDATE {carts} SET _ts = {ago(str(2 * DAY))} WHERE id % {_EXPIRES_EVERY} = 0"  # noqa: S608
        cursor.execute(expired)
        for model in made:
            settle = SETTLE.get(connection.vendor, "ANALYZE")
            cursor.execute(settle.format(model._meta.db_table))  # noqa: SLF001 - as above


def _reads(made: _Models) -> dict[str, Sample]:
    keys = cycle(_KEYS)
    lines, carts = made.plain_line.objects, made.plain_cart.objects

    def exists(now: Any) -> Any:
        live = carts.filter(pk=models.OuterRef("cart_id"), expires_at__gt=now)
        return lines.filter(models.Exists(live))

    prepared = exists(Now())
    querysets: dict[str, Callable[[], Any]] = {
        _FOLLOWER: made.line.objects.all,
        _EXISTS: lambda: exists(timezone.now()),
        _PREPARED: prepared.all,
        _JOIN: lambda: lines.filter(cart__expires_at__gt=timezone.now()),
        _AGAIN: lambda: exists(timezone.now()),
    }

    def read(fetch: Callable[[Any], object], rows: Callable[[], Any]) -> Sample:
        return timed(lambda: fetch(rows()))

    def one(rows: Any) -> object:
        return rows.get(pk=next(keys))

    def listed(rows: Any) -> object:
        return list(rows.filter(pk__gte=next(keys)).order_by("pk")[:_LIST])

    return {
        f"{what}; {way}": read(fetch, rows)
        for what, fetch in ((_BY_KEY, one), (_HUNDRED, listed))
        for way, rows in querysets.items()
    }


def _open(backend: str, url: str) -> Mapping[str, Sample]:
    set_up(backend, url)
    made = _declare()
    _create_tables(made)
    return _reads(made)


if __name__ == "__main__":
    serve(lambda url: _open(sys.argv[1], url))
