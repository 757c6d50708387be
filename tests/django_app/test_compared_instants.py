"""Comparisons of ``last_modified``, a number on most databases, with the database's own dates."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from django.db.models import DateTimeField, Exists, F, OuterRef, Subquery, Value
from django.db.models.functions import TruncSecond

from tests.django_app.data import kill
from tests.django_app.shop.models import Link, Nick

if TYPE_CHECKING:
    from tests.backends import Backend

DAY = timedelta(days=1)
PRESENT = datetime.now(timezone.utc)
SOON, AGO = PRESENT + DAY, PRESENT - DAY
NOW = Value(PRESENT, output_field=DateTimeField())  # Now() would be in a MySQL session's time zone

RIGHT: dict[str, Any] = {
    "gt": lambda: {"gt": NOW - DAY},
    "gte": lambda: {"gte": Value(AGO, output_field=DateTimeField())},
    "lt": lambda: {"lt": NOW + DAY},
    "lte": lambda: {"lte": Subquery(Link.objects.values("expires")[:1])},
    "gte of a subquery": lambda: {"gte": before()},
    "truncated": lambda: {"gte": TruncSecond(NOW - DAY, tzinfo=timezone.utc)},
    "range": lambda: {"range": (NOW - DAY, NOW + DAY)},
    "half a range": lambda: {"range": (AGO, NOW + DAY)},
    "itself": lambda: {"exact": F("last_modified")},
}
WRONG: dict[str, Any] = {
    "gt": lambda: {"gt": NOW + DAY},
    "lt": lambda: {"lt": NOW - DAY},
    "gte": lambda: {"gte": Subquery(Link.objects.values("expires")[:1])},
    "lte of a subquery": lambda: {"lte": before()},
    "range": lambda: {"range": (NOW - 2 * DAY, NOW - DAY)},
    "in": lambda: {"in": [NOW, AGO]},
    "exact": lambda: {"exact": NOW},
}


def before() -> Subquery:
    """A day ago, from a row that expires tomorrow."""
    return Subquery(Link.objects.annotate(before=F("expires") - 2 * DAY).values("before")[:1])


def matches(condition: dict[str, Any]) -> bool:
    """Whether a row that has just been written meets a condition."""
    Link.objects.create(token="a", expires=SOON)
    Nick.objects.create(pk=1, name="a")
    kill(Nick, [1], 5)
    named = {f"last_modified__{lookup}": value for lookup, value in condition.items()}
    matched = Nick.objects.filter(**named).exists()
    assert matched != Nick.objects.exclude(**named).exists()
    return matched


@pytest.mark.parametrize("condition", RIGHT.values(), ids=RIGHT)
def test_an_instant_meets_a_condition_on_dates(backend: Backend, condition: Any) -> None:
    assert matches(condition())


@pytest.mark.parametrize("condition", WRONG.values(), ids=WRONG)
def test_an_instant_doesn_t_meet_another(backend: Backend, condition: Any) -> None:
    assert not matches(condition())


def test_a_subquery_compares_instants_with_a_date_of_the_outer_row(backend: Backend) -> None:
    Nick.objects.create(pk=1, name="a")
    Link.objects.create(token="a", expires=SOON)
    assert Link.objects.filter(Exists(Nick.objects.filter(last_modified__lt=OuterRef("expires"))))
    later = Nick.objects.filter(last_modified__gt=OuterRef("expires"))
    assert not Link.objects.filter(Exists(later))
