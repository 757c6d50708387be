"""Rows that the application keeps from being deleted: by ORM events, or by a trigger."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, func, insert, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, with_loader_criteria

from tests.sql.sweeping import HOUR, add, add_at_once, left, sweeps
from ttl_odm.sqlalchemy import TTLMixin, include_expired
from ttl_odm.sweeper import AsyncSweeper, HookError, Pace, Purged, Skip, Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine


def cart(heard: list[Any] | None = None, purge: str = "orm", sweep: str = "index") -> Any:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = HOUR
        __ttl_purge__ = purge
        __ttl_sweep__ = sweep
        __ttl_on_purged__ = None if heard is None else heard.append

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        deleted: Mapped[bool] = mapped_column(server_default="0")

    return Cart


@contextmanager
def listening(name: str, listener: Callable[..., None]) -> Iterator[None]:
    """Let every session of the process hear of an event, as an application does."""
    event.listen(Session, name, listener)
    try:
        yield
    finally:
        event.remove(Session, name, listener)


def hides(model: Any) -> Callable[..., None]:
    """Build what hides rows that were marked as deleted, by SQLAlchemy's own recipe."""

    def hide(state: Any) -> None:
        if state.is_select and not state.is_column_load and not state.is_relationship_load:
            criterion = with_loader_criteria(model, model.deleted.is_(False), include_aliases=True)
            state.statement = state.statement.options(criterion)

    return hide


def keeps(model: Any, which: Callable[[Any], bool], *, marks: bool) -> Callable[..., None]:
    """Build what keeps rows that the session would delete, and may mark them."""

    def keep(session: Session, *_: Any) -> None:
        for row in list(session.deleted):
            if isinstance(row, model) and which(row):
                session.add(row)
                row.deleted = marks

    return keep


def keys(heard: list[Purged]) -> list[int]:
    return sorted(key for purged in heard for (key,) in purged.keys)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_rows_that_a_criterion_hides_are_not_counted_as_deleted(
    engine: Engine, made: Any, batch_size: int | None
) -> None:
    heard: list[Purged] = []
    model = made(cart(heard))
    with engine.begin() as connection:
        add(connection, "carts", [(n, None, 2 * HOUR + n) for n in range(1, 6)])
        connection.execute(text("UPDATE carts SET deleted = '1' WHERE id > 2"))
    with listening("do_orm_execute", hides(model)):
        for deleted in (2, 0):
            report = Sweeper(engine, model, batch_size=batch_size).run_once()
            report.raise_for_failures()
            (target,) = report.targets
            assert (target.deleted, dict(target.skips)) == (deleted, {Skip.REFUSED: 3})
            (note,) = target.notes
            assert "do_orm_execute" in note
            assert keys(heard) == [1, 2]
    with engine.connect() as connection:
        assert left(connection, model) == {3, 4, 5}


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("marks", [True, False])
def test_rows_that_an_event_keeps_stay_expired_and_the_others_go(
    engine: Engine,
    made: Any,
    marks: bool,  # noqa: FBT001
    batch_size: int | None,
) -> None:
    heard: list[Purged] = []
    model = made(cart(heard))
    with engine.begin() as connection:
        add(connection, "carts", [(n, None, 2 * HOUR + n) for n in range(1, 6)])
    with listening("before_flush", keeps(model, lambda row: row.id > 2, marks=marks)):
        for deleted in (2, 0):
            report = Sweeper(engine, model, batch_size=batch_size).run_once()
            report.raise_for_failures()
            (target,) = report.targets
            assert (target.deleted, dict(target.skips)) == (deleted, {Skip.REFUSED: 3})
            assert keys(heard) == [1, 2]
    with Session(engine) as session:
        assert session.scalar(select(func.count()).select_from(model)) == 0
        assert left(session.connection(), model) == {3, 4, 5}
        every = select(model.deleted).distinct().options(include_expired())
        assert session.scalars(every).all() == [False]


def test_rows_that_stay_do_not_hold_up_those_of_the_same_instant(engine: Engine, made: Any) -> None:
    model = made(cart())
    with engine.begin() as connection:
        add_at_once(connection, "carts", 20)
        connection.execute(text("UPDATE carts SET deleted = '1' WHERE id < 10"))
    with listening("do_orm_execute", hides(model)):
        report = Sweeper(engine, model, batch_size=3).run_once()
    report.raise_for_failures()
    (target,) = report.targets
    assert (target.deleted, dict(target.skips)) == (10, {Skip.REFUSED: 10})


async def test_they_are_counted_asynchronously(async_engine: AsyncEngine) -> None:
    model = cart()
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.run_sync(add, "carts", [(1, None, 2 * HOUR), (2, None, 2 * HOUR)])
        await connection.execute(text("UPDATE carts SET deleted = '1' WHERE id = 2"))
    with listening("do_orm_execute", hides(model)):
        report = await AsyncSweeper(async_engine, model).run_once()
    assert (report.deleted, dict(report.targets[0].skips)) == (1, {Skip.REFUSED: 1})


def test_a_write_that_meets_such_a_row_says_what_keeps_it(engine: Engine, made: Any) -> None:
    model = made(cart())
    with engine.begin() as connection:
        add(connection, "carts", [(1, None, 2 * HOUR)])
        connection.execute(text("UPDATE carts SET deleted = '1'"))
    with (
        listening("do_orm_execute", hides(model)),
        engine.connect() as connection,
        pytest.raises(HookError, match=r"session.delete\(\) of Cart doesn't delete them"),
    ):
        connection.execute(insert(model).values(id=1))


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_rows_that_a_trigger_keeps_without_an_error_are_not_counted(
    engine: Engine, made: Any
) -> None:
    heard: list[Purged] = []
    model = made(cart(heard))
    model.__mapper__.confirm_deleted_rows = False
    with engine.begin() as connection:
        add(connection, "carts", [(n, None, 2 * HOUR + n) for n in range(1, 5)])
        body = "BEGIN IF OLD.id = 3 THEN RETURN NULL; END IF; RETURN OLD; END"
        connection.execute(
            text(f"CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
        )
        connection.execute(
            text("CREATE TRIGGER keep BEFORE DELETE ON carts FOR EACH ROW EXECUTE FUNCTION keep()")
        )
    report = Sweeper(engine, model).run_once()
    report.raise_for_failures()
    assert (report.deleted, dict(report.targets[0].skips)) == (3, {Skip.REFUSED: 1})
    assert keys(heard) == [1, 2, 4]


@sweeps
@pytest.mark.databases("sqlite", "postgres")
@pytest.mark.every_server
def test_rows_that_a_trigger_keeps_without_an_error_hide_no_others(
    engine: Engine, made: Any, sweep: str
) -> None:
    model = made(cart(purge="delete", sweep=sweep))
    with engine.begin() as connection:
        add_at_once(connection, "carts", 20)
        if engine.dialect.name == "sqlite":
            body = "SELECT RAISE(IGNORE); END"
            trigger = f"BEFORE DELETE ON carts WHEN OLD.id < 5 BEGIN {body}"
        else:
            body = "BEGIN IF OLD.id < 5 THEN RETURN NULL; END IF; RETURN OLD; END"
            function = f"CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$"
            connection.execute(text(function))
            trigger = "BEFORE DELETE ON carts FOR EACH ROW EXECUTE FUNCTION keep()"
        connection.execute(text(f"CREATE TRIGGER keep {trigger}"))
    for deleted in (15, 0):
        (target,) = Sweeper(engine, model, pace=Pace(3, 1, 3, 1.0)).run_once().targets
        assert (target.deleted, dict(target.skips)) == (deleted, {Skip.REFUSED: 5})
