"""Readers, writers and sweepers at once: nobody sees a row without its parent, or half a family."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import pytest
from django.db import DatabaseError, IntegrityError, OperationalError, connections, transaction
from django.db.models import Count, Q

from tests.django_app.family.models import Cart, Item, Memo, Note
from tests.django_app.following import expire, stored
from tests.interleavings import STATEMENTS, Interleavings
from ttl_odm.dialects.errors import is_passing
from ttl_odm.django import ExpiredError
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from tests.backends import Backend

CARTS = 4
SIZE = 3
"""Items that a cart is put with; as many notes and memos as well."""

WORKERS = 5
SEEDS = 2


@dataclass
class Worker:
    """One that does at random what readers, writers and sweepers do."""

    random: Random

    def run(self, sent: Interleavings) -> int:
        """Return how many steps went through; the others met a lock, or what is in their way."""
        actions = (self.read, self.read, self.put, self.put, self.end, self.add, self.sweep)
        done = 0
        try:
            with connections["default"].execute_wrapper(sent.around):
                while not sent.are_enough:
                    try:
                        self.random.choice(actions)()
                        done += 1
                    except (IntegrityError, ExpiredError):
                        continue
                    except DatabaseError as error:
                        is_operational = isinstance(error, OperationalError)
                        if not is_passing(error.__cause__, operational=is_operational):
                            raise
        finally:
            connections.close_all()
        return done

    def read(self) -> None:
        """Each statement sees whole families alone."""
        first = Count("item", filter=Q(item__name="first"))
        counts = (
            Cart.objects.annotate(n=first).values_list("pk", "n"),
            Item.objects.filter(name="first").values("cart").annotate(n=Count("*")),
            Note.objects.values("item__cart").annotate(n=Count("*")),
            Memo.objects.values("basket").annotate(n=Count("*")),
        )
        for count in counts:
            rows = [tuple(row.values()) if isinstance(row, dict) else row for row in count]
            assert all(number == SIZE for _, number in rows), (str(count.query), rows)
        for item in Item.objects.select_related("cart"):
            assert item.cart is not None

    def put(self) -> None:
        """A cart with all that belongs to it, where there is none or an expired one."""
        key = self.random.randrange(CARTS)
        numbers = range(key * 100, key * 100 + SIZE)
        with transaction.atomic():
            Cart.objects.create(pk=key)
            Item.objects.bulk_create(Item(pk=n, cart_id=key, name="first") for n in numbers)
            Note.objects.bulk_create(Note(pk=n, item_id=n) for n in numbers)
            Memo.objects.bulk_create(Memo(pk=n, basket=key) for n in numbers)

    def end(self) -> None:
        expire(self.random.randrange(CARTS))

    def add(self) -> None:
        """An item more, and one goes."""
        key, number = self.random.randrange(CARTS), 1_000 + self.random.randrange(10)
        with transaction.atomic():
            Item.objects.filter(pk=number).delete()
            Item.objects.create(pk=number, cart_id=key, name="later")
            Item.objects.filter(pk=number).update(cart=self.random.randrange(CARTS))

    def sweep(self) -> None:
        size = self.random.choice([1, 2, 5, 100])
        options = {"lease": False, "batch_size": size, "max_rows": 50}
        Sweeper(connections["default"], [Cart], **options).run_once()


def interleave(seed: int, statements: int) -> int:
    """Let workers run at once, and see that the last sweep leaves no orphan.

    Returns how many steps went through.
    """
    workers = [Worker(Random(f"{seed}-{number}")) for number in range(WORKERS)]  # noqa: S311
    sent = Interleavings(statements)
    with ThreadPoolExecutor(WORKERS) as pool:
        done = sum(pool.map(lambda worker: worker.run(sent), workers))
    expire(*range(CARTS))
    report = Sweeper(connections["default"], [Cart], lease=False).run_once()
    assert report.outcome == "finished", report.problems
    assert stored(Cart, Item, Note, Memo) == [0, 0, 0, 0]
    return done


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_family_is_seen_in_part(backend: Backend, seed: int) -> None:
    assert interleave(seed, STATEMENTS // SEEDS) > 0
