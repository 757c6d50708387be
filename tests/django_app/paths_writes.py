"""Writes: what they return, and what is in the tables afterwards, must be as without the dead."""

# ruff: noqa: PLW0108 (a table of lambdas: each is evaluated when its path is run)
from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync
from django.db.models import Case, F, Value, When
from django.db.models.functions import Concat, Replace, Upper

from tests.django_app.data import DEAD, LIVE
from tests.django_app.shop.models import (
    Concert,
    Event,
    Handle,
    Link,
    Nick,
    Node,
    Note,
    Profile,
    Seat,
    Session,
    Tag,
    Upload,
    User,
)
from ttl_odm.django import include_expired, only_expired


def _count(result: Any) -> Any:
    return result[0]


WRITES: dict[str, Any] = {
    # Keys.
    "create_with_expired_key": lambda: Session.objects.create(key="dead0").key,
    "create_with_expired_pk": lambda: Session.objects.create(pk=DEAD, key="new").pk,
    "create_with_two_expired_keys": lambda: Session.objects.create(pk=DEAD, key="dead1").pk,
    "save_new_with_expired_pk": lambda: Session(pk=DEAD, key="new", number=9).save(),
    "force_insert": lambda: Session(pk=DEAD, key="new").save(force_insert=True),
    "create_with_expired_composite_key": lambda: Seat.objects.create(row="d", number=0).label,
    "create_with_expired_expression_key": lambda: Nick.objects.create(name="DEAD0").name,
    "create_with_expired_generated_key": lambda: (
        Handle.objects.create(name="DEAD0", number=9).number
    ),
    "create_with_expired_default_key": lambda: Handle.objects.create(name="x", number=DEAD).name,
    "bulk_create_with_expired_keys_of_the_database": lambda: len(
        Handle.objects.bulk_create([Handle(name="DEAD0", number=9), Handle(name="x", number=DEAD)])
    ),
    "create_with_expired_one_to_one": lambda: (
        Profile.objects.create(user_id=LIVE + 2, motto="new").motto
    ),
    "create_natural_key": lambda: Link.objects.create(token="dead0").pk,
    "create_by_related_manager": lambda: (
        User.objects.get(name="ann").session_set.create(key="dead0").key
    ),
    "create_subclass_with_expired_pk": lambda: (
        Concert.objects.create(pk=DEAD, title="new", band="new").pk
    ),
    "create_subclass_with_expired_key": lambda: (
        Concert.objects.create(title="new", band="new", code="dead0").code
    ),
    "create_parent_with_expired_pk": lambda: Event.objects.create(pk=DEAD, title="new").pk,
    "bulk_create": lambda: len(
        Session.objects.bulk_create([Session(key="dead0"), Session(key="x"), Session(key="dead1")])
    ),
    "bulk_create_with_pks": lambda: len(
        Session.objects.bulk_create([Session(pk=DEAD + n, key=f"n{n}") for n in range(2)])
    ),
    "bulk_create_in_batches": lambda: len(
        Session.objects.bulk_create([Session(key="dead0"), Session(key="dead1")], batch_size=1)
    ),
    "bulk_create_ignoring": lambda: len(
        Session.objects.bulk_create(
            [Session(key="dead0", number=7), Session(key="live0", number=7)], ignore_conflicts=True
        )
    ),
    "bulk_create_updating": lambda: _upsert(),
    "bulk_create_composite": lambda: len(
        Seat.objects.bulk_create([Seat(row="d", number=n) for n in range(3)])
    ),
    "get_or_create": lambda: Session.objects.get_or_create(key="dead0")[1],
    "get_or_create_live": lambda: Session.objects.get_or_create(key="live0")[1],
    "get_or_create_by_pk": lambda: Link.objects.get_or_create(token="dead1")[1],
    "update_or_create": lambda: Session.objects.update_or_create(
        key="dead0", defaults={"number": 42}
    )[1],
    "update_or_create_live": lambda: Session.objects.update_or_create(
        key="live0", defaults={"number": 42}
    )[1],
    "update_or_create_composite": lambda: Seat.objects.update_or_create(
        row="d", number=1, defaults={"label": "new"}
    )[1],
    "a_live_key_stays_taken": lambda: Session.objects.create(key="live0"),
    "a_live_pk_stays_taken": lambda: Session(pk=LIVE, key="z").save(force_insert=True),
    "update_to_expired_key": lambda: Session.objects.filter(pk=LIVE).update(key="dead0"),
    "update_to_live_key": lambda: Session.objects.filter(pk=LIVE).update(key="live1"),
    "save_to_expired_key": lambda: _save(Session, LIVE, key="dead1"),
    "bulk_update_to_expired_keys": lambda: _bulk_update_keys(),
    "update_case_to_expired_key": lambda: Session.objects.filter(pk=LIVE).update(
        key=Case(When(number=1, then=Value("dead0")), default=Value("dead1"))
    ),
    "update_to_expired_key_by_case_default": lambda: Session.objects.filter(pk=LIVE).update(
        key=Case(When(number=9, then=Value("x")), default=Value("dead0"))
    ),
    "update_f_to_expired_keys": lambda: Session.objects.filter(key__startswith="live").update(
        key=Replace("key", Value("live"), Value("dead"))
    ),
    "update_composite_by_expression": lambda: Seat.objects.filter(pk=LIVE).update(
        row=Replace("row", Value("l"), Value("d"))
    ),
    "update_subclass_by_expression": lambda: Concert.objects.filter(pk=LIVE).update(
        code=Concat(Value("dead"), Value("1"))
    ),
    "update_composite_to_expired_key": lambda: Seat.objects.filter(pk=LIVE).update(row="d"),
    # Updates.
    "update": lambda: Session.objects.update(number=9),
    "update_f": lambda: Session.objects.filter(number__gt=0).update(number=F("number") + 1),
    "update_by_join": lambda: Session.objects.filter(user__name__in=["ann", "eve"]).update(
        number=9
    ),
    "update_by_join_with_ttl_table": lambda: Note.objects.filter(
        session__key__startswith="dead"
    ).update(text="hit"),
    "update_by_subquery": lambda: Note.objects.filter(
        session__in=Session.objects.filter(number__gt=0)
    ).update(text="hit"),
    "update_annotated": lambda: Session.objects.annotate(u=Upper("key")).update(key=F("u")),
    "update_dead": lambda: Session.objects.filter(pk=DEAD).update(number=9),
    "update_include_expired": lambda: include_expired(Session.objects.all()).update(number=9),
    "update_only_expired": lambda: only_expired(Session.objects.all()).update(number=9) and None,
    "update_policy_field_of_dead": lambda: Link.objects.filter(token="dead0").update(expires=None),
    "update_created_of_dead": lambda: Upload.objects.filter(name="dead0").update(created=None),
    "update_ttl_of_dead": lambda: Session.objects.filter(pk=DEAD).update(ttl=-1),
    "bulk_update": lambda: Session.objects.bulk_update(
        [Session(pk=LIVE, number=7), Session(pk=DEAD, number=7)], ["number"]
    ),
    "touch": lambda: Session.objects.touch(),
    "touch_dead": lambda: Session.objects.filter(pk=DEAD).touch(at_most_every=1, expire_in=60),
    "touch_include_expired": lambda: include_expired(Session.objects.all()).touch(only_if="longer"),
    "touch_by_join": lambda: Session.objects.filter(user__name__in=["ann", "eve"]).touch(),
    "touch_subclass": lambda: Concert.objects.touch(expire_in=60, only_if="shorter"),
    "atouch": lambda: async_to_sync(Session.objects.atouch)(),
    "update_by_reverse_manager": lambda: User.objects.get(name="eve").session_set.update(number=8),
    "update_subclass": lambda: Concert.objects.update(band="new"),
    "update_subclass_parent_column": lambda: Concert.objects.update(title="new"),
    "update_subclass_both": lambda: Concert.objects.update(title="new", band="new"),
    "update_parent": lambda: Event.objects.update(title="new"),
    "update_self_join": lambda: Node.objects.filter(parent__name="dead0").update(name="hit"),
    "set_relation_to_dead": lambda: _set(),
    "reverse_clear": lambda: User.objects.get(name="eve").session_set.clear(),
    # Deletes.
    "delete": lambda: _count(Session.objects.all().delete()) and None,
    "delete_dead": lambda: Session.objects.filter(pk=DEAD).delete()[0],
    "delete_by_join": lambda: Note.objects.filter(session__key__startswith="dead").delete()[0],
    "delete_by_own_join": lambda: Seat.objects.filter(label__startswith="dead").delete()[0],
    "delete_instance": lambda: Seat.objects.get(pk=LIVE).delete()[0],
    "delete_dead_instance": lambda: Seat(pk=DEAD).delete()[0],
    "delete_subclass": lambda: Concert.objects.filter(band__startswith="live").delete()[0],
    "delete_dead_subclass": lambda: Concert.objects.filter(band="dead0").delete()[0],
    "delete_raw": lambda: Seat.objects.all()._raw_delete("default"),
    "delete_parent_of_dead": lambda: User.objects.get(name="eve").delete() and None,
    "delete_all_parents": lambda: User.objects.all().delete() and None,
    "delete_node": lambda: Node.objects.get(pk=LIVE).delete() and None,
    "delete_by_include_expired": lambda: include_expired(Seat.objects.all()).delete()[0],
    # Many to many.
    "m2m_set": lambda: Session.objects.get(pk=LIVE).tags.set(Tag.objects.all()[:1]),
    "m2m_reverse_clear": lambda: Tag.objects.get(name="tag-ann").session_set.clear(),
    # Async.
    "acreate": lambda: async_to_sync(Session.objects.acreate)(key="dead0").key,
    "aget": lambda: async_to_sync(Session.objects.aget)(pk=DEAD),
    "acount": lambda: async_to_sync(Session.objects.acount)(),
    "aupdate": lambda: async_to_sync(Session.objects.aupdate)(number=3),
    "aget_or_create": lambda: async_to_sync(Session.objects.aget_or_create)(key="dead0")[1],
    "abulk_create": lambda: len(
        async_to_sync(Session.objects.abulk_create)([Session(key="dead0"), Session(key="dead1")])
    ),
    "adelete": lambda: async_to_sync(Seat.objects.all().adelete)()[0],
    "aiterator": lambda: async_to_sync(_async_keys)(),
}


async def _async_keys() -> list[str]:
    return [each.key async for each in Session.objects.all()]


def _upsert() -> int:
    rows = [Session(key="dead0", number=7), Session(key="live0", number=7), Session(key="new")]
    options: dict[str, Any] = {"update_conflicts": True, "update_fields": ["number"]}
    from django.db import connection

    if connection.features.supports_update_conflicts_with_target:
        options["unique_fields"] = ["key"]
    return len(Session.objects.bulk_create(rows, **options))


def _bulk_update_keys() -> int:
    rows = list(Session.objects.filter(key__startswith="live"))
    for number, row in enumerate(rows):
        row.key = f"dead{number}"
    return Session.objects.bulk_update(rows, ["key"])


def _save(model: Any, pk: int, **values: Any) -> None:
    row = model.objects.get(pk=pk)
    for name, value in values.items():
        setattr(row, name, value)
    row.save()


def _set() -> None:
    user = User.objects.get(name="ann")
    user.session_set.add(Session(pk=DEAD), bulk=True)
