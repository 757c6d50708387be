"""Naive datetimes and dates in a zone whose clocks change: never early, at no hour of the year."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Date, DateTime, insert, select
from sqlalchemy.orm import Session

from tests.clocks import stop_clock
from tests.sql.adopted import new_base, table
from ttl_odm import TTL, ExpireAt
from ttl_odm.core.expiry import instant_of
from ttl_odm.sqlalchemy import expires_at
from ttl_odm.sqlalchemy.time.zones import offsets_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

UTC = timezone.utc
HOUR = timedelta(hours=1)
ZONES = ("Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "local")


@pytest.fixture
def in_havana(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the system's clocks change at midnight, as in Cuba."""
    monkeypatch.setenv("TZ", "America/Havana")
    time.tzset()
    offsets_of.cache_clear()
    yield
    monkeypatch.undo()
    time.tzset()
    offsets_of.cache_clear()


def changes(zone: str) -> list[datetime]:
    """The instants of this year's and the next changes."""
    year = datetime.now(UTC).year
    every = (datetime.fromtimestamp(instant, UTC) for instant, _ in offsets_of(zone).changes)
    return [each for each in every if year <= each.year <= year + 1]


def walls(zone: str) -> list[datetime]:
    """Wall times around the changes, also such as occur twice, or never."""
    info = ZoneInfo("America/Havana" if zone == "local" else zone)
    return [
        change.astimezone(info).replace(tzinfo=None) + timedelta(minutes=minutes)
        for change in changes(zone)
        for minutes in range(-150, 151, 30)
    ]


@pytest.mark.usefixtures("in_havana")
@pytest.mark.parametrize("zone", ZONES)
def test_wall_times_around_a_change_mean_the_same_in_python_and_in_the_database(
    engine: Engine, zone: str
) -> None:
    base = new_base()
    policy = ExpireAt("at", timezone=zone)
    model = table("walls", policy, base, DateTime())
    days = table("days", policy, base, Date())
    base.metadata.create_all(engine)
    values = {str(n): wall for n, wall in enumerate(walls(zone))}
    assert len(values) > 20
    ends = {key: instant_of(policy, wall) for key, wall in values.items()}
    dates = {str(each): each for each in {wall.date() for wall in values.values()}}
    ends_of_days = {key: instant_of(policy, day) for key, day in dates.items()}
    with Session(engine) as session:
        for each, rows in ((model, values), (days, dates)):
            session.execute(
                insert(each.__table__),
                [{"id": key, "at": value, "views": 0} for key, value in rows.items()],
            )
            told = select(each.id, expires_at(each)).execution_options(include_expired=True)
            assert dict(session.execute(told).all()) == (ends if each is model else ends_of_days)
        for now in [
            change + timedelta(minutes=m) for change in changes(zone) for m in (-30, 0, 30, 59)
        ]:
            stop_clock(session.connection(), now)
            alive = {key for key, end in ends.items() if end is None or end > now}
            assert set(session.scalars(select(model.id))) == alive, now
            alive = {key for key, end in ends_of_days.items() if end is None or end > now}
            assert set(session.scalars(select(days.id))) == alive, now


@pytest.mark.usefixtures("in_havana")
@pytest.mark.parametrize("zone", ["Europe/Paris", "local"])
def test_a_stamp_in_the_hour_that_occurs_twice_is_never_early(engine: Engine, zone: str) -> None:
    base = new_base()
    ttl = TTL(60, last_modified="at", override=None, timezone=zone)
    model = table("stamped", ttl, base, DateTime())
    days = table("days", ttl, base, Date())
    base.metadata.create_all(engine)
    with Session(engine) as session:
        for change in changes(zone):
            for minutes in (-90, -61, -60, -30, -1, 0, 1, 30, 59, 60, 90):
                now = change + timedelta(minutes=minutes)
                stop_clock(session.connection(), now)
                key = now.isoformat()
                session.add_all([model(id=key), days(id=key)])
                session.flush()
                at = instant_of(ttl, session.get_one(model, key).at)
                assert at is not None
                is_first_of_two = now < change and at - now == HOUR
                assert at == now or is_first_of_two, now
                assert session.get_one(days, key).at == shown(now, zone).date()


def shown(instant: datetime, zone: str) -> datetime:
    return instant.astimezone(ZoneInfo("America/Havana" if zone == "local" else zone))


@pytest.mark.usefixtures("in_havana")
@pytest.mark.parametrize("zone", ZONES)
def test_offsets_are_those_of_the_systems_tables(zone: str) -> None:
    offsets = offsets_of(zone)
    info: Any = ZoneInfo("America/Havana" if zone == "local" else zone)
    year = datetime.now(UTC).year
    for hours in range(0, 365 * 24 * 2, 7):
        at = datetime(year - 1, 1, 1, tzinfo=UTC) + hours * HOUR
        told = next(offset for begin, offset in offsets.changes if at.timestamp() >= begin)
        assert timedelta(seconds=told) == info.utcoffset(at.astimezone(info))


@pytest.mark.slow
@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)))  # noqa: DTZ001
def test_beyond_the_known_years_a_wall_time_is_read_late_and_never_early(wall: datetime) -> None:
    offsets = offsets_of("Europe/Paris")
    seconds = (wall - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001
    told = next(
        (offset for begin, offset in offsets.by_wall_time() if seconds >= begin), offsets.least
    )
    read = instant_of(ExpireAt("at", timezone="Europe/Paris"), wall)
    assert read is not None
    late = wall.replace(tzinfo=UTC) - timedelta(seconds=told) - read
    first = datetime.now(UTC).year - 10
    if first < wall.year < first + 20:
        assert late == timedelta(0)
    elif wall.year >= 1977:
        assert timedelta(0) <= late <= HOUR


def test_a_zone_with_one_offset_costs_no_case(engine: Engine) -> None:
    base = new_base()
    model = table("rows", ExpireAt("at", timezone="Asia/Kolkata"), base, DateTime())
    sql = str(select(model).compile(engine))
    assert "19800" in sql
    assert "CASE WHEN t_rows.at >=" not in sql
