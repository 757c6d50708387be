"""What outsiders might say: strategies that the tests of this folder share.

How many examples a test tries is decided by the profile (tests/conftest.py), never by a test, so
that ``--hypothesis-profile=long`` looks further everywhere.
"""

from __future__ import annotations

from datetime import date, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st


def share(divisor: int) -> settings:
    """Fewer examples of what takes long, in proportion to the profile's number."""
    return settings(max_examples=max(10, settings.default.max_examples // divisor))


class NumpyLike:
    """An integer of another library: it counts as one wherever Python asks, and is not an int."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    __int__ = __index__

    def __eq__(self, other: object) -> bool:
        return self.value == other

    def __hash__(self) -> int:
        return hash(self.value)


class Unprintable:
    """Its repr is as bad as it can be without being an error."""

    def __repr__(self) -> str:
        return "\n\0\u202e" * 200


numbers = st.one_of(
    st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 2**31 - 1, 2**31, 2**63]),
    st.just(5_000).map(lambda digits: 10**digits),  # more than Python would print
    st.integers(),
    st.floats(),
    st.booleans(),
    st.decimals(),
    st.sampled_from([Decimal("NaN"), Decimal("sNaN"), Fraction(7, 2), 3 + 0j]),
    st.integers(-5, 5).map(NumpyLike),
)
anything: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        numbers,
        st.text(),
        st.binary(),
        st.timedeltas(),
        st.datetimes(timezones=st.sampled_from([None, timezone.utc])),
        st.dates(),
        st.sampled_from([object(), object, print, Unprintable(), ..., date.max, date.min]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ),
    max_leaves=5,
)
"""Any value of Python that somebody may hand in."""

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
"""What can stand in a command line, a file or a name of a database."""
