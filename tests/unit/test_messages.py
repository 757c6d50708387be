"""What is said of each slip, word for word: the field, the value, and what to write instead.

The other tests look for the words that matter to them. Here stands the whole of each sentence, as
a user sees it, so that no word of it is lost or comes from another field.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ttl_odm import TTL, ExpireAfter, ExpireAt, TTLError
from ttl_odm.core import as_policy, default_ttl, row_ttl
from ttl_odm.core.lifetime import interval
from ttl_odm.core.values import short_repr

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = "whole seconds from 1 to 2147483647 as an int, an integral float or a timedelta."
OFF = "None (TTL is off), -1 (on, but rows never expire by default)"
INHERIT = "None (inherit the default), -1 (never expires)"
STR = "give a field name as a string."
ZONE = "give 'UTC', 'local' or an IANA name such as 'Europe/Paris'"
NO_DATA = " (install tzdata if the system has no time zone data)"
UNITS = "give 's' or 'ms' or 'us' or 'iso' or None."
BY = "add by='field', which holds the row's kind."
SINGLE = "name one field; TTL indexes are single-field."

SLIPS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (default_ttl, (0,), {}, f"__ttl__ = 0 is not a ttl: give {OFF}, or {SECONDS}"),
    (row_ttl, ("1",), {}, f"ttl = '1' is not a ttl: give {INHERIT}, or {SECONDS}"),
    (as_policy, (0,), {}, f"__ttl__ = 0 is not a ttl: give {OFF}, or {SECONDS}"),
    (interval, (-3,), {}, "at_most_every=-3: give seconds or a timedelta greater than 0."),
    (TTL, (0,), {}, f"TTL.default = 0 is not a ttl: give {OFF}, or {SECONDS}"),
    (TTL(5).with_default, (0,), {}, f"TTL.default = 0 is not a ttl: give {OFF}, or {SECONDS}"),
    (TTL, ({"a": 1},), {}, f"TTL.default = {{'a': 1}}: {BY}"),
    (
        TTL,
        ({None: 1},),
        {"by": "kind"},
        "a kind of TTL = None: set the default of rows without a kind by other=.",
    ),
    (
        TTL,
        ({"a": 1},),
        {"by": "kind", "other": 0},
        f"TTL.other = 0 is not a ttl: give {OFF}, or {SECONDS}",
    ),
    (
        TTL({"a": lambda: 0}, by="kind").default_of,
        ("a",),
        {},
        f"TTL['a']() = 0 is not a ttl: give {OFF}, or {SECONDS}",
    ),
    (TTL, (), {"last_modified": 7}, f"TTL.last_modified = 7: {STR}"),
    (TTL, (), {"last_modified": "a,b"}, f"TTL.last_modified = 'a,b': {SINGLE}"),
    (TTL, (), {"override": "_ts"}, "TTL.override = '_ts': name another field than last_modified."),
    (TTL, (), {"never": 0}, "TTL.never = 0: give a tuple of ints, such as (0,)."),
    (TTL, (), {"never": (1, True)}, "TTL.never = (1, True): True is not a 64-bit int."),
    (TTL, (), {"values": "none"}, "TTL.values = 'none': give 'strict' or 'lenient' or None."),
    (TTL, (), {"timezone": 1}, f"TTL.timezone = 1: {ZONE}."),
    (TTL, (), {"timezone": "Paris"}, f"TTL.timezone = 'Paris': {ZONE}{NO_DATA}."),
    (TTL, (), {"unit": "h"}, f"TTL.unit = 'h': {UNITS}"),
    (
        TTL,
        (),
        {"max_lifetime": 0, "created": "at"},
        f"TTL.max_lifetime = 0: give {SECONDS}",
    ),
    (ExpireAfter, ("", 1), {}, f"ExpireAfter.field = '': {STR}"),
    (
        ExpireAfter,
        ("at", -1),
        {},
        f"ExpireAfter.seconds = -1 is not a duration: give {SECONDS}",
    ),
    (
        ExpireAfter,
        ("at", None),
        {},
        (
            "ExpireAfter.seconds = None: for rows that never expire, declare no policy at all; "
            f"otherwise give {SECONDS}"
        ),
    ),
    (
        ExpireAfter,
        ("at", 0),
        {},
        (
            'ExpireAfter.seconds = 0: 0 means "never" in some settings and "at once" in others. '
            "For rows that never expire, declare no policy at all; for rows that expire at the "
            f"date itself, declare ExpireAt('at'); otherwise give {SECONDS}"
        ),
    ),
    (ExpireAfter, ("at", 1), {"timezone": 1}, f"ExpireAfter.timezone = 1: {ZONE}."),
    (ExpireAfter, ("at", 1), {"unit": "h"}, f"ExpireAfter.unit = 'h': {UNITS}"),
    (ExpireAt, (None,), {}, f"ExpireAt.field = None: {STR}"),
    (ExpireAt, ("at",), {"null": ""}, "ExpireAt.null = '': give 'never' or 'expired'."),
    (ExpireAt, ("at",), {"timezone": 1}, f"ExpireAt.timezone = 1: {ZONE}."),
    (ExpireAt, ("at",), {"unit": "h"}, f"ExpireAt.unit = 'h': {UNITS}"),
]


@pytest.mark.parametrize(
    ("declare", "arguments", "fields", "said"), SLIPS, ids=[each[3][:40] for each in SLIPS]
)
def test_a_slip_is_told_in_full(
    declare: Callable[..., Any], arguments: tuple[Any, ...], fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(TTLError) as caught:
        declare(*arguments, **fields)
    assert str(caught.value) == said


def test_a_value_is_shown_whole_up_to_eighty_characters_and_cut_beyond() -> None:
    longest = "x" * 78
    assert short_repr(longest) == f"'{longest}'"
    assert short_repr(longest + "x") == "'" + "x" * 76 + "..."


def test_an_int_that_python_refuses_to_print_is_shown_by_its_type() -> None:
    assert short_repr(10**5000) == "<int>"


def test_a_timedelta_in_a_message_is_shown_as_python_writes_it() -> None:
    with pytest.raises(TTLError, match=r"^ttl = datetime\.timedelta\(0\) is not a ttl"):
        row_ttl(timedelta(0))
