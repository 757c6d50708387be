"""What a sweeper can be told is checked when it is made."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_drive import FakeAsyncStore, FakeStore
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import AsyncSweeper, Hooks, Pace, Progress, Sweeper, SweepOptions
from ttl_odm.sweeper.command_line import SWEEP_OPTIONS
from ttl_odm.sweeper.fuse import Fuse
from ttl_odm.sweeper.options import (
    LEASE_DURATION,
    DailyWindow,
    lease_duration_of,
    settings_of,
)
from ttl_odm.sweeper.pace import Limits
from ttl_odm.testing import AsyncInMemoryLeases, AsyncInMemoryStore, InMemoryLeases, InMemoryStore


def test_commands_have_every_option_that_a_text_can_express() -> None:
    objects = {"pace", "on_progress", "on_purged", "on_report", "on_server"}
    assert {"dry_run", *SWEEP_OPTIONS} == SweepOptions.__annotations__.keys() - objects


def test_every_option_reaches_the_plan() -> None:
    pace = Pace(start=5, lowest=1, highest=9, target=1.0)
    settings = settings_of(
        {
            "max_rows": 1,
            "max_seconds": 2,
            "max_rows_per_second": 3.5,
            "nice": 0,
            "pace": pace,
            "batch_size": 7,
            "throttle": lambda: None,
            "statement_timeout": 4,
            "standby": "exit",
            "window": "01:00-05:00",
            "timezone": "Europe/Berlin",
            "max_fraction": 0.5,
            "max_jump": 10,
            "force": True,
            "dry_run": True,
            "on_purged": print,
            "on_server": print,
        },
        InMemoryStore(),
    )
    assert settings.limits == Limits(1, 2.0, 3.5, 0.0)
    assert settings.pace == pace.starting_at(7)
    assert settings.fuse == Fuse(0.5, 10.0)
    assert settings.hooks == Hooks.of(print)
    assert settings.window is not None
    assert str(settings.window.zone) == "Europe/Berlin"
    assert (settings.throttle, settings.statement_timeout) == (True, 4.0)
    assert (settings.force, settings.dry_run) == (True, True)
    assert not settings.waits_at_standby
    assert settings.asks_server


def test_without_options_the_store_decides() -> None:
    store = InMemoryStore()
    settings = settings_of({}, store)
    assert settings.pace is store.pace
    assert settings.limits == Limits()
    assert (settings.fuse, settings.window, settings.throttle) == (None, None, False)
    assert 0 <= settings.jitter() <= 1


def test_none_is_as_good_as_nothing() -> None:
    nothing: Any = dict.fromkeys(SweepOptions.__optional_keys__ - {"lease"}, None)
    nothing |= {"force": False, "dry_run": False, "timezone": "UTC", "lease_name": "x"}
    Sweeper(FakeStore(), **nothing)
    assert lease_duration_of({}) == LEASE_DURATION


@pytest.mark.parametrize("number", [0, -1, True, 1.5, "10"])
@pytest.mark.parametrize("name", ["max_rows", "batch_size"])
def test_numbers_of_rows_are_checked(name: str, number: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=f"^{name} = .*: give a number of rows"):
        Sweeper(FakeStore(), **{name: number})


@pytest.mark.parametrize("number", [-1, True, "10", float("nan"), float("inf"), 10**400])
@pytest.mark.parametrize(
    "name",
    [
        "max_seconds",
        "max_rows_per_second",
        "nice",
        "statement_timeout",
        "max_fraction",
        "max_jump",
        "lease_duration",
    ],
)
def test_numbers_are_checked(name: str, number: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=f"^{name} = .*: give a number"):
        Sweeper(InMemoryStore(), **{name: number})


@pytest.mark.parametrize("standby", ["", "stop", True, 5, ["exit"]])
def test_what_to_do_at_a_standby_is_one_of_two_words(standby: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"^standby = .*: give 'wait' or 'exit'"):
        Sweeper(InMemoryStore(), standby=standby)


def test_a_fraction_is_a_share() -> None:
    with pytest.raises(TTLConfigurationError, match=r"^max_fraction = 50.*from 0 to 1"):
        Sweeper(InMemoryStore(), max_fraction=50)


@pytest.mark.parametrize("name", ["lease_duration", "statement_timeout", "max_jump", "batch_size"])
def test_what_no_database_or_fuse_can_reckon_with_is_refused(name: str) -> None:
    number: Any = 10**30 if name == "batch_size" else 1e308
    with pytest.raises(TTLConfigurationError, match=f"^{name} = .* at most "):
        Sweeper(InMemoryStore(), **{name: number})


def test_a_lease_lasts_a_second_or_longer() -> None:
    assert lease_duration_of({"lease_duration": 1}) == 1
    with pytest.raises(TTLConfigurationError, match=r"^lease_duration = 0.5: give at least 1 sec"):
        Sweeper(InMemoryStore(), lease_duration=0.5)


@pytest.mark.parametrize("name", ["force", "dry_run", "replicate"])
def test_a_flag_is_no_text(name: str) -> None:
    for value in ("false", "no", 0, 1, []):
        with pytest.raises(TTLConfigurationError, match=f"^{name} = .*: give True or False"):
            Sweeper(InMemoryStore(), **{name: value})  # type: ignore[arg-type]


def test_replicas_are_left_out_only_where_the_store_can() -> None:
    class Plain(InMemoryStore):
        backend = "mongodb"

    class Replicated(InMemoryStore):
        hides_purges = True

    with pytest.raises(TTLConfigurationError, match=r"^replicate = False: mongodb can't hide"):
        Sweeper(Plain(), replicate=False)
    assert settings_of({"replicate": False}, Replicated()).replicate is False
    assert settings_of({}, Replicated()).replicate is True


@pytest.mark.parametrize("name", ["throttle", "on_progress", "on_report", "on_server"])
def test_what_cannot_be_called_is_refused(name: str) -> None:
    with pytest.raises(TTLConfigurationError, match=f"^{name} = 5: give a function"):
        Sweeper(InMemoryStore(), **{name: 5})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [None, "", 5, ["a"], "a\0b", "n" * 201])
def test_a_lease_has_a_name_that_every_database_can_hold(name: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"^lease_name = .* at most 200 characters"):
        Sweeper(InMemoryStore(), lease_name=name)


def test_a_time_zone_is_checked_without_a_window_too() -> None:
    with pytest.raises(TTLConfigurationError, match=r"^timezone = 'Europe/Nowhere'"):
        Sweeper(InMemoryStore(), timezone="Europe/Nowhere")


def test_an_unknown_option_is_named_with_the_known_ones() -> None:
    with pytest.raises(TTLConfigurationError, match=r"no option 'batchsize'; it has batch_size,"):
        Sweeper(FakeStore(), batchsize=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("pace", [5, 0, False, ""])
def test_what_is_no_pace_is_refused(pace: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=f"^pace = {pace!r}"):
        Sweeper(FakeStore(), pace=pace)


def test_a_pace_of_ones_own_chooses_its_first_batch() -> None:
    class Steady:
        start = 3
        rest = 0.0

        def next(self, _size: int, _elapsed: float) -> int:
            return 3

        def shrunk(self, size: int) -> int:
            return size

    events: list[Progress] = []
    Sweeper(FakeStore(a=10), pace=Steady(), on_progress=events.append).run_once()
    assert [each.batch_size for each in events] == [3, 3, 3, 3]
    with pytest.raises(TTLConfigurationError, match=r"^batch_size: a custom pace"):
        Sweeper(FakeStore(), pace=Steady(), batch_size=5)


@pytest.mark.parametrize(
    ("option", "needs"),
    [
        ({"window": "01:00-05:00"}, r"now\(\), which window needs"),
        ({"max_fraction": 0.5}, r"count\(\), which max_fraction and max_jump needs"),
        ({"dry_run": True}, r"count\(\), which dry_run needs"),
        ({"on_purged": print}, "hooks, which on_purged needs"),
    ],
)
def test_what_a_store_does_not_offer_cannot_be_asked_for(option: Any, needs: str) -> None:
    with pytest.raises(TTLConfigurationError, match=f"^FakeStore has no {needs}"):
        Sweeper(FakeStore(), **option)


@pytest.mark.parametrize(
    "given",
    [
        {"interval": -1},
        {"interval": 0},
        {"interval": float("nan")},
        {"interval": None},
        {"jitter": True},
        {"jitter": -0.1},
        {"jitter": 1.1},
    ],
)
def test_an_interval_is_checked(given: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"^(interval|jitter) = "):
        Sweeper(FakeStore()).run_forever(**given)


# leases


def test_a_jump_needs_a_lease_to_remember_by() -> None:
    with pytest.raises(TTLConfigurationError, match=r"^max_jump compares with the previous sweeps"):
        Sweeper(InMemoryStore(), max_jump=10, lease=False)


def test_what_keeps_no_leases_is_refused() -> None:
    with pytest.raises(TTLConfigurationError, match=r"^lease = 5"):
        Sweeper(FakeStore(), lease=5)  # type: ignore[arg-type]


def test_leases_may_be_kept_elsewhere() -> None:
    store = InMemoryStore()
    leases = InMemoryLeases(store.clock)
    Sweeper(FakeStore(), lease=leases, lease_name="here").run_once()
    assert leases.read("here").token == 1


def test_leases_of_the_wrong_kind_are_refused() -> None:
    clock = InMemoryStore().clock
    with pytest.raises(TTLConfigurationError, match="must be plain functions"):
        Sweeper(FakeStore(), lease=AsyncInMemoryLeases(clock))
    with pytest.raises(TTLConfigurationError, match="must be coroutines"):
        AsyncSweeper(FakeAsyncStore(), lease=InMemoryLeases(clock))


def test_a_sweeper_without_a_lease_cannot_be_paused() -> None:
    for call in ("pause", "resume", "status"):
        with pytest.raises(TTLConfigurationError, match="this sweeper has none"):
            getattr(Sweeper(FakeStore()), call)()


def test_a_store_may_decline_to_keep_leases() -> None:
    store = InMemoryStore()
    store.leases = None  # type: ignore[assignment]
    with pytest.raises(TTLConfigurationError, match="this sweeper has none"):
        Sweeper(store).pause()


# coroutines


async def coroutine(*_: object) -> None: ...


@pytest.mark.parametrize("name", ["throttle", "on_progress", "on_report", "on_server", "on_purged"])
def test_a_coroutine_function_needs_an_asynchronous_sweeper(name: str) -> None:
    with pytest.raises(TTLConfigurationError, match=f"^{name} is a coroutine function"):
        Sweeper(InMemoryStore(), **{name: coroutine})
    AsyncSweeper(AsyncInMemoryStore(), **{name: coroutine})


# the hours of the day


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hour", "minute", "is_open"),
    [(0, 59, False), (1, 0, True), (4, 59, True), (5, 0, False), (12, 0, False)],
)
def test_a_window_includes_its_start_and_not_its_end(
    hour: int, minute: int, *, is_open: bool
) -> None:
    assert DailyWindow.of("01:00-05:00", "UTC").is_open(utc(2024, 1, 1, hour, minute)) is is_open


@pytest.mark.parametrize(
    ("hour", "is_open"), [(21, False), (22, True), (23, True), (0, True), (3, True), (4, False)]
)
def test_a_window_may_go_over_midnight(hour: int, *, is_open: bool) -> None:
    assert DailyWindow.of("22:00-04:00", "UTC").is_open(utc(2024, 1, 1, hour)) is is_open


@pytest.mark.parametrize("text", ["20:00-24:00", "20:00-00:00", " 20:00 - 24:00 "])
def test_a_window_may_end_at_midnight(text: str) -> None:
    window = DailyWindow.of(text, "UTC")
    assert window.is_open(utc(2024, 1, 1, 23, 59))
    assert not window.is_open(utc(2024, 1, 2))


def test_a_window_is_meant_in_its_time_zone_in_summer_and_in_winter() -> None:
    window = DailyWindow.of("01:00-05:00", "Europe/Berlin")
    assert [hour for hour in range(24) if window.is_open(utc(2024, 1, 15, hour))] == [0, 1, 2, 3]
    assert [hour for hour in range(24) if window.is_open(utc(2024, 7, 15, hour))] == [0, 1, 2, 23]


def open_minutes(window: DailyWindow, day: datetime) -> int:
    return sum(window.is_open(day + timedelta(minutes=minute)) for minute in range(24 * 60))


@pytest.mark.parametrize(
    ("day", "minutes"),
    [
        (utc(2024, 3, 30, 12), 3 * 60),  # to the noon after the night in which 2 o'clock is 3
        (utc(2024, 10, 26, 12), 5 * 60),  # and in which 3 o'clock is 2 again
        (utc(2024, 6, 1, 12), 4 * 60),
    ],
)
def test_hours_that_the_clocks_skip_or_repeat_count_as_they_come(
    day: datetime, minutes: int
) -> None:
    assert open_minutes(DailyWindow.of("01:00-05:00", "Europe/Berlin"), day) == minutes


def test_a_window_within_an_hour_that_the_clocks_skip_stays_shut_that_day() -> None:
    window = DailyWindow.of("02:10-02:50", "Europe/Berlin")
    assert open_minutes(window, utc(2024, 3, 30, 12)) == 0
    assert open_minutes(window, utc(2024, 3, 31, 12)) == 40


@given(st.times(), st.times(), st.datetimes(timezones=st.just(timezone.utc)))
def test_a_window_and_the_rest_of_the_day_make_a_day(
    start: Any, end: Any, instant: datetime
) -> None:
    one, other = f"{start:%H:%M}", f"{end:%H:%M}"
    if one != other:
        inside, outside = (
            DailyWindow.of(f"{one}-{other}", "UTC"),
            DailyWindow.of(f"{other}-{one}", "UTC"),
        )
        assert inside.is_open(instant) is not outside.is_open(instant)


@pytest.mark.parametrize(
    "text", ["", "01:00", "1-5", "01:00-25:00", "01:00-05:60", "03:00-03:00", "00:00-24:00", 5]
)
def test_what_is_no_window_is_refused(text: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"^window = .*: give hours of the day"):
        DailyWindow.of(text, "UTC")


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc", None, "Europe"])
def test_what_is_no_time_zone_is_refused(name: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"^timezone = .*: give an IANA name"):
        DailyWindow.of("01:00-05:00", name)
