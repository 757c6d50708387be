"""Which values are a ttl, what becomes of others, and how fine time is kept."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.case import (
    AZURE,
    COSMOS,
    COSMOS_MONGO,
    OURS,
    Rule,
    case,
    named,
    on_servers,
    sql,
)
from tests.contract.cases_lifetimes import sees
from tests.contract.subject import HOUR, SECOND
from ttl_odm import TTL, InvalidTTL
from ttl_odm.core import MAX_TTL

if TYPE_CHECKING:
    from tests.contract.subject import DocumentSubject, Subject, TableSubject

DEFAULT = Rule(
    "Values of the default",
    "`None`, `-1`, or 1 to 2147483647 seconds as `int`, integral `float` or `timedelta`. Anything "
    "else raises `InvalidTTL` when the model is declared.",
)
STRICT = Rule(
    "Values of a row's own ttl, checked",
    "The same values; others raise `InvalidTTL` and nothing is stored. This is what the contract's "
    'own column does on SQL, and what `TTL(..., values="strict")` does on MongoDB. One difference: '
    "an explicit null, which Azure's tests see refused, is taken, and means to inherit the "
    "default.",
)
LENIENT = Rule(
    "Values of a row's own ttl, stored as given",
    "Int32, int64 that fits int32, and a double without decimals that fits int32 count; any other "
    "value is stored as given and has no effect: the default applies. This is what MongoDB's "
    "collections do by default, and columns of an application's own on SQL.",
)
PRECISION = Rule(
    "Precision",
    "Microseconds on PostgreSQL, MariaDB and MySQL, milliseconds on SQLite and MongoDB. No instant "
    "is rounded away.",
)

INTEGER = sql("a column of integers holds none; what SQLite takes into one is a case of its own")
TYPED = "a column of integers holds no such value"
NUMBER = "bytes that a driver writes as `X'78'` are a number there, 120"
UNCHECKED = {"Beanie": "no CHECK; another program's value has no effect, see below"}
FLAT = sql("a column has one name, and no fields inside")

NUMBERS: dict[str, tuple[Any, int | None]] = {
    "None": (None, None),
    "-1": (-1, -1),
    "1": (1, 1),
    "3600": (3600, 3600),
    "2147483647": (MAX_TTL, MAX_TTL),
}
OTHERS: dict[str, tuple[Any, int | None]] = {
    "3600.0": (3600.0, 3600),
    "timedelta(hours=1)": (timedelta(hours=1), 3600),
}
INVALID: dict[str, Any] = {
    "-2": -2,
    "1.5": 1.5,
    '"3600"': "3600",
    "True": True,
    "NaN": math.nan,
    "infinity": math.inf,
    "timedelta(seconds=1.5)": timedelta(seconds=1.5),
    "timedelta(0)": timedelta(0),
    # A duration that has gone wrong, and no wish for "never".
    "timedelta(seconds=-1)": timedelta(seconds=-1),
}
TOO_LONG = named({"2147483648": MAX_TTL + 1})


@case(DEFAULT, OURS, of=named(OTHERS))
@case(DEFAULT, COSMOS, of=named(NUMBERS))
def a_default_is_taken(s: Subject, pair: tuple[Any, int | None]) -> None:
    value, seconds = pair
    s.declare(value)
    s.set_policy("carts", value)
    s.put("carts", 1, age=0)
    with s.loaded("carts", 1) as row:
        stored = s.stored("carts", 1)
        assert stored is not None
        if seconds in (None, -1):
            assert row.expires_at is None
        else:
            assert row.expires_at == stored["at"] + timedelta(seconds=seconds or 0)


@case(DEFAULT, OURS, of=named({"0": 0, **INVALID}))
@case(DEFAULT, AZURE, of=named({"-10": -10}))
@case(DEFAULT, COSMOS, of=TOO_LONG)
def a_default_is_refused(s: Subject, value: Any) -> None:
    with pytest.raises(InvalidTTL):
        s.declare(value)
    with pytest.raises(InvalidTTL):
        TTL(value)


@case(DEFAULT, OURS)
def a_default_that_becomes_invalid_fails_the_assignment_or_the_statement(s: Subject) -> None:
    s.put("carts", 1, age=60)

    def change() -> None:
        s.set_policy("carts", 0)
        sees(s, "carts", 1)

    with pytest.raises(InvalidTTL, match=r"\.__ttl__ = 0 is not a ttl"):
        change()


@case(STRICT, OURS, of=named(OTHERS))
@case(STRICT, COSMOS, of=named({code: pair for code, pair in NUMBERS.items() if code != "None"}))
@case(STRICT, OURS, of=named({"None": NUMBERS["None"]}))
def an_own_ttl_is_taken(s: Subject, pair: tuple[Any, int | None]) -> None:
    value, seconds = pair
    for way, give in s.ways_to_set_ttl(s.checked).items():
        s.clear()
        s.put(s.checked, 1, age=0, ttl=77)
        give(1, value)
        stored = s.stored(s.checked, 1)
        assert stored is not None
        assert stored["ttl"] == seconds, way


@case(STRICT, OURS, of=named(INVALID))
@case(STRICT, COSMOS, of=TOO_LONG)
@case(STRICT, AZURE, of=named({"0": 0, "-10": -10}))
def an_own_ttl_is_refused_and_nothing_is_stored(s: Subject, value: Any) -> None:
    s.put(s.checked, 1, age=0, ttl=77)
    for way, give in s.ways_to_set_ttl(s.checked).items():
        with pytest.raises(InvalidTTL):
            give(1, value)
        if not s.keys(s.checked):  # a way that made room for a row of its own
            s.put(s.checked, 1, age=0, ttl=77)
        stored = s.stored(s.checked, 1)
        assert stored is not None
        assert stored["ttl"] == 77, way


@case(
    STRICT,
    OURS,
    of=named({**{str(n): n for n in (0, -2, -5, MAX_TTL + 1)}, '"x"': "x", '""': ""}),
    not_on=UNCHECKED,
)
def raw_sql_is_kept_from_storing_it_by_a_check(s: TableSubject, value: object) -> None:
    with pytest.raises(s.refused):
        s.put_raw_ttl(s.checked, 1, value)
    assert s.keys(s.checked) == set()


@case(STRICT, OURS, not_on=UNCHECKED | on_servers(NUMBER, "MySQL"))
def raw_sql_is_kept_from_storing_bytes_by_a_check(s: TableSubject) -> None:
    with pytest.raises(s.refused):
        s.put_raw_ttl(s.checked, 1, b"x")
    assert s.keys(s.checked) == set()


def counts(s: Subject, value: Any, seconds: int) -> None:
    """Hold a stored own ttl against the seconds that it should mean."""
    container = s.unchecked
    s.put(container, 1, age=seconds // 2, ttl=value)
    s.put(container, 2, age=seconds + 10, ttl=value)
    sees(s, container, 1)
    assert s.sweep(container) == 1
    assert s.keys(container) == {1}


@case(LENIENT, COSMOS_MONGO)
def an_int32_counts(s: Subject) -> None:
    counts(s, 1200, 1200)


@case(LENIENT, COSMOS_MONGO)
def an_int64_that_fits_int32_counts(s: Subject) -> None:
    counts(s, _int64(1200), 1200)


@case(LENIENT, COSMOS_MONGO, not_on=INTEGER)
def a_double_without_decimals_counts(s: Subject) -> None:
    counts(s, 1200.0, 1200)


@case(LENIENT, COSMOS)
def minus_1_means_never(s: Subject) -> None:
    s.put(s.unchecked, 1, age=10 * HOUR, ttl=-1)
    sees(s, s.unchecked, 1)


def _int64(value: int) -> Any:
    from bson import Int64

    return Int64(value)


def means_nothing(s: Subject, value: Any) -> None:
    """Hold a stored own ttl against the default, which should apply."""
    container = s.unchecked
    s.put(container, 1, age=HOUR // 2, ttl=value)
    s.put(container, 2, age=HOUR + 10, ttl=value)
    s.put(container, 3, age=60, ttl=value)
    sees(s, container, 1, 3)
    stored = s.stored(container, 1)
    assert stored is not None
    assert stored["ttl"] == value or value != value  # noqa: PLR0124 (NaN)
    assert type(stored["ttl"]) is type(value) or isinstance(stored["ttl"], int)
    assert s.sweep(container) == 1
    assert s.keys(container) == {1, 3}


@case(LENIENT, COSMOS_MONGO, of=named({"null": None}))
@case(LENIENT, OURS, of=named({"0": 0, "-5": -5}))
def a_value_has_no_effect(s: Subject, value: Any) -> None:
    means_nothing(s, value)


@case(LENIENT, COSMOS_MONGO, of=named({"2147483649": 2147483649}))
def a_value_beyond_int32_has_no_effect(s: Subject, value: int) -> None:
    means_nothing(s, _int64(value))


def _odd() -> dict[str, Any]:
    from bson import Decimal128

    return {
        "20.5": 20.5,
        '"20"': "20",
        "True": True,
        "NaN": math.nan,
        "Decimal128": Decimal128("20"),
        "[]": [],
        "[20]": [20],
        "{}": {},
        "2147483648.0": 2147483648.0,
    }


@case(LENIENT, COSMOS_MONGO, of=named(_odd()), not_on=INTEGER)
def a_value_of_another_kind_has_no_effect(s: Subject, value: Any) -> None:
    means_nothing(s, value)


@case(
    LENIENT,
    OURS,
    of=named({"20.5": 20.5, '"x"': "x", 'b"x"': b"x", "1e300": 1e300}),
    not_on={
        "Beanie": "a field of a document has no type: above",
        **on_servers(TYPED, "PostgreSQL", "MariaDB", "MySQL"),
    },
)
def what_sqlite_takes_into_a_column_of_integers_has_no_effect(s: Subject, value: Any) -> None:
    means_nothing(s, value)


@case(LENIENT, COSMOS_MONGO, of=named(_odd()), not_on=INTEGER)
def the_gate_stores_as_given(s: Subject, value: Any) -> None:
    s.insert(s.unchecked, 1, ttl=value)
    stored = s.stored(s.unchecked, 1)
    assert stored is not None
    assert type(stored["ttl"]) is type(value)
    assert stored["ttl"] == value or value != value  # noqa: PLR0124 (NaN)
    assert s.age_of(s.unchecked, 1) < 60 * SECOND
    sees(s, s.unchecked, 1)


@case(
    LENIENT,
    COSMOS_MONGO,
    of=named({"meta.ttl": {"meta": {"ttl": 20}}, "TTL": {"TTL": 20}}),
    not_on=FLAT,
)
def only_a_lower_case_ttl_at_the_root_counts(s: DocumentSubject, fields: dict[str, Any]) -> None:
    s.put_document("carts", {"_id": 1, "name": "n1", "_ts": s.now() - 100 * SECOND, **fields})
    sees(s, "carts", 1)
    s.age("carts", 1, HOUR + 10)
    sees(s, "carts")


@case(PRECISION, OURS)
def a_stamp_has_fractions_of_a_second(s: Subject) -> None:
    coarser = SECOND if s.tick == timedelta(milliseconds=1) else timedelta(milliseconds=1)
    for key in range(1_000):  # now and then a stamp is a whole second, or millisecond
        s.insert("carts", key)
        stored = s.stored("carts", key)
        assert stored is not None
        if (stored["at"] - s.now().replace(microsecond=0)) % coarser:
            return
    raise AssertionError("no stamp has a fraction")


@case(PRECISION, OURS)
def the_end_of_a_row_has_the_fraction_of_its_stamp(s: Subject) -> None:
    now = s.now().replace(microsecond=0)
    s.put_at("carts", 1, now + s.tick)
    with s.loaded("carts", 1) as row:
        assert row.expires_at == now + s.tick + HOUR * SECOND


@case(PRECISION, OURS)
def expire_at_is_exact(s: Subject) -> None:
    instant = s.now().replace(microsecond=0) + 90 * SECOND + s.tick
    s.put("carts", 1, age=60)
    with s.loaded("carts", 1) as row:
        row.help("expire_at", instant)
    stored = s.stored("carts", 1)
    assert stored is not None
    assert stored["at"] + stored["ttl"] * SECOND == instant


@case(PRECISION, OURS)
def expire_at_the_last_instant_that_a_ttl_reaches_is_exact(s: Subject) -> None:
    instant = s.now().replace(microsecond=0) + (MAX_TTL - 3600) * SECOND + s.tick
    s.put("carts", 1, age=60)
    with s.loaded("carts", 1) as row:
        row.help("expire_at", instant)
    with s.loaded("carts", 1) as row:
        assert row.expires_at == instant
    stored = s.stored("carts", 1)
    assert stored is not None
    assert stored["at"] + stored["ttl"] * SECOND == instant


@case(STRICT, OURS, of=named({f"{year}-12-31": year for year in (2099, 9999)}))
def expire_at_an_instant_that_no_ttl_reaches_is_refused(s: Subject, year: int) -> None:
    s.put("carts", 1, age=60, ttl=600)
    with s.loaded("carts", 1) as row, pytest.raises(InvalidTTL, match=r"\.ttl: expire_at\("):
        row.help("expire_at", datetime(year, 12, 31, 23, 59, tzinfo=timezone(-HOUR * SECOND)))
    stored = s.stored("carts", 1)
    assert stored is not None
    assert stored["ttl"] == 600
    assert s.age_of("carts", 1) > 59 * SECOND


@case(PRECISION, OURS)
def expire_at_an_instant_long_ago_expires_now(s: Subject) -> None:
    s.put("carts", 1, age=60)
    with s.loaded("carts", 1) as row:
        row.help("expire_at", datetime.min.replace(tzinfo=timezone(HOUR * SECOND)))
    sees(s, "carts")
    assert s.sweep("carts") == 1


@case(PRECISION, OURS, of=[0, -5, ("`timedelta(0)`", timedelta(0))])
def expire_in_never_writes_0_and_expires_now(s: Subject, life: Any) -> None:
    s.put("carts", 1, age=60)
    with s.loaded("carts", 1) as row:
        row.help("expire_in", life)
    stored = s.stored("carts", 1)
    assert stored is not None
    assert stored["ttl"] is None or stored["ttl"] > 0
    sees(s, "carts")
