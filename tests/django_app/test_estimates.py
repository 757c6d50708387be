"""How many rows PostgreSQL's planner expects to be live in Django's queries: it chooses joins."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction

from tests.django_app.data import raw
from tests.django_app.shop import models as shop
from tests.django_app.stored import stored_models

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.databases("postgres"), pytest.mark.usefixtures("backend")]

ROWS = 5_000  # rows that ANALYZE reads one and all
AGED = (
    "now() - CASE WHEN i % 50 {expired} THEN interval '2 days' "
    "ELSE i % 1800 * interval '1 second' END"
)
FILL = "INSERT INTO {table} ({columns}) SELECT {values} FROM generate_series(1, {rows}) i"

ttls = pytest.mark.parametrize(
    "ttl",
    [
        "NULL",
        "7200",
        "CASE i % 2 WHEN 0 THEN 7200 END",
        "CASE i % 4 WHEN 0 THEN 7200 END",
        "CASE i % 3 WHEN 0 THEN 7200 WHEN 1 THEN -1 END",
    ],
    ids=["inherited", "own", "half", "quarter", "three kinds"],
)


@contextmanager
def analyzed(model: Any, columns: str, values: str) -> Iterator[None]:
    """A transaction that has filled a table, and told the planner about it."""
    table = model._meta.db_table
    with transaction.atomic():
        raw(FILL.format(table=table, columns=columns, values=values, rows=ROWS))
        raw(f"ANALYZE {table}")
        yield
        transaction.set_rollback(True)


def estimate(rows: Any) -> int:
    """The rows that the planner expects of a queryset."""
    plan = rows.order_by().explain()
    expected = re.search(r"rows=(\d+)", plan)
    assert expected is not None, plan
    return int(expected[1])


def sessions(ttl: str, *, expired: str = "= 0") -> str:
    """Values of a session: the age of one row in fifty, or of all others, is two days."""
    return f"'key' || i, 0, {AGED.format(expired=expired)}, {ttl}"


@ttls
def test_nearly_as_many_rows_are_expected_as_are_live(ttl: str) -> None:
    with analyzed(shop.Session, "key, number, _ts, ttl", sessions(ttl)):
        live = shop.Session.objects.count()
        assert estimate(shop.Session.objects.all()) == pytest.approx(live, rel=0.05)


def test_few_rows_are_expected_of_a_table_of_which_most_have_expired() -> None:
    with analyzed(shop.Session, "key, number, _ts, ttl", sessions("NULL", expired="> 0")):
        assert shop.Session.objects.count() == ROWS // 50
        assert estimate(shop.Session.objects.all()) == pytest.approx(ROWS // 50, rel=0.2)


@ttls
def test_the_same_goes_for_a_default_that_the_database_stores(ttl: str) -> None:
    values = f"i, 0, {AGED}, {ttl}".format(expired="= 0")
    with stored_models() as made, analyzed(made.Cart, "id, views, _ts, ttl", values):
        live = made.Cart.objects.count()
        assert estimate(made.Cart.objects.all()) == pytest.approx(live, rel=0.05)


def test_the_same_goes_for_a_date_of_the_applications() -> None:
    aged = f"{AGED} + interval '1 hour'".format(expired="= 0")
    with analyzed(shop.Link, "token, expires", f"'key' || i, {aged}"):
        live = shop.Link.objects.count()
        assert estimate(shop.Link.objects.all()) == pytest.approx(live, rel=0.05)
