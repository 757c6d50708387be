"""When a row expires: the truth table, the three policies, and instants at the edges."""

# ruff: noqa: DTZ001 (naive datetimes are what many of these tests are about)

from __future__ import annotations

import math
import sys
import time
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttl_odm import NEVER, TTL, ExpireAfter, ExpireAt
from ttl_odm.core import (
    EARLIEST,
    MAX_TTL,
    Policy,
    effective_ttl,
    expires_at,
    instant_of,
    is_expired,
    own_ttl,
    remaining,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

UTC = timezone.utc
PARIS = "Europe/Paris"
NOON = datetime(2024, 1, 15, 12, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

# The table of design section 1, cell by cell: (default, row ttl) -> whose seconds count.
TRUTH_TABLE = {
    ("off", "missing"): None,
    ("off", "never"): None,
    ("off", "seconds"): None,
    ("on", "missing"): None,
    ("on", "never"): None,
    ("on", "seconds"): "row",
    ("seconds", "missing"): "default",
    ("seconds", "never"): None,
    ("seconds", "seconds"): "row",
}


class Cell(NamedTuple):
    """One cell of the table with numbers in it, and the answer."""

    default: int | None
    own: int | None
    answer: int | None


@st.composite
def cells(draw: st.DrawFn) -> Cell:
    column, line = draw(st.sampled_from(sorted(TRUTH_TABLE)))
    seconds = st.one_of(st.sampled_from([1, 2, MAX_TTL]), st.integers(1, MAX_TTL))
    default, own = draw(seconds), draw(seconds)
    answers = {None: None, "default": default, "row": own}
    return Cell(
        default={"off": None, "on": -1, "seconds": default}[column],
        own={"missing": None, "never": -1, "seconds": own}[line],
        answer=answers[TRUTH_TABLE[column, line]],
    )


@given(cells())
def test_the_effective_ttl_is_the_cell_of_the_truth_table(cell: Cell) -> None:
    assert effective_ttl(cell.default, cell.own) == cell.answer


# Far enough from both ends of datetime's range for the longest ttl and any epsilon.
instants = st.datetimes(datetime(100, 1, 1), datetime(9890, 1, 1), timezones=st.just(UTC))
epsilons = st.one_of(st.sampled_from([-1, 0, 1]), st.integers(-(10**15), 10**15))


@given(cells(), instants, epsilons)
def test_a_row_is_expired_from_last_modification_plus_ttl_on_to_the_microsecond(
    cell: Cell, last_modified: datetime, epsilon: int
) -> None:
    at = expires_at(TTL(cell.default), instant=last_modified, own=cell.own)

    if cell.answer is None:
        assert at is None
        assert not is_expired(at, last_modified + timedelta(days=1))
        return
    # Whole microseconds since year 1: exact, and another arithmetic than the code's.
    deadline = microseconds(last_modified) + cell.answer * 1_000_000
    assert at is not None
    assert microseconds(at) == deadline
    now = moment(deadline + epsilon)
    assert is_expired(at, now) == (deadline + epsilon >= deadline)
    assert remaining(at, now) == max(timedelta(microseconds=-epsilon), timedelta(0))


@given(cells(), instants, st.none() | instants, st.integers(1, MAX_TTL))
def test_no_row_lives_longer_than_the_limit_after_its_creation_while_ttl_is_on(
    cell: Cell, last_modified: datetime, created: datetime | None, longest: int
) -> None:
    policy = TTL(cell.default, max_lifetime=longest, created="created_at")
    usual = expires_at(TTL(cell.default), instant=last_modified, own=cell.own)
    end = expires_at(policy, instant=last_modified, own=cell.own, created=created)

    if cell.default is None or created is None:
        assert end == usual
        return
    limit = moment(microseconds(created) + longest * 1_000_000)
    assert end == (limit if usual is None else min(usual, limit))
    touched = expires_at(policy, instant=moment(microseconds(limit) - 1), own=1, created=created)
    assert touched is not None
    assert touched <= limit


@pytest.mark.parametrize("created", [None, "yesterday", 5, [], b""])
def test_a_row_that_does_not_say_when_it_was_created_has_no_limit(created: object) -> None:
    policy = TTL(3600, max_lifetime=60, created="created_at")

    assert expires_at(policy, instant=NOON, created=created) == NOON + timedelta(hours=1)
    assert expires_at(policy, instant=NOON, own=-1, created=created) is None


def test_the_creation_is_read_as_the_last_modification_is() -> None:
    for policy, created in (
        (TTL(-1, max_lifetime=60, created="at"), [None, NOON + timedelta(days=1), NOON]),
        (TTL(-1, max_lifetime=60, created="at", timezone=PARIS), datetime(2024, 1, 15, 13)),
        (TTL(-1, max_lifetime=60, created="at", unit="s"), 1_705_320_000),
        (TTL(-1, max_lifetime=60, created="at", unit="s"), datetime(2024, 1, 15, 12)),
        (TTL(-1, max_lifetime=60, created="at", unit="iso"), "2024-01-15T12:00:00Z"),
    ):
        end = expires_at(policy, instant=None, created=created)
        assert end == NOON + timedelta(minutes=1), policy


@given(instants, st.integers(1, MAX_TTL), epsilons)
def test_expire_after_counts_from_the_field(created: datetime, seconds: int, epsilon: int) -> None:
    at = expires_at(ExpireAfter("created_at", seconds), instant=created, own=1)

    deadline = microseconds(created) + seconds * 1_000_000
    assert at is not None
    assert microseconds(at) == deadline
    assert is_expired(at, moment(deadline + epsilon)) == (epsilon >= 0)


@given(instants)
def test_expire_at_is_the_field_itself(instant: datetime) -> None:
    assert expires_at(ExpireAt("expires_at"), instant=instant, own=1) == instant


@given(st.one_of(instants, st.none()), st.integers() | st.none() | st.text() | st.floats())
def test_nothing_expires_while_ttl_is_off(instant: datetime | None, own: object) -> None:
    assert expires_at(TTL(None), instant=instant, own=own) is None


def test_a_default_may_be_a_function_that_is_asked_each_time() -> None:
    told: list[Any] = [60, -1, None, 120.0, timedelta(hours=1)]
    policy = TTL(lambda: told.pop(0))

    ends = [expires_at(policy, instant=NOON) for _ in range(5)]

    assert ends == [NOON + timedelta(seconds=s) if s else None for s in (60, 0, 0, 120, 3600)]


def test_each_kind_of_row_may_have_a_default_of_its_own() -> None:
    policy = TTL({"cart": 60, "order": None, "draft": lambda: 120, 7: -1}, by="resource", other=30)

    def life(kind: object, own: object = None) -> float | None:
        end = expires_at(policy, instant=NOON, own=own, kind=kind)
        return None if end is None else (end - NOON).total_seconds()

    assert [life(kind) for kind in ("cart", "order", "draft", 7)] == [60, None, 120, None]
    assert [life(kind) for kind in ("other", None, "7")] == [30, 30, 30]
    # TTL is off for orders, and on, but never by default, for the others.
    assert [life(kind, 5) for kind in ("cart", "order", 7, None)] == [5, None, 5, 5]


@pytest.mark.parametrize("stored", [0, -2, 1.5, MAX_TTL + 1, "20", True, None, [], {}, object()])
def test_an_invalid_stored_ttl_leaves_the_default_in_force(stored: object) -> None:
    assert own_ttl(TTL(3600), stored) is None
    at = expires_at(TTL(3600), instant=NOON, own=stored)
    assert at == NOON + timedelta(hours=1)


@pytest.mark.parametrize("values", ["strict", "lenient", None])
def test_stored_values_are_read_alike_in_either_mode(values: Any) -> None:
    policy = TTL(3600, values=values)

    assert own_ttl(policy, 20.0) == 20
    assert own_ttl(policy, 20.5) is None


@pytest.mark.parametrize("stored", [-1, -1.0, 0, 0.0, -0.0, 999_999, 999_999.0, 2**40, -7])
def test_declared_never_values_and_minus_one_mean_never(stored: float) -> None:
    policy = TTL(3600, never=(0, 999_999, 2**40, -7))

    assert own_ttl(policy, stored) == NEVER
    assert expires_at(policy, instant=NOON, own=stored) is None


@pytest.mark.parametrize("stored", [False, "0", None, [0], 0.5])
def test_a_never_value_is_a_number_and_nothing_that_equals_one(stored: object) -> None:
    assert own_ttl(TTL(3600, never=(0,)), stored) is None


def test_other_valid_values_count_beside_declared_never_values() -> None:
    assert own_ttl(TTL(3600, never=(0, 999_999)), 20) == 20


@pytest.mark.parametrize("stored", [20, -1, 0])
def test_rows_without_a_ttl_field_inherit_always(stored: int) -> None:
    policy = TTL(3600, override=None, never=(0,))

    assert own_ttl(policy, stored) is None
    assert expires_at(policy, instant=NOON, own=stored) == NOON + timedelta(hours=1)


NOT_DATES: list[object] = [
    *("2024-01-01", 1_700_000_000, 1.7e9, True, {}, {"$date": 0}, b"", object()),
    *(timedelta(1), [], ["2024-01-01"], [None], [[NOON]]),
]


@pytest.mark.parametrize("value", [None, *NOT_DATES, [NOON]], ids=repr)
def test_a_row_without_a_date_of_last_modification_never_expires(value: object) -> None:
    assert expires_at(TTL(1), instant=value) is None
    assert expires_at(TTL(1), instant=value, own=1) is None


@pytest.mark.parametrize("value", [None, *NOT_DATES], ids=repr)
def test_a_field_without_a_date_never_expires(value: object) -> None:
    assert expires_at(ExpireAfter("at", 1), instant=value) is None
    assert expires_at(ExpireAt("at"), instant=value) is None


def test_null_is_expired_where_the_policy_says_so() -> None:
    policy = ExpireAt("at", null="expired")

    assert expires_at(policy, instant=None) == EARLIEST == datetime(1, 1, 2, tzinfo=UTC)
    assert is_expired(EARLIEST, EARLIEST)
    assert is_expired(EARLIEST, NOON)
    assert remaining(EARLIEST, NOON) == timedelta(0)


@pytest.mark.parametrize("value", NOT_DATES, ids=repr)
def test_only_null_is_expired_then_and_no_other_value_without_a_date(value: object) -> None:
    assert expires_at(ExpireAt("at", null="expired"), instant=value) is None


@given(st.lists(st.one_of(instants, st.none(), st.text(), st.integers()), min_size=1))
def test_of_a_list_the_earliest_date_counts(values: list[object]) -> None:
    dates = sorted(value for value in values if isinstance(value, datetime))
    earliest = dates[0] if dates else None

    assert expires_at(ExpireAt("at"), instant=values) == earliest
    assert expires_at(ExpireAt("at"), instant=tuple(values)) == earliest
    minute = ExpireAfter("at", 60)
    assert expires_at(minute, instant=values) == expires_at(minute, instant=earliest)


def test_a_list_may_mix_naive_and_aware_dates() -> None:
    naive = datetime(2024, 1, 15, 12, 30)  # 11:30 UTC

    policy = ExpireAt("at", timezone=PARIS)
    assert expires_at(policy, instant=[NOON, naive]) == datetime(2024, 1, 15, 11, 30, tzinfo=UTC)


def each_policy(**options: Any) -> list[Policy]:
    return [
        TTL(3600, **options),
        ExpireAfter("at", 3600, **options),
        ExpireAt("at", **options),
    ]


def instant_read(policy: Policy, value: object) -> datetime | None:
    """Return what the policy takes its date field to be."""
    at = expires_at(policy, instant=value)
    if at is None or isinstance(policy, ExpireAt):
        return at
    return at - timedelta(hours=1)


@pytest.mark.parametrize("policy", each_policy(), ids=repr)
def test_a_naive_date_is_in_utc_unless_declared_otherwise(policy: Policy) -> None:
    assert instant_read(policy, NOON.replace(tzinfo=None)) == NOON


@pytest.mark.parametrize("policy", each_policy(timezone=PARIS), ids=repr)
@pytest.mark.parametrize(
    ("naive", "utc"),
    [
        (datetime(2024, 1, 15, 12), datetime(2024, 1, 15, 11, tzinfo=UTC)),
        (datetime(2024, 7, 15, 12), datetime(2024, 7, 15, 10, tzinfo=UTC)),
        # 02:30 occurs twice in the night of October 27th: the second of the two, in winter time.
        (datetime(2024, 10, 27, 1, 59), datetime(2024, 10, 26, 23, 59, tzinfo=UTC)),
        (datetime(2024, 10, 27, 2, 30), datetime(2024, 10, 27, 1, 30, tzinfo=UTC)),
        (datetime(2024, 10, 27, 2, 30, fold=1), datetime(2024, 10, 27, 1, 30, tzinfo=UTC)),
        # ... and not at all in the night of March 31st: with the offset of winter.
        (datetime(2024, 3, 31, 2, 30), datetime(2024, 3, 31, 1, 30, tzinfo=UTC)),
    ],
)
def test_a_naive_date_is_read_in_the_declared_zone(
    policy: Policy, naive: datetime, utc: datetime
) -> None:
    assert instant_read(policy, naive) == utc


@pytest.mark.parametrize("policy", each_policy(timezone=PARIS), ids=repr)
@pytest.mark.parametrize(
    ("day", "end"),
    [
        (date(2024, 1, 15), datetime(2024, 1, 15, 23, tzinfo=UTC)),
        (date(2024, 3, 31), datetime(2024, 3, 31, 22, tzinfo=UTC)),
        (date(2024, 10, 27), datetime(2024, 10, 27, 23, tzinfo=UTC)),
    ],
)
def test_a_date_lasts_until_the_midnight_that_ends_it(
    policy: Policy, day: date, end: datetime
) -> None:
    assert instant_read(policy, day) == end


def test_the_last_day_of_the_calendar_does_not_end() -> None:
    assert expires_at(ExpireAt("at"), instant=date.max) is None
    assert expires_at(ExpireAt("at", timezone="local"), instant=date.max) is None


@given(st.datetimes(datetime(1980, 1, 1), datetime(2030, 1, 1)))
def test_a_wall_time_never_means_an_instant_before_one_that_shows_it(wall: datetime) -> None:
    read = instant_of(ExpireAt("at", timezone=PARIS), wall)

    assert read is not None
    for fold in (0, 1):
        assert read >= wall.replace(tzinfo=ZoneInfo(PARIS), fold=fold).astimezone(UTC)


def test_seconds_are_elapsed_time_also_over_a_change_of_the_clocks() -> None:
    evening_before = datetime(2024, 3, 30, 12)  # 11:00 UTC; the clocks go forward that night

    at = expires_at(ExpireAfter("at", 86_400, timezone=PARIS), instant=evening_before)

    assert at == datetime(2024, 3, 31, 11, tzinfo=UTC)


@pytest.mark.parametrize("policy", each_policy(timezone=PARIS), ids=repr)
def test_an_aware_date_means_what_it_says_in_any_declared_zone(policy: Policy) -> None:
    tokyo = NOON.astimezone(timezone(timedelta(hours=9)))

    assert instant_read(policy, tokyo) == NOON
    at = expires_at(policy, instant=tokyo)
    assert at is not None
    assert at.tzinfo is UTC


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not hasattr(time, "tzset"):
        pytest.skip("this platform cannot change its time zone")
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("new_york")
@pytest.mark.parametrize("policy", each_policy(timezone="local"), ids=repr)
def test_local_is_the_zone_of_the_system(policy: Policy) -> None:
    assert instant_read(policy, datetime(2024, 1, 15, 7)) == NOON
    assert instant_read(policy, NOON) == NOON


@pytest.mark.parametrize(
    ("unit", "number"),
    [("s", 1_705_320_000), ("ms", 1_705_320_000_000), ("us", 1_705_320_000_000_000)],
)
def test_epoch_integers_are_read_in_the_declared_unit(unit: Any, number: int) -> None:
    for policy in each_policy(unit=unit):
        assert instant_read(policy, number) == NOON
        assert instant_read(policy, NOON) == NOON
        assert instant_read(policy, True) is None  # noqa: FBT003 (the value of a field)
        assert instant_read(policy, float(number)) == NOON
    earlier_first = [number + 1, number]
    assert expires_at(ExpireAt("at", unit=unit), instant=earlier_first) == NOON


@pytest.mark.parametrize(
    ("unit", "number", "microseconds"),
    [
        ("s", 1_705_320_000.000_001, 1),
        ("s", 1_705_320_000.123_457, 123_457),
        ("s", Decimal("1705320000.0000001"), 1),
        ("ms", 1_705_320_000_000.001, 1),
        ("ms", Decimal("1705320000000.5"), 500),
        ("us", 1_705_320_000_000_000.5, 1),
    ],
)
def test_fractions_of_epoch_numbers_are_read_to_the_microsecond(
    unit: Any, number: Any, microseconds: int
) -> None:
    for policy in each_policy(unit=unit):
        assert instant_read(policy, number) == NOON + timedelta(microseconds=microseconds)


@pytest.mark.parametrize(
    "number",
    [
        math.nan,
        math.inf,
        -math.inf,
        -1e300,
        1e300,
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("-Infinity"),
    ],
)
def test_what_is_no_number_never_expires(number: Any) -> None:
    for unit in ("s", "ms", "us"):
        for policy in each_policy(unit=unit):
            assert instant_read(policy, number) is None


@given(instants, st.sampled_from(["T", " "]), st.sampled_from(["Z", "+00:00", ""]))
def test_iso_strings_in_utc_are_exact(instant: datetime, separator: str, suffix: str) -> None:
    text = instant.replace(tzinfo=None).isoformat(separator) + suffix

    for policy in each_policy(unit="iso"):
        assert instant_read(policy, text) == instant
    assert expires_at(ExpireAt("at"), instant=text) is None


@pytest.mark.parametrize(
    ("text", "microsecond"),
    [
        ("2024-01-15T12:00:00.5Z", 500_000),
        ("2024-01-15T12:00:00.000001", 1),
        ("2024-01-15T12:00:00.000001001Z", 2),
        ("2024-01-15T12:00:00.000001999Z", 2),
        ("2024-01-15T12:00:00.000002000Z", 2),
    ],
)
def test_fractions_of_iso_strings_are_never_read_too_early(text: str, microsecond: int) -> None:
    read = instant_of(ExpireAt("at", unit="iso"), text)

    assert read == NOON.replace(microsecond=microsecond)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "soon",
            "2024-01-15",
            "2024-01-15T12:00Z",
            "20240115T120000Z",
            "2024-W03-1T12:00:00Z",
        ),
        *("2024-01-15T12:00:00+02:00", "2024-01-15T12:00:00 Z", "2024-01-15t12:00:00z"),
        *("2024-02-30T12:00:00Z", "2023-02-29T12:00:00Z", "2024-13-01T12:00:00Z"),
        *("2024-01-15T24:00:00Z", "2024-01-15T12:60:00Z", "2024-01-15T23:59:60Z"),
        *("0000-01-01T00:00:00Z", "2024-01-15T12:00:00.Z", "2024-01-15T12:00:00.1234567890Z"),
        *("٢٠٢٤-01-15T12:00:00Z", "2024-01-15T12:00:00Z\n", " 2024-01-15T12:00:00Z"),
        *("9999-12-31T23:59:59.9999999Z", 1_705_320_000, None, True, b"2024-01-15T12:00:00Z"),
    ],
)
def test_what_is_no_iso_string_in_utc_is_no_date(text: object) -> None:
    for policy in each_policy(unit="iso"):
        assert expires_at(policy, instant=text) is None


@given(instants)
def test_epoch_microseconds_are_exact(instant: datetime) -> None:
    number = (instant - datetime(1970, 1, 1, tzinfo=UTC)) // MICROSECOND

    assert expires_at(ExpireAt("at", unit="us"), instant=number) == instant


def test_a_deadline_past_the_year_9999_is_never() -> None:
    last = datetime.max.replace(tzinfo=UTC)

    assert expires_at(TTL(MAX_TTL), instant=last) is None
    assert expires_at(TTL(-1), instant=last, own=1) is None
    assert expires_at(ExpireAfter("at", 1), instant=last) is None
    assert expires_at(ExpireAt("at"), instant=last) == last


@pytest.mark.parametrize("zone", [PARIS, "America/New_York", "local", "UTC"])
def test_dates_at_the_ends_of_the_calendar_never_raise(zone: str) -> None:
    policy = ExpireAt("at", timezone=zone)

    first = expires_at(policy, instant=datetime.min)  # noqa: DTZ901 (naive is the point)
    assert first is not None
    assert first - EARLIEST < timedelta(days=1)
    last = expires_at(policy, instant=datetime.max)  # noqa: DTZ901
    assert last is None or datetime.max.replace(tzinfo=UTC) - last < timedelta(days=1)


def test_aware_dates_that_utc_cannot_hold_keep_their_side() -> None:
    east, west = timezone(timedelta(hours=9)), timezone(timedelta(hours=-9))

    assert expires_at(ExpireAt("at"), instant=datetime.min.replace(tzinfo=east)) == EARLIEST
    assert expires_at(ExpireAt("at"), instant=datetime.max.replace(tzinfo=west)) is None


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_epoch_integers_that_a_datetime_cannot_hold_keep_their_side(unit: Any) -> None:
    policy = ExpireAt("at", unit=unit)

    for number in (2**62, 10**400):
        assert expires_at(policy, instant=number) is None
        assert expires_at(policy, instant=-number) == EARLIEST


def test_a_naive_now_is_a_type_error_as_in_any_comparison() -> None:
    naive = NOON.replace(tzinfo=None)

    with pytest.raises(TypeError, match="naive"):
        is_expired(NOON, naive)
    with pytest.raises(TypeError, match="naive"):
        remaining(NOON, naive)


def test_a_row_that_never_expires_has_no_remaining_time() -> None:
    assert remaining(None, NOON) is None
    assert not is_expired(None, NOON)


def test_now_may_be_in_any_zone() -> None:
    tokyo = NOON.astimezone(timezone(timedelta(hours=9)))

    assert is_expired(NOON, tokyo)
    assert not is_expired(NOON, tokyo - MICROSECOND)
    assert remaining(NOON, tokyo - MICROSECOND) == MICROSECOND


def microseconds(instant: datetime) -> int:
    return (instant - EARLIEST) // MICROSECOND


def moment(since_year_one: int) -> datetime:
    return EARLIEST + MICROSECOND * since_year_one


@pytest.mark.parametrize("zone", ["UTC", "local", "Europe/Paris", "America/New_York"])
def test_an_instant_is_always_returned_in_utc(zone: str) -> None:
    read = instant_of(ExpireAt("at", timezone=zone), datetime(2024, 7, 1, 12))

    assert read is not None
    assert read.tzinfo is timezone.utc


def test_utc_needs_no_time_zone_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zoneinfo", None)  # importing it fails

    assert instant_of(ExpireAt("at", timezone="UTC"), datetime(2024, 1, 15, 12)) == NOON
