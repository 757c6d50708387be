"""Which tables can be cut by time, and what is wrong with the others."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Date,
    DateTime,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    create_mock_engine,
    inspect,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm import TTL, ExpireAfter, ExpireAt, Partitions, TTLConfigurationError
from ttl_odm.partitions.sqlalchemy.layout import partitioning_on
from ttl_odm.sqlalchemy import TTLMixin, enable
from ttl_odm.sqlalchemy.declare.enable import disable
from ttl_odm.sqlalchemy.declare.mapper import layout_of
from ttl_odm.sqlalchemy.policy.bindings import binding_of

DAY = 86_400


def script(metadata: MetaData, **options: Any) -> list[str]:
    """What ``create_all()`` says to PostgreSQL."""
    statements: list[str] = []

    def note(ddl: Any, *_: Any, **__: Any) -> None:
        statements.append(" ".join(str(ddl.compile(dialect=engine.dialect)).split()))

    engine = create_mock_engine("postgresql+psycopg://", note)
    metadata.create_all(engine, checkfirst=False, **options)
    return statements


def table(column: Any, *more: Any, name: str = "events", **options: Any) -> Table:
    return Table(
        name,
        MetaData(),
        Column("id", Integer, primary_key=True, autoincrement=False),
        column,
        *more,
        **options,
    )


def created(kind: Any = None, **options: Any) -> Any:
    options = {"primary_key": True, **options}
    return Column("created_at", kind or DateTime(timezone=True), **options)


def test_a_model_is_cut_by_the_column_that_lives_are_counted_from() -> None:
    class Base(DeclarativeBase):
        pass

    class Visit(TTLMixin, Base):
        __tablename__ = "visits"
        __ttl__ = TTL(1800, max_lifetime=DAY, created="began")
        __ttl_partition__ = Partitions("1 day", ahead=2)

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        began: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)

    statements = script(Base.metadata)
    assert statements[0].endswith(') PARTITION BY RANGE ("began")')
    rest, *days = (each for each in statements if " PARTITION OF " in each)
    assert rest == 'CREATE TABLE "visits_rest" PARTITION OF "visits" DEFAULT'
    assert len(days) == 3
    assert all('" PARTITION OF "visits" FOR VALUES FROM (\'20' in day for day in days)


@pytest.mark.parametrize(
    ("column", "policy", "bound"),
    [
        (created(), ExpireAfter("created_at", 60), " 00:00:00+00'"),
        (created(DateTime()), ExpireAfter("created_at", 60), " 00:00:00+00'"),
        (created(DateTime(timezone=True)), ExpireAt("created_at"), " 00:00:00+00'"),
        (created(Date()), ExpireAt("created_at"), " 00:00:00+00'"),
        (created(Integer()), ExpireAt("created_at", unit="s"), "00)"),
        (created(BigInteger()), ExpireAt("created_at", unit="ms"), "00000)"),
        (created(BigInteger()), ExpireAt("created_at", unit="us"), "00000000)"),
    ],
)
def test_a_column_of_instants_can_be_cut(column: Any, policy: Any, bound: str) -> None:
    events = table(column)
    enable(events, policy, partition=Partitions("1 day", ahead=1))
    _, *days = (each for each in script(events.metadata) if " PARTITION OF " in each)
    assert len(days) == 2
    assert all(bound in day for day in days)


def test_a_copy_is_cut_in_its_own_schema() -> None:
    events = table(created())
    enable(events, ExpireAfter("created_at", 60), partition=Partitions("1 day", ahead=1))
    copy = events.to_metadata(MetaData(), schema="other")
    statements = script(copy.metadata)
    assert 'CREATE TABLE "other"."events_rest" PARTITION OF "other"."events" DEFAULT' in statements
    found = binding_of(copy)
    assert found is not None
    partitioning = partitioning_on(found)
    assert partitioning is not None
    assert partitioning.column is copy.c.created_at


def test_the_partitions_of_others_are_not_made() -> None:
    events = table(created(), postgresql_partition_by="range ( created_at )")
    partition = Partitions("1 day", made_by="others")
    enable(events, ExpireAfter("created_at", 60), partition=partition)
    statements = script(events.metadata)
    assert statements[0].endswith("PARTITION BY range ( created_at )")
    assert not [each for each in statements if " PARTITION OF " in each]


def test_disabled_a_table_keeps_what_it_was_declared_with() -> None:
    events = table(created(), postgresql_partition_by="RANGE (created_at)")
    enable(events, ExpireAfter("created_at", 60), partition=Partitions("1 day"))
    disable(events)
    (statement,) = script(events.metadata)[:1]
    assert statement.endswith("PARTITION BY RANGE (created_at)")


def test_disabled_a_table_is_cut_no_more() -> None:
    events = table(created())
    enable(events, ExpireAfter("created_at", 60), partition=Partitions("1 day"))
    disable(events)
    assert not [each for each in script(events.metadata) if "PARTITION" in each]


def test_another_policy_may_cut_by_another_column() -> None:
    events = table(created(), Column("until", DateTime(timezone=True), primary_key=True))
    enable(events, ExpireAfter("created_at", 60), partition=Partitions("1 day"))
    enable(events, ExpireAt("until"), partition=Partitions("1 week"))
    statements = script(events.metadata)
    assert statements[0].endswith('PARTITION BY RANGE ("until")')
    assert len([each for each in statements if " PARTITION OF " in each]) == 9


@pytest.mark.databases("sqlite")
def test_a_database_without_partitions_has_a_table_like_any(engine: Any) -> None:
    events = table(created(), name="plain")
    enable(events, ExpireAfter("created_at", 60), partition=Partitions("1 day"))
    events.create(engine)
    assert inspect(engine).get_table_names() == ["plain"]


REFUSED = {
    "renewed": (
        created(),
        TTL(60, last_modified="created_at", override=None),
        "each write renews a row",
    ),
    "no key": (created(primary_key=False), ExpireAt("created_at"), r"primary key \('id'\)"),
    "text": (
        created(String(30)),
        ExpireAt("created_at", unit="iso"),
        "can't be divided into time ranges",
    ),
    "local": (
        created(DateTime()),
        ExpireAt("created_at", timezone="Europe/Paris"),
        "timezone='Europe/Paris': the boundaries of partitions are in UTC",
    ),
    "otherwise": (created(), ExpireAt("created_at"), "is declared with postgresql_partition_by"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_cut_is_refused_with_the_reason(case: str) -> None:
    column, policy, message = REFUSED[case]
    options = {"postgresql_partition_by": "LIST (id)"} if case == "otherwise" else {}
    events = table(column, **options)
    with pytest.raises(TTLConfigurationError, match=message):
        enable(events, policy, partition=Partitions("1 day"))
    assert binding_of(events) is None


def test_days_are_not_cut_into_hours() -> None:
    events = table(created(Date()))
    with pytest.raises(TTLConfigurationError, match="are shorter than a day"):
        enable(events, ExpireAt("created_at"), partition=Partitions("1 hour"))


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (UniqueConstraint("number"), "unique constraint"),
        (Index("ix_number", "number", unique=True), "unique index"),
    ],
)
def test_all_keys_have_the_column(key: Any, kind: str) -> None:
    events = table(created(), Column("number", Integer), key)
    with pytest.raises(TTLConfigurationError, match=rf"the {kind} \('number'\) of table 'events'"):
        enable(events, ExpireAt("created_at"), partition=Partitions("1 day"))


def test_a_class_declares_it_or_nothing() -> None:
    class Event:
        __ttl_partition__: Any = None

    assert layout_of(Event) is None
    Event.__ttl_partition__ = Partitions("1 day")
    assert layout_of(Event) == Partitions("1 day")
    Event.__ttl_partition__ = "1 day"
    with pytest.raises(TTLConfigurationError, match=r"Event\.__ttl_partition__ = '1 day': write"):
        layout_of(Event)
