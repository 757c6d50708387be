"""What a declaration may say: every mistake is found when the class is made."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    insert,
    inspect,
    join,
    select,
)
from sqlalchemy.ext.declarative import AbstractConcreteBase
from sqlalchemy.orm import (
    DeclarativeBase,
    DeclarativeBaseNoMeta,
    Mapped,
    MappedAsDataclass,
    Session,
    column_property,
    declarative_base,
    mapped_column,
    registry,
)

from tests.clocks import age
from ttl_odm import TTL, InvalidTTL, TTLConfigurationError
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine


def declare(default: object, **columns: Any) -> Any:
    class Base(DeclarativeBase):
        pass

    namespace = {
        "__tablename__": "things",
        "__ttl__": default,
        "id": mapped_column(Integer, primary_key=True),
        **columns,
    }
    return type("Thing", (TTLMixin, Base), namespace)


@pytest.mark.parametrize("ttl", [None, -1, 1, 2147483647, 60.0, timedelta(hours=1), TTL(60)])
def test_every_valid_default_is_taken(ttl: object) -> None:
    assert declare(ttl).__ttl__ is ttl


@pytest.mark.parametrize(
    "ttl", [0, -2, 1.5, "3600", True, float("nan"), 2147483648, timedelta(seconds=0.5), [60]]
)
def test_an_invalid_default_is_refused_with_the_model_and_the_value(ttl: object) -> None:
    with pytest.raises(InvalidTTL) as caught:
        declare(ttl)
    assert "Thing.__ttl__" in str(caught.value)
    assert repr(ttl) in str(caught.value)


def test_a_model_without_the_columns_is_told_to_add_the_mixin() -> None:
    class Base(DeclarativeBase):
        pass

    with pytest.raises(TTLConfigurationError, match=r"Plain\.__ttl__.*no column '_ts'.*TTLMixin"):

        class Plain(Base):
            __tablename__ = "plain"
            __ttl__ = 60
            id: Mapped[int] = mapped_column(primary_key=True)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"last_modified": mapped_column("_ts", String(20))}, "'_ts' is String.*unit='iso'"),
        ({"ttl": mapped_column("ttl", String(20))}, "'ttl' is String.*integer"),
    ],
)
def test_a_column_of_the_wrong_type_is_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        declare(60, **columns)


def test_an_unknown_way_to_sweep_is_refused() -> None:
    with pytest.raises(TTLConfigurationError, match=r"Thing\.__ttl_sweep__ = 'fast'.*'index'"):
        declare(60, __ttl_sweep__="fast")


def test_a_class_with_the_mixin_says_how_long_its_rows_live() -> None:
    class Base(TTLMixin, DeclarativeBase): ...

    with pytest.raises(TTLConfigurationError, match=r"^Vase has TTLMixin, but no __ttl__: "):

        class Vase(Base):
            __tablename__ = "vases"
            id: Mapped[int] = mapped_column(primary_key=True)

    class Kept(Base):
        __abstract__ = True
        __ttl__ = None

    class Jar(Kept):
        __tablename__ = "jars"
        id: Mapped[int] = mapped_column(primary_key=True)

    class Lid(Jar):
        __tablename__ = "lids"
        id: Mapped[int] = mapped_column(ForeignKey("jars.id"), primary_key=True)

    assert {"_ts", "ttl"} <= set(Jar.__table__.c.keys())


def dataclass_on_the_base() -> Any:
    class Base(TTLMixin, MappedAsDataclass, DeclarativeBaseNoMeta):
        registry = registry()

    class Vase(Base):
        __tablename__ = "vases"
        __ttl__ = 60
        id: Mapped[int] = mapped_column(primary_key=True)
        name: Mapped[str] = mapped_column(default="", kw_only=True)

    return Vase


def dataclass_of_its_own() -> Any:
    class Base(DeclarativeBase): ...

    class Vase(MappedAsDataclass, TTLMixin, Base):
        __tablename__ = "vases"
        __ttl__ = 60
        id: Mapped[int] = mapped_column(primary_key=True)
        name: Mapped[str] = mapped_column(default="", kw_only=True)

    return Vase


def dataclass_of_a_subclass() -> Any:
    class Base(MappedAsDataclass, DeclarativeBase): ...

    class Container(TTLMixin, Base):
        __tablename__ = "containers"
        __ttl__ = 60
        id: Mapped[int] = mapped_column(primary_key=True)

    class Vase(Container):
        __tablename__ = "vases"
        id: Mapped[int] = mapped_column(ForeignKey("containers.id"), primary_key=True)
        name: Mapped[str] = mapped_column(default="", kw_only=True)

    return Vase


@pytest.mark.parametrize(
    "style", [dataclass_on_the_base, dataclass_of_its_own, dataclass_of_a_subclass]
)
def test_a_dataclass_takes_a_ttl_by_name(style: Callable[[], Any]) -> None:
    model = style()
    row = model(1, ttl=timedelta(minutes=1), name="a")
    assert (row.ttl, model(2).ttl) == (60, None)
    assert replace(row, name="b").ttl == 60
    assert "ttl" not in repr(row)
    assert model(1, name="a") == row
    with pytest.raises(InvalidTTL, match=r"Vase\.ttl = 0"):
        model(3, ttl=0)
    with pytest.raises(TypeError):
        model(3, 60)


def test_a_second_policy_for_a_table_is_refused() -> None:
    first = declare(60)

    class Second:
        __ttl__ = 30

    with pytest.raises(TTLConfigurationError, match=r"Second\.__ttl__.*the policy of Thing"):
        registry().map_imperatively(Second, first.__table__)


def test_a_policy_on_a_join_is_refused() -> None:
    mapping = registry()
    a = Table("a", mapping.metadata, Column("id", Integer, primary_key=True))
    b = Table("b", mapping.metadata, Column("id", ForeignKey("a.id"), primary_key=True))

    class Both:
        __ttl__ = 60

    with pytest.raises(TTLConfigurationError, match="Both is mapped to Join"):
        mapping.map_imperatively(
            Both, join(a, b), properties={"id": column_property(a.c.id, b.c.id)}
        )


def test_a_policy_on_a_joined_subclass_is_refused() -> None:
    class Base(DeclarativeBase):
        pass

    class Animal(Base):
        __tablename__ = "animals"
        id: Mapped[int] = mapped_column(primary_key=True)
        kind: Mapped[str] = mapped_column(String(10))
        __mapper_args__ = {"polymorphic_on": "kind"}

    with pytest.raises(TTLConfigurationError, match=r"Cat\.__ttl__.*Animal"):

        class Cat(TTLMixin, Animal):
            __tablename__ = "cats"
            __ttl__ = 60
            id: Mapped[int] = mapped_column(ForeignKey("animals.id"), primary_key=True)
            __mapper_args__ = {"polymorphic_identity": "cat"}


def plain_base() -> Any:
    class Stored(TTLMixin, declarative_base()):  # type: ignore[misc]
        __tablename__ = "sessions"
        __ttl__ = 60
        id = Column(String(20), primary_key=True)

    return Stored


def declarative_class() -> Any:
    class Base(DeclarativeBase):
        pass

    class Stored(TTLMixin, Base):
        __tablename__ = "sessions"
        __ttl__ = 60
        id: Mapped[str] = mapped_column(String(20), primary_key=True)

    return Stored


def mixin_on_the_base() -> Any:
    class Base(TTLMixin, DeclarativeBase):
        __ttl__ = 60

    class Stored(Base):
        __tablename__ = "sessions"
        id: Mapped[str] = mapped_column(String(20), primary_key=True)

    return Stored


def dataclass() -> Any:
    class Base(MappedAsDataclass, DeclarativeBase):
        pass

    class Stored(TTLMixin, Base):
        __tablename__ = "sessions"
        __ttl__ = 60
        id: Mapped[str] = mapped_column(String(20), primary_key=True)

    return Stored


def decorated() -> Any:
    mapping = registry()

    @mapping.mapped
    class Stored(TTLMixin):
        __tablename__ = "sessions"
        __ttl__ = 60
        id = Column(String(20), primary_key=True)

    return Stored


def decorated_dataclass() -> Any:
    mapping = registry()

    @mapping.mapped_as_dataclass
    class Stored(TTLMixin):
        __tablename__ = "sessions"
        __ttl__ = 60
        id: Mapped[str] = mapped_column(String(20), primary_key=True)

    return Stored


def naming_convention() -> Any:
    class Base(DeclarativeBase):
        metadata = MetaData(
            naming_convention={
                "ix": "ix_%(column_0_label)s",
                "uq": "uq_%(table_name)s_%(column_0_name)s",
                "ck": "ck_%(table_name)s_%(constraint_name)s",
                "pk": "pk_%(table_name)s",
            }
        )

    class Stored(TTLMixin, Base):
        __tablename__ = "sessions"
        __ttl__ = 60
        id: Mapped[str] = mapped_column(String(20), primary_key=True)

    return Stored


def imperative() -> Any:
    from ttl_odm.sqlalchemy.time.clock import LastModified

    mapping = registry()
    table = Table(
        "sessions",
        mapping.metadata,
        Column("id", String(20), primary_key=True),
        Column("_ts", LastModified(), nullable=False),
        Column("ttl", BigInteger, CheckConstraint("ttl <> 0")),
    )

    class Stored:
        __ttl__ = 60

        def __init__(self, id: str) -> None:  # noqa: A002
            self.id = id

    mapping.map_imperatively(Stored, table, properties={"last_modified": table.c._ts})
    return Stored


STYLES = [
    plain_base,
    declarative_class,
    mixin_on_the_base,
    dataclass,
    decorated,
    decorated_dataclass,
    naming_convention,
    imperative,
]


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
def test_every_declarative_style_works(engine: Engine, style: Callable[[], Any]) -> None:
    model = style()
    inspect(model).local_table.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([model(id="a"), model(id="b")])
        session.commit()
        row = session.get(model, "b")
        row.ttl = -1
        session.commit()
        assert row.last_modified is not None
        assert row.last_modified.tzinfo is not None
        model.__ttl__ = 1
        row = session.get(model, "a")
        age(session.connection(), "sessions", "a", 5)
        assert [each.id for each in session.scalars(select(model))] == ["b"]
        session.commit()


@pytest.mark.parametrize("ttl", [0, -2, 1.5, "20", True, float("nan"), 2147483648])
def test_an_invalid_own_ttl_is_refused_everywhere_and_nothing_is_stored(
    engine: Engine, ttl: object
) -> None:
    model = declare(60)
    model.metadata.create_all(engine)
    with pytest.raises(InvalidTTL, match=r"Thing\.ttl = "):
        model(id=1, ttl=ttl)
    with Session(engine) as session:
        session.add(model(id=1))
        session.commit()
        row = session.get(model, 1)
        with pytest.raises(InvalidTTL, match=r"Thing\.ttl = "):
            row.ttl = ttl
        assert row.ttl is None
        for execute in (
            lambda: session.execute(insert(model), [{"id": 2, "ttl": 5}, {"id": 3, "ttl": ttl}]),
            lambda: session.connection().execute(model.__table__.update().values(ttl=ttl)),
        ):
            with pytest.raises(InvalidTTL, match=r"Thing\.ttl = "):
                execute()
        # The transaction is as SQLAlchemy leaves it: usable, with nothing of the statement.
        assert session.execute(select(model.id, model.ttl)).all() == [(1, None)]


def test_raw_sql_that_names_neither_column_gets_the_servers_stamp(engine: Engine) -> None:
    model = declare(60)
    model.metadata.create_all(engine)
    with Session(engine) as session:
        session.connection().exec_driver_sql("INSERT INTO things (id) VALUES (1)")
        row = session.get_one(model, 1)
        assert row.ttl is None
        assert not row.is_expired
        assert timedelta(seconds=50) < row.time_left <= timedelta(seconds=60)


@pytest.mark.parametrize("ttl", [timedelta(hours=1), 3600.0, 3600])
def test_an_own_ttl_may_be_a_timedelta_or_an_integral_float(engine: Engine, ttl: Any) -> None:
    model = declare(-1)
    model.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(model(id=1, ttl=ttl))
        session.execute(insert(model), [{"id": 2, "ttl": ttl}])
        session.flush()
        assert session.scalars(select(model.ttl)).all() == [3600, 3600]


def test_a_concrete_subclass_gets_the_columns_of_its_own_table(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Asset(TTLMixin, Base):
        __tablename__ = "assets"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True)

    class Car(Asset):
        __tablename__ = "cars"
        __ttl__ = 60
        __mapper_args__ = {"concrete": True}
        id: Mapped[int] = mapped_column(primary_key=True)

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Asset(id=1), Car(id=1), Car(id=2, ttl=-1)])
        session.commit()
        for table in ("assets", "cars"):
            age(session.connection(), table, 1, 100)
        session.commit()
        assert session.scalars(select(Asset.id)).all() == [1]
        assert session.scalars(select(Car.id)).all() == [2]
        session.get_one(Car, 2).expire_in(0)
        session.commit()
        assert session.scalars(select(Car.id)).all() == []


def vehicles(default: Any) -> Any:
    """Declare a base class without a table, whose subclasses have one each."""

    class Base(DeclarativeBase):
        pass

    class Vehicle(TTLMixin, AbstractConcreteBase, Base):
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        if default is not None:
            __ttl__ = default

    class Truck(Vehicle):
        __tablename__ = "trucks"
        __mapper_args__ = {"concrete": True, "polymorphic_identity": "truck"}
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        if default is None:
            __ttl__ = 60

    class Bike(Vehicle):
        __tablename__ = "bikes"
        __ttl__ = 3600
        __mapper_args__ = {"concrete": True, "polymorphic_identity": "bike"}
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    return Vehicle, Truck, Bike


@pytest.mark.parametrize("default", [60, None])
def test_an_abstract_concrete_base_may_have_the_mixin(engine: Engine, default: int | None) -> None:
    vehicle, truck, bike = vehicles(default)
    vehicle.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([model(id=number) for model in (truck, bike) for number in (1, 2)])
        session.commit()
        age(session.connection(), "trucks", 1, 100)
        age(session.connection(), "bikes", 1, 100)
        age(session.connection(), "bikes", 2, 4000)
        session.commit()
        live_ones = session.scalars(select(vehicle).order_by(vehicle.id)).all()
        assert [(type(row), row.id) for row in live_ones] == [(bike, 1), (truck, 2)]
        session.add_all([truck(id=1), bike(id=2)])
        session.commit()
        age(session.connection(), "trucks", 2, 100)
        age(session.connection(), "bikes", 1, 4000)
        session.commit()
    report = Sweeper(engine, vehicle).run_once()
    assert {target.table: target.deleted for target in report.targets} == {"trucks": 1, "bikes": 1}


def test_the_default_of_an_abstract_concrete_base_can_be_changed(engine: Engine) -> None:
    vehicle, truck, _ = vehicles(60)
    vehicle.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(truck(id=1))
        session.commit()
        age(session.connection(), "trucks", 1, 100)
        session.commit()
        assert session.scalars(select(vehicle.id)).all() == []
        vehicle.__ttl__ = 200
        assert session.scalars(select(vehicle.id)).all() == [1]
