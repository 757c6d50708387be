"""A default that the database stores: what is declared of it, and what nobody here can say."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from ttl_odm import TTL, ExpireAfter, InvalidTTL, Stored, TTLConfigurationError
from ttl_odm.core import as_policy
from ttl_odm.core.declaration import DeclaredTTL, shape_of

DAY = 86_400


@pytest.mark.parametrize("start", [3600, 3600.0, timedelta(hours=1)])
def test_it_starts_with_plain_seconds(start: float | timedelta) -> None:
    assert Stored(start).start == 3600
    assert Stored(start) == Stored(3600)


@pytest.mark.parametrize(
    "stored",
    [
        Stored(3600),
        Stored(-1),
        Stored(None),
        Stored(DAY, by="tenant_id", least=60, most=DAY),
        Stored(DAY, max_staleness=5),
    ],
)
def test_it_is_a_value(stored: Stored) -> None:
    assert eval(repr(stored)) == stored  # noqa: S307
    assert pickle.loads(pickle.dumps(stored)) == stored  # noqa: S301
    assert hash(stored) == hash(eval(repr(stored)))  # noqa: S307
    assert eval(repr(TTL(stored))) == TTL(stored)  # noqa: S307
    with pytest.raises(AttributeError):
        stored.start = 1  # type: ignore[misc]


@pytest.mark.parametrize("start", [0, -2, 1.5, "3600", True, 2**31])
def test_what_is_no_ttl_is_no_start(start: Any) -> None:
    with pytest.raises(InvalidTTL, match=r"Stored\.start"):
        Stored(start)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"least": 0}, r"Stored\.least = 0"),
        ({"max_staleness": 0.5}, r"Stored\.max_staleness = 0\.5"),
        ({"most": "7 days"}, r"Stored\.most = '7 days'"),
        ({"least": DAY, "most": 60}, "no more than most=60"),
        ({"by": ""}, r"Stored\.by = ''"),
        ({"by": ("tenant", "region")}, r"Stored\.by"),
    ],
)
def test_a_slip_is_told(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        Stored(3600, **fields)


def test_kinds_are_no_default_to_store() -> None:
    kinds: Any = {"cart": 3600}
    with pytest.raises(TTLConfigurationError, match=r"Stored\.start"):
        Stored(kinds)
    with pytest.raises(TTLConfigurationError, match=r"TTL\['cart'\]"):
        TTL({"cart": Stored(3600)}, by="resource")
    with pytest.raises(TTLConfigurationError, match=r"TTL\.other"):
        TTL({"cart": 3600}, by="resource", other=Stored(3600))
    with pytest.raises(TTLConfigurationError, match="give a mapping"):
        TTL(Stored(3600), by="resource")


def test_what_rows_are_told_apart_by_is_none_of_the_fields_of_their_lives() -> None:
    for by in ("_ts", "ttl"):
        with pytest.raises(TTLConfigurationError, match=r"Stored\.by"):
            TTL(Stored(3600, by=by))


def test_values_are_kept_within_limits() -> None:
    stored = Stored(DAY, least=60, most=7 * DAY)
    assert stored.checked(timedelta(days=7), where="ttl") == 7 * DAY
    for value in (59, 7 * DAY + 1, None, -1):
        with pytest.raises(InvalidTTL, match=r"Cart\.__ttl__"):
            stored.checked(value, where="Cart.__ttl__")
    assert Stored(DAY, least=60).checked(-1, where="ttl") == -1
    assert Stored(DAY, least=60).checked(None, where="ttl") is None
    with pytest.raises(InvalidTTL, match=r"Stored\.start"):
        Stored(59, least=60)


def test_a_bare_one_is_the_default_of_a_policy() -> None:
    assert as_policy(Stored(3600)) == TTL(Stored(3600))
    policy = TTL(Stored(3600), max_lifetime=DAY, created="created_at", last_modified="seen_at")
    assert policy.stored == Stored(3600)
    assert policy.with_default(Stored(60)).stored == Stored(60)
    assert TTL(3600).stored is None


def test_no_program_can_say_what_it_is_now() -> None:
    policy = TTL(Stored(3600))
    assert not policy.is_fixed
    for ask in (lambda: policy.default, lambda: policy.settled, lambda: policy.default_of("cart")):
        with pytest.raises(TTLConfigurationError, match="it is stored in the database"):
            ask()


def test_dates_that_no_write_moves_have_none() -> None:
    seconds: Any = Stored(3600)
    with pytest.raises(TTLConfigurationError, match=r"ExpireAfter\.seconds"):
        ExpireAfter("created_at", seconds)


class Cart:
    __ttl__: Any = Stored(3600)


def test_where_a_default_is_stored_stays_as_it_is() -> None:
    default = DeclaredTTL(Cart, TTL(Stored(3600)))
    for declaration in (Stored(60), TTL(Stored(5)), Stored(DAY, most=DAY)):
        Cart.__ttl__ = declaration
        assert shape_of(default.policy) == TTL(Stored(None))
    for declaration in (60, None, TTL(60), Stored(60, by="tenant_id")):
        Cart.__ttl__ = declaration
        with pytest.raises(TTLConfigurationError, match="whether the database stores the default"):
            default.policy  # noqa: B018
    Cart.__ttl__ = Stored(3600)
    fixed = DeclaredTTL(Cart, TTL(3600))
    with pytest.raises(TTLConfigurationError, match="whether the database stores the default"):
        fixed.policy  # noqa: B018
