"""Whatever somebody declares is a policy or an error of ours, and no stored value is an error."""

from __future__ import annotations

import pickle
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.words import NumpyLike, anything, numbers, text
from ttl_odm import TTL, ExpireAfter, ExpireAt, InvalidTTL, TTLConfigurationError
from ttl_odm.core import Policy, as_policy, default_ttl, expires_at, lenient_ttl, row_ttl
from ttl_odm.core.lifetime import interval

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
OURS = (InvalidTTL, TTLConfigurationError)

fields = st.one_of(st.sampled_from(["_ts", "ttl", "at", "end"]), text, anything)
zones = st.one_of(st.sampled_from(["UTC", "local", "Europe/Paris"]), text, anything)
units = st.one_of(st.sampled_from([None, "s", "ms", "us", "iso"]), anything)
seconds = st.one_of(st.integers(0, 100), numbers, st.timedeltas(), anything)


def keywords(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these, each perhaps of a wrong type."""
    return st.fixed_dictionaries({}, optional=strategies)


declarations: st.SearchStrategy[tuple[Any, tuple[Any, ...], dict[str, Any]]] = st.one_of(
    st.tuples(
        st.just(TTL),
        st.tuples(st.one_of(seconds, st.dictionaries(text, seconds, max_size=2))),
        keywords(
            by=fields,
            other=seconds,
            last_modified=fields,
            override=fields,
            never=st.one_of(st.tuples(numbers), anything),
            max_lifetime=seconds,
            created=fields,
            values=st.one_of(st.sampled_from(["strict", "lenient", None]), anything),
            timezone=zones,
            unit=units,
        ),
    ),
    st.tuples(
        st.just(ExpireAfter),
        st.tuples(fields, seconds),
        keywords(timezone=zones, unit=units),
    ),
    st.tuples(
        st.just(ExpireAt),
        st.tuples(fields),
        keywords(
            null=st.one_of(st.sampled_from(["never", "expired"]), anything),
            timezone=zones,
            unit=units,
        ),
    ),
)


FIXES = ("give", "name", "add", "is not a 64-bit int", "rows without a kind")


def check_message(error: Exception) -> None:
    """It says what to do, and is not a page long, whatever the value is."""
    assert any(word in str(error) for word in FIXES)
    assert len(str(error)) < 1_000


@pytest.mark.slow
@given(declarations)
def test_a_declaration_is_a_policy_that_lasts_or_an_error_that_says_what_to_do(
    declared: tuple[Any, tuple[Any, ...], dict[str, Any]],
) -> None:
    make, arguments, given_fields = declared
    try:
        policy = make(*arguments, **given_fields)
    except OURS as error:
        check_message(error)
        return
    assert as_policy(policy) is policy
    assert policy == make(*arguments, **given_fields)
    assert hash(policy) == hash(make(*arguments, **given_fields))
    assert policy != repr(policy)


policies: st.SearchStrategy[Policy] = st.one_of(
    st.builds(
        TTL,
        st.sampled_from([None, -1, 1, 3600, 2**31 - 1]),
        override=st.sampled_from(["ttl", None]),
        never=st.sampled_from([(), (0, 7)]),
        timezone=st.sampled_from(["UTC", "local", "Europe/Paris"]),
        unit=st.sampled_from([None, "s", "ms", "us", "iso"]),
    ),
    st.builds(
        TTL,
        st.sampled_from([None, -1, 60]),
        max_lifetime=st.just(90),
        created=st.just("made"),
        unit=st.sampled_from([None, "us", "iso"]),
    ),
    st.builds(ExpireAfter, st.just("at"), st.integers(1, 2**31 - 1)),
    st.builds(ExpireAt, st.just("at"), null=st.sampled_from(["never", "expired"])),
)


@pytest.mark.slow
@given(policies, anything, anything, anything)
def test_whatever_a_row_holds_it_expires_at_an_instant_in_utc_or_never(
    policy: Policy, instant: Any, own: Any, created: Any
) -> None:
    end = expires_at(policy, instant=instant, own=own, kind=own, created=created)
    assert end is None or end.tzinfo is timezone.utc


@given(policies)
def test_a_policy_survives_being_sent_to_another_process(policy: Policy) -> None:
    assert pickle.loads(pickle.dumps(policy)) == policy  # noqa: S301 (our own bytes)


@given(anything)
def test_a_ttl_is_seconds_or_an_error_of_ours_and_read_or_ignored(value: Any) -> None:
    read = lenient_ttl(value)
    assert read is None or (type(read) is int and (read == -1 or 0 < read < 2**31))
    for rule in (default_ttl, row_ttl):
        try:
            seconds = rule(value)
        except InvalidTTL as error:
            check_message(error)
        else:
            assert seconds is None or seconds == -1 or 0 < seconds < 2**31


@given(anything)
def test_an_interval_is_positive_or_an_error_of_ours(value: Any) -> None:
    try:
        assert interval(value).total_seconds() > 0
    except TTLConfigurationError as error:
        check_message(error)


def test_no_value_is_an_integer_because_it_looks_like_one() -> None:
    assert lenient_ttl(NumpyLike(5)) is None
    with pytest.raises(InvalidTTL):
        row_ttl(NumpyLike(5))
