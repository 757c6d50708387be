"""An application with Django under the load of `tests.crowds`."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from django.db import DatabaseError, connections, transaction
from django.db.models import F

from tests.crowds import CARTS, HOUR, KEYS, App
from tests.django_app.data import kill
from tests.django_app.family.models import Basket, Bottle, Crate, Fruit
from ttl_odm.django import ExpiredError
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.crowds import Writer

STOCK: Final = 100_000
"""The key of the first of the items that are deleted. Each is of the cart with the rest of it."""


class DjangoApp(App):
    """An application with Django."""

    EXPIRED = ExpiredError
    FAILED = DatabaseError

    @property
    def swept(self) -> Any:
        """What sweepers sweep."""
        raise NotImplementedError

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Django's."""
        with transaction.atomic():
            yield

    def sweep(self) -> None:
        """In small batches."""
        Sweeper(connections["default"], self.swept, lease=False, batch_size=5).run_once()

    def leave(self) -> None:
        """Close the thread's connections."""
        connections.close_all()


class Shop(DjangoApp):
    """Carts, and items that follow them; `stock` is how many are there to be deleted."""

    def __init__(self, *, policy: bool, stock: int) -> None:
        super().__init__(policy=policy)
        self.cart: Any = Basket if policy else Crate
        self.item: Any = Fruit if policy else Bottle
        self._stock = itertools.count(STOCK)
        with self.transaction():
            for key in KEYS:
                self._put(key)
            keys = range(STOCK, STOCK + stock)
            self.item.objects.bulk_create(
                [self.item(pk=key, basket_id=key % CARTS) for key in keys]
            )

    @property
    def transactions(self) -> list[Callable[[Any, Writer], None]]:
        """What is usual, and what deletes."""
        return [
            self._change_item,
            self._change_cart,
            self._change_item_then_cart,
            self._change_cart_then_item,
            self._change_items,
            self._change_by_queryset,
            self._delete_item_then_change_cart,
            self._delete_items_then_change_cart,
            self._end,
            self._begin_again,
        ]

    def read(self, _: None) -> None:
        """All."""
        list(self.item.objects.all())
        list(self.cart.objects.all())

    @property
    def swept(self) -> Any:
        """Carts, with what follows them."""
        return Basket

    def _put(self, key: int) -> None:
        self.cart.objects.create(pk=key)
        items = [self.item(pk=key * 10 + number, basket_id=key) for number in range(4)]
        self.item.objects.bulk_create(items)

    def _write(self, model: Any, *keys: int) -> None:
        for key in keys:
            row = model.objects.filter(pk=key).first()
            if row is not None:
                row.writes += 1
                row.save()

    def _change_item(self, _: None, writer: Writer) -> None:
        self._write(self.item, writer.randrange(CARTS) * 10 + writer.randrange(4))

    def _change_cart(self, _: None, writer: Writer) -> None:
        self._write(self.cart, writer.randrange(CARTS))

    def _change_item_then_cart(self, _: None, writer: Writer) -> None:
        key = writer.randrange(CARTS)
        self._write(self.item, key * 10 + writer.randrange(2))
        self._write(self.cart, key)

    def _change_cart_then_item(self, _: None, writer: Writer) -> None:
        key = writer.randrange(CARTS)
        self._write(self.cart, key)
        self._write(self.item, key * 10 + 2)

    def _change_items(self, _: None, writer: Writer) -> None:
        first = writer.randrange(CARTS) * 10
        self._write(self.item, *range(first, first + 4))

    def _change_by_queryset(self, _: None, writer: Writer) -> None:
        keys = [writer.randrange(CARTS) * 10 + 3 for _ in range(2)]
        self.item.objects.filter(pk__in=keys).update(writes=F("writes") + 1)

    def _delete_item_then_change_cart(self, _: None, __: Writer) -> None:
        key = next(self._stock)
        self.item.objects.get(pk=key).delete()
        self._write(self.cart, key % CARTS)

    def _delete_items_then_change_cart(self, _: None, __: Writer) -> None:
        key = next(self._stock)
        self.item.objects.filter(pk__in=[key, -key]).delete()
        self._write(self.cart, key % CARTS)

    def _end(self, _: None, writer: Writer) -> None:
        if self.policy:
            kill(Basket, [writer.own], 2 * HOUR)
        else:
            self._write(self.cart, writer.own)

    def _begin_again(self, _: None, writer: Writer) -> None:
        if not self.cart.objects.filter(pk=writer.own).exists():
            self._put(writer.own)


class Plain(DjangoApp):
    """Rows that nothing follows: hot ones, and one of each writer, written by single statements."""

    def __init__(self, model: Any) -> None:
        """Make the rows of a model with the field `writes`."""
        super().__init__(policy=hasattr(model, "__ttl__"))
        self.model = model
        model.objects.bulk_create([model(pk=key) for key in KEYS])

    @property
    def swept(self) -> Any:
        """The rows."""
        return self.model

    @property
    def transactions(self) -> list[Callable[[Any, Writer], None]]:
        """Of one statement each."""
        return [self._change, self._change_own, self._delete_nothing, self._find]

    def read(self, _: None) -> None:
        """All."""
        list(self.model.objects.all())

    def _write(self, key: int) -> None:
        self.model.objects.filter(pk=key).update(writes=F("writes") + 1)

    def _change(self, _: None, writer: Writer) -> None:
        self._write(writer.randrange(CARTS))

    def _change_own(self, _: None, writer: Writer) -> None:
        self._write(writer.own)

    def _delete_nothing(self, _: None, writer: Writer) -> None:
        self.model.objects.filter(pk=writer.randrange(CARTS), writes__lt=0).delete()

    def _find(self, _: None, writer: Writer) -> None:
        self.model.objects.filter(pk=writer.randrange(CARTS)).first()
