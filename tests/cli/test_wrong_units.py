"""`check`, `plan` and `inspect` find numbers in another unit than the policy reads."""

from __future__ import annotations

import json
import time
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import BigInteger, Column, Float, Integer, MetaData, Table, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.cli.running import CliRunner
from tests.cli.test_check import run_in_mongosh
from ttl_odm import TTL, ExpireAfter, ExpireAt
from ttl_odm.cli.commands import cli
from ttl_odm.sqlalchemy import TTLMixin, enable

if TYPE_CHECKING:
    from sqlalchemy import Engine

FACTORS = {"s": 1, "ms": 1_000, "us": 1_000_000}
HOUR = 3_600
MIXED = 20


class Base(DeclarativeBase):
    pass


class Visit(TTLMixin, Base):
    """Has the contract's own columns."""

    __tablename__ = "visits"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Lease(Base):
    __tablename__ = "leases"
    id: Mapped[int] = mapped_column(primary_key=True)
    acquired_at: Mapped[int] = mapped_column(BigInteger)
    ttl_seconds: Mapped[int] = mapped_column(BigInteger)


enable(Lease, TTL(-1, last_modified="acquired_at", override="ttl_seconds", unit="ms"))


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def called(*words: str) -> str:
    finished = CliRunner().invoke(cli, [*words])
    assert finished.exit_code in (0, 1), finished.output
    assert "Traceback" not in finished.output
    return finished.stdout


def wrong_units(*words: str) -> list[dict[str, Any]]:
    """The findings of a check about units; no others send anybody to sweep misread rows."""
    findings = json.loads(called("check", *words, "--json"))["findings"]
    wrong = [each for each in findings if each["code"] == "wrong-unit"]
    if any(each["severity"] == "error" for each in wrong):
        assert not any(each["code"] == "overdue" for each in findings)
    return wrong


def holding(engine: Engine, type_: Any, values: list[Any]) -> str:
    """Make a table of instants, and return its name."""
    table = Table("passes", MetaData(), Column("id", Integer, primary_key=True))
    table.append_column(Column("expires", type_))
    with engine.begin() as connection:
        table.create(connection)
        connection.execute(table.insert(), [{"expires": value} for value in values])
    return table.name


def instants(unit: str, rows: int = 700) -> list[int]:
    now = int(time.time())
    return [(now + 60 * number) * FACTORS[unit] for number in range(rows)]


@pytest.mark.slow
@pytest.mark.parametrize(("stored", "read"), [("ms", "s"), ("s", "ms"), ("us", "ms")])
def test_check_and_plan_find_instants_that_are_misread(
    engine: Engine, stored: str, read: str
) -> None:
    name = holding(engine, BigInteger, instants(stored))
    place = ["--url", url_of(engine)]
    policy = f'ExpireAt("expires", unit="{read}")'
    (wrong,) = wrong_units("--table", name, "--policy", policy, *place)
    assert wrong["severity"] == "error"
    assert wrong["message"].startswith("700 of 700 rows that were read hold epoch ")
    assert wrong["fix"] == f"declare unit='{stored}' in the policy"
    planned = ["plan", name, *place]
    assert f"! {wrong['message']}. Declare unit='{stored}'." in called(*planned, "--policy", policy)
    right = f'ExpireAt("expires", unit="{stored}")'
    assert wrong_units("--table", name, "--policy", right, *place) == []
    assert json.loads(called(*planned, "--policy", right, "--json"))["doubts"] == []


def test_floats_are_told_as_well(engine: Engine) -> None:
    name = holding(engine, Float(53), [value + 0.5 for value in instants("ms", 3)])
    policy = 'ExpireAfter("expires", "1h", unit="s")'
    (wrong,) = wrong_units("--table", name, "--policy", policy, "--url", url_of(engine))
    assert "hold epoch milliseconds in expires" in wrong["message"]


@pytest.mark.slow
def test_a_few_misread_instants_are_a_warning_whose_fix_converts_them(engine: Engine) -> None:
    name = holding(engine, BigInteger, [*instants("s", 600), *instants("ms", MIXED)])
    words = ["--table", name, "--policy", 'ExpireAt("expires", unit="s")', "--url", url_of(engine)]
    (wrong,) = wrong_units(*words)
    assert wrong["severity"] == "warning"
    assert wrong["message"].startswith(f"{MIXED} of 620 rows that were read hold epoch millisec")
    with engine.begin() as connection:
        assert connection.execute(text(wrong["fix"])).rowcount == MIXED
    assert wrong_units(*words) == []


def test_inspect_says_that_some_values_are_in_another_unit(engine: Engine) -> None:
    holding(engine, BigInteger, [*instants("s", 600), *instants("ms", MIXED)])
    said = called("inspect", url_of(engine))
    assert "passes: 620 rows - likely" in said
    assert f"! {MIXED} of 620 rows that were read hold epoch milliseconds in expires" in said


@pytest.mark.slow
@pytest.mark.parametrize("milliseconds", [HOUR * 1000, 90 * 24 * HOUR * 1000])
def test_rows_own_ttls_in_milliseconds_are_found(engine: Engine, milliseconds: int) -> None:
    Base.metadata.create_all(engine, [Lease.__table__])
    with engine.begin() as connection:
        rows = [{"acquired_at": at, "ttl_seconds": milliseconds} for at in instants("ms", 3)]
        connection.execute(Lease.__table__.insert(), rows)
    app = ["--app", f"{__name__}:Lease", "--url", url_of(engine)]
    (wrong,) = wrong_units(*app)
    assert "3 of 3 rows that were read seem to hold milliseconds in ttl_seconds" in wrong["message"]
    assert f"! {wrong['message'].partition(';')[0]}." in called("plan", "Lease", *app)
    inspected = called("inspect", url_of(engine), "--models", f"{__name__}:Lease")
    assert "! has a policy already" in inspected
    assert "seem to hold milliseconds in ttl_seconds" in inspected
    assert "seem to hold milliseconds in ttl_seconds" in called("inspect", url_of(engine))
    with engine.begin() as connection:
        assert connection.execute(text(wrong["fix"])).rowcount == len(rows)
        left = connection.execute(text("SELECT DISTINCT ttl_seconds FROM leases")).scalars().all()
    assert left == [milliseconds // 1000]
    assert wrong_units(*app) == []


@pytest.mark.slow
def test_the_contracts_own_columns_are_looked_at_too(engine: Engine) -> None:
    Base.metadata.create_all(engine, [Visit.__table__])
    is_dated = engine.dialect.name == "postgresql"  # `_ts` is a timestamptz there
    per_second = {"sqlite": 1_000}.get(engine.dialect.name, 1_000_000)
    with engine.begin() as connection:
        for key in range(3):
            at = "now()" if is_dated else str((int(time.time()) - key) * per_second)
            connection.execute(
                text(f"INSERT INTO visits (id, ttl, _ts) VALUES ({key}, {HOUR * 1000}, {at})")  # noqa: S608
            )
    app = ["--app", f"{__name__}:Visit", "--url", url_of(engine)]
    (wrong,) = wrong_units(*app)
    assert "seem to hold milliseconds in ttl" in wrong["message"]
    if is_dated:
        return
    with engine.begin() as connection:
        connection.execute(text(wrong["fix"]))
        connection.execute(text(f"UPDATE visits SET _ts = _ts / {per_second}"))  # noqa: S608
    (wrong,) = wrong_units(*app)
    assert "hold epoch seconds in _ts" in wrong["message"]
    with engine.begin() as connection:
        connection.execute(text(wrong["fix"]))
    assert wrong_units(*app) == []


@pytest.mark.parametrize("milliseconds", [HOUR * 1000, 90 * 24 * HOUR * 1000])
def test_documents_own_ttls_in_milliseconds_are_found(mongodb: Any, milliseconds: int) -> None:
    url, database = mongodb
    now = datetime.now(timezone.utc)
    database["events"].insert_one({"_id": 1, "_ts": now, "ttl": milliseconds})
    app = ["--app", "tests.cli.documents:MODELS", "--url", url]
    (wrong,) = wrong_units(*app)
    assert "1 of 1 rows that were read seem to hold milliseconds in ttl" in wrong["message"]
    assert f"! {wrong['message'].partition(';')[0]}." in called("plan", "Event", *app)
    inspected = called("inspect", url, "--models", "tests.cli.documents:MODELS")
    assert "seem to hold milliseconds in ttl" in inspected
    run_in_mongosh(database, wrong["fix"])
    assert database["events"].find_one()["ttl"] == milliseconds // 1000
    assert wrong_units(*app) == []


def test_documents_with_a_ttl_in_milliseconds_are_not_proposed(mongodb: Any) -> None:
    url, database = mongodb
    locks = database["locks"]
    locks.insert_one({"acquired_at": datetime.now(timezone.utc), "ttl": HOUR * 1000})
    said = called("inspect", url)
    assert "0 of 1 collections look as if" in said
    assert "seem to hold milliseconds in ttl" in said
    locks.update_many({}, {"$set": {"ttl": HOUR}})
    assert 'TTL(-1, last_modified="acquired_at")' in called("inspect", url)


def test_dates_have_no_unit(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE links (id INT PRIMARY KEY, expires_at TIMESTAMP)"))
    words = ["--table", "links", "--policy", 'ExpireAt("expires_at")', "--url", url_of(engine)]
    assert wrong_units(*words) == []


class Days(DeclarativeBase):
    pass


class Reminder(Days):
    __tablename__ = "reminders"
    id: Mapped[int] = mapped_column(primary_key=True)
    deleted_at: Mapped[datetime | None]


class Holiday(Days):
    __tablename__ = "holidays"
    id: Mapped[int] = mapped_column(primary_key=True)
    day: Mapped[date]


enable(Reminder, ExpireAfter("deleted_at", HOUR))
enable(Holiday, ExpireAt("day"))


def undated(engine: Engine) -> list[dict[str, Any]]:
    words = ("check", "--app", f"{__name__}:Days", "--url", url_of(engine), "--json")
    findings = json.loads(called(*words))["findings"]
    return [each for each in findings if each["code"] == "undated"]


@pytest.mark.slow
@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("table", "column", "wrong", "right"),
    [
        ("reminders", "deleted_at", "2020-01-01", "2020-01-01 10:00:00.000000"),
        ("holidays", "day", "2020-01-01 10:00:00", "2020-01-01"),
    ],
)
def test_a_text_that_is_not_read_as_a_date_is_told_with_the_fix(
    engine: Engine, table: str, column: str, wrong: str, right: str
) -> None:
    Days.metadata.create_all(engine)
    insert = f"INSERT INTO {table} ({column}) VALUES "  # noqa: S608 (names of ours)
    with engine.begin() as connection:
        connection.execute(text(f"{insert} ('{wrong}'), ('{wrong}'), ('{right}')"))
    kind = "date and time" if column == "deleted_at" else "date"
    told = (
        f"2 of 3 rows that were read hold values in {column} that aren't read as a {kind} "
        f"(such as '{wrong}'): these rows never expire"
    )
    (finding,) = undated(engine)
    assert (finding["severity"], finding["message"]) == ("error", told)
    policy = 'ExpireAfter("deleted_at", 3600)' if column == "deleted_at" else 'ExpireAt("day")'
    form = "YYYY-MM-DD HH:MM:SS" if column == "deleted_at" else "YYYY-MM-DD"
    planned = called("plan", table, "--policy", policy, "--url", url_of(engine))
    assert f"! {told}. Write them as {form}." in planned
    assert "no instant  2" in planned
    inspected = called("inspect", url_of(engine))
    if column == "deleted_at":
        assert f"! {told}. Write them as {form}\n" in inspected
        assert "after the year 2500" not in inspected
    _, _, statement = finding["fix"].partition("then: ")
    with engine.begin() as connection:
        connection.execute(text(statement))
    assert undated(engine) == []


@pytest.mark.slow
def test_rows_without_an_instant_to_count_from_are_a_warning_with_the_fix(engine: Engine) -> None:
    Days.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Reminder(id=1), Reminder(id=2, deleted_at=datetime(2020, 1, 1))])  # noqa: DTZ001 (a column of naive ones)
        session.commit()
    (finding,) = undated(engine)
    assert finding["severity"] == "warning"
    assert finding["message"] == (
        "rows without deleted_at, from which their lifetime is counted, so they never expire: 1"
    )
    with engine.begin() as connection:
        connection.execute(text(finding["fix"]))
    assert undated(engine) == []
