"""A policy as somebody types it, or pastes it from where `inspect` or a model has it."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttl_odm.core import NEVER, TTL, ExpireAfter, ExpireAt
from ttl_odm.errors import InvalidTTL, TTLConfigurationError
from ttl_odm.forecast import parse_policy
from ttl_odm.inspection import as_source

if TYPE_CHECKING:
    from ttl_odm.core.policy import Policy

PREFIXES = ("__ttl__ = ", "    __ttl__ = ", "__ttl__: TTL = ", "enable(Login, ")

units = st.sampled_from(["s", "ms", "us", "iso", None])
seconds = st.integers(1, 2**31 - 1)
policies = st.one_of(
    st.builds(ExpireAt, st.just("a\"b'c"), null=st.sampled_from(["never", "expired"]), unit=units),
    st.builds(ExpireAfter, st.just("made"), seconds, timezone=st.just("local"), unit=units),
    st.builds(TTL, seconds | st.just(NEVER) | st.none(), override=st.sampled_from(["ttl", None])),
    st.builds(TTL, seconds, last_modified=st.just("at"), never=st.sampled_from([(), (0,), (0, 7)])),
    st.builds(TTL, st.dictionaries(st.text(), seconds), by=st.just("kind"), other=seconds),
    st.builds(TTL, seconds, max_lifetime=seconds, created=st.just("made")),
)


@pytest.mark.slow
@given(policies, st.sampled_from(["", *PREFIXES]))
def test_what_inspect_prints_is_read(policy: Policy, prefix: str) -> None:
    source = as_source(policy)
    ending = ")" if prefix.startswith("enable") else "  # a guess: choose the seconds"
    assert parse_policy(f"{prefix}{source}{ending}") == policy


@pytest.mark.parametrize(
    ("source", "policy"),
    [
        ("3600", TTL(3600)),
        ("None", TTL(None)),
        ("NEVER", TTL(NEVER)),
        ("timedelta(days=30)", TTL(timedelta(days=30))),
        ('ExpireAfter("at", 30 * 86400)', ExpireAfter("at", 30 * 86400)),
        ('ExpireAfter("at", seconds=2 * timedelta(hours=1))', None),
        ("TTL(-1, never=(0, -2))", TTL(-1, never=(0, -2))),
        ("90d", TTL(90 * 86400)),
        ("-1", TTL(-1)),
        ('ExpireAfter("at", "12h")', ExpireAfter("at", 12 * 3600)),
        ('ExpireAfter("at", seconds="0.5 m")', ExpireAfter("at", 30)),
        (
            'TTL("30m", max_lifetime="2w", created="at")',
            TTL(1800, max_lifetime=14 * 86400, created="at"),
        ),
        (
            'TTL({"cart": "1h"}, by="kind", other="1d")',
            TTL({"cart": 3600}, by="kind", other=86400),
        ),
    ],
)
def test_what_a_model_may_declare_is_read(source: str, policy: Policy | None) -> None:
    if policy is None:
        with pytest.raises(TTLConfigurationError, match="is not a number"):
            parse_policy(source)
    else:
        assert parse_policy(source) == policy


@pytest.mark.parametrize(
    "source",
    [
        *("", "   ", "ExpireAt(", "\0", "1; 2", "import os", "x" * 1_001, "(" * 900),
        *("os.system('x')", "__import__('os')", "[].append", "lambda: 1", "f'{1}'", "enable(1)"),
        *("ExpireAt(field)", "ExpireAt()", "ExpireAt(1)", "TTL(**{})", "TTL(*(1,))", "TTL(x=1)"),
        *("TTL(9 ** 9)", "TTL({}, by=1)", "TTL({1: 2, **{}}, by='a')", "TTL(1e999 * -1)"),
        *("TTL({(1, 2): 3}, by='a')", "timedelta(days=1e300)", "enable(1, 2, 3)"),
        *("9x", "1h 30m", "d", "-1d", "0d", "1e999", "nan", "0.1s", "99999999w"),
        *("TTL('1d', override='2d', by='30m x'", "ExpireAfter('a', '9x')", "timedelta(days='1d')"),
        *("__ttl__ = __ttl__ = 1", "__ttl__", "__ttl__: int", "-True", "-" * 950 + "1"),
        *("'x'", "1e999", "...", "b'x'", "0", "-2", "1.5"),
        *("ExpireAfter('at', 0)", "ExpireAfter('at', '0d')", "ExpireAfter('at', None)"),
        *("ExpireAfter('at', timedelta(0))", "enable(Task, ExpireAfter('at', 0.0))"),
    ],
)
def test_everything_else_is_refused_and_nothing_is_run(source: str) -> None:
    with pytest.raises((InvalidTTL, TTLConfigurationError)):
        parse_policy(source)


@given(st.text(alphabet="TExpireAtfaur(){}[]\"'=,*-+0123456789 _.:\n\\#", max_size=60))
def test_no_text_does_anything_but_be_read_or_refused(source: str) -> None:
    with suppress(InvalidTTL, TTLConfigurationError):
        parse_policy(source)
