"""A second Table object of a table: whose policy it has, and when it has none."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    String,
    Table,
    delete,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.automap import automap_base
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from ttl_odm import ExpireAt, TTLConfigurationError
from ttl_odm.sqlalchemy import (
    Archive,
    ExpiredError,
    TTLMixin,
    disable,
    enable,
    expired,
    include_expired,
    is_expired,
    live,
)
from ttl_odm.sqlalchemy.declare.mixin import last_modified_column, ttl_column
from ttl_odm.sqlalchemy.policy.bindings import BoundTables, binding_of
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


def declare(default: Any = 3600, **namespace: Any) -> Any:
    """A model of seats, with a key beside its primary key."""

    class Base(DeclarativeBase):
        pass

    class Seat(TTLMixin, Base):
        __tablename__ = "stalls"
        __ttl__ = default
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        place: Mapped[str | None] = mapped_column(String(20), unique=True)
        vars().update(namespace)

    return Seat


@pytest.fixture
def seat(engine: Engine) -> Any:
    """A model whose table has a live and an expired row."""
    made = declare()
    made.metadata.create_all(engine)
    fill(engine)
    return made


def fill(engine: Engine) -> None:
    with engine.begin() as connection:
        for key, place in ((1, "live"), (2, "dead")):
            connection.exec_driver_sql(
                f"INSERT INTO stalls (id, place) VALUES ({key}, '{place}')"  # noqa: S608
            )
        age(connection, "stalls", 2, 7200)


def reflected(engine: Engine | Connection, **info: Any) -> Table:
    """The table as the database has it."""
    with warnings.catch_warnings():  # of the indexes over expressions, on SQLite
        warnings.simplefilter("ignore")
        return Table("stalls", MetaData(), autoload_with=engine, **info)


def keys(connection: Connection, table: Table) -> list[int]:
    return sorted(connection.scalars(select(table.c.id)))


def test_a_table_that_was_used_before_its_model_was_imported_gets_the_policy(
    engine: Engine,
) -> None:
    raw = Table(
        "benches", MetaData(), Column("id", Integer, primary_key=True), last_modified_column(),
        ttl_column(object),
    )  # fmt: skip
    raw.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO benches (id) VALUES (1)")
        age(connection, "benches", 1, 7200)
        assert keys(connection, raw) == [1]

        class Base(DeclarativeBase):
            pass

        class Bench(TTLMixin, Base):
            __tablename__ = "benches"
            __ttl__ = 3600
            id: Mapped[int] = mapped_column(primary_key=True)

        assert keys(connection, raw) == []


def test_a_changed_default_acts_on_a_second_table(engine: Engine, seat: Any) -> None:
    table = reflected(engine)
    with engine.connect() as connection:
        assert keys(connection, table) == [1]
        seat.__ttl__ = 86_400
        assert keys(connection, table) == [1, 2]
        seat.__ttl__ = None
        assert keys(connection, table) == [1, 2]


@pytest.mark.slow
def test_a_second_table_stamps_what_it_writes(engine: Engine, seat: Any) -> None:
    table, young = reflected(engine), live(seat)
    with engine.begin() as connection:
        age(connection, "stalls", 1, 1800)
        connection.execute(update(table).where(table.c.id == 1).values(place="new"))
        connection.execute(insert(table), [{"id": 3, "place": "x"}, {"id": 2, "place": "y"}])
        age(connection, "stalls", 1, 3000)  # were it not stamped, its hour would be over
        connection.execute(insert(table).from_select(["id"], select(table.c.id + 10)))
        found = connection.execute(select(seat.id, young).order_by(seat.id)).all()
    assert [key for key, _ in found] == [1, 2, 3, 11, 12, 13]


def test_its_keys_are_free_and_a_live_row_stays(engine: Engine, seat: Any) -> None:
    table = reflected(engine)
    with engine.begin() as connection:
        connection.execute(insert(table).values(id=3, place="dead"))
        assert keys(connection, table) == [1, 3]
    with pytest.raises(IntegrityError), engine.begin() as connection:
        connection.execute(insert(table).values(id=4, place="live"))


def test_what_it_displaces_is_archived_in_full_though_it_has_few_columns(engine: Engine) -> None:
    model = declare()

    kept = Table("old_seats", model.metadata, Column("id", Integer), Column("place", String(20)))
    model.__ttl_archive__ = Archive(kept)
    model.metadata.create_all(engine)
    fill(engine)
    columns = [column._copy() for column in reflected(engine).c if column.name != "place"]
    few = Table("stalls", MetaData(), *columns)
    with engine.begin() as connection:
        connection.execute(insert(few).values(id=2))
        assert connection.execute(select(kept)).all() == [(2, "dead")]


def test_an_object_of_an_automapped_class_is_never_served_expired(
    engine: Engine, seat: Any
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        base: Any = automap_base()
        base.prepare(autoload_with=engine)
    cls = base.classes.stalls
    with Session(engine) as session:
        row = session.get_one(cls, 1)
        age(session.connection(), "stalls", 1, 7200)
        assert session.get(cls, 1) is None
        row.place = "x"
        with pytest.raises(ExpiredError, match="stalls 1 can't be updated"):
            session.flush()
        session.rollback()
        with pytest.raises(TTLConfigurationError, match=r"second Table object for 'stalls'.* Seat"):
            is_expired(session.get_one(cls, 1))
        session.delete(session.get_one(cls, 1))
        age(session.connection(), "stalls", 1, 7200)
        with pytest.raises(ExpiredError, match="stalls 1 can't be deleted"):
            session.flush()


@pytest.mark.slow
def test_models_with_different_policies_are_not_guessed_between(engine: Engine, seat: Any) -> None:
    other = declare(60)
    with engine.connect() as connection:
        for run in (select, delete, update):
            statement: Any = run(reflected(engine))
            statement = statement.values(place="x") if run is update else statement
            with pytest.raises(TTLConfigurationError, match=r"Seat .*table\.info\['ttl_odm'\]"):
                connection.execute(statement)
        with pytest.raises(TTLConfigurationError, match="different policies"):
            connection.execute(insert(reflected(engine)).values(id=9))
        table = reflected(engine)
        enable(table, 86_400)
        assert keys(connection, table) == [1, 2]
        assert keys(connection, seat.__table__) == keys(connection, other.__table__) == [1]


def test_models_with_the_same_policy_are_alike(engine: Engine, seat: Any) -> None:
    again = declare()
    with engine.connect() as connection:
        assert keys(connection, reflected(engine)) == [1]
    assert again.__ttl__ == seat.__ttl__


@pytest.mark.parametrize("mark", ["table", "metadata"])
def test_a_table_that_says_so_has_no_policy(engine: Engine, seat: Any, mark: str) -> None:
    if mark == "table":
        table = reflected(engine, info={"ttl_odm": None})
    else:
        metadata = MetaData(info={"ttl_odm": None})
        table = reflected(engine).to_metadata(metadata)
    with engine.begin() as connection:
        assert keys(connection, table) == [1, 2]
        connection.execute(update(table).values(place=None))
        assert keys(connection, seat.__table__) == [1]
    with engine.connect() as connection, pytest.raises(IntegrityError):
        connection.execute(insert(table).values(id=2))


def test_a_table_of_the_same_name_without_the_columns_has_no_policy(
    engine: Engine, seat: Any
) -> None:
    few = Table("stalls", MetaData(), Column("id", Integer, primary_key=True))
    with engine.connect() as connection:
        assert keys(connection, few) == [1, 2]  # assert_no_leaks and ttl-odm check find it
    assert seat.__ttl__


def test_a_policy_over_other_columns_holds_for_a_second_table(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Seat(Base):
        __tablename__ = "stalls"
        __ttl__ = ExpireAt("until", unit="s")
        id: Mapped[int] = mapped_column(primary_key=True)
        until: Mapped[int | None] = mapped_column(Integer)

    Base.metadata.create_all(engine)
    table = reflected(engine)
    with engine.begin() as connection:
        connection.execute(insert(table), [{"id": 1, "until": None}, {"id": 2, "until": 1}])
        assert keys(connection, table) == [1]
        assert connection.scalar(select(table.c.id).where(expired(table))) is None
        every = select(table.c.id).where(expired(table)).options(include_expired())
        assert connection.scalars(every).all() == [2]


@pytest.mark.parametrize("second", [False, True])
def test_enable_and_disable_act_on_both_tables(engine: Engine, second: bool) -> None:  # noqa: FBT001
    tables = [
        Table(
            "chairs", MetaData(), Column("id", Integer, primary_key=True), last_modified_column(),
            ttl_column(object),
        )
        for _ in range(2)
    ]  # fmt: skip
    target, other = tables if second else tables[::-1]
    target.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO chairs (id) VALUES (1)")
        age(connection, "chairs", 1, 100)
        assert keys(connection, target) == keys(connection, other) == [1]
        enable(target, 60)
        assert keys(connection, target) == keys(connection, other) == []
        enable(target, 600)
        assert keys(connection, target) == keys(connection, other) == [1]
        enable(other, 60)  # a policy of its own
        assert keys(connection, target) == [1]
        assert keys(connection, other) == []
        disable(other)  # that of its table again
        assert keys(connection, other) == [1]
        enable(target, 60)
        assert keys(connection, other) == []
        disable(target)
        assert keys(connection, target) == keys(connection, other) == [1]


def test_a_copy_under_another_name_has_the_policy_and_its_own_rows(
    engine: Engine, seat: Any
) -> None:
    copy = seat.__table__.to_metadata(MetaData(), name="stools")
    copy.indexes.clear()
    copy.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(copy), [{"id": 1}, {"id": 2}])
        age(connection, "stools", 1, 7200)
        assert keys(connection, copy) == [2]
        connection.execute(insert(copy).values(id=1))
        assert keys(connection, copy) == [1, 2]
        stamped = connection.execute(update(copy).values(place=None)).rowcount
    assert stamped == 2
    names = {column["name"] for column in inspect(engine).get_columns("stools")}
    assert {"_ts", "ttl"} <= names
    with engine.connect() as connection:
        counted = select(seat.id).options(include_expired())
        assert sorted(connection.scalars(counted)) == [1, 2]  # nothing of the original is gone


def test_a_sweeper_takes_the_table_once(engine: Engine, seat: Any) -> None:
    table = reflected(engine)
    with engine.connect() as connection:
        assert keys(connection, table) == [1]
    report = Sweeper(engine, [seat, table, table.metadata]).run_once()
    assert [(target.table, target.deleted) for target in report.targets] == [("stalls", 1)]


def test_tables_may_get_a_policy_in_one_thread_while_another_asks_for_them() -> None:
    tables = BoundTables()
    made = [Table(name, MetaData()) for name in "ab"]
    tables.add(made[0])
    for _ in tables:
        tables.add(made[1])
    assert list(tables) == made


@pytest.mark.parametrize("is_copy", [True, False])
def test_threads_that_meet_a_second_table_at_once_put_one_policy_on_it(
    engine: Engine, seat: Any, *, is_copy: bool
) -> None:
    table = seat.__table__.to_metadata(MetaData()) if is_copy else reflected(engine)
    with ThreadPoolExecutor(8) as pool:
        start = Barrier(8)

        def compiled(_: int) -> str:
            start.wait()
            return str(select(table).compile(engine))

        assert len(set(pool.map(compiled, range(8)))) == 1
    binding = binding_of(table)
    assert binding is not None
    assert binding.last_modified.default is not None
    assert binding.default_before is None
