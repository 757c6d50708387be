"""A tie to an expired row counts for nobody: whatever asks by way of a many-to-many relation."""

# ruff: noqa: DJ008
from __future__ import annotations

import copy
import pickle
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.db import models
from django.db.models import Count, Exists, F, FilteredRelation, Max, OuterRef, Q, Value

from tests.django_app.data import kill, raw, tables_of
from tests.django_app.shop.models import Session, Tag, Tagging
from ttl_odm.django import TTLModel, include_expired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.backends import Backend

HOUR = 3600
GONE = 3
"""The guest who has expired, of parties 2 and 3; guest 1 is of parties 1 and 2, guest 2 of 1."""


@contextmanager
def parties() -> Iterator[SimpleNamespace]:
    class Guest(TTLModel):
        __ttl__ = HOUR
        name = models.CharField(max_length=20)
        friends = models.ManyToManyField("self")

        class Meta:
            app_label = "shop"

    class Label(models.Model):
        class Meta:
            app_label = "shop"

    class Party(models.Model):
        labels = models.ManyToManyField(Label)
        guests = models.ManyToManyField(Guest)
        hosts = models.ManyToManyField(Guest, through="Hosting", related_name="hosted")

        class Meta:
            app_label = "shop"

    class Hosting(models.Model):
        party = models.ForeignKey(Party, models.CASCADE)
        guest = models.ForeignKey(Guest, models.CASCADE)
        note = models.CharField(max_length=20, default="")

        class Meta:
            app_label = "shop"

    with tables_of(Guest, Label, Party, Hosting):
        made = SimpleNamespace(guest=Guest, label=Label, party=Party, hosting=Hosting)
        for key in (1, 2, GONE):
            Guest.objects.create(pk=key, name=f"g{key}")
        for key in (1, 2, 3, 4):
            Party.objects.create(pk=key)
        for party, guests in ((1, (1, 2)), (2, (1, GONE)), (3, (GONE,))):
            Party.objects.get(pk=party).guests.set(guests)
            for guest in guests:
                Hosting.objects.create(party_id=party, guest_id=guest, note=f"n{guest}")
        Guest.objects.get(pk=1).friends.set([2, GONE])
        made.gone = Guest.objects.get(pk=GONE)
        kill(Guest, [GONE], 2 * HOUR)
        yield made


def keys(rows: Any) -> list[Any]:
    return sorted(rows.values_list("pk", flat=True))


def pairs(rows: Any, *names: str) -> list[Any]:
    return sorted(rows.values_list(*names), key=repr)


QUERIES: dict[str, Callable[[Any], Any]] = {
    "by key": lambda made: keys(made.party.objects.filter(guests=GONE)),
    "by a live key": lambda made: keys(made.party.objects.filter(guests=1)),
    "by pk": lambda made: keys(made.party.objects.filter(guests__pk=GONE)),
    "by id": lambda made: keys(made.party.objects.filter(guests__id__gte=2)),
    "by an instance": lambda made: keys(made.party.objects.filter(guests=made.gone)),
    "in": lambda made: keys(made.party.objects.filter(guests__in=[2, GONE])),
    "in instances": lambda made: keys(made.party.objects.filter(guests__in=[made.gone])),
    "by a column": lambda made: keys(made.party.objects.filter(guests__name="g3")),
    "by both": lambda made: keys(made.party.objects.filter(guests=GONE, guests__name="g3")),
    "exclude": lambda made: keys(made.party.objects.exclude(guests=GONE)),
    "exclude a live one": lambda made: keys(made.party.objects.exclude(guests=1)),
    "exclude in": lambda made: keys(made.party.objects.exclude(guests__in=[1, GONE])),
    "exclude by a column": lambda made: keys(made.party.objects.exclude(guests__name="g3")),
    "not": lambda made: keys(made.party.objects.filter(~Q(guests=GONE))),
    "or": lambda made: pairs(made.party.objects.filter(Q(guests=GONE) | Q(pk=4)), "pk"),
    "isnull": lambda made: keys(made.party.objects.filter(guests__isnull=True)),
    "is not null": lambda made: pairs(made.party.objects.filter(guests__isnull=False), "pk"),
    "none": lambda made: keys(made.party.objects.filter(guests=None)),
    "exclude none": lambda made: keys(made.party.objects.exclude(guests=None).distinct()),
    "values": lambda made: pairs(made.party.objects, "pk", "guests"),
    "values with a column": lambda made: pairs(made.party.objects, "pk", "guests", "guests__name"),
    "count": lambda made: pairs(made.party.objects.annotate(n=Count("guests")), "pk", "n"),
    "count distinct": lambda made: pairs(
        made.party.objects.annotate(n=Count("guests", distinct=True), m=Count("hosts")),
        *("pk", "n", "m"),
    ),
    "count with a filter": lambda made: pairs(
        made.party.objects.annotate(n=Count("guests", filter=Q(guests__gt=1))), "pk", "n"
    ),
    "max": lambda made: pairs(made.party.objects.annotate(n=Max("guests")), "pk", "n"),
    "aggregate": lambda made: made.party.objects.aggregate(n=Count("guests"), m=Max("guests__pk")),
    "F": lambda made: pairs(made.party.objects.annotate(g=F("guests")), "pk", "g"),
    "filtered relation": lambda made: pairs(
        made.party.objects.annotate(
            later=FilteredRelation("guests", condition=Q(guests__gt=1))
        ).annotate(n=Count("later")),
        *("pk", "n"),
    ),
    "order": lambda made: [
        pk for pk, _ in made.party.objects.order_by("guests", "pk").values_list("pk", "guests")
    ],
    "exists": lambda made: keys(
        made.party.objects.filter(Exists(made.party.objects.filter(pk=OuterRef("pk"), guests=GONE)))
    ),
    "in a subquery": lambda made: keys(
        made.party.objects.filter(pk__in=made.party.objects.filter(guests=GONE))
    ),
    "twice": lambda made: keys(made.party.objects.filter(guests=1).filter(guests=GONE)),
    "through two": lambda made: keys(made.party.objects.filter(guests__friends=GONE).distinct()),
    "backwards": lambda made: keys(made.guest.objects.filter(party=2)),
    "of the far side": lambda made: keys(made.guest.objects.filter(friends=GONE)),
    "by a declared model": lambda made: keys(made.party.objects.filter(hosts=GONE)),
    "count by a declared model": lambda made: pairs(
        made.party.objects.annotate(n=Count("hosts")), "pk", "n"
    ),
    "related": lambda made: [keys(row.guests.all()) for row in made.party.objects.order_by("pk")],
    "related count": lambda made: [
        (row.guests.count(), row.guests.exists(), row.hosts.count(), row.hosts.exists())
        for row in made.party.objects.order_by("pk")
    ],
    "related of an expired row": lambda made: (
        keys(made.gone.party_set.all()),
        made.gone.party_set.count(),
        made.gone.party_set.exists(),
        made.gone.friends.count(),
    ),
    "prefetch": lambda made: [
        sorted(guest.pk for guest in row.guests.all())
        for row in made.party.objects.order_by("pk").prefetch_related("guests")
    ],
    "contains": lambda made: [
        row.guests.contains(made.gone) for row in made.party.objects.order_by("pk")
    ],
    "update": lambda made: made.party.objects.filter(guests=GONE).update(id=F("id") + Value(0)),
    "a copy": lambda made: keys(copy.deepcopy(made.party.objects.filter(guests__in=[2, GONE]))),
    "union": lambda made: [
        *made.party.objects.filter(guests=GONE)
        .union(made.party.objects.filter(guests=2))
        .values_list("pk", flat=True)
    ],
}


@pytest.mark.slow
def test_no_query_tells_ties_to_expired_rows_from_deleted_ones(backend: Backend) -> None:
    with parties() as made:
        answers = {name: query(made) for name, query in QUERIES.items()}
        assert answers["by a live key"] == [1, 2]
        assert answers["related"] == [[1, 2], [1], [], []]
        for table in ("party_guests", "hosting"):
            raw(f"DELETE FROM shop_{table} WHERE guest_id = {GONE}")  # noqa: S608
        for end in ("from", "to"):
            raw(f"DELETE FROM shop_guest_friends WHERE {end}_guest_id = {GONE}")  # noqa: S608
        raw(f"DELETE FROM shop_guest WHERE id = {GONE}")  # noqa: S608
        wrong = {
            name: (answers[name], query(made))
            for name, query in QUERIES.items()
            if answers[name] != query(made)
        }
        assert wrong == {}


def test_rows_of_a_declared_model_are_rows_of_their_own(backend: Backend) -> None:
    with parties() as made:
        assert made.hosting.objects.filter(guest=GONE).count() == 2
        assert keys(made.party.objects.filter(hosting__guest=GONE)) == [2, 3]
        assert keys(made.party.objects.filter(hosting__note="n3")) == [2, 3]
        assert keys(made.party.objects.filter(hosts=GONE, hosting__note="n3")) == []
        assert made.party.guests.through.objects.filter(guest=GONE).count() == 2


def test_expired_far_rows_can_be_asked_for(backend: Backend) -> None:
    with parties() as made:
        assert keys(include_expired(made.party.objects.filter(guests=GONE))) == [2, 3]
        counted = include_expired(made.party.objects.annotate(n=Count("guests")))
        assert pairs(counted, "pk", "n") == [(1, 2), (2, 2), (3, 1), (4, 0)]


def test_ties_without_a_constraint_and_of_expired_ends_are_judged_alike(backend: Backend) -> None:
    tag = Tag.objects.create(name="a")
    for key in (1, 2):
        Session.objects.create(pk=key, key=f"k{key}")
        Tagging.objects.create(session_id=key, tag=tag)
    kill(Session, [2], 2 * HOUR)
    assert keys(Tag.objects.filter(session=2)) == []
    assert keys(Tag.objects.exclude(session=2)) == [tag.pk]
    assert Tag.objects.annotate(n=Count("session")).get().n == 1
    assert tag.session_set.count() == 1
    assert Tagging.objects.filter(session=2).count() == 1
    assert keys(Tag.objects.filter(tagging__session=2)) == [tag.pk]


def test_queries_of_ties_can_be_pickled(backend: Backend) -> None:
    tag = Tag.objects.create(name="a")
    Tagging.objects.create(session=Session.objects.create(pk=1, key="k"), tag=tag)
    rows = Tag.objects.filter(session=1)
    found = Tag.objects.all()
    found.query = pickle.loads(pickle.dumps(rows.query))  # noqa: S301
    assert keys(found) == [tag.pk]


def test_where_the_far_row_is_joined_its_condition_is_there_once(
    backend: Backend, django_queries: Any
) -> None:
    with django_queries() as queries:
        list(Tag.objects.filter(session__key="k"))
        list(Tag.objects.filter(session=1))
        list(Session.objects.filter(tags__name="a"))
    joined, trimmed, plain = (query["sql"] for query in queries)
    assert "ttl_far" not in joined
    assert trimmed.count("ttl_far") > 1
    assert "ttl_far" not in plain


def test_relations_without_expiring_rows_run_the_statements_they_ran(
    backend: Backend, django_queries: Any
) -> None:
    with parties() as made:
        party = made.party.objects.get(pk=1)
        party.labels.add(made.label.objects.create(pk=7))
        with django_queries() as queries:
            assert party.labels.count() == 1
            assert keys(made.party.objects.filter(labels=7)) == [1]
            assert keys(made.party.objects.exclude(labels=7)) == [2, 3, 4]
        assert not any("shop_label" in query["sql"] for query in queries)


@pytest.mark.parametrize("way", ["add", "remove", "set", "clear"])
def test_ties_are_written_as_before(backend: Backend, way: str) -> None:
    with parties() as made:
        party = made.party.objects.get(pk=2)
        calls: dict[str, Callable[[], Any]] = {
            "add": lambda: party.guests.add(2),
            "remove": lambda: party.guests.remove(1),
            "set": lambda: party.guests.set([2]),
            "clear": party.guests.clear,
        }
        calls[way]()
        expected = {"add": [1, 2], "remove": [], "set": [2], "clear": []}
        assert keys(party.guests.all()) == expected[way]
