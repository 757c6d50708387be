"""What refers to expired rows, and what a sweep makes of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    ForeignKey,
    insert,
    select,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ttl_odm.metrics.numbers import of_progress
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import (
    Progress,
    Skip,
    StoreError,
    Sweeper,
)

if TYPE_CHECKING:
    from sqlalchemy import Engine


from tests.sql.sweeping import HOUR, add, cart, left

# Foreign keys


def shop(ondelete: str | None = None, order_ttl: int | None = HOUR) -> Any:
    class Base(DeclarativeBase):
        pass

    class Customer(TTLMixin, Base):
        __tablename__ = "customers"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Order(TTLMixin, Base):
        __tablename__ = "orders"
        __ttl__ = order_ttl

        id: Mapped[int] = mapped_column(
            ForeignKey(Customer.id, ondelete=ondelete, name="order_customer"),
            primary_key=True,
            autoincrement=False,
        )

    class Zebra(TTLMixin, Base):
        __tablename__ = "zebras"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    return Customer, Order, Zebra


@pytest.mark.usefixtures("enforcing")
def test_tables_that_refer_to_others_are_swept_first(engine: Engine, made: Any) -> None:
    customer, _, _ = shop()
    made(customer)
    with engine.begin() as connection:
        add(connection, "customers", [(1, None, 2 * HOUR)])
        add(connection, "orders", [(1, None, 2 * HOUR)])
    report = Sweeper(engine, customer.registry).run_once()
    report.raise_for_failures()
    tables = [each.table for each in report.targets]
    assert tables.index("orders") < tables.index("customers")
    assert report.deleted == 2


@pytest.mark.usefixtures("enforcing")
def test_a_child_that_expires_during_the_sweep_does_not_hold_up_its_parent(
    engine: Engine, made: Any
) -> None:
    customer, _, _ = shop()
    made(customer)
    with engine.begin() as connection:
        add(connection, "customers", [(1, None, 2 * HOUR), (2, None, 2 * HOUR)])
        add(connection, "orders", [(1, None, 2 * HOUR)])
    # As if the child's table had been swept a moment before the child expired.
    batches: list[Progress] = []
    report = Sweeper(engine, [customer], on_progress=batches.append).run_once()
    report.raise_for_failures()
    (target,) = report.targets
    assert (target.deleted, target.referring, report.deleted) == (2, {"orders": 1}, 3)
    assert [batch.referring for batch in batches] == [{"orders": 1}]
    assert list(of_progress(batches[0]))[1] == ("rows_deleted", {"table": "orders"}, 1)


@pytest.mark.usefixtures("enforcing")
def test_rows_that_refer_to_others_of_their_table_go_in_batches_too(
    engine: Engine, made: Any
) -> None:
    class Base(DeclarativeBase):
        pass

    class Reply(TTLMixin, Base):
        __tablename__ = "replies"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        answers: Mapped[int | None] = mapped_column(ForeignKey("replies.id"), index=True)

    made(Reply)
    with engine.begin() as connection:
        # Those that are answered come first, being older.
        add(connection, "replies", [(number, None, 3 * HOUR - number) for number in range(20)])
        connection.execute(text("UPDATE replies SET answers = id - 10 WHERE id >= 10"))
    report = Sweeper(engine, Reply, batch_size=5).run_once()
    report.raise_for_failures()
    assert report.deleted == report.targets[0].deleted == 20
    with engine.connect() as connection:
        assert left(connection, Reply) == set()


@pytest.mark.usefixtures("enforcing")
def test_rows_that_refer_to_themselves_and_long_chains_go_too(engine: Engine, made: Any) -> None:
    class Base(DeclarativeBase):
        pass

    class Reply(TTLMixin, Base):
        __tablename__ = "replies"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        answers: Mapped[int | None] = mapped_column(ForeignKey("replies.id"), index=True)

    made(Reply)
    with engine.begin() as connection:
        add(connection, "replies", [(number, None, 3 * HOUR - number) for number in range(30)])
        connection.execute(text("UPDATE replies SET answers = id WHERE id < 10"))
        connection.execute(text("UPDATE replies SET answers = id - 1 WHERE id > 10"))
    report = Sweeper(engine, Reply, batch_size=4).run_once()
    report.raise_for_failures()
    assert report.deleted == 30
    with engine.connect() as connection:
        assert left(connection, Reply) == set()


def test_a_foreign_key_to_a_table_that_is_not_declared_is_passed_over(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Order(TTLMixin, Base):
        __tablename__ = "orders"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(ForeignKey("elsewhere.id"), primary_key=True)

    report = Sweeper(engine, Base).run_once()  # the table is missing
    assert [(each.table, each.missing) for each in report.targets] == [("orders", True)]


@pytest.mark.slow
@pytest.mark.usefixtures("enforcing")
@pytest.mark.parametrize("batch_size", [None, 3])
def test_rows_that_live_rows_refer_to_stay_and_are_counted_and_all_others_go(
    engine: Engine, made: Any, batch_size: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ttl_odm.sweeper")
    customer, _, _ = shop(order_ttl=-1)
    made(customer)
    with engine.begin() as connection:
        add(connection, "customers", [(number, None, 2 * HOUR + number) for number in range(20)])
        add(connection, "orders", [(number, None, 2 * HOUR) for number in (3, 4, 5, 17)])
        add(connection, "zebras", [(1, None, 2 * HOUR)])
    for deleted in (16, 0):
        report = Sweeper(engine, customer.metadata, batch_size=batch_size).run_once()
        report.raise_for_failures()
        (target,) = (each for each in report.targets if each.table == "customers")
        assert (target.deleted, dict(target.skips)) == (deleted, {Skip.RESTRICTED: 4})
    with engine.connect() as connection:
        assert left(connection, customer) == {3, 4, 5, 17}
    assert len([each for each in caplog.messages if "orders(id)" in each]) == 2  # once a sweep


@pytest.mark.usefixtures("enforcing")
def test_a_row_that_keeps_another_by_way_of_a_cascade_keeps_it(engine: Engine, made: Any) -> None:
    class Base(DeclarativeBase):
        pass

    class Customer(TTLMixin, Base):
        __tablename__ = "customers"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Order(Base):
        __tablename__ = "orders"

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        customer: Mapped[int] = mapped_column(
            ForeignKey(Customer.id, ondelete="CASCADE"), index=True
        )

    class Invoice(Base):
        __tablename__ = "invoices"

        order: Mapped[int] = mapped_column(
            "order", ForeignKey(Order.id), primary_key=True, autoincrement=False
        )

    made(Customer)
    with engine.begin() as connection:
        add(connection, "customers", [(number, None, 2 * HOUR + number) for number in range(6)])
        connection.execute(
            insert(Order), [{"id": number * 10, "customer": number} for number in (1, 2, 3)]
        )
        connection.execute(insert(Invoice), [{"order": 20}])
    report = Sweeper(engine, Customer).run_once()
    report.raise_for_failures()
    assert (report.deleted, dict(report.targets[0].skips)) == (5, {Skip.RESTRICTED: 1})
    with engine.connect() as connection:
        assert left(connection, Customer) == {2}
        assert set(connection.scalars(select(Order.id))) == {20}


def tree(*, indexed: bool) -> Any:
    class Base(DeclarativeBase):
        pass

    class Reply(TTLMixin, Base):
        __tablename__ = "My replies"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        answers: Mapped[int | None] = mapped_column(
            "Answers", ForeignKey("My replies.id", ondelete="SET NULL"), index=indexed
        )

    return Reply


@pytest.mark.databases("sqlite", "postgres")
@pytest.mark.usefixtures("enforcing")
def test_a_foreign_key_without_an_index_is_refused_with_the_statement_that_mends_it(
    engine: Engine, made: Any
) -> None:
    model = made(tree(indexed=False))
    with Session(engine) as session:
        session.add_all([model(id=1), model(id=2)])
        session.commit()
        clock = clock_of(engine.dialect)
        session.execute(text(f'UPDATE "My replies" SET _ts = _ts - 7200 * {clock.second}'))  # noqa: S608
        session.commit()
    report = Sweeper(engine, model).run_once()
    (failed,) = report.failed
    assert isinstance(failed.error, StoreError)
    assert report.deleted == 0
    remedy = re.search(r"Run (CREATE INDEX .*\)); or sweep with force=True", str(failed.error))
    assert remedy
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(remedy[1]))
    report = Sweeper(engine, model).run_once()
    report.raise_for_failures()
    assert report.deleted == 2


@pytest.mark.databases("sqlite", "postgres")
@pytest.mark.usefixtures("enforcing")
def test_a_foreign_key_without_an_index_is_put_up_with_if_somebody_insists(
    engine: Engine, made: Any
) -> None:
    model = made(tree(indexed=False))
    with Session(engine) as session:
        session.add(model(id=1, ttl=1))
        session.commit()
        second = clock_of(engine.dialect).second
        session.execute(text(f'UPDATE "My replies" SET _ts = _ts - 9 * {second}'))  # noqa: S608
        session.commit()
    assert Sweeper(engine, model, force=True).run_once().deleted == 1


@pytest.mark.databases("postgres")
@pytest.mark.parametrize(
    ("index", "suffices"),
    [
        ("(customer)", True),
        ("(customer, id)", True),
        ("(id, customer)", False),
        ("(customer) WHERE customer IS NOT NULL", True),
        ("(customer) WHERE id > 5", False),
    ],
)
def test_which_indexes_serve_a_foreign_key(
    engine: Engine,
    made: Any,
    index: str,
    suffices: bool,  # noqa: FBT001
) -> None:
    customer = made(shop()[0])
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA other"))
        connection.execute(
            text("CREATE TABLE other.calls (id int, customer int REFERENCES customers (id))")
        )
        connection.execute(text(f"CREATE INDEX ON other.calls {index}"))
        add(connection, "customers", [(1, None, 2 * HOUR)])
    report = Sweeper(engine, customer).run_once()
    assert report.deleted == suffices
    if not suffices:
        assert "CREATE INDEX CONCURRENTLY ix_calls_customer ON other.calls (customer)" in str(
            report
        )


@pytest.mark.databases("postgres")
def test_a_constraint_that_waits_for_the_commit_is_obeyed(engine: Engine, made: Any) -> None:
    customer = made(shop()[0])
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TABLE calls (customer int PRIMARY KEY "
                "REFERENCES customers (id) DEFERRABLE INITIALLY DEFERRED)"
            )
        )
        add(connection, "customers", [(number, None, 2 * HOUR + number) for number in range(9)])
        connection.execute(text("INSERT INTO calls VALUES (4)"))
    report = Sweeper(engine, customer).run_once()
    report.raise_for_failures()
    assert (report.deleted, dict(report.targets[0].skips)) == (8, {Skip.RESTRICTED: 1})


@pytest.mark.databases("postgres")
def test_a_trigger_that_refuses_rows_does_not_hold_up_those_behind(
    engine: Engine, made: Any
) -> None:
    model = made(cart())
    with engine.begin() as connection:
        add(connection, "carts", [(number, None, 2 * HOUR - number) for number in range(20)])
        connection.execute(
            text(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "IF OLD.id = 3 THEN RAISE foreign_key_violation; END IF; RETURN OLD; END $$"
            )
        )
        connection.execute(
            text(
                "CREATE TRIGGER refuse BEFORE DELETE ON carts FOR EACH ROW "
                "EXECUTE FUNCTION refuse()"
            )
        )
    report = Sweeper(engine, model, batch_size=5).run_once()
    report.raise_for_failures()
    assert (report.deleted, dict(report.targets[0].skips)) == (19, {Skip.RESTRICTED: 1})


@pytest.mark.usefixtures("enforcing")
def test_a_foreign_key_that_cascades_takes_its_rows_along(engine: Engine, made: Any) -> None:
    customer, order, _ = shop("CASCADE", order_ttl=-1)
    made(customer)
    with engine.begin() as connection:
        add(connection, "customers", [(1, None, 2 * HOUR)])
        add(connection, "orders", [(1, None, 2 * HOUR)])
    report = Sweeper(engine, customer.metadata).run_once()
    report.raise_for_failures()
    with engine.connect() as connection:
        assert left(connection, order) == set()
