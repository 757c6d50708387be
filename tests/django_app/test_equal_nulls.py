"""Unique constraints by which NULL is a value like others (``nulls_distinct=False``)."""

# ruff: noqa: DJ001
from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from django.db import IntegrityError, models, transaction
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Lower, NullIf

from tests.django_app.data import kill, raw, tables_of
from ttl_odm.django import TTLModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.backends import Backend

# Only PostgreSQL has them.
pytestmark = [pytest.mark.databases("postgres"), pytest.mark.slow]

KINDS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "fields": ((), {"fields": ["email", "place"]}),
    "condition": ((), {"fields": ["email", "place"], "condition": Q(place__gte=0)}),
    "expressions": ((Lower("email"), F("place")), {}),
    "generated": ((), {"fields": ["lower", "place"]}),
}


def declared(kind: str) -> Any:
    """A model of addresses at places, of which one at each place may be unknown."""
    expressions, options = KINDS[kind]

    class Contact(TTLModel):
        __ttl__ = 3600
        id = models.BigIntegerField(primary_key=True)
        email = models.CharField(max_length=40, null=True)
        place = models.IntegerField(default=0)
        lower = models.GeneratedField(
            expression=Lower("email"),
            output_field=models.CharField(max_length=40, null=True),
            db_persist=True,
        )

        class Meta:
            app_label = "shop"
            db_table = "contacts"
            constraints = [
                models.UniqueConstraint(
                    *expressions, name="contact_unique", nulls_distinct=False, **options
                )
            ]

    return Contact


@pytest.fixture(params=KINDS)
def contacts(backend: Backend, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Three unknown addresses, of which the last is live, and a live one."""
    model = declared(request.param)
    with tables_of(model):
        model.objects.bulk_create([model(pk=pk, place=pk) for pk in (1, 2, 3)])
        model.objects.create(pk=4, email="Ann", place=1)
        kill(model, [1, 2])
        yield model


def keys() -> list[int]:
    return [pk for (pk,) in raw("SELECT id FROM contacts ORDER BY id")]


def by_insert(m: Any) -> None:
    m.objects.create(pk=5, place=1)


def by_many(m: Any) -> None:
    m.objects.bulk_create([m(pk=5, place=1), m(pk=6, place=9, email="Bob")])


def by_insert_or_ignore(m: Any) -> None:
    m.objects.bulk_create([m(pk=5, place=1)], ignore_conflicts=True)


def by_save(m: Any) -> None:
    row = m.objects.get(pk=4)
    row.email = None
    row.save()


def by_update(m: Any) -> None:
    assert m.objects.filter(pk=4).update(email=None) == 1


def by_update_of_sql(m: Any) -> None:
    assert m.objects.filter(pk=4).update(email=NullIf(F("email"), Value("Ann"))) == 1


def by_update_of_cases(m: Any) -> None:
    email = Case(When(pk=4, then=Value(None)), default=Value("Bob"))
    assert m.objects.filter(pk=4).update(email=email) == 1


def by_bulk_update(m: Any) -> None:
    m.objects.bulk_update([m(pk=4, email=None)], ["email"])


def by_another_column(m: Any) -> None:
    """The NULL is that of the row."""
    assert m.objects.filter(pk=3).update(place=1) == 1


WRITES = [
    by_insert,
    by_many,
    by_insert_or_ignore,
    by_save,
    by_update,
    by_update_of_sql,
    by_update_of_cases,
    by_bulk_update,
    by_another_column,
]


@pytest.mark.parametrize("around", [nullcontext, transaction.atomic])
@pytest.mark.parametrize("write", WRITES)
def test_an_expired_row_with_null_frees_its_key(
    contacts: Any, write: Callable[[Any], None], around: Callable[[], Any]
) -> None:
    with around():
        write(contacts)
    assert 1 not in keys()
    assert contacts.objects.filter(place=1, email=None).count() == 1


def test_a_live_row_with_null_keeps_its_key(contacts: Any) -> None:
    with pytest.raises(IntegrityError):
        contacts.objects.create(pk=5, place=3)
    with pytest.raises(IntegrityError):
        contacts.objects.filter(pk=4).update(email=None, place=3)
    assert contacts.objects.get(place=3).pk == 3


def test_other_expired_rows_stay(contacts: Any) -> None:
    contacts.objects.create(pk=5, place=1)
    assert keys() == [2, 3, 4, 5]


@pytest.mark.parametrize("contacts", ["fields"], indirect=True)  # all that an upsert can name
def test_an_upsert_replaces_an_expired_row_and_updates_a_live_one(contacts: Any) -> None:
    rows = [contacts(pk=5, place=1, ttl=60), contacts(pk=6, place=3, ttl=60)]
    contacts.objects.bulk_create(
        rows, update_conflicts=True, update_fields=["ttl"], unique_fields=["email", "place"]
    )
    assert keys() == [2, 3, 4, 5]
    assert contacts.objects.get(pk=3).ttl == 60
