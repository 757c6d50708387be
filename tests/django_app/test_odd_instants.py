"""What a column of dates holds that is none, or that no datetime can be: nothing stops at it."""

from __future__ import annotations

from contextlib import suppress
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import connections, models

from tests.django_app.data import raw, tables_of
from tests.django_app.shop.models import Nick
from ttl_odm import TTL, ExpireAfter, ExpireAt
from ttl_odm.django import include_expired, only_expired
from ttl_odm.django.policy.bindings import binding_of
from ttl_odm.django.sweep.due import ExpiredRows
from ttl_odm.sweeper import Part, Sweeper

if TYPE_CHECKING:
    from tests.backends import Backend

POLICIES: dict[str, Any] = {
    "at": ExpireAt("at"),
    "over": ExpireAt("at", null="expired"),
    "after": ExpireAfter("at", 60),
    "shared": TTL(60, last_modified="at", override="views"),
    "own": TTL(-1, last_modified="at", override="views"),
}
NO_DATES = {
    "mysql": ("0000-00-00 00:00:00", "2001-00-01 00:00:00", "2001-01-00 00:00:00"),
    "sqlite": ("", "soon", "0000-00-00 00:00:00", "2001-02-30 00:00:00", "1", "2001-01-01"),
}
PAST = ("-infinity", "4713-01-01 BC", "0044-03-15 BC", "0001-01-01 00:00:00+00")
FUTURE = ("infinity", "9999-12-31", "10000-01-01", "294276-12-31 23:59:59")
DATES = {
    "mysql": ("2001-01-01 00:00:00", "0001-01-01 00:00:01"),
    "sqlite": ("2001-01-01 00:00:00", "2001-01-01T00:00:00.5", "0001-01-01 00:00:00Z"),
}


def declared(name: str, policy: Any, *, null: bool, field: Any = models.DateTimeField) -> Any:
    """Make a model with a column of dates and one of seconds."""
    members = {
        "__module__": __name__,
        "__ttl__": policy,
        "name": models.CharField(max_length=40, primary_key=True),
        "at": field(null=null),
        "views": models.IntegerField(null=True),
        "Meta": type("Meta", (), {"app_label": "shop"}),
    }
    return type(f"Odd{name.title()}", (models.Model,), members)


def written(model: Any, values: tuple[Any, ...]) -> None:
    """Write rows that are named by their dates, as raw SQL may."""
    own = 60 if model.__ttl__ == POLICIES["own"] else None
    for value in values:
        raw(
            f"INSERT INTO {model._meta.db_table} (name, at, views) VALUES (%s, %s, %s)",  # noqa: S608
            [value, value, own],
        )


def names(rows: Any) -> set[str]:
    """The names of a queryset's rows."""
    return set(rows.values_list("name", flat=True))


@pytest.mark.slow
@pytest.mark.databases("sqlite", "mariadb", "mysql")
@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_no_date_never_expires(backend: Backend, policy: str, null: bool) -> None:  # noqa: FBT001
    """Zero dates; on SQLite texts. IS NULL finds zero dates in columns that can't be NULL."""
    connection = connections["default"]
    no_dates, dates = NO_DATES[connection.vendor], DATES[connection.vendor]
    model = declared(policy, POLICIES[policy], null=null)
    with tables_of(model):
        if connection.vendor == "mysql":
            raw("SET sql_mode = ''")
        written(model, no_dates + dates)
        assert names(model.objects.all()) == set(no_dates)
        assert names(only_expired(model.objects.all())) == set(dates)
        assert swept(model, 1) == len(dates)
        assert names(include_expired(model.objects.all())) == set(no_dates)


@pytest.mark.slow
@pytest.mark.databases("postgres")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_what_no_datetime_can_be_is_over_or_yet_to_come(
    backend: Backend, policy: str, batch_size: int
) -> None:
    model = declared(policy, POLICIES[policy], null=True)
    with tables_of(model):
        written(model, PAST + FUTURE)
        assert names(model.objects.all()) == set(FUTURE)
        assert swept(model, batch_size) == len(PAST)
        assert names(include_expired(model.objects.all())) == set(FUTURE)


def test_a_batch_goes_on_behind_the_row_where_the_last_one_ended(backend: Backend) -> None:
    vendor = connections["default"].vendor
    values = PAST if vendor == "postgresql" else DATES[vendor]
    model = declared("row", POLICIES["after"], null=True)
    with tables_of(model):
        written(model, values)
        binding = binding_of(model)
        assert binding is not None
        expired = ExpiredRows(binding, "default", Part.INHERITING)
        places = expired.places(None, len(values) + 1)
        assert len(places) == len(values)
        for number, place in enumerate(places, start=1):
            assert expired.places(place, len(values)) == places[number:]
            found = expired.next_range(None, number)
            assert found is not None
            is_last, ends = number == len(places), {end for end, _ in places[:number]}
            assert found.is_crowded is (not is_last and places[number][0] == places[0][0])
            if is_last or places[number][0] not in ends:
                assert expired.within(found).count() == number


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_last_modification_that_no_datetime_can_be(backend: Backend, batch_size: int) -> None:
    past = PAST if connections["default"].vendor == "postgresql" else (str(-9 * 10**18),)
    for name in past:
        for own in (None, 60):
            row = [f"{name[:12]}{own}", name, own]
            raw("INSERT INTO shop_nick (name, _ts, ttl) VALUES (%s, %s, %s)", row)
    assert not Nick.objects.exists()
    assert swept(Nick, batch_size) == 2 * len(past)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("field", [models.BigIntegerField, models.FloatField])
def test_a_number_that_no_datetime_can_be(backend: Backend, unit: Any, field: Any) -> None:
    past, future = (-(10**18), -(10**17)), (10**18, 9 * 10**18)
    model = declared("number", ExpireAfter("at", 60, unit=unit), null=True, field=field)
    with tables_of(model):
        written(model, past + future)
        assert names(model.objects.all()) == set(map(str, future))
        assert swept(model, 1) == len(past)


def swept(model: Any, batch_size: int) -> int:
    """How many rows a sweep deletes: as many as are counted before it."""
    connection = connections["default"]
    dry = Sweeper(connection, [model], dry_run=True).run_once()
    assert dry.problems == ()
    call_command("ttl_status", stdout=StringIO())
    with suppress(SystemExit):  # it may find something
        call_command("ttl_check", deep=True, stdout=StringIO())
    report = Sweeper(connection, [model], batch_size=batch_size).run_once()
    assert report.problems == ()
    assert report.deleted == dry.due
    return report.deleted
