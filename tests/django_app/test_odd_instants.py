"""What a column of dates holds that is none, or that no datetime can be: nothing stops at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, models

from tests.django_app.data import raw, tables_of
from ttl_odm import TTL, ExpireAfter, ExpireAt
from ttl_odm.django import include_expired, only_expired
from ttl_odm.sweeper import Sweeper

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
DATES = {
    "mysql": ("2001-01-01 00:00:00", "0001-01-01 00:00:01"),
    "sqlite": ("2001-01-01 00:00:00", "2001-01-01T00:00:00.5", "0001-01-01 00:00:00Z"),
}


def declared(name: str, policy: Any, *, null: bool) -> Any:
    """Make a model with a column of dates and one of seconds."""
    members = {
        "__module__": __name__,
        "__ttl__": policy,
        "name": models.CharField(max_length=40, primary_key=True),
        "at": models.DateTimeField(null=null),
        "views": models.IntegerField(null=True),
        "Meta": type("Meta", (), {"app_label": "shop"}),
    }
    return type(f"Odd{name.title()}", (models.Model,), members)


def written(model: Any, values: tuple[str, ...]) -> None:
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


@pytest.mark.databases("sqlite", "mariadb")
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
        dry = Sweeper(connection, [model], dry_run=True).run_once()
        assert (dry.problems, dry.due) == ((), len(dates))
        report = Sweeper(connection, [model], batch_size=1, lease=False).run_once()
        assert (report.problems, report.deleted) == ((), len(dates))
        assert names(include_expired(model.objects.all())) == set(no_dates)
