"""select_related, ORDER BY over a key that can't be NULL: an expired partner hides no live row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection, models, transaction
from django.db.models import F

from tests.django_app import data
from tests.django_app.shop.models import Note, Session
from ttl_odm.django import TTLModel

if TYPE_CHECKING:
    from tests.backends import Backend

KEYS = [data.LIVE, data.LIVE + 1]
"""Those of two notes: the session of the first has expired."""


@pytest.fixture
def notes(backend: Backend) -> Any:
    data.fill()
    data.kill(Session, KEYS[:1])
    return Note.objects.filter(pk__in=KEYS).order_by("pk")


def test_the_row_is_there_without_its_expired_partner(notes: Any) -> None:
    rows = list(notes.select_related("session"))
    assert [row.pk for row in rows] == KEYS
    with pytest.raises(Session.DoesNotExist):
        _ = rows[0].session
    assert rows[1].session.pk == KEYS[1]
    assert [row.pk for row in notes.select_related("session__user")] == KEYS
    assert notes.select_related("session").count() == 2


@pytest.mark.usefixtures("notes")
def test_so_is_a_row_that_has_a_lifetime_itself() -> None:
    class Reminder(TTLModel):
        __ttl__ = 3600
        session = models.ForeignKey(Session, models.CASCADE, db_constraint=False)

        class Meta:
            app_label = "shop"

    with data.tables_of(Reminder):
        Reminder.objects.bulk_create([Reminder(pk=key, session_id=key) for key in KEYS])
        rows = list(Reminder.objects.select_related("session").order_by("pk"))
        assert [row.pk for row in rows] == KEYS
        with pytest.raises(Session.DoesNotExist):
            _ = rows[0].session
        assert rows[1].session.pk == KEYS[1]


def test_it_can_be_locked(notes: Any) -> None:
    """PostgreSQL locks no optional side of a join, so FOR UPDATE names the others."""
    with transaction.atomic():
        locked = notes.select_related("session").select_for_update()
        assert [row.pk for row in locked] == KEYS
        assert locked.get(pk=KEYS[0]).pk == KEYS[0]
        deep = notes.select_related("session__user").select_for_update()
        assert [row.pk for row in deep] == KEYS


@pytest.mark.databases("postgres", "mysql")
@pytest.mark.parametrize("of", [("self",), ("session",), ("self", "session")])
def test_it_can_be_locked_by_name(notes: Any, of: tuple[str, ...]) -> None:
    assert connection.features.has_select_for_update_of
    with transaction.atomic():
        locked = notes.select_related("session").select_for_update(of=of)
        assert [row.pk for row in locked] == KEYS


@pytest.mark.parametrize("names", [["session__number"], ["session"], ["session__user__name"]])
def test_so_it_does_in_an_order_by_its_partner(notes: Any, names: list[str]) -> None:
    ordered = notes.order_by(*names)
    for rows in (
        ordered,
        notes.order_by(*(F(name).desc() for name in names)),
        ordered.select_related("session"),
        ordered.reverse(),
        ordered.distinct(),
        ordered[:2],
    ):
        assert sorted(row.pk for row in rows) == KEYS
        assert rows.count() == 2
    with transaction.atomic():
        assert sorted(row.pk for row in ordered.select_for_update()) == KEYS
    assert [row.pk for row in ordered.filter(session__number__gte=0)] == KEYS[1:]


@pytest.mark.usefixtures("notes")
def test_so_it_does_in_the_order_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Note._meta, "ordering", ["session__user__name", "pk"])
    rows = Note.objects.filter(pk__in=KEYS)
    assert sorted(row.pk for row in rows) == KEYS
    assert {rows.first(), rows.last()} == set(rows)
