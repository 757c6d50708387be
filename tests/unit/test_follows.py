"""`Follows` is valid once it exists."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ttl_odm import Follows, TTLConfigurationError
from ttl_odm.core import as_policy
from ttl_odm.follows import last_parent


class Thread:
    pass


def test_it_keeps_what_was_declared() -> None:
    assert Follows("cart").parent == "cart"
    assert Follows("cart").on == ()
    assert Follows("cart").orphan == "expired"
    follows = Follows(Thread, on={"thread_id": "id"}, orphan="live")
    assert (follows.parent, follows.on, follows.orphan) == (Thread, (("thread_id", "id"),), "live")


def test_equal_declarations_are_equal() -> None:
    assert Follows("cart") == Follows("cart")
    assert Follows("cart") != Follows("cart", orphan="live")
    assert len({Follows(Thread, on={"a": "b"}), Follows(Thread, on={"a": "b"})}) == 1


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((" ",), {}, r"Follows\.parent = ' ': name a relationship"),
        (
            (3,),
            {},
            r"Follows\.parent = 3: give the name of a relationship or a foreign key, or a class",
        ),
        (("cart",), {"on": {"a": "b"}}, r"Follows\.on = \{'a': 'b'\}: leave on out"),
        ((Thread,), {}, r"Follows\.on = None: map fields of this class"),
        ((Thread,), {"on": {}}, r"Follows\.on = \{\}: map fields of this class"),
        ((Thread,), {"on": ["id"]}, r"Follows\.on = \['id'\]: map fields of this class"),
        ((Thread,), {"on": {"thread_id": 3}}, r"Follows\.on = .*give field names as strings"),
        (("cart",), {"renews": 1}, r"Follows\.renews = 1: give True or False"),
        (("cart",), {"renews": True, "at_most_every": 0}, "at_most_every = 0: give whole seconds"),
        (
            ("cart",),
            {"renews": True, "at_most_every": 1.5},
            "at_most_every = 1.5: give whole seconds",
        ),
        (("cart",), {"at_most_every": 5}, "at_most_every = 5: also write renews=True"),
        (("cart",), {"orphan": "dead"}, r"Follows\.orphan = 'dead': give 'expired' or 'live'"),
    ],
)
def test_a_slip_names_the_argument_and_the_value(
    arguments: Any, options: Any, message: str
) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        Follows(*arguments, **options)


def test_it_is_no_lifetime_by_itself() -> None:
    with pytest.raises(TTLConfigurationError, match=r"Item\.__ttl__ = Follows\(.*SQLAlchemy"):
        as_policy(Follows("cart"), where="Item.__ttl__")


def test_it_may_renew_its_parent() -> None:
    renewing = Follows("cart", renews=True, at_most_every=timedelta(minutes=1))
    assert (renewing.renews, renewing.at_most_every) == (True, 60)
    assert (Follows("cart").renews, Follows("cart").at_most_every) == (False, None)


def test_parents_in_a_cycle_are_found_wherever_the_chain_begins() -> None:
    parents = {"rows": "a", "a": "b", "b": "c", "c": "b"}
    with pytest.raises(TTLConfigurationError, match=r"^Rows: the parents follow each other"):
        last_parent("rows", "a", parents.get, "Rows")
    del parents["c"]
    assert last_parent("rows", "a", parents.get, "Rows") == "c"
