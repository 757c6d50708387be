"""Of two carts with all that follows them one has expired."""

from __future__ import annotations

from typing import Any

from tests.django_app.data import kill, raw
from tests.django_app.family.models import HOUR, Cart, Draft, Item, Memo, Note

LIVE, EXPIRED = 1, 2

TREE = (Cart, Item, Note, Memo, Draft)


def fill() -> None:
    """Items 10, 11 of the live cart and 20, 21 of the other; notes 100, 110 and 200, 210.

    Memos and drafts 1 of the live cart, 2 of the other, 3 and 4 of none.
    """
    keys = [10 * cart + n for cart in (LIVE, EXPIRED) for n in (0, 1)]
    baskets = {1: LIVE, 2: EXPIRED, 3: 99, 4: None}
    Cart.objects.bulk_create([Cart(pk=LIVE), Cart(pk=EXPIRED)])
    Item.objects.bulk_create([Item(pk=key, cart_id=key // 10) for key in keys])
    Note.objects.bulk_create([Note(pk=10 * key, item_id=key) for key in keys])
    for model in (Memo, Draft):
        rows: Any = [model(pk=key, basket=basket) for key, basket in baskets.items()]
        model.objects.bulk_create(rows)  # type: ignore[attr-defined]
    expire(EXPIRED)


def expire(*carts: int) -> None:
    """Let carts have been written two hours ago."""
    kill(Cart, carts, 2 * HOUR)


def stored(*models: Any) -> list[int]:
    """How many rows tables hold, expired ones too."""
    tables = [model._meta.db_table for model in models or TREE]
    return [raw(f"SELECT COUNT(*) FROM {table}")[0][0] for table in tables]  # noqa: S608
