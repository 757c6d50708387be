"""A raised default is final: no row that is live once `set_policy` has returned is deleted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, ForeignKey, String, Table, create_engine, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.sql import cutting
from tests.sql.cutting import DAILY, MOVING, visits
from tests.sql.raising import Raise, before_deletion
from tests.sql.sweeping import add, servers
from tests.sql.test_stored_scopes import message
from tests.sql.test_sweep_by_scope import fill
from ttl_odm import Follows, Stored
from ttl_odm.sqlalchemy import Archive, TTLMixin, set_policy
from ttl_odm.sqlalchemy.purge.errors import is_passing
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend
    from ttl_odm import Partitions

HOUR, DAY = 3600, 86_400

RAISES: dict[str, tuple[int, dict[str, int], dict[str, Any]]] = {
    # The table's default and those of scopes before; and the change.
    "of the table": (HOUR, {}, {"ttl": DAY}),
    "by switching off": (HOUR, {}, {"ttl": None}),
    "of a scope without its own": (HOUR, {}, {"ttl": DAY, "scope": "acme"}),
    "of a scope with its own": (HOUR, {"acme": 60}, {"ttl": DAY, "scope": "acme"}),
    "by removing a scope's own": (DAY, {"acme": 60}, {"ttl": "default", "scope": "acme"}),
}
WAYS = ("hook", "archive", "orm", "walk")


def declared(way: str = "statement", by: str | None = "tenant") -> Any:
    sweep = {"__ttl_sweep__": "scan"} if way == "walk" else {}
    model = message(String(40), Stored(HOUR, by=by), **sweep)
    if way == "archive":
        columns = [Column("id", String(40), primary_key=True), Column("tenant", String(40))]
        model.__ttl_archive__ = Archive(Table("old_messages", model.metadata, *columns))
    elif way == "hook":
        model.__ttl_on_purged__ = lambda _: None
    elif way == "orm":
        model.__ttl_purge__ = "orm"
    return model


@pytest.fixture
def sweeping(backend: Backend) -> Iterator[Engine]:
    """An engine of the sweeper's own."""
    assert backend.sync_url is not None
    made = create_engine(backend.sync_url)
    yield made
    made.dispose()


@pytest.fixture
def raising(backend: Backend) -> Iterator[Engine]:
    """An engine of the operator's own, which waits for no file."""
    assert backend.sync_url is not None
    is_file = backend.sync_url.startswith("sqlite")
    made = create_engine(backend.sync_url, connect_args={"timeout": 0} if is_file else {})
    yield made
    made.dispose()


def contents(engine: Engine, model: Any, *, of_all: bool = False) -> set[tuple[Any, ...]]:
    """The live rows, or all, with what the application has written into them."""
    columns = [column for column in model.__table__.c if column.name not in ("_ts", "ttl")]
    rows = select(*columns).execution_options(include_expired=of_all)
    with Session(engine) as session:
        return set(map(tuple, session.execute(rows)))


def prepare(engine: Engine, model: Any, whole: int | None, own: dict[str, int]) -> None:
    """Rows of two tenants that are two hours old, and a new one."""
    with engine.begin() as connection:
        for table in ("ttl_odm_policies", *model.metadata.tables):
            connection.execute(text(f"DELETE FROM {table}"))  # noqa: S608
    fill(engine, model, [("acme", None, 2 * HOUR), ("globex", None, 2 * HOUR), ("acme", None, 1)])
    with engine.connect() as connection:
        set_policy(connection, model, whole, by="ann")
        for scope, ttl in own.items():
            set_policy(connection, model, ttl, scope=scope, by="ann")


def raised_by(engine: Engine, model: Any, of: Any = None, **change: Any) -> Raise:
    """A raise, after which the live rows of the model are read; the default is that of another."""
    # SQLite's file stays locked until the sweep goes on, so a change that is begun anew would wait
    # for nothing: in the caller's transaction it fails at once.
    opened = engine.begin if engine.dialect.name == "sqlite" else engine.connect

    def make() -> None:
        with opened() as connection:
            set_policy(connection, of or model, by="ann", **change)

    return Raise(engine, make, partial(contents, engine, model))


def keeps_what_a_raise_has_shown(
    engine: Engine, sweeping: Engine, raising: Engine, model: Any, kind: str
) -> None:
    """Raise a default before each statement of a sweep that deletes, and before its COMMIT."""
    model.metadata.create_all(engine)
    whole, own, change = RAISES[kind]
    number, sent = 0, [""]
    while number < len(sent):
        prepare(engine, model, whole, own)
        with (
            raised_by(raising, model, **change) as operator,
            before_deletion(sweeping, "messages", number, operator.begin) as sent,
        ):
            Sweeper(sweeping, model, batch_size=50).run_once().raise_for_failures()
            if operator.has_begun:
                assert operator.seen() <= contents(engine, model, of_all=True), sent[number]
        number += 1
    assert number > 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", RAISES)
def test_a_sweep_deletes_no_row_that_a_raise_has_made_live(
    engine: Engine, sweeping: Engine, raising: Engine, kind: str
) -> None:
    keeps_what_a_raise_has_shown(engine, sweeping, raising, declared(), kind)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_however_a_sweep_deletes_it_waits_for_a_raise(
    engine: Engine, sweeping: Engine, raising: Engine, way: str
) -> None:
    keeps_what_a_raise_has_shown(
        engine, sweeping, raising, declared(way), "of a scope without its own"
    )


@pytest.mark.slow
@servers
@pytest.mark.usefixtures("noon")
@pytest.mark.parametrize("survivors", [DAILY, MOVING])
def test_no_partition_goes_whose_rows_a_raise_has_made_live(
    engine: Engine, sweeping: Engine, raising: Engine, survivors: Partitions
) -> None:
    model = visits(Stored(HOUR), cut=survivors)
    number, sent = 0, [""]
    while number < len(sent):
        model.metadata.drop_all(engine)
        cutting.create(engine, model, 10, 9)
        cutting.add(engine, model, 10, [1, 2])
        kept = set()

        def begin() -> None:
            operator.begin()
            if operator.is_acknowledged:
                kept.update((1, 2))  # noqa: B023 (which a drop keeps from being read)

        with (
            raised_by(raising, model, ttl=20 * DAY) as operator,
            before_deletion(sweeping, "visits", number, begin) as sent,
        ):
            Sweeper(sweeping, model).run_once().raise_for_failures()
            assert kept <= set(cutting.keys(engine, model)), sent[number]
        number += 1
    assert number > 1


# --- writes of the application --------------------------------------------------------------------


def family() -> tuple[Any, Any]:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = Stored(HOUR)
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Item(Base):
        __tablename__ = "items"
        __ttl__ = Follows("cart_id")
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        cart_id: Mapped[int] = mapped_column(ForeignKey("carts.id"), index=True)

    return Cart, Item


@pytest.fixture(params=["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def writing(backend: Backend, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine of the application's, which may have old snapshots."""
    assert backend.sync_url is not None
    made = create_engine(backend.sync_url, isolation_level=request.param)
    yield made
    made.dispose()


@pytest.mark.slow
@servers
@pytest.mark.parametrize("way", ["statement", "hook", "archive"])
@pytest.mark.parametrize("moment", ["before the write", "before the commit"])
def test_a_write_displaces_no_row_that_a_raise_has_made_live(
    engine: Engine, writing: Engine, raising: Engine, way: str, moment: str
) -> None:
    model = declared(way)
    model.metadata.create_all(engine)
    for kind in ("of the table", "of a scope without its own", "of a scope with its own"):
        whole, own, change = RAISES[kind]
        prepare(engine, model, whole, own)
        operator = raised_by(raising, model, **change)
        write_under(operator, writing, model(id="0", tenant="globex"), moment)


@pytest.mark.slow
@servers
@pytest.mark.parametrize("moment", ["before the write", "before the commit"])
def test_a_write_displaces_no_follower_of_a_row_that_a_raise_has_made_live(
    engine: Engine, writing: Engine, raising: Engine, moment: str
) -> None:
    carts, items = family()
    carts.metadata.create_all(engine)
    with engine.begin() as connection:
        add(connection, "carts", [(1, None, 2 * HOUR), (2, None, 1)])
        connection.execute(text("INSERT INTO items (id, cart_id) VALUES (7, 1)"))
    operator = raised_by(raising, items, carts, ttl=DAY)
    write_under(operator, writing, items(id=7, cart_id=2), moment)


def write_under(operator: Raise, engine: Engine, row: Any, moment: str) -> None:
    """Insert a row whose key an expired one has, in a transaction that has begun before a raise."""
    model = type(row)
    with operator, Session(engine) as session:
        session.execute(select(model.id)).all()  # a snapshot, where there is one
        try:
            if moment == "before the write":
                operator.begin()
            session.add(row)
            session.flush()
            if moment == "before the commit":
                operator.begin()
            session.commit()
        except DBAPIError as error:
            session.rollback()
            if not (isinstance(error, IntegrityError) or is_passing(error)):
                raise
        assert operator.seen() <= contents(engine, model)
