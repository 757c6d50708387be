"""Policies over columns that exist: every kind, at the exact instant, on every database."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Integer, delete, func, insert, select, text, update
from sqlalchemy.orm import Session, mapped_column

from tests.clocks import stop_clock
from tests.sql.adopted import DAY, KINDS, Kind, kinds_of, new_base, table
from ttl_odm import TTL, ExpireAfter, ExpireAt
from ttl_odm.core import EARLIEST
from ttl_odm.core.expiry import expires_at as core_expires_at
from ttl_odm.sqlalchemy import expired, expires_at, live

if TYPE_CHECKING:
    from sqlalchemy import Engine

NOW = datetime(2026, 6, 15, 22, 0, tzinfo=timezone.utc)  # midnight in Paris
LIFE = 10 * 86_400


def read(start: datetime, kind: Kind) -> datetime:
    """What the database takes for the instant of a value: the day of an instant ends later."""
    if kind.length == DAY:
        # The value is the day in the zone; both ends of NOW's days are known by hand.
        return core_expires_at(ExpireAt("at", **kind.options), instant=kind.value(start)) or start
    return start


def check(session: Session, model: Any, kind: Kind, seconds: int, name: str) -> None:
    """See that exactly the rows are live whose instants, and so many seconds, are ahead."""
    starts = {
        str(step): NOW - timedelta(seconds=seconds) + step * kind.tick for step in (-2, -1, 0, 1, 2)
    }
    session.add_all([model(id=key, at=kind.value(start)) for key, start in starts.items()])
    session.add(model(id="null", at=None))
    session.flush()
    ends = {key: read(start, kind) + timedelta(seconds=seconds) for key, start in starts.items()}
    alive = {key for key, end in ends.items() if end > NOW}
    assert 0 < len(alive) < len(ends), name
    if model.__ttl__ != ExpireAt("at", null="expired", **kind.options):
        alive |= {"null"}
    session.expunge_all()

    every = select(model.id).execution_options(include_expired=True)
    assert set(session.scalars(select(model.id))) == alive, name
    assert session.scalar(select(func.count()).select_from(model)) == len(alive), name
    for key in ("-2", "2", "null"):
        assert (session.get(model, key) is not None) == (key in alive), (name, key)
    assert len(session.scalars(every).all()) == len(starts) + 1, name
    assert set(session.scalars(every.where(expired(model)))) == {*starts, "null"} - alive, name
    assert set(session.scalars(every.where(live(model)))) == alive, name
    told = dict(
        session.execute(
            select(model.id, expires_at(model)), execution_options={"include_expired": True}
        ).all()
    )
    null = told.pop("null")
    assert told == ends, name
    assert null == (None if "null" in alive else EARLIEST), name
    session.expunge_all()
    rows = session.scalars(select(model), execution_options={"include_expired": True}).all()
    assert {row.id: row.expires_at for row in rows} == {**ends, "null": null}, name
    changed: Any = session.execute(
        update(model).values(views=1), execution_options={"keep_last_modified": True}
    )
    assert changed.rowcount == len(alive), name
    gone: Any = session.execute(delete(model))
    assert gone.rowcount == len(alive), name
    assert set(session.scalars(every)) == {*starts, "null"} - alive, name


POLICIES = {
    "at": (lambda options: ExpireAt("at", **options), 0),
    "null": (lambda options: ExpireAt("at", null="expired", **options), 0),
    "after": (lambda options: ExpireAfter("at", LIFE, **options), LIFE),
    "ttl": (lambda options: TTL(LIFE, last_modified="at", override=None, **options), LIFE),
}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["at", "null", "after"])
def test_every_kind_of_column_tells_the_exact_instant(engine: Engine, policy: str) -> None:
    make, seconds = POLICIES[policy]
    base = new_base()
    kinds = kinds_of(engine.dialect.name)
    models = {
        name: table(name, make(kind.options), base, kind.type) for name, kind in kinds.items()
    }
    base.metadata.create_all(engine)
    with Session(engine) as session:
        if engine.dialect.name == "mysql":  # what a TIMESTAMP shows hangs on it
            session.execute(text("SET time_zone = '+00:00'"))
        stop_clock(session.connection(), NOW)
        for name, model in models.items():
            check(session, model, kinds[name], seconds, name)


@pytest.mark.slow
def test_no_time_zone_of_the_session_moves_an_instant(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        return  # has no such thing
    kinds = kinds_of(engine.dialect.name)
    base = new_base()
    models = {
        name: table(name, ExpireAt("at", **kind.options), base, kind.type)
        for name, kind in kinds.items()
    }
    base.metadata.create_all(engine)
    zone = {"mysql": "SET time_zone = '{}'", "postgresql": "SET LOCAL timezone = '{}'"}
    with Session(engine) as session:
        utc = "+00:00" if engine.dialect.name == "mysql" else "UTC"
        session.execute(text(zone[engine.dialect.name].format(utc)))
        for name, kind in kinds.items():
            for step in (-1, 0, 1):
                row = {"id": str(step), "at": kind.value(NOW + step * kind.tick)}
                session.execute(insert(models[name]), [row])
        stop_clock(session.connection(), NOW)
        before = {name: set(session.scalars(select(model.id))) for name, model in models.items()}
        for other in ("+05:00", "-11:00"):
            session.execute(text(zone[engine.dialect.name].format(other)))
            for name, model in models.items():
                assert set(session.scalars(select(model.id))) == before[name], (name, other)
        assert before["seconds"] == {"1"}


@pytest.mark.slow
def test_an_own_ttl_counts_from_a_column_of_any_kind(engine: Engine) -> None:
    kinds = kinds_of(engine.dialect.name)
    base = new_base()
    models = {
        name: table(
            name,
            TTL(LIFE, last_modified="at", override="life", never=(0, 999), **kind.options),
            base,
            kind.type,
            life=mapped_column(Integer, nullable=True),
        )
        for name, kind in kinds.items()
    }
    base.metadata.create_all(engine)
    owns = {None: LIFE, 86_400: 86_400, -1: None, 0: None, 999: None, -7: LIFE}
    with Session(engine) as session:
        if engine.dialect.name == "mysql":
            session.execute(text("SET time_zone = '+00:00'"))
        stop_clock(session.connection(), NOW)
        for name, model in models.items():
            kind, alive, rows = kinds[name], set(), []
            for own, seconds in owns.items():
                for step in (-2, -1, 0, 1):
                    start = NOW - timedelta(seconds=seconds or LIFE) + step * kind.tick
                    key = f"{own}/{step}"
                    rows.append({"id": key, "at": kind.value(start), "life": own, "views": 0})
                    end = read(start, kind) + timedelta(seconds=seconds or 0)
                    if seconds is None or end > NOW:
                        alive.add(key)
            session.execute(
                insert(model.__table__), rows, execution_options={"keep_last_modified": True}
            )
            assert set(session.scalars(select(model.id))) == alive, name
            dead = select(model.id).where(expired(model)).execution_options(include_expired=True)
            assert len(session.scalars(dead).all()) == len(owns) * 4 - len(alive), name


@pytest.mark.slow
def test_an_own_ttl_too_long_for_any_calendar_is_no_ttl(engine: Engine) -> None:
    from sqlalchemy import BigInteger

    kinds = kinds_of(engine.dialect.name)
    base = new_base()
    models = {
        name: table(
            name,
            TTL(60, last_modified="at", override="life", **kind.options),
            base,
            kind.type,
            life=mapped_column(BigInteger, nullable=True),
        )
        for name, kind in kinds.items()
    }
    base.metadata.create_all(engine)
    with Session(engine) as session:
        for name, model in models.items():
            value = kinds[name].value(datetime.now(timezone.utc) - 3 * DAY)
            rows = [
                {"id": str(own), "at": value, "life": own, "views": 0}
                for own in (2**31 - 1, 2**31, 2**62, -(2**62))
            ]
            session.execute(
                insert(model.__table__), rows, execution_options={"keep_last_modified": True}
            )
            assert session.scalars(select(model.id)).all() == [str(2**31 - 1)], name
            session.execute(
                select(expires_at(model)), execution_options={"include_expired": True}
            ).all()


NO_DATES = {
    "iso": [
        *("", " ", "soon", "12/31/2001", "2001-01-01", "2001-01-01T00:00:00+02:00"),
        *("2001-02-29T00:00:00Z", "2001-04-31 00:00:00", "2001-13-01T00:00:00Z"),
        *("2001-01-01T24:00:00Z", "2001-01-01T00:00:60Z", "2001-01-01t00:00:00z"),
        *("0000-01-01T00:00:00Z", "2001-01-01T00:00:00.Z", "2001-01-01T00:00:00.0123456789"),
        *("2001-01-01T00:00:00Z ", "2001-01-01T00:00:00Z\n", "2001-01-01T00:00:00ZZ", "٢"),
    ],
}
DATES = [
    *("2001-01-01T00:00:00Z", "2001-01-01 00:00:00", "2001-01-01T00:00:00.123456789Z"),
    *("2000-02-29T23:59:59.5+00:00", "0001-01-01T00:00:00Z"),
]


@pytest.mark.slow
@pytest.mark.every_driver
def test_strings_that_are_no_instants_never_expire(engine: Engine) -> None:
    base = new_base()
    policy = ExpireAt("at", unit="iso")
    model = table("iso", policy, base, KINDS["iso"].type)
    base.metadata.create_all(engine)
    values = [*NO_DATES["iso"], *DATES]
    with Session(engine) as session:
        rows = [{"id": str(n), "at": value} for n, value in enumerate(values)]
        session.execute(insert(model.__table__), rows)
        alive = {row["id"] for row in rows if core_expires_at(policy, instant=row["at"]) is None}
        assert alive == {str(n) for n in range(len(NO_DATES["iso"]))}
        assert set(session.scalars(select(model.id))) == alive
        told = session.execute(
            select(model.id, expires_at(model)), execution_options={"include_expired": True}
        ).all()
        assert {key for key, end in told if end is None} == alive


def test_sqlites_texts_are_read_however_they_were_written(engine: Engine) -> None:
    if engine.dialect.name != "sqlite":
        return
    base = new_base()
    moments = table("moments", ExpireAt("at"), base, KINDS["naive"].type)
    days = table("days", ExpireAt("at"), base, KINDS["day"].type)
    base.metadata.create_all(engine)
    texts = {
        # As SQLAlchemy, CURRENT_TIMESTAMP, Python's isoformat() and others write it.
        "2026-06-15 22:00:00.000000": False,
        "2026-06-15 22:00:00": False,
        "2026-06-15T22:00:00": False,
        "2026-06-15 22:00:00.000": False,
        "2026-06-15T21:59:59.999999+00:00": False,
        "2026-06-15 22:00:00.001000": True,
        "2026-06-15T22:00:00.001": True,
        "2026-06-15 22:00:01": True,
        # No dates.
        "": True,
        "soon": True,
        "0000-00-00 00:00:00": True,
        "2026-02-30 00:00:00": True,
        "1": True,
        "1780000000": True,
    }
    dates = {
        "2026-06-14": False,
        "2026-06-15": True,
        "2026-02-30": True,
        "": True,
        "0000-00-00": True,
        "20260101": True,
    }
    with Session(engine) as session:
        stop_clock(session.connection(), NOW)
        for model, values in ((moments, texts), (days, dates)):
            session.execute(
                text(f"INSERT INTO {model.__tablename__} (id, at, views) VALUES (:v, :v, 0)"),  # noqa: S608
                [{"v": value} for value in values],
            )
            alive = {value for value, lives in values.items() if lives}
            assert set(session.scalars(select(model.id))) == alive


@pytest.mark.databases("mariadb", "mysql")
def test_zero_dates_never_expire(engine: Engine) -> None:
    base = new_base()
    types = {"naive_s": KINDS["naive_s"], "day": KINDS["day"], "timestamp": KINDS["timestamp"]}
    models = {
        name: table(name, ExpireAt("at", null="expired"), base, kind.type)
        for name, kind in types.items()
    }
    base.metadata.create_all(engine)
    zeros = {
        "naive_s": ["0000-00-00 00:00:00", "2001-00-01 00:00:00", "2001-01-00 00:00:00"],
        "day": ["0000-00-00", "2001-00-01", "2001-01-00"],
        "timestamp": ["0000-00-00 00:00:00"],
    }
    with engine.connect() as connection:
        connection.execute(text("SET sql_mode = ''"))
        for name, values in zeros.items():
            for value in values:
                connection.execute(
                    text(f"INSERT INTO t_{name} (id, at) VALUES (:v, :v)"),  # noqa: S608
                    {"v": value},
                )
            assert set(connection.scalars(select(models[name].id))) == set(values), name
            ends = select(expires_at(models[name])).execution_options(include_expired=True)
            assert set(connection.scalars(ends)) == {None}, name


@pytest.mark.databases("postgres")
def test_infinity_is_never_and_minus_infinity_is_over(engine: Engine) -> None:
    base = new_base()
    models = [table(name, ExpireAt("at"), base, KINDS[name].type) for name in ("aware", "naive")]
    base.metadata.create_all(engine)
    with engine.connect() as connection:
        for model in models:
            connection.execute(
                text(
                    f"INSERT INTO {model.__tablename__} (id, at) "  # noqa: S608
                    "VALUES ('infinity', 'infinity'), ('-infinity', '-infinity')"
                )
            )
            assert connection.scalars(select(model.id)).all() == ["infinity"]


def test_epochs_that_no_calendar_holds_are_never_or_over(engine: Engine) -> None:
    base = new_base()
    names = ("milliseconds", "microseconds")
    models = [
        table(name, ExpireAfter("at", 60, **KINDS[name].options), base, KINDS[name].type)
        for name in names
    ]
    base.metadata.create_all(engine)
    numbers = [2**63 - 1, -(2**63), 2**60, -(2**60)]
    with Session(engine) as session:
        for model in models:
            rows = [{"id": str(number), "at": number} for number in numbers]
            session.execute(insert(model.__table__), rows)
            assert set(session.scalars(select(model.id))) == {str(2**63 - 1), str(2**60)}
            session.execute(
                select(model.id, expires_at(model)), execution_options={"include_expired": True}
            ).all()
