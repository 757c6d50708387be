"""What can be swept, and tables of all kinds."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    String,
    Table,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, registry

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy import TTLMixin, include_expired
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import (
    AsyncSweeper,
    Part,
    Sweeper,
)
from ttl_odm.sweeper.hooks import Archive

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine


from tests.sql.sweeping import HOUR, add, cart, sweeps, zoo

# Tables that are not there


@sweeps
def test_a_table_that_is_missing_is_a_warning_and_the_others_go(
    engine: Engine, made: Any, sweep: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ttl_odm.sweeper")
    model = made(cart(sweep=sweep))
    with engine.begin() as connection:
        add(connection, "carts", [(1, None, 2 * HOUR)])

    animal, _, _ = zoo(None, sweep)
    dry = Sweeper(engine, [animal], dry_run=True).run_once()
    assert [target.missing for target in dry.targets] == [True]
    sweeper = Sweeper(engine, [animal, model], on_report=lambda _: sweeper.stop())
    report = sweeper.run_forever()
    assert report is not None
    assert {target.table: target.missing for target in report.targets} == {
        "animals": True,
        "carts": False,
    }
    assert (report.deleted, report.problems) == (1, ())
    (record,) = caplog.records
    assert (record.levelname, "animals is MISSING" in record.message) == ("WARNING", True)


async def test_an_asynchronous_sweep_passes_over_a_missing_table(
    async_engine: AsyncEngine,
) -> None:
    report = await AsyncSweeper(async_engine, cart()).run_once()
    assert [(target.missing, target.error) for target in report.targets] == [(True, None)]


@sweeps
def test_a_missing_table_beside_the_target_is_its_failure(
    engine: Engine, made: Any, sweep: str
) -> None:
    model = made(cart(sweep=sweep))
    old = Table("old_carts", model.metadata, Column("id", Integer, primary_key=True))
    model.__ttl_archive__ = Archive(old)
    with engine.begin() as connection:
        add(connection, "carts", [(1, None, 2 * HOUR)])
    (target,) = Sweeper(engine, model).run_once().targets
    assert (target.missing, target.deleted) == (False, 0)
    assert "old_carts" in str(target.error)


# Tables of all kinds


@pytest.mark.parametrize("own", [None, HOUR])
def test_composite_keys_are_walked(engine: Engine, made: Any, own: int | None) -> None:
    class Base(DeclarativeBase):
        pass

    class Reading(TTLMixin, Base):
        __tablename__ = "Sensor Readings"
        __table_args__ = {"sqlite_with_rowid": False}
        __ttl__ = HOUR
        __ttl_sweep__ = "scan"

        site: Mapped[str] = mapped_column(String(20), primary_key=True)
        order: Mapped[int] = mapped_column("order", primary_key=True, autoincrement=False)

    made(Reading)
    keys = [(site, number) for site in ("a", "b", "c") for number in range(9)]
    with Session(engine) as session:
        session.add_all([Reading(site=site, order=number, ttl=own) for site, number in keys])
        session.commit()
        quote = engine.dialect.identifier_preparer.quote
        clock = clock_of(engine.dialect)
        session.execute(
            text(
                f"UPDATE {quote('Sensor Readings')} SET _ts = _ts - 7200 * {clock.second} "  # noqa: S608
                f"WHERE {quote('order')} <> 4"
            )
        )
        session.commit()
    report = Sweeper(engine, Reading, batch_size=4).run_once()
    assert report.deleted == 24
    with engine.connect() as connection:
        rows = connection.execute(
            select(Reading.site, Reading.order).options(include_expired())
        ).all()
    assert set(map(tuple, rows)) == {(site, 4) for site in ("a", "b", "c")}


@pytest.mark.slow
@pytest.mark.databases("postgres")
@sweeps
def test_partitions_are_swept_with_their_table(engine: Engine, sweep: str) -> None:
    class Base(DeclarativeBase):
        pass

    class Event(TTLMixin, Base):
        __tablename__ = "events"
        __table_args__ = {"postgresql_partition_by": "LIST (region)"}
        __ttl__ = HOUR
        __ttl_sweep__ = sweep

        region: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    with engine.begin() as connection:
        Base.metadata.create_all(connection)
        for region in (0, 1):
            connection.execute(
                text(f"CREATE TABLE e{region} PARTITION OF events FOR VALUES IN ({region})")
            )
        connection.execute(
            text(
                "INSERT INTO events (region, id, _ts) "
                "SELECT i % 2, i, now() - (7200 + i) * interval '1 second' "
                "FROM generate_series(0, 99) i"
            )
        )
    with engine.connect() as holder:
        holder.execute(text("SELECT id FROM events WHERE id IN (3, 4) FOR UPDATE"))
        report = Sweeper(engine, Event, batch_size=30).run_once()
        report.raise_for_failures()
        assert (report.deleted, report.skipped) == (98, 2)
    assert Sweeper(engine, Event).run_once().deleted == 2


@pytest.mark.databases("postgres")
@pytest.mark.parametrize("schema", ["Tenant 1", "100 %"])
@sweeps
def test_a_translated_schema_is_swept(engine: Engine, sweep: str, schema: str) -> None:
    model = cart(HOUR, sweep)
    with engine.begin() as connection:
        connection.execute(text(f'CREATE SCHEMA "{schema}"'))
    tenant = engine.execution_options(schema_translate_map={None: schema})
    model.metadata.create_all(tenant)
    with tenant.begin() as connection:
        add(connection, f'"{schema}".carts', [(1, None, 2 * HOUR), (2, None, 60)])
    assert Sweeper(tenant, model).run_once().deleted == 1


@pytest.mark.databases("postgres")
def test_a_schema_that_lacks_the_indexes_is_walked_beside_one_that_has_them(engine: Engine) -> None:
    model = cart(HOUR)
    tenants = {}
    for schema in ("a", "b"):
        with engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {schema}"))
        tenants[schema] = engine.execution_options(schema_translate_map={None: schema})
        model.metadata.create_all(tenants[schema])
        with tenants[schema].begin() as connection:
            add(connection, f"{schema}.carts", [(1, None, 2 * HOUR)])
    for index in model.__table__.indexes:
        index.drop(tenants["b"])
    stores = [SQLAlchemyStore(tenants[schema], model) for schema in ("a", "b", "a")]
    parts = [due.parts for store in stores if (due := store.due("carts")) is not None]
    assert parts == [(Part.INHERITING,), (Part.ALL,), (Part.INHERITING,)]


@pytest.mark.databases("sqlite")
@sweeps
def test_a_table_without_rows_is_swept(engine: Engine, made: Any, sweep: str) -> None:
    report = Sweeper(engine, made(cart(HOUR, sweep))).run_once()
    report.raise_for_failures()
    assert report.deleted == 0


@pytest.mark.databases("postgres")
def test_pages_without_expired_rows_are_passed(engine: Engine, made: Any) -> None:
    model = made(cart(HOUR, "scan"))
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO carts (id, _ts) SELECT i, now() FROM generate_series(1, 60000) i")
        )
        connection.execute(
            text("INSERT INTO carts (id, _ts) VALUES (0, now() - interval '2 hours')")
        )
        pages = connection.scalar(text("SELECT pg_relation_size('carts') / 8192"))
    assert pages > 256
    report = Sweeper(engine, model).run_once()
    assert report.deleted == 1
    assert report.targets[0].batches == 2


# What can be swept


@pytest.mark.databases("sqlite")
def test_everything_that_names_tables_can_be_swept(engine: Engine, made: Any) -> None:
    model = made(cart())
    (_, base) = model.__bases__
    for targets in (
        model,
        model.__table__,
        base,
        model.metadata,
        model.registry,
        [model],
        (model.__table__, model),
        {base},
    ):
        report = Sweeper(engine, targets).run_once()
        assert [each.table for each in report.targets] == ["carts"]


@pytest.mark.databases("sqlite")
def test_subclasses_name_the_table_of_their_base(engine: Engine, made: Any) -> None:
    animal, _, puppy = zoo(None)
    made(animal)
    assert [each.table for each in Sweeper(engine, puppy).run_once().targets] == ["animals"]


@pytest.mark.databases("sqlite")
def test_models_that_are_declared_later_are_swept_too(engine: Engine) -> None:
    mapping = registry()
    sweeper = Sweeper(engine, mapping)
    assert str(sweeper.run_once()) == "Swept nothing: no table has TTL switched on."

    @mapping.mapped
    class Late(TTLMixin):
        __tablename__ = "late"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True)

    mapping.metadata.create_all(engine)
    assert [each.table for each in sweeper.run_once().targets] == ["late"]


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (None, "None can't be swept: pass a declarative base"),
        ("carts", "'carts' can't be swept"),
        ([42], "42 can't be swept"),
        (Table("plain", MetaData(), Column("id", Integer)), "Table 'plain' has no TTL"),
    ],
)
def test_what_cannot_be_swept_is_refused_at_once(
    engine: Engine, targets: Any, message: str
) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        Sweeper(engine, targets)


@pytest.mark.databases("sqlite")
def test_a_model_without_ttl_is_refused_by_name(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Plain(Base):
        __tablename__ = "plain"

        id: Mapped[int] = mapped_column(primary_key=True)

    with pytest.raises(TTLConfigurationError, match=r"^Plain has no TTL"):
        Sweeper(engine, [Plain])


@pytest.mark.databases("sqlite")
def test_a_session_is_no_engine(engine: Engine) -> None:
    with (
        Session(engine) as session,
        pytest.raises(TTLConfigurationError, match=r"needs an Engine .* not Session"),
    ):
        Sweeper(session, cart())


@pytest.mark.databases("sqlite")
async def test_an_asynchronous_engine_wants_the_asynchronous_sweeper(
    async_engine: AsyncEngine,
) -> None:
    with pytest.raises(TTLConfigurationError, match=r"with AsyncEngine: use AsyncSweeper\."):
        Sweeper(async_engine, cart())


@pytest.mark.databases("sqlite")
def test_an_engine_wants_the_synchronous_sweeper(engine: Engine) -> None:
    with pytest.raises(TTLConfigurationError, match=r"with Engine: use Sweeper\."):
        AsyncSweeper(engine, cart())


@pytest.mark.databases("sqlite")
def test_rows_of_other_tables_are_left_alone(engine: Engine) -> None:
    metadata = MetaData()
    plain = Table("plain", metadata, Column("id", Integer, primary_key=True))
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(plain), [{"id": 1}])
    Sweeper(engine, metadata).run_once()
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(plain)) == 1


@pytest.mark.databases("sqlite", "postgres", "mariadb", "mysql")
@sweeps
def test_a_table_with_a_percent_sign_and_quotes_in_its_name_is_swept(
    engine: Engine, made: Any, sweep: str
) -> None:
    class Base(DeclarativeBase):
        pass

    class Share(TTLMixin, Base):
        __tablename__ = 'share in % of "all"' if engine.dialect.name != "mysql" else "share in %"
        __ttl__ = HOUR
        __ttl_sweep__ = sweep

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    made(Share)
    with Session(engine) as session:
        session.add(Share(id=1))
        session.commit()
        session.execute(
            update(Share).values(last_modified=datetime(2020, 1, 1, tzinfo=timezone.utc)),
            execution_options={"keep_last_modified": True},
        )
        session.commit()
    report = Sweeper(engine, Share, lease=False).run_once()
    report.raise_for_failures()
    assert report.deleted == 1
