"""A write to a row takes no lock on the row that it follows."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, transaction
from django.db.models import F

from tests.django_app.data import raw
from tests.django_app.family.models import HOUR, Cart, Draft, Item, Memo, Note
from tests.django_app.following import LIVE, expire, fill
from ttl_odm import ExpiredError

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test.utils import CaptureQueriesContext

    from tests.backends import Backend

pytestmark = [
    pytest.mark.databases("mariadb", "mysql"),
    pytest.mark.every_server,
    pytest.mark.usefixtures("_at_level", "_rows"),
]

LEVELS = ["read committed", "repeatable read"]


@pytest.fixture
def _rows(backend: Backend, _at_level: None) -> None:
    fill()


def elsewhere(sql: str) -> None:
    """Run a statement in a transaction of its own that waits for no lock."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            with connections["default"].cursor() as cursor:
                cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
                cursor.execute(sql)
        except Exception as error:  # noqa: BLE001 (it is raised below)
            errors.append(error)
        finally:
            connections.close_all()

    thread = Thread(target=run)
    thread.start()
    thread.join()
    for error in errors:
        raise error


def save() -> None:
    item = Item.objects.get(pk=10)
    item.name = "milk"
    item.save()


def save_one_field() -> None:
    item = Item.objects.get(pk=10)
    item.name = "milk"
    item.save(update_fields=["name"])


def save_without_a_foreign_key() -> None:
    Memo.objects.get(pk=1).save()


def save_what_lives_without_a_parent() -> None:
    Draft.objects.get(pk=1).save()


def save_below_two_levels() -> None:
    Note.objects.get(pk=100).save()


def update() -> None:
    assert Item.objects.filter(pk=10).update(name="milk") == 1


def update_a_list() -> None:
    assert Item.objects.filter(pk__in=[10, 11, 999]).update(name=F("name")) == 2


def update_by_parent() -> None:
    assert Item.objects.filter(cart=LIVE, name="tea").update(name="milk") == 2


def update_by_the_key_of_a_parent() -> None:
    assert Item.objects.filter(cart_id__in=[LIVE, 99]).update(name="milk") == 2


def update_several() -> None:
    items = list(Item.objects.all())
    assert Item.objects.bulk_update(items, ["name"]) == 2


def delete() -> None:
    Note.objects.get(pk=100).delete()


def delete_a_list() -> None:
    assert Note.objects.filter(pk__in=[100, 110, 999]).delete()[0] == 2


def delete_by_parent() -> None:
    assert Memo.objects.filter(basket=LIVE).delete()[0] == 1


def delete_after_followers() -> None:
    Note.objects.filter(item=10).delete()
    Item.objects.get(pk=10).delete()


WRITES = [
    save,
    save_one_field,
    save_without_a_foreign_key,
    save_what_lives_without_a_parent,
    save_below_two_levels,
    update,
    update_a_list,
    update_by_parent,
    update_by_the_key_of_a_parent,
    update_several,
    delete,
    delete_a_list,
    delete_by_parent,
    delete_after_followers,
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("write", WRITES)
def test_a_write_by_key_leaves_the_parent_unlocked(write: Callable[[], None], level: str) -> None:
    with transaction.atomic():
        write()
        elsewhere(f"UPDATE family_cart SET ttl = {2 * HOUR} WHERE id = {LIVE}")  # noqa: S608


@pytest.mark.parametrize("level", LEVELS)
def test_a_write_still_misses_a_row_whose_parent_has_expired(level: str) -> None:
    item, memo = Item.objects.get(pk=10), Memo.objects.get(pk=1)
    expire(LIVE)
    conditions: list[dict[str, Any]] = [{"pk": key} for key in (10, 20, 999)]
    conditions += [{"pk__in": [10, 20]}, {"cart": LIVE}, {"cart_id": 99}]
    conditions += [{"cart_id__in": [LIVE]}, {"pk__in": []}]
    for condition in conditions:
        assert Item.objects.filter(**condition).update(name="milk") == 0
        assert Item.objects.filter(**condition).delete()[0] == 0
    for obj in (item, memo):
        with pytest.raises(ExpiredError):
            obj.save()


@pytest.mark.parametrize("level", LEVELS)
def test_a_list_of_keys_reaches_the_rows_of_live_parents_alone(level: str) -> None:
    keys = [10, 20, 11, 999]
    assert Item.objects.filter(pk__in=keys).update(name="milk") == 2
    assert raw("SELECT id FROM family_item WHERE name = 'tea' ORDER BY id") == [(20,), (21,)]
    assert Note.objects.filter(pk__in=[10 * key for key in keys]).delete()[0] == 2


@pytest.mark.parametrize("level", ["repeatable read"])
def test_a_write_finds_a_row_whose_parent_was_renewed_since_the_transaction_began_to_read(
    level: str,
) -> None:
    expire(LIVE)
    with transaction.atomic():
        assert not Cart.objects.filter(pk=LIVE).exists()
        elsewhere(f"UPDATE family_cart SET ttl = -1 WHERE id = {LIVE}")  # noqa: S608
        assert Item.objects.filter(pk=10).update(name="milk") == 1


@pytest.mark.parametrize("level", ["repeatable read"])
def test_a_row_that_was_moved_since_is_judged_by_its_new_parent(level: str) -> None:
    with transaction.atomic():
        assert Memo.objects.filter(pk=1).exists()
        elsewhere("UPDATE family_memo SET basket = 2 WHERE id = 1")  # which has expired
        assert Memo.objects.filter(pk=1).update(basket=F("basket")) == 0


@pytest.mark.parametrize("level", ["repeatable read"])
def test_a_row_that_others_have_put_since_is_written(level: str) -> None:
    with transaction.atomic():
        assert Item.objects.filter(pk=10).exists()
        elsewhere(f"INSERT INTO family_item (id, cart_id, name) VALUES (12, {LIVE}, 'tea')")  # noqa: S608
        assert Item.objects.filter(pk=12).update(name="milk") == 1


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_can_still_be_moved_to_a_live_parent_alone(level: str) -> None:
    Cart.objects.create(pk=3)
    item, memo = Item.objects.get(pk=10), Memo.objects.get(pk=1)
    for obj, name in ((item, "cart_id"), (memo, "basket")):
        setattr(obj, name, 3)
        obj.save()
        setattr(obj, name, 2)
        with pytest.raises(ExpiredError):
            obj.save()
    assert raw("SELECT cart_id FROM family_item WHERE id = 10") == [(3,)]
    assert raw("SELECT basket FROM family_memo WHERE id = 1") == [(3,)]


@pytest.mark.parametrize("level", ["read committed", "serializable"])
def test_nothing_is_looked_up_where_that_would_spare_no_lock(
    level: str, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    item = Item.objects.get(pk=10)
    with django_queries() as queries:
        item.save(update_fields=["name"])
    words = [query["sql"].split()[0] for query in queries.captured_queries]
    assert [word for word in words if word in ("SELECT", "UPDATE")] == ["UPDATE"]
