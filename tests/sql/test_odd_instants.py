"""Instants that no datetime of Python's can be, put there by raw SQL: nothing stops at them."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, select, text
from sqlalchemy.orm import Session, mapped_column

from tests.sql.adopted import KINDS, new_base, table
from tests.sql.sweeping import cart, left, sweeps
from ttl_odm import TTL, ExpireAfter, ExpireAt, InvalidTTL
from ttl_odm.sqlalchemy import expired, expires_at, include_expired
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine


@contextmanager
def no_writes(engine: Engine) -> Iterator[None]:
    """Nothing is sent but questions."""
    sent: list[str] = []

    def listen(*arguments: Any) -> None:
        sent.append(arguments[2])

    event.listen(engine, "before_cursor_execute", listen)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", listen)
        assert [sql for sql in sent if not sql.startswith("SELECT")] == []


POLICIES: dict[str, Callable[..., Any]] = {
    "at": lambda **how: ExpireAt("at", **how),
    "after": lambda **how: ExpireAfter("at", 60, **how),
    "shared": lambda **how: TTL(60, last_modified="at", override="views", **how),
}
PAST = ("-infinity", "4713-01-01 BC", "0044-03-15 BC", "0001-01-01")
FUTURE = ("infinity", "9999-12-31", "10000-01-01", "294276-12-31 23:59:59")
FIRST = datetime.min.replace(year=2, tzinfo=timezone.utc)


@pytest.mark.databases("postgres")
@pytest.mark.parametrize("kind", ["aware", "paris", "day"])
@sweeps
def test_what_no_datetime_can_be_is_over_or_yet_to_come(
    engine: Engine, kind: str, sweep: str
) -> None:
    base, column = new_base(), KINDS[kind]
    models = [
        table(name, policy(**column.options), base, column.type, __ttl_sweep__=sweep)
        for name, policy in POLICIES.items()
    ]
    base.metadata.create_all(engine)
    later = (*FUTURE[:3], "5874897-12-31") if "day" in kind else FUTURE
    with Session(engine) as session:
        for model in models:
            values = ", ".join(f"('{value}', '{value}')" for value in PAST + later)
            session.execute(text(f"INSERT INTO {model.__tablename__} (id, at) VALUES {values}"))  # noqa: S608
            assert set(session.scalars(select(model.id))) == set(later)
            ends: dict[str, Any] = dict(
                session.execute(  # type: ignore[arg-type]
                    select(model.id, expires_at(model)).options(include_expired())
                ).all()
            )
            assert all(ends[value] < FIRST for value in PAST)
            assert {ends[value] for value in later if value != "9999-12-31"} == {None}
        session.commit()
    dry = Sweeper(engine, base, dry_run=True).run_once()
    assert (dry.problems, dry.due) == ((), len(PAST) * len(models))
    report = Sweeper(engine, base, batch_size=2).run_once()
    assert (report.problems, report.deleted) == ((), len(PAST) * len(models))
    with engine.connect() as connection:
        for model in models:
            assert left(connection, model) == set(later)


@sweeps
def test_a_last_modification_that_no_datetime_can_be(engine: Engine, sweep: str) -> None:
    model = cart(sweep=sweep)
    model.metadata.create_all(engine)
    past, future = {
        "sqlite": (("-9000000000000000000",), ("9000000000000000000",)),
        "postgresql": (PAST, FUTURE),
    }.get(engine.dialect.name, (("-9000000000000000000",), ("9000000000000000000",)))
    with engine.begin() as connection:
        for number, value in enumerate([*past, *future]):
            for key, ttl in ((number, "NULL"), (number + 100, "60")):
                if value in future and ttl == "60":
                    continue  # an end that not even the index holds
                connection.execute(
                    text(f"INSERT INTO carts (id, _ts, ttl) VALUES ({key}, '{value}', {ttl})")  # noqa: S608
                )
    live = set(range(len(past), len(past) + len(future)))
    with Session(engine) as session:
        assert set(session.scalars(select(model.id))) == live
        ends = select(expires_at(model)).options(include_expired())
        assert {end and end < FIRST for end in session.scalars(ends)} >= {True, None}
    dry = Sweeper(engine, model, dry_run=True).run_once()
    assert (dry.problems, dry.due) == ((), 2 * len(past))
    report = Sweeper(engine, model, batch_size=2).run_once()
    assert (report.problems, report.deleted) == ((), 2 * len(past))
    with engine.connect() as connection:
        assert left(connection, model) == live


ZEROS = {
    "naive_s": (
        *("0000-00-00 00:00:00", "0000-01-01 00:00:00"),
        *("2001-00-01 00:00:00", "2001-01-00 00:00:00"),
    ),
    "datetime6": ("0000-00-00 00:00:00", "0000-01-01 00:00:00"),
    "day": ("0000-00-00", "0000-01-01", "2001-00-01", "2001-01-00"),
    "timestamp": ("0000-00-00 00:00:00",),
}


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.every_server
@pytest.mark.parametrize("kind", ZEROS)
@sweeps
def test_a_zero_date_is_no_null(engine: Engine, kind: str, sweep: str) -> None:
    """IS NULL finds them in columns that can't be NULL, as ODBC wants it."""
    policies = POLICIES | {"over": lambda: ExpireAt("at", null="expired")}
    models = [
        table(
            f"zero_{name}",
            policy(),
            new_base(),
            None,
            at=mapped_column(KINDS[kind].type, nullable=False),
            __ttl_sweep__=sweep,
        )
        for name, policy in policies.items()
    ]
    for model in models:
        model.metadata.create_all(engine)
        with engine.begin() as connection:
            connection.execute(text("SET sql_mode = ''"))
            values = ", ".join(f"('{value}', '{value}')" for value in ZEROS[kind])
            connection.execute(
                text(f"INSERT INTO {model.__tablename__} (id, at) VALUES {values}")  # noqa: S608
            )
            assert set(connection.scalars(select(model.id))) == set(ZEROS[kind])
            over = select(model.id).where(expired(model)).options(include_expired())
            assert connection.scalars(over).all() == []
        report = Sweeper(engine, model).run_once()
        assert (report.problems, report.deleted) == ((), 0)
        with engine.connect() as connection:
            assert left(connection, model) == set(ZEROS[kind])


@pytest.mark.parametrize("kind", ["seconds", "epoch_decorated", "timestamp"])
def test_what_a_column_has_no_room_for_is_refused_before_it_is_sent(
    engine: Engine, kind: str
) -> None:
    family = clock_of(engine.dialect).family
    if family not in KINDS[kind].databases:
        pytest.skip("there is no such column")
    name = f"brief_{kind}"
    model = table(name, ExpireAt("at", **KINDS[kind].options), new_base(), KINDS[kind].type)
    model.metadata.create_all(engine)
    late = datetime(2038, 1, 19, 3, 14, 7, tzinfo=timezone.utc)
    changes: list[Callable[[Any], Any]] = [
        lambda row: row.expire_at(late + timedelta(seconds=1)),
        lambda row: row.expire_at(late.replace(year=2099)),
        lambda row: row.expire_in(timedelta(days=60 * 366)),
    ]
    with Session(engine) as session:
        row = model(id="known")
        row.expire_at(late)
        session.add(row)
        session.flush()
        assert session.scalars(select(expires_at(model))).all() == [late]
    for change in changes:
        with Session(engine) as session:
            row = model(id="new")
            change(row)
            session.add(row)
            if family == "sqlite":
                session.flush()
                assert row.expires_at > late
                continue
            message = rf"^{model.__name__}\.at: expire_.*: .* can't hold instants after 2038-01-19"
            with pytest.raises(InvalidTTL, match=message), no_writes(engine):
                session.flush()
