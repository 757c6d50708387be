"""What stored defaults of tenants cost on Django, where a query names its tenant.

Against the same model with the default in the code. All 10,000 tenants have a default of their own,
and the rows are older than the shortest of these. Half of the rows are those of one tenant.

Beside it stands what the same reads cost without ttl_odm: by a condition that looks up the tenant's
default, or else the table's, against one with a number.

Run as ``python -m benchmarks.django_tenants BACKEND`` this is the process in which Django runs, as
`benchmarks.django_worker` is. A policy belongs to a table, so each model has one of its own, with
the same rows.
"""

# ruff: noqa: DJ008 - nobody looks at these models
from __future__ import annotations

import sys
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from django.db import connection, models
from django.db.models.expressions import RawSQL
from django.utils import timezone
from sqlalchemy import Integer, column, table

from benchmarks.bench import tell
from benchmarks.django_worker import SETTLE, ago, set_up
from benchmarks.findings import ratio
from benchmarks.goals import DJANGO_TENANT_KEY, DJANGO_TENANT_LIST, DJANGO_TENANT_SCAN
from benchmarks.harness import rotated, sitting, timed
from benchmarks.sql_models import DAY, ROWS, live_by_hand
from benchmarks.stored_models import LONGEST, TENANTS
from benchmarks.workers import sample, serve, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.bench import Bench, Database
    from benchmarks.findings import Finding
    from benchmarks.harness import Round, Sample

SECTION: Final = "Django: one of 10,000 tenants with stored defaults / a bound value"
NOISE: Final = "Noise: a bound value on Django, twice"

BY_HAND: Final = "looked up by hand"

_STORED: Final = "stored"
_BOUND: Final = "bound"
_AGAIN: Final = "bound, again"
_NUMBER: Final = "a number by hand"
_WAYS: Final = (_STORED, _BOUND, _AGAIN, BY_HAND, _NUMBER)

_GOALS: Final = {
    "get() by key": DJANGO_TENANT_KEY,
    "list of 100": DJANGO_TENANT_LIST,
    "scan of 5,000 rows": DJANGO_TENANT_SCAN,
}

_CONDITION: Final[models.BooleanField[bool, bool]] = models.BooleanField()
_TENANT: Final = 7
_LIST: Final = 100
_KEYS: Final = range(2, ROWS - 4 * _LIST, 14)
"""Keys of rows of that tenant, whose keys are even."""


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on every SQL database.

    Args:
        bench: what there is.
    """
    for database in bench.databases:
        found: dict[str, list[list[Round]]] = {what: [] for what in _GOALS}
        for number in range(bench.scale.sittings):
            tell(f"  {database.name}: sitting {number + 1} of {bench.scale.sittings}")
            _sit(database, bench.scale.rounds, number, found)
        for what, sittings in found.items():
            goal = _GOALS[what]
            yield ratio(SECTION, what, database.name, sittings, _STORED, _BOUND, goal)
            rival = f"{what}; {BY_HAND}"
            yield ratio(SECTION, rival, database.name, sittings, BY_HAND, _NUMBER)
            yield ratio(NOISE, what, database.name, sittings, _AGAIN, _BOUND)


def _sit(database: Database, rounds: int, number: int, found: dict[str, list[list[Round]]]) -> None:
    with database.made() as url, worker(__name__, database.backend, url=url) as ask:
        for what, sittings in found.items():
            samples = {way: sample(ask, f"{what}; {way}") for way in rotated(_WAYS, number)}
            sittings.append(sitting(samples, rounds))


def _declare() -> tuple[Any, Any, Any]:
    """The models; not before Django is set up."""
    from ttl_odm import Stored  # noqa: PLC0415 - beside the next
    from ttl_odm.django import TTLModel  # noqa: PLC0415 - as said

    class Tenants(models.Model):
        """What all have."""

        id: models.BigIntegerField[int, int] = models.BigIntegerField(primary_key=True)
        tenant_id: models.BigIntegerField[int, int] = models.BigIntegerField(db_index=True)
        payload: models.CharField[str, str] = models.CharField(max_length=100)
        amount: models.IntegerField[int, int] = models.IntegerField()

        class Meta:
            """Django's."""

            abstract = True
            app_label = "benchmarks"

    class StoredEntry(TTLModel, Tenants):  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whose defaults are stored."""

        class Meta:  # pyright: ignore[reportIncompatibleVariableOverride]
            """Django's."""

            app_label = "benchmarks"

        __ttl__ = Stored(LONGEST, by="tenant_id", least=DAY, most=LONGEST)

    class BoundEntry(TTLModel, Tenants):  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whose default is in the code."""

        class Meta:  # pyright: ignore[reportIncompatibleVariableOverride]
            """Django's."""

            app_label = "benchmarks"

        __ttl__ = LONGEST

    instants: Any = models.BigIntegerField
    if connection.vendor == "postgresql":
        instants = models.DateTimeField

    class EntryByHand(Tenants):
        """Without a policy, but with the columns of one."""

        last_modified = instants(db_column="_ts", null=True)
        ttl: models.IntegerField[int | None, int | None] = models.IntegerField(null=True)

    return StoredEntry, BoundEntry, EntryByHand


def _create_tables(stored: Any, bound: Any, by_hand: Any) -> None:
    from ttl_odm.django import begin_policies  # noqa: PLC0415 - as said
    from ttl_odm.stored.django.models import Policy, PolicyChange  # noqa: PLC0415 - as said

    with connection.schema_editor() as editor:
        for model in (stored, bound, by_hand, Policy, PolicyChange):
            editor.create_model(model)
    begin_policies()
    name, now = stored._meta.db_table, timezone.now()  # noqa: SLF001 - Django's documented API
    # The shortest is that of a tenant without rows, so that the same rows live in all tables.
    ttls = {-1: DAY, **{tenant: LONGEST - tenant % 20 * DAY for tenant in range(TENANTS)}}
    policies = [
        Policy(name=name, scope=str(tenant), ttl=ttl, changed_at=now)
        for tenant, ttl in ttls.items()
    ]
    Policy.objects.bulk_create(policies, batch_size=1_000)
    for model in (stored, bound, by_hand):
        rows = [
            model(
                id=key,
                tenant_id=key * 7919 % TENANTS if key % 2 else _TENANT,
                payload=f"{key:0>100}",
                amount=key,
            )
            for key in range(1, ROWS + 1)
        ]
        model.objects.bulk_create(rows, batch_size=1_000)
    settle = SETTLE.get(connection.vendor, "ANALYZE")
    with connection.cursor() as cursor:
        for model in (stored, bound, by_hand):
            name = model._meta.db_table  # noqa: SLF001 - as above
            cursor.execute(f"UPDATE {name} SET _ts = {ago(str(2 * DAY))}")  # noqa: S608
            cursor.execute(settle.format(name))
        cursor.execute(settle.format(Policy._meta.db_table))  # noqa: SLF001 - as above


def _conditions(stored: Any, by_hand: Any) -> dict[str, RawSQL]:
    """What somebody writes into a WHERE by hand."""
    table_of_policies, name = stored._meta.db_table, by_hand._meta.db_table  # noqa: SLF001 - as above
    lookups = [
        "(SELECT p.ttl FROM ttl_odm_policies p "  # noqa: S608 (no input)
        f"WHERE p.name = '{table_of_policies}' AND p.scope = '{scope}')"
        for scope in (_TENANT, "")
    ]
    defaults = {BY_HAND: f"coalesce({', '.join(lookups)}, {LONGEST})", _NUMBER: LONGEST}

    class Columns:
        __tablename__ = name
        ttl = table(name, column("ttl", Integer)).c.ttl

    def condition(default: object) -> RawSQL:
        live = live_by_hand(connection.vendor, Columns, default)
        sql = str(live.compile(compile_kwargs={"literal_binds": True}))
        return RawSQL(sql, [], _CONDITION)  # noqa: S611 - no input

    return {way: condition(default) for way, default in defaults.items()}


def _reads(stored: Any, bound: Any, by_hand: Any) -> dict[str, Sample]:
    keys = cycle(_KEYS)
    conditions = _conditions(stored, by_hand)
    given: dict[str, Any] = dict(zip(_WAYS, (stored, bound, bound, by_hand, by_hand), strict=True))

    def one(rows: Any) -> object:
        return rows.get(pk=next(keys))

    def listed(rows: Any) -> object:
        return list(rows.filter(pk__gte=next(keys)).order_by("pk")[:_LIST])

    def scanned(rows: Any) -> object:
        return rows.aggregate(models.Sum("amount"))

    def read(fetch: Callable[[Any], object], way: str) -> Sample:
        rows, more = given[way].objects, [conditions[way]] if way in conditions else []
        return timed(lambda: fetch(rows.filter(*more, tenant_id=_TENANT)))

    return {
        f"{what}; {way}": read(fetch, way)
        for what, fetch in zip(_GOALS, (one, listed, scanned), strict=True)
        for way in _WAYS
    }


def _open(backend: str, url: str) -> Mapping[str, Sample]:
    set_up(backend, url, "ttl_odm.django.policies")
    made = _declare()
    _create_tables(*made)
    return _reads(*made)


if __name__ == "__main__":
    serve(lambda url: _open(sys.argv[1], url))
