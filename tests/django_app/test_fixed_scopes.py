"""Queries that fix the tenant: its stored default is looked up once, with the result of before."""

# ruff: noqa: DJ008 (a table of lambdas: each is evaluated with the models)
from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, models, transaction
from django.db.models import Count, Exists, F, OuterRef, Prefetch, Q, Sum, Value

from tests.django_app.data import kill, raw, tables_of
from ttl_odm import Stored
from ttl_odm.django import TTLModel, include_expired, only_expired, set_policy
from ttl_odm.stored.django.changes import begin_policies
from ttl_odm.stored.django.source import StoredScopes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend

HOUR = 3600


@pytest.fixture
def made(backend: Backend) -> Iterator[SimpleNamespace]:
    """Tenants 1 to 3 and their carts, 100 seconds old: 1 keeps them for 60 seconds, 2 for ever."""

    class Firm(models.Model):
        id = models.BigIntegerField(primary_key=True)
        name = models.CharField(max_length=20)

        class Meta:
            app_label = "shop"

    class Trolley(TTLModel):
        __ttl__: Any = Stored(HOUR, by="firm")
        id = models.BigIntegerField(primary_key=True)
        firm = models.ForeignKey(Firm, models.CASCADE, null=True, related_name="trolleys")
        number = models.IntegerField(default=1)
        before = models.ForeignKey("self", models.SET_NULL, null=True)

        class Meta:
            app_label = "shop"

    class Remark(TTLModel):
        __ttl__: Any = Stored(HOUR, by="firm")
        id = models.BigIntegerField(primary_key=True)
        firm = models.ForeignKey(Firm, models.CASCADE)
        trolley = models.ForeignKey(Trolley, models.CASCADE)

        class Meta:
            app_label = "shop"

    class Parcel(TTLModel):
        __ttl__: Any = Stored(HOUR, by="box")
        id = models.BigIntegerField(primary_key=True)
        box = models.CharField(max_length=20)

        class Meta:
            app_label = "shop"

    with tables_of(Firm, Trolley, Remark, Parcel):
        begin_policies()
        Firm.objects.bulk_create([Firm(id=key, name=f"firm {key}") for key in (1, 2, 3)])
        for key, firm in enumerate((1, 2, 3, None, 1, 2)):
            Trolley.objects.create(id=key, firm_id=firm, before_id=key - 1 if key else None)
        Trolley.objects.create(id=6, firm_id=1, ttl=-1)
        Remark.objects.create(id=1, firm_id=1, trolley_id=1)
        Remark.objects.create(id=2, firm_id=2, trolley_id=0)
        for key, box in enumerate(("acme", "ACME", "Acme", "other")):
            Parcel.objects.create(id=key, box=box)
        for model in (Trolley, Remark):
            set_policy(model, 60, scope=1, by="ann")
            set_policy(model, -1, scope=2, by="ann")
        kill(Trolley, (0, 1, 2, 3, 5), 100)
        kill(Remark, (1, 2), 100)
        set_policy(Parcel, 60, scope="acme", by="ann")
        set_policy(Parcel, -1, scope="ACME", by="ann")
        kill(Parcel, range(4), 100)
        yield SimpleNamespace(Firm=Firm, Trolley=Trolley, Remark=Remark, Parcel=Parcel)


def keys(rows: Any) -> list[Any]:
    return sorted(rows.values_list("pk", flat=True))


def written(write: Any) -> Any:
    """Roll what is written back."""
    with transaction.atomic():
        result = write()
        transaction.set_rollback(True)
    return result


KINDS: dict[str, Any] = {
    "exact": lambda m: keys(m.Trolley.objects.filter(firm_id=1)),
    "instance": lambda m: keys(m.Trolley.objects.filter(firm=m.Firm(id=2))),
    "text of a number": lambda m: keys(m.Trolley.objects.filter(firm_id="1")),
    "one without a default": lambda m: keys(m.Trolley.objects.filter(firm_id=3)),
    "in": lambda m: keys(m.Trolley.objects.filter(firm_id__in=[1, 2])),
    "in, with None": lambda m: keys(m.Trolley.objects.filter(firm_id__in=[1, None])),
    "long in": lambda m: keys(m.Trolley.objects.filter(firm_id__in=range(20))),
    "none": lambda m: keys(m.Trolley.objects.filter(firm=None)),
    "is null": lambda m: keys(m.Trolley.objects.filter(firm__isnull=True)),
    "expression": lambda m: keys(m.Trolley.objects.filter(firm_id=Value(1))),
    "column": lambda m: keys(m.Trolley.objects.filter(firm_id=F("number"))),
    "both": lambda m: keys(m.Trolley.objects.filter(firm_id=1).filter(firm_id=2)),
    "or": lambda m: keys(m.Trolley.objects.filter(Q(firm_id=1) | Q(number=1))),
    "xor": lambda m: keys(m.Trolley.objects.filter(Q(firm_id=1) ^ Q(number=1))),
    "not": lambda m: keys(m.Trolley.objects.filter(~Q(firm_id=1))),
    "exclude": lambda m: keys(m.Trolley.objects.exclude(firm_id=1)),
    "manager": lambda m: keys(m.Firm.objects.get(pk=2).trolleys.all()),
    "joined": lambda m: keys(m.Trolley.objects.filter(firm__name="firm 2", firm__id=2)),
    "before": lambda m: keys(m.Trolley.objects.filter(before__firm_id=2)),
    "before, outer": lambda m: keys(
        m.Trolley.objects.filter(Q(before__firm_id=1) | Q(before=None))
    ),
    "of two tables": lambda m: keys(m.Remark.objects.filter(firm_id=2, trolley__firm_id=1)),
    "reverse": lambda m: keys(m.Firm.objects.filter(trolleys__firm_id=2)),
    "reverse, twice": lambda m: keys(
        m.Firm.objects.filter(trolleys__firm_id=2).filter(trolleys__number=1)
    ),
    "union": lambda m: sorted(
        m.Trolley.objects.filter(firm_id=1)
        .values_list("pk", flat=True)
        .union(m.Trolley.objects.filter(firm_id=2).values_list("pk", flat=True))
    ),
    "subquery": lambda m: keys(
        m.Firm.objects.filter(pk__in=m.Trolley.objects.filter(firm_id=2).values("firm_id"))
    ),
    "outer ref": lambda m: keys(
        m.Firm.objects.filter(Exists(m.Trolley.objects.filter(firm_id=OuterRef("pk"))))
    ),
    "outer ref and value": lambda m: keys(
        m.Firm.objects.filter(
            Exists(m.Trolley.objects.filter(firm_id=OuterRef("pk")).filter(firm_id=1))
        )
    ),
    "select_related": lambda m: sorted(
        (row.pk, row.before and row.before.pk)
        for row in m.Trolley.objects.filter(firm_id=2).select_related("before")
    ),
    "prefetch_related": lambda m: [
        sorted(trolley.pk for trolley in firm.trolleys.all())
        for firm in m.Firm.objects.order_by("pk").prefetch_related("trolleys")
    ],
    "prefetch of one": lambda m: [
        sorted(trolley.pk for trolley in firm.trolleys.all())
        for firm in m.Firm.objects.order_by("pk").prefetch_related(
            Prefetch("trolleys", m.Trolley.objects.filter(firm_id=1))
        )
    ],
    "aggregate": lambda m: m.Trolley.objects.filter(firm_id=2).aggregate(Sum("number")),
    "having": lambda m: list(
        m.Trolley.objects.values("firm_id")
        .annotate(n=Count("pk"))
        .filter(n__gt=0, firm_id=2)
        .values_list("firm_id", "n")
    ),
    "count, exists": lambda m: [
        (rows.count(), rows.exists())
        for rows in (m.Trolley.objects.filter(firm_id=firm) for firm in (1, 2, 3))
    ],
    "values": lambda m: sorted(
        m.Trolley.objects.filter(firm_id=2).values_list("number", "firm_id")
    ),
    "include_expired": lambda m: keys(include_expired(m.Trolley.objects.filter(firm_id=1))),
    "only_expired": lambda m: keys(only_expired(m.Trolley.objects.filter(firm_id=1))),
    "select_for_update": lambda m: written(
        lambda: sorted(row.pk for row in m.Trolley.objects.filter(firm_id=1).select_for_update())
    ),
    "update": lambda m: written(lambda: m.Trolley.objects.filter(firm_id=1).update(number=2)),
    "update of the scope": lambda m: written(
        lambda: m.Trolley.objects.filter(firm_id=2).update(firm_id=1)
    ),
    "update by a join": lambda m: written(
        lambda: m.Trolley.objects.filter(firm__id=2, firm__name="firm 2").update(number=2)
    ),
    "touch": lambda m: written(lambda: m.Trolley.objects.filter(firm_id=1).touch()),
    "delete": lambda m: written(lambda: m.Remark.objects.filter(firm_id=1).delete()[0]),
    "delete by a join": lambda m: written(
        lambda: m.Remark.objects.filter(trolley__firm_id=2, firm_id=2).delete()[0]
    ),
    "bulk_update": lambda m: written(
        lambda: m.Trolley.objects.filter(firm_id=1).bulk_update(
            [m.Trolley(pk=key, number=3) for key in range(7)], ["number"]
        )
    ),
    "get_or_create": lambda m: written(
        lambda: m.Trolley.objects.get_or_create(firm_id=1, pk=0, defaults={"number": 9})[1]
    ),
    "text": lambda m: keys(m.Parcel.objects.filter(box="acme")),
    "text, the other": lambda m: keys(m.Parcel.objects.filter(box="ACME")),
    "text, in": lambda m: keys(m.Parcel.objects.filter(box__in=["Acme", "acme"])),
    "text, iexact": lambda m: keys(m.Parcel.objects.filter(box__iexact="acme")),
    "text, with blanks": lambda m: keys(m.Parcel.objects.filter(box="acme ")),
    "text, odd": lambda m: keys(m.Parcel.objects.filter(box="a\\'%s%%")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_is_that_of_looking_each_row_up(
    made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    result = KINDS[kind](made)
    monkeypatch.setattr(StoredScopes, "fixed_in", lambda *_: ())
    assert result == KINDS[kind](made)


def text_of(rows: Any) -> str:
    return rows.query.sql_with_params()[0].replace("`", '"')


def looks_rows_up(rows: Any, source: str = "shop_trolley") -> bool:
    """Whether a look-up names a column of the statement around it."""
    column = f'"{source}"."firm_id"'
    kind = "char" if connections["default"].vendor == "mysql" else "varchar"
    return f"CAST({column} AS {kind}(255))" in text_of(rows)


def test_one_value_is_looked_up_alone(made: SimpleNamespace) -> None:
    rows = made.Trolley.objects
    for fixed in (
        rows.filter(firm_id=1),
        rows.filter(firm=made.Firm(id=1), number__gt=0),
        rows.filter(Q(firm_id=1) & Q(number=1) & ~Q(pk=9)),
        rows.filter(firm_id__in=[1]),
        rows.filter(firm__id=1, firm__name="firm 1"),
        made.Firm(id=1).trolleys.all(),
        only_expired(rows.filter(firm_id=1)),
    ):
        assert '"scope" = %s' in text_of(fixed)
        assert not looks_rows_up(fixed)


def test_what_may_differ_from_row_to_row_is_looked_up_for_each(made: SimpleNamespace) -> None:
    rows = made.Trolley.objects
    for open_ in (
        rows.all(),
        rows.filter(Q(firm_id=1) | Q(number=1)),
        rows.filter(Q(firm_id=1) ^ Q(number=1)),
        rows.exclude(firm_id=1),
        rows.filter(~Q(firm_id=1)),
        rows.filter(firm_id__gte=1),
        rows.filter(firm_id=F("number")),
        rows.filter(firm_id__in=range(20)),
        rows.filter(before__firm_id=1),
        rows.filter(firm__isnull=True),
    ):
        assert looks_rows_up(open_)


def test_an_outer_join_says_nothing_of_the_other_table(made: SimpleNamespace) -> None:
    joined = made.Firm.objects.filter(Q(trolleys__number=1) | Q(name="firm 3"), pk=1)
    assert "LEFT OUTER JOIN" in text_of(joined)
    assert looks_rows_up(joined)
    assert not looks_rows_up(made.Firm.objects.filter(trolleys__number=1, pk=1))


def test_a_text_in_another_spelling_is_looked_up_by_its_row(made: SimpleNamespace) -> None:
    """On MariaDB and MySQL, the columns of which find Acme where acme is wanted."""
    rows = made.Parcel.objects.filter(box="acme")
    assert text_of(rows).count('"scope" = %s') == 1 or connections["default"].vendor == "sqlite"
    if connections["default"].vendor == "mysql":
        assert keys(rows) == [1, 2]
    else:
        assert keys(rows) == []
    assert keys(only_expired(rows)) == [0]


@pytest.mark.databases("sqlite")
def test_so_it_is_by_a_column_without_case(made: SimpleNamespace) -> None:
    raw("DROP TABLE shop_parcel")
    raw(
        "CREATE TABLE shop_parcel (_ts bigint NOT NULL, ttl integer, id bigint PRIMARY KEY, "
        "box varchar(20) COLLATE NOCASE NOT NULL)"
    )
    for key, box in enumerate(("acme", "ACME", "Acme")):
        made.Parcel.objects.create(id=key, box=box)
    kill(made.Parcel, range(3), 100)
    assert keys(made.Parcel.objects.filter(box="acme")) == [1, 2]
