"""Attributes are set on a class, and come back; its annotations are read on every Python."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from ttl_odm import TTLConfigurationError
from ttl_odm.core.class_attributes import Overlay, annotations_of

# From 3.14 on a name that isn't defined yet needs no quotes.
LATER = "Later" if sys.version_info >= (3, 14) else "'Later'"


def nothing() -> None:
    """Called once the attributes are put back."""


def new_class() -> Any:
    parent = type("Parent", (), {"inherited": "theirs"})
    return type("Cart", (parent,), {"own": "before"})


def test_what_a_class_had_comes_back_and_what_it_had_not_is_gone() -> None:
    cart, overlay = new_class(), Overlay()
    with overlay.put(cart, {"own": 1, "inherited": 2, "new": 3}, undone=nothing):
        assert (cart.own, cart.inherited, cart.new) == (1, 2, 3)
    assert (cart.own, cart.inherited, cart.new) == (1, 2, 3)
    overlay.remove(cart, name="Cart")
    assert (cart.own, cart.inherited) == ("before", "theirs")
    assert "inherited" not in vars(cart)
    assert not hasattr(cart, "new")


def test_after_several_changes_what_was_there_before_the_first_comes_back() -> None:
    cart, overlay = new_class(), Overlay()
    for attributes in ({"own": 1}, {"own": 2, "new": 2}, {"new": 3}):
        with overlay.put(cart, attributes, undone=nothing):
            pass
    assert (cart.own, cart.new) == (2, 3)
    overlay.remove(cart, name="Cart")
    assert cart.own == "before"
    assert not hasattr(cart, "new")


def test_a_block_that_raises_leaves_the_class_as_it_was_before_it() -> None:
    cart, overlay = new_class(), Overlay()
    with overlay.put(cart, {"own": 1}, undone=nothing):
        pass
    seen: list[Any] = []
    with (
        pytest.raises(KeyboardInterrupt),
        overlay.put(
            cart, {"own": 2, "new": 2}, undone=lambda: seen.append((cart.own, hasattr(cart, "new")))
        ),
    ):
        raise KeyboardInterrupt
    assert seen == [(1, False)]
    overlay.remove(cart, name="Cart")
    assert cart.own == "before"


def test_a_class_that_nothing_was_put_on_is_refused() -> None:
    cart, overlay = new_class(), Overlay()
    with pytest.raises(ValueError, match="no"), overlay.put(cart, {"own": 1}, undone=nothing):
        raise ValueError("no")
    for _ in range(2):
        with pytest.raises(TTLConfigurationError) as caught:
            overlay.remove(cart, name="Table 'carts'")
        assert str(caught.value) == (
            "Table 'carts' was not enabled, so it can't be disabled; to switch off a TTL that a "
            "class declares, set its __ttl__ to None."
        )
        with overlay.put(cart, {"own": 1}, undone=nothing):
            pass
        overlay.remove(cart, name="Cart")


def test_a_class_may_be_forgotten() -> None:
    overlay = Overlay()
    with overlay.put(new_class(), {"own": 1}, undone=nothing):
        pass
    gc.collect()
    assert len(overlay._before) == 0


def test_a_class_may_annotate_what_comes_later() -> None:
    names: dict[str, Any] = {}
    source = f"class Base:\n    a: int\nclass Model(Base):\n    b: str\n    c: {LATER}\n"
    exec(compile(source, "models.py", "exec", dont_inherit=True), names)  # noqa: S102
    read = annotations_of(names["Model"])
    assert (list(read), read["b"]) == (["b", "c"], str)
    assert annotations_of(type("Plain", (names["Model"],), {})) == {}
