"""What a policy over columns that exist may say: slips are found when the class is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Date,
    DateTime,
    Enum,
    Float,
    Integer,
    LargeBinary,
    Numeric,
    String,
    Text,
    Time,
    insert,
    select,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    Session,
    declarative_base,
    mapped_column,
)

from tests.sql.adopted import KINDS, UtcDateTime, new_base, table
from ttl_odm import TTL, ExpireAfter, ExpireAt, InvalidTTL, TTLConfigurationError
from ttl_odm.sqlalchemy import TTLMixin, live
from ttl_odm.sqlalchemy.policy.bindings import binding_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine


def declare(policy: Any, type_: Any, **namespace: Any) -> Any:
    return table("things", policy, new_base(), type_, **namespace)


@pytest.mark.parametrize("type_", [DateTime(), DateTime(timezone=True), Date(), UtcDateTime()])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "iso"])
def test_dates_have_no_unit(type_: Any, unit: Any) -> None:
    with pytest.raises(TTLConfigurationError) as caught:
        declare(ExpireAt("at", unit=unit), type_)
    message = str(caught.value)
    assert message.startswith("Things.__ttl__: column 'at' is ")
    assert f"unit={unit!r}: the column holds dates, so leave unit out" in message


@pytest.mark.parametrize("type_", [Integer(), BigInteger()])
@pytest.mark.parametrize("unit", [None, "iso"])
def test_integers_need_a_unit(type_: Any, unit: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"Things.*'at'.*write unit='s', 'ms' or 'us'"):
        declare(ExpireAfter("at", 60, unit=unit), type_)


@pytest.mark.parametrize("type_", [String(40), Text()])
@pytest.mark.parametrize("unit", [None, "s"])
def test_strings_are_iso_or_nothing(type_: Any, unit: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"Things.*'at'.*write unit='iso'"):
        declare(TTL(60, last_modified="at", override=None, unit=unit), type_)


def test_a_string_too_short_for_a_date_is_refused() -> None:
    with pytest.raises(TTLConfigurationError, match=r"String\(length=10\).*20 characters"):
        declare(ExpireAt("at", unit="iso"), String(10))


@pytest.mark.parametrize("type_", [Time(), JSON(), LargeBinary(), Enum("a", "b", name="ab")])
@pytest.mark.parametrize("unit", [None, "s", "iso"])
def test_other_types_hold_no_instants(type_: Any, unit: Any) -> None:
    with pytest.raises(
        TTLConfigurationError, match=r"Things.*'at' is .*name a column of datetimes"
    ):
        declare(ExpireAt("at", unit=unit), type_)


@pytest.mark.parametrize("type_", [Integer(), Float(), Numeric(20, 6)])
@pytest.mark.parametrize("unit", [None, "iso"])
def test_numbers_need_a_unit(type_: Any, unit: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"'at' is .*for epoch numbers write unit='s'"):
        declare(ExpireAt("at", unit=unit), type_)


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (ExpireAt("expires"), "expires"),
        (ExpireAfter("created", 60), "created"),
        (TTL(60, last_modified="touched", override=None), "touched"),
        (TTL(60, last_modified="at", override="life"), "life"),
        (TTL({"a": 60}, by="kind", last_modified="at", override=None), "kind"),
    ],
)
def test_a_missing_column_is_named_with_those_that_there_are(policy: Any, name: str) -> None:
    with pytest.raises(TTLConfigurationError) as caught:
        declare(policy, DateTime())
    message = str(caught.value)
    assert message.startswith(f"Things.__ttl__: table 't_things' has no column {name!r}. ")
    assert "'id', 'at', 'views'" in message


def test_a_compound_field_is_refused_by_the_policy_itself() -> None:
    with pytest.raises(TTLConfigurationError, match=r"ExpireAt\.field = \('a', 'b'\)"):
        ExpireAt(("a", "b"))  # type: ignore[arg-type]


@pytest.mark.parametrize("type_", [String(10), Float(), DateTime()])
def test_a_rows_own_ttl_is_an_integer(type_: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"Things.*'life' is .*must be an integer"):
        declare(TTL(60, last_modified="at", override="life"), DateTime(), life=mapped_column(type_))


def test_a_storage_format_of_its_own_is_refused_before_anything_is_read(engine: Engine) -> None:
    kind = DateTime().with_variant(
        sqlite.DATETIME(storage_format="%(day)02d.%(month)02d.%(year)04d"), "sqlite"
    )
    model = declare(ExpireAt("at"), kind)
    if engine.dialect.name == "sqlite":
        with pytest.raises(TTLConfigurationError, match=r"t_things\.at.*leave storage_format out"):
            str(select(model).compile(engine))
    else:
        assert str(select(model).compile(engine))


def test_a_column_goes_by_its_attribute_or_its_name(engine: Engine) -> None:
    for name in ("expiry", "exp"):

        class Base(DeclarativeBase):
            pass

        class Token(TTLMixin, Base):
            __tablename__ = "tokens"
            __ttl__ = ExpireAt(name, unit="s")
            id: Mapped[int] = mapped_column(primary_key=True)
            expiry: Mapped[int] = mapped_column("exp")

        assert binding_of(Token.__table__).last_modified is Token.__table__.c.exp  # type: ignore[union-attr]
        Base.metadata.create_all(engine)
        with Session(engine) as session:
            session.execute(insert(Token), [{"id": 1, "expiry": 5}, {"id": 2, "expiry": 2**31 - 1}])
            assert session.scalars(select(Token.id)).all() == [2]
        Base.metadata.drop_all(engine)


def plain() -> Any:
    class Stored(TTLMixin, declarative_base()):  # type: ignore[misc]
        __tablename__ = "stored"
        __ttl__ = ExpireAt("exp", unit="s")
        id = Column(Integer, primary_key=True)
        exp = Column(Integer)

    return Stored


def dataclass() -> Any:
    class Base(MappedAsDataclass, DeclarativeBase):
        pass

    class Stored(TTLMixin, Base):
        __tablename__ = "stored"
        __ttl__ = ExpireAt("exp", unit="s")
        id: Mapped[int] = mapped_column(primary_key=True)
        exp: Mapped[int]

    return Stored


def without_the_mixin() -> Any:
    class Base(DeclarativeBase):
        pass

    class Stored(Base):
        __tablename__ = "stored"
        __ttl__ = ExpireAt("exp", unit="s")
        id: Mapped[int] = mapped_column(primary_key=True)
        exp: Mapped[int]

    return Stored


def mixin_on_the_base() -> Any:
    class Base(TTLMixin, DeclarativeBase):
        pass

    class Stored(Base):
        __tablename__ = "stored"
        __ttl__ = ExpireAt("exp", unit="s")
        id: Mapped[int] = mapped_column(primary_key=True)
        exp: Mapped[int]

    return Stored


def mixin_on_a_base_with_a_policy() -> Any:
    class Base(TTLMixin, DeclarativeBase):
        __ttl__ = ExpireAt("exp", unit="s")

    class Stored(Base):
        __tablename__ = "stored"
        id: Mapped[int] = mapped_column(primary_key=True)
        exp: Mapped[int]

    return Stored


STYLES = [plain, dataclass, without_the_mixin, mixin_on_the_base, mixin_on_a_base_with_a_policy]


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
def test_no_style_gets_columns_that_its_policy_does_not_name(
    engine: Engine, style: Callable[[], Any]
) -> None:
    model = style()
    assert model.__table__.c.keys() == ["id", "exp"]
    model.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([model(id=1, exp=5), model(id=2, exp=2**31 - 1)])
        session.commit()
        assert session.scalars(select(model.id)).all() == [2]


def test_the_mixin_adds_the_one_column_that_the_policy_wants(engine: Engine) -> None:
    model = declare(TTL(60, last_modified="at"), DateTime())
    assert set(model.__table__.c.keys()) == {"id", "at", "views", "ttl"}
    model.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([model(id="1", ttl=5), model(id="2")])
        session.flush()
        with pytest.raises(InvalidTTL):
            model(id="3", ttl=0)
        assert session.scalars(select(model.id).where(live(model)).order_by(model.id)).all() == [
            *("1", "2")
        ]


def test_a_function_tells_the_default_of_each_statement(engine: Engine) -> None:
    told: list[Any] = [3600]
    base = new_base()
    model = table(
        "told",
        TTL(lambda: told[0], last_modified="at", override=None, unit="s"),
        base,
        KINDS["seconds"].type,
    )
    base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(model(id="1"))
        session.flush()
        session.execute(
            insert(model.__table__).values(id="old", at=1000),
            execution_options={"keep_last_modified": True},
        )
        for default, alive in (
            (3600, ["1"]),
            (None, ["1", "old"]),
            (-1, ["1", "old"]),
            (2**31 - 1, ["1", "old"]),
            (3600.0, ["1"]),
        ):
            told[0] = default
            found = session.scalars(select(model.id).order_by(model.id)).all()
            assert found == alive, default
        told[0] = 0
        with pytest.raises(InvalidTTL, match=r"Told\.__ttl__: TTL\.default\(\) = 0 is not a ttl"):
            session.scalars(select(model.id))
        told[0] = 60
        model.__ttl__ = TTL(-1, last_modified="at", override=None, unit="s")
        assert len(session.scalars(select(model.id)).all()) == 2
        model.__ttl__ = TTL(60, last_modified="id", override=None)
        with pytest.raises(TTLConfigurationError, match=r"Told\.__ttl__ became .*not the columns"):
            session.scalars(select(model.id))


def test_a_function_may_tell_the_default_of_the_contract_too(engine: Engine) -> None:
    told: list[Any] = [3600]
    base = new_base()
    model = table("told", TTL(lambda: told[0]), base, KINDS["seconds"].type)
    base.metadata.create_all(engine)
    with Session(engine, expire_on_commit=False) as session:
        session.add(model(id="1"))
        session.commit()
        assert session.get(model, "1") is not None
        told[0] = 1
        model.__table__.c["_ts"]
        second = {"sqlite": 1000, "mysql": 1_000_000}.get(engine.dialect.name)
        unit = f"{second} * 9" if second else "interval '9 seconds'"
        session.connection().exec_driver_sql(f"UPDATE t_told SET _ts = _ts - {unit}")  # noqa: S608
        session.expire_all()
        assert session.get(model, "1") is None
        told[0] = None
        assert session.get(model, "1") is not None


def test_each_kind_of_row_has_its_default(engine: Engine) -> None:
    told = [100]
    base = new_base()
    model = table(
        "resources",
        TTL(
            {"cart": 100, "order": None, "draft": lambda: told[0], "note": -1},
            by="resource",
            other=300,
            last_modified="at",
            override="life",
            unit="s",
        ),
        base,
        KINDS["seconds"].type,
        resource=mapped_column(String(10), nullable=True),
        life=mapped_column(Integer, nullable=True),
    )
    base.metadata.create_all(engine)
    kinds = ("cart", "order", "draft", "note", "else", None)
    with Session(engine) as session:
        session.add_all([model(id="now", resource="cart")])
        session.flush()
        now = session.get_one(model, "now").at
        rows = [
            {
                "id": f"{kind} {age} {own}",
                "at": now - age,
                "resource": kind,
                "life": own,
                "views": 0,
            }
            for kind in kinds
            for age in (50, 200, 400)
            for own in (None, 250)
        ]
        session.execute(
            insert(model.__table__), rows, execution_options={"keep_last_modified": True}
        )
        session.commit()

        def alive() -> set[str]:
            return set(session.scalars(select(model.id).where(model.id != "now")))

        expected = {"cart": 100, "draft": 100, "else": 300, None: 300}
        lives = {
            row["id"]
            for row in rows
            if row["resource"] == "order"
            or (row["life"] or expected.get(row["resource"], 10**9)) > now - row["at"]
        }
        assert alive() == lives
        for row in rows:
            found = session.get(model, row["id"])
            assert (found is not None) == (row["id"] in lives), row
        told[0] = 300
        assert alive() == lives | {"draft 200 None"}
        assert session.get_one(model, "draft 200 None").expires_at.timestamp() == now + 100
        policy = model.__ttl__
        model.__ttl__ = TTL(
            {"cart": 300, "order": 100, "draft": 100, "note": -1},
            by="resource",
            last_modified="at",
            override="life",
            unit="s",
        )
        assert {"cart 200 None", "else 400 None"} <= alive()
        assert "order 200 None" not in alive()
        model.__ttl__ = TTL(
            {"cart": 300}, by="resource", last_modified="at", override="life", unit="s"
        )
        with pytest.raises(TTLConfigurationError, match=r"Resources\.__ttl__ became"):
            alive()
        model.__ttl__ = policy


def test_a_subclass_may_differ_by_its_default_alone(engine: Engine) -> None:
    base = new_base()

    class Animal(TTLMixin, base):  # type: ignore[misc,valid-type]
        __tablename__ = "animals"
        __ttl__ = TTL(60, last_modified="at", override=None, unit="s")
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}
        id: Mapped[int] = mapped_column(primary_key=True)
        at: Mapped[int]
        kind: Mapped[str] = mapped_column(String(10))

    class Cat(Animal):
        __ttl__ = TTL(None, last_modified="at", override=None, unit="s")
        __mapper_args__ = {"polymorphic_identity": "cat"}

    class Bird(Animal):
        __ttl__ = 2**31 - 1
        __mapper_args__ = {"polymorphic_identity": "bird"}

    with pytest.raises(
        TTLConfigurationError, match=r"Dog\.__ttl__ = TTL\(60\).*only change the default"
    ):

        class Dog(Animal):
            __ttl__ = TTL(60)
            __mapper_args__ = {"polymorphic_identity": "dog"}

    base.metadata.create_all(engine)
    with Session(engine) as session:
        session.execute(
            insert(Animal.__table__),
            [
                {"id": 1, "at": 5, "kind": "animal"},
                {"id": 2, "at": 5, "kind": "cat"},
                {"id": 3, "at": 5, "kind": "bird"},
            ],
            execution_options={"keep_last_modified": True},
        )
        assert set(session.scalars(select(Animal.id))) == {2, 3}
        assert session.get(Bird, 3).expires_at.timestamp() == 2**31 + 4
        assert session.get(Cat, 2).expires_at is None


def test_kinds_and_subclasses_with_defaults_of_their_own_exclude_each_other() -> None:
    base = new_base()

    class Animal(TTLMixin, base):  # type: ignore[misc,valid-type]
        __tablename__ = "animals"
        __ttl__ = TTL({"cat": 60}, by="kind")
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}
        id: Mapped[int] = mapped_column(primary_key=True)
        kind: Mapped[str] = mapped_column(String(10))

    class Dog(Animal):
        __mapper_args__ = {"polymorphic_identity": "dog"}

    with pytest.raises(TTLConfigurationError, match=r"Cat\.__ttl__.*a default for each 'kind'"):

        class Cat(Animal):
            __ttl__ = 60
            __mapper_args__ = {"polymorphic_identity": "cat"}
