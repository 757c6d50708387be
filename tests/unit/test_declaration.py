"""The default ttl follows its declaration: what is read again, what is remembered, what refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from ttl_odm import TTL, ExpireAfter, ExpireAt, InvalidTTL, TTLConfigurationError
from ttl_odm.core import declaration
from ttl_odm.core.declaration import UNREAD, DeclaredTTL, shape_of

if TYPE_CHECKING:
    from ttl_odm.core.policy import Policy


class Cart:
    __ttl__: Any = 3600


@pytest.fixture(autouse=True)
def _declared_as_before() -> Any:
    yield
    Cart.__ttl__ = 3600


def test_the_default_is_the_one_that_is_declared_now() -> None:
    default = DeclaredTTL(Cart)
    for value, seconds in [(60, 60), (None, None), (-1, -1), (TTL(5, override=None), 5)]:
        Cart.__ttl__ = value
        assert default() == seconds
    assert default.owner is Cart


def test_policies_over_dates_have_seconds_too() -> None:
    Cart.__ttl__ = ExpireAfter("paid_at", 7)
    assert DeclaredTTL(Cart)() == 7
    Cart.__ttl__ = ExpireAt("ends_at")
    assert DeclaredTTL(Cart)() == 0


def test_an_owner_without_a_declaration_has_ttl_off() -> None:
    assert DeclaredTTL(object)() is None


def test_what_was_read_is_remembered_until_something_else_is_declared() -> None:
    default = DeclaredTTL(Cart)
    assert (default.seen, default.is_fixed) == (UNREAD, False)
    first = default.policy
    assert (default.seen, default.is_fixed) == (3600, True)
    with patch.object(declaration, "as_policy", side_effect=AssertionError):
        assert default.policy is first
        assert default.settled is first
        assert default() == 3600
    Cart.__ttl__ = 60
    assert default.policy == TTL(60)
    assert default.seen == 60


def test_a_function_is_asked_each_time() -> None:
    answers = iter([10, 20, 30])
    Cart.__ttl__ = TTL(lambda: next(answers))
    default = DeclaredTTL(Cart)
    assert default.policy is Cart.__ttl__
    assert not default.is_fixed
    assert (default(), default()) == (10, 20)
    assert default.settled == TTL(30)


def test_a_declaration_may_be_read_from_elsewhere_and_refined() -> None:
    settings = {"ttl": 60}

    def doubled(policy: Policy) -> Policy:
        assert isinstance(policy, TTL)
        return policy.with_default(2 * (policy.default or 0))

    default = DeclaredTTL(Cart, read=lambda: settings["ttl"], refine=doubled)
    assert default() == 120
    settings["ttl"] = 30
    assert default.policy == TTL(60)
    assert default.settled == TTL(60)


def test_a_number_changes_the_default_of_the_bound_policy_alone() -> None:
    bound = TTL({"a": 5}, by="kind", last_modified="changed", override=None)
    default = DeclaredTTL(Cart, bound)
    assert default() == 3600
    assert default.policy == TTL(3600, last_modified="changed", override=None)
    assert default.shape == bound.shape


@pytest.mark.parametrize(
    ("bound", "later"),
    [
        (TTL(5, last_modified="changed"), TTL(6, last_modified="changed")),
        (ExpireAfter("paid_at", 5), ExpireAfter("paid_at", 6)),
        (ExpireAt("ends_at"), ExpireAt("ends_at")),
    ],
)
def test_another_default_over_the_same_columns_is_taken(bound: Any, later: Any) -> None:
    default = DeclaredTTL(Cart, bound)
    for policy in (bound, later):
        Cart.__ttl__ = policy
        assert default.policy == policy


@pytest.mark.parametrize(
    ("bound", "later"),
    [
        (TTL(5), TTL(5, last_modified="changed")),
        (TTL(5), ExpireAt("ends_at")),
        (ExpireAfter("paid_at", 5), ExpireAfter("made_at", 5)),
        (ExpireAt("ends_at"), ExpireAt("ends_at", null="expired")),
        (ExpireAt("ends_at"), 5),
    ],
)
def test_other_columns_are_refused_and_the_old_ones_stay(bound: Any, later: Any) -> None:
    Cart.__ttl__ = bound
    default = DeclaredTTL(Cart, bound)
    before = default()
    Cart.__ttl__ = later
    for _ in range(2):
        with pytest.raises(TTLConfigurationError) as caught:
            default()
    assert str(caught.value) == (
        f"Cart.__ttl__ became {later!r}: only the default ttl can change while the application "
        "runs, not the columns, and not whether the database stores the default (it was set up "
        f"as {shape_of(bound)!r})."
    )
    Cart.__ttl__ = bound
    assert default() == before


def test_what_is_no_ttl_is_refused_by_its_place() -> None:
    Cart.__ttl__ = 0
    with pytest.raises(InvalidTTL, match=r"^Cart\.__ttl__ = 0 is not a ttl"):
        DeclaredTTL(Cart)()
    Cart.__ttl__ = TTL(lambda: 0)
    with pytest.raises(InvalidTTL, match=r"^Cart\.__ttl__: TTL\.default\(\) = 0 is not a ttl"):
        DeclaredTTL(Cart)()


def test_the_shape_of_a_policy_is_all_but_its_default() -> None:
    assert shape_of(TTL(5, override=None)) == TTL(override=None)
    assert shape_of(ExpireAfter("at", 5)) == ExpireAfter("at", 1)
    assert shape_of(ExpireAt("at", null="expired")) == ExpireAt("at", null="expired")
