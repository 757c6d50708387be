"""Reads: each returns something that must not change when the dead are deleted for real."""

# ruff: noqa: PLW0108 (a table of lambdas: each is evaluated when its path is run)
from __future__ import annotations

from typing import Any

from django.contrib.admin.sites import site
from django.core import serializers
from django.db.models import (
    Avg,
    Case,
    Count,
    Exists,
    F,
    FilteredRelation,
    Max,
    OuterRef,
    Prefetch,
    Q,
    Subquery,
    Sum,
    Value,
    When,
    Window,
    prefetch_related_objects,
)
from django.db.models.functions import Rank
from django.shortcuts import get_list_or_404, get_object_or_404
from django.test import RequestFactory

from tests.django_app.data import DEAD, LIVE
from tests.django_app.shop.models import (
    Concert,
    Event,
    Link,
    Node,
    Note,
    Profile,
    Proxied,
    Session,
    Tag,
    Tagging,
    Upload,
    User,
)

READS: dict[str, Any] = {
    # One table.
    "all": lambda: list(Session.objects.all()),
    "all_of_link": lambda: list(Link.objects.order_by("token")),
    "all_of_upload": lambda: list(Upload.objects.order_by("id")),
    "base_manager": lambda: list(Session._base_manager.all()),
    "default_manager": lambda: list(Session._default_manager.all()),
    "proxy": lambda: list(Proxied.objects.all()),
    "get": lambda: Session.objects.get(pk=DEAD),
    "get_by_unique": lambda: Session.objects.get(key="dead0"),
    "first_last": lambda: [Session.objects.first(), Session.objects.last()],
    "earliest_latest": lambda: [
        Session.objects.earliest("last_modified").key[:4],
        Session.objects.latest("pk"),
    ],
    "count": lambda: Session.objects.count(),
    "len_slice": lambda: list(Session.objects.order_by("-pk")[:2]),
    "exists": lambda: Session.objects.filter(key="dead1").exists(),
    "contains": lambda: Session.objects.contains(Session(pk=DEAD)),
    "in_bulk": lambda: sorted(Session.objects.in_bulk([LIVE, DEAD])),
    "in_bulk_by_field": lambda: sorted(Session.objects.in_bulk(field_name="key")),
    "iterator": lambda: list(Session.objects.iterator(chunk_size=2)),
    "values": lambda: list(Session.objects.values("key", "user__name")),
    "values_list": lambda: list(Session.objects.values_list("key", flat=True)),
    "dates": lambda: len(Link.objects.datetimes("expires", "day")),
    "only": lambda: [each.key for each in Session.objects.only("key")],
    "defer": lambda: [each.key for each in Session.objects.defer("number", "ttl")],
    "exclude": lambda: list(Session.objects.exclude(key="live0")),
    "or": lambda: list(Session.objects.filter(Q(key="live0") | Q(key="dead0"))),
    "or_querysets": lambda: list(
        Session.objects.filter(key="live0") | Session.objects.filter(key="dead0")
    ),
    "and_querysets": lambda: list(
        Session.objects.filter(number__gt=0) & Session.objects.filter(key__startswith="dead")
    ),
    "not": lambda: list(Session.objects.filter(~Q(key="live1"))),
    "distinct": lambda: list(Session.objects.order_by().values_list("number").distinct()),
    "reverse": lambda: list(Session.objects.reverse()),
    "none": lambda: list(Session.objects.none()),
    "extra_where": lambda: list(Session.objects.extra(where=["number > 0 OR 1 = 1"])),
    "extra_tables": lambda: sorted(
        User.objects.extra(
            tables=["shop_session"], where=["shop_session.user_id = shop_user.id"]
        ).values_list("name", flat=True)
    ),
    "extra_select": lambda: list(
        Session.objects.extra(select={"twice": "number * 2"}).values_list("twice", flat=True)
    ),
    "explain": lambda: bool(Session.objects.explain()),
    # Aggregates and annotations.
    "aggregate": lambda: Session.objects.aggregate(Sum("number"), Count("pk"), Avg("number")),
    "aggregate_sliced": lambda: Session.objects.order_by("-number")[:2].aggregate(n=Sum("number")),
    "aggregate_distinct": lambda: Session.objects.aggregate(n=Count("number", distinct=True)),
    "annotate_count": lambda: list(
        User.objects.annotate(n=Count("session")).order_by("pk").values_list("name", "n")
    ),
    "annotate_sum_of_related": lambda: list(
        User.objects.annotate(n=Sum("session__number")).order_by("pk").values_list("name", "n")
    ),
    "annotate_filtered_count": lambda: list(
        User.objects.annotate(n=Count("session", filter=Q(session__number__gt=0)))
        .order_by("pk")
        .values_list("n", flat=True)
    ),
    "group_by": lambda: list(
        Session.objects.order_by("number").values("number").annotate(n=Count("pk"))
    ),
    "group_by_related": lambda: list(
        Session.objects.order_by("user__name").values("user__name").annotate(n=Count("pk"))
    ),
    "having": lambda: list(
        User.objects.annotate(n=Count("session")).filter(n__gte=1).order_by("pk")
    ),
    "having_none": lambda: list(
        User.objects.annotate(n=Count("session")).filter(n=0).order_by("pk")
    ),
    "annotate_case": lambda: list(
        Session.objects.annotate(
            kind=Case(When(number__gt=1, then=Value("many")), default=Value("one"))
        ).values_list("kind", flat=True)
    ),
    "window": lambda: list(
        Session.objects.annotate(rank=Window(Rank(), order_by=F("number").desc())).values_list(
            "key", "rank"
        )
    ),
    "window_filtered": lambda: list(
        Session.objects.annotate(rank=Window(Rank(), order_by=F("number").desc()))
        .filter(rank__lte=2)
        .values_list("key", flat=True)
    ),
    "aggregate_through_m2m": lambda: list(
        Tag.objects.annotate(n=Count("session")).order_by("pk").values_list("name", "n")
    ),
    "max_of_reverse_one_to_one": lambda: User.objects.aggregate(m=Max("profile__motto")),
    # Joins.
    "filter_by_related": lambda: list(Note.objects.filter(session__key="dead0")),
    "filter_by_reverse": lambda: list(User.objects.filter(session__key__startswith="dead")),
    "filter_by_two_joins": lambda: list(
        Note.objects.filter(session__user__name__in=["eve", "kim", "ann"]).order_by("pk")
    ),
    "filter_isnull_reverse": lambda: list(User.objects.filter(session__isnull=True).order_by("pk")),
    "filter_reverse_not_null": lambda: list(
        User.objects.filter(session__isnull=False).order_by("pk").distinct()
    ),
    "exclude_by_reverse": lambda: list(User.objects.exclude(session__number__gt=0).order_by("pk")),
    "exclude_by_related": lambda: list(Note.objects.exclude(perhaps__key="live0").order_by("pk")),
    "filter_by_m2m": lambda: list(Session.objects.filter(tags__name="tag-ann").order_by("pk")),
    "filter_by_reverse_m2m": lambda: list(
        Tag.objects.filter(session__key__startswith="dead").order_by("pk")
    ),
    "filter_or_with_outer_join": lambda: list(
        Note.objects.filter(Q(perhaps__key="dead0") | Q(text="live0")).order_by("pk")
    ),
    "order_by_related": lambda: list(Note.objects.order_by("perhaps__key", "pk")),
    "order_by_reverse_one_to_one": lambda: list(User.objects.order_by("-profile__motto", "pk")),
    "values_of_related": lambda: list(
        Note.objects.order_by("pk").values_list("text", "perhaps__key", "session__number")
    ),
    "annotate_f_of_related": lambda: list(
        Note.objects.annotate(k=F("perhaps__key")).order_by("pk").values_list("text", "k")
    ),
    "filtered_relation": lambda: list(
        User.objects.annotate(big=FilteredRelation("session", condition=Q(session__number__gt=0)))
        .order_by("pk", "big__key")
        .values_list("name", "big__key")
    ),
    "self_join": lambda: list(Node.objects.order_by("pk").values_list("name", "parent__name")),
    "self_join_isnull": lambda: list(Node.objects.filter(parent__name__isnull=True).order_by("pk")),
    "self_join_children": lambda: list(Node.objects.filter(children__isnull=False).order_by("pk")),
    "same_table_twice": lambda: list(
        Note.objects.filter(session__number=1, perhaps__number=1).order_by("pk")
    ),
    # Subqueries.
    "in_subquery": lambda: list(
        User.objects.filter(pk__in=Session.objects.values("user")).order_by("pk")
    ),
    "not_in_subquery": lambda: list(
        User.objects.exclude(pk__in=Session.objects.values("user")).order_by("pk")
    ),
    "exists_subquery": lambda: list(
        User.objects.filter(Exists(Session.objects.filter(user=OuterRef("pk")))).order_by("pk")
    ),
    "not_exists_subquery": lambda: list(
        User.objects.filter(~Exists(Session.objects.filter(user=OuterRef("pk")))).order_by("pk")
    ),
    "scalar_subquery": lambda: list(
        User.objects.annotate(
            key=Subquery(
                Session.objects.filter(user=OuterRef("pk")).order_by("-key").values("key")[:1]
            )
        )
        .order_by("pk")
        .values_list("name", "key")
    ),
    "union": lambda: sorted(
        Session.objects.order_by().values_list("key").union(Profile.objects.values_list("motto"))
    ),
    "union_all": lambda: len(
        Session.objects.order_by().union(Session.objects.order_by(), all=True)
    ),
    "union_count": lambda: Session.objects.order_by().union(Proxied.objects.order_by()).count(),
    "intersection": lambda: sorted(
        Session.objects.order_by()
        .values_list("key")
        .intersection(Profile.objects.values_list("motto"))
    ),
    "difference": lambda: sorted(
        User.objects.values_list("pk").difference(Session.objects.order_by().values_list("user_id"))
    ),
    # Related objects.
    "select_related": lambda: [
        (each.text, each.perhaps) for each in Note.objects.select_related("perhaps").order_by("pk")
    ],
    "select_related_required": lambda: [
        (each.text, getattr(each, "session", None))
        for each in Note.objects.select_related("session").order_by("text")
        if each.text.startswith("live")
    ],
    "select_related_required_locked": lambda: [
        (each.text, getattr(each, "session", None))
        for each in Note.objects.select_related("session").order_by("text").select_for_update()
        if each.text.startswith("live")
    ],
    "select_related_deep": lambda: [
        (each.text, each.perhaps and each.perhaps.user)
        for each in Note.objects.select_related("perhaps__user").order_by("pk")
    ],
    "select_related_reverse": lambda: [
        (each.name, getattr(each, "profile", None))
        for each in User.objects.select_related("profile").order_by("pk")
    ],
    "select_related_self": lambda: [
        (each.name, each.parent and each.parent.name)
        for each in Node.objects.select_related("parent").order_by("pk")
    ],
    "lazy_foreign_key": lambda: Note.objects.get(text="dead0").session,
    "lazy_null_foreign_key": lambda: Note.objects.get(text="dead0").perhaps,
    "lazy_reverse_one_to_one": lambda: User.objects.get(name="eve").profile,
    "reverse_manager": lambda: list(User.objects.get(name="eve").session_set.all()),
    "reverse_manager_count": lambda: User.objects.get(name="kim").session_set.count(),
    "m2m_manager": lambda: list(Tag.objects.get(name="tag-ann").session_set.all()),
    "prefetch_reverse": lambda: [
        list(each.session_set.all())
        for each in User.objects.order_by("pk").prefetch_related("session_set")
    ],
    "prefetch_forward": lambda: [
        (each.text, each.perhaps)
        for each in Note.objects.order_by("pk").prefetch_related("perhaps")
    ],
    "prefetch_m2m": lambda: [
        list(each.session_set.all())
        for each in Tag.objects.order_by("pk").prefetch_related("session_set")
    ],
    "prefetch_object": lambda: [
        list(each.found)
        for each in User.objects.order_by("pk").prefetch_related(
            Prefetch("session_set", Session.objects.filter(number__gt=0), to_attr="found")
        )
    ],
    "prefetch_sliced": lambda: [
        list(each.session_set.all())
        for each in User.objects.order_by("pk").prefetch_related(
            Prefetch("session_set", Session.objects.order_by("-number")[:1])
        )
    ],
    "prefetch_objects": lambda: _prefetched(),
    "prefetch_two_levels": lambda: [
        [list(session.note_set.all()) for session in each.session_set.all()]
        for each in User.objects.order_by("pk").prefetch_related("session_set__note_set")
    ],
    "refresh_from_db": lambda: Session(pk=DEAD).refresh_from_db(),
    "deferred_attribute": lambda: Session.objects.only("key").get(pk=LIVE).number,
    "through": lambda: list(
        Tagging.objects.filter(session__key__startswith="dead").values_list("tag__name")
    ),
    # Multi-table inheritance.
    "subclass": lambda: list(Concert.objects.order_by("pk")),
    "subclass_own_columns": lambda: list(
        Concert.objects.order_by("band").values_list("band", flat=True)
    ),
    "subclass_count": lambda: Concert.objects.count(),
    "subclass_aggregate": lambda: Concert.objects.aggregate(Max("band")),
    "subclass_exists": lambda: Concert.objects.filter(band="dead0").exists(),
    "subclass_parent_columns": lambda: list(
        Concert.objects.order_by("pk").values_list("title", flat=True)
    ),
    "parent": lambda: list(Event.objects.order_by("pk")),
    "parent_filter_by_subclass": lambda: list(Event.objects.filter(concert__band="dead0")),
    "parent_select_related_subclass": lambda: [
        each.concert.band for each in Event.objects.select_related("concert").order_by("pk")
    ],
    "subclass_joined": lambda: list(
        User.objects.order_by("pk").values_list("name", "concert__band")
    ),
    "subclass_joined_title": lambda: list(
        User.objects.order_by("pk").values_list("name", "concert__title")
    ),
    "subclass_count_joined": lambda: list(
        User.objects.annotate(n=Count("concert")).order_by("pk").values_list("n", flat=True)
    ),
    "subclass_of_instance": lambda: Event.objects.get(pk=LIVE).concert.band,
    # What others build on it.
    "shortcut_object": lambda: get_object_or_404(Session, pk=DEAD),
    "shortcut_list": lambda: get_list_or_404(Session, number__gt=0),
    "serialize": lambda: len(serializers.serialize("json", Session.objects.all())) > 10,
    "serialized_keys": lambda: [
        each["pk"] for each in serializers.serialize("python", Session.objects.all())
    ],
    "validate_unique": lambda: Session(key="dead0").validate_unique(),
    "validate_constraints": lambda: _valid_seat(),
    "admin_queryset": lambda: list(_admin(Session).get_queryset(RequestFactory().get("/"))),
    "admin_object": lambda: _admin(Session).get_object(RequestFactory().get("/"), str(DEAD)),
    "choices_of_a_form": lambda: _choices(),
}


def _prefetched() -> Any:
    users = list(User.objects.order_by("pk"))
    prefetch_related_objects(users, "session_set", "profile")
    return [(list(user.session_set.all()), getattr(user, "profile", None)) for user in users]


def _valid_seat() -> Any:
    from tests.django_app.shop.models import Seat

    return Seat(row="d", number=0, label="x").full_clean()


def _admin(model: Any) -> Any:
    from django.contrib.admin import ModelAdmin

    return ModelAdmin(model, site)


def _choices() -> Any:
    from django.forms import modelform_factory

    form = modelform_factory(Note, fields=["session"])()
    return [str(value) for value, _ in form.fields["session"].choices]
