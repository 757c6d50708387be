"""`enable` and `disable`: which targets they take, what they do to them, and what they refuse."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    DateTime,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.ext.automap import automap_base
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column, registry

from tests.clocks import age
from tests.sql.models import web_session
from ttl_odm import TTL, InvalidTTL, TTLConfigurationError
from ttl_odm.sqlalchemy import Archive, TTLMixin, disable, enable, expires_at, include_expired, live
from ttl_odm.sqlalchemy.declare.mixin import last_modified_column, ttl_column
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


def tokens_table(metadata: MetaData, *others: Any) -> Table:
    """A table with the contract's columns that nobody gave a policy."""
    return Table(
        "tokens",
        metadata,
        Column("id", String(40), primary_key=True),
        Column("kind", String(10)),
        last_modified_column(),
        ttl_column(object),
        *others,
    )


@pytest.fixture
def stored(engine: Engine) -> Engine:
    """A database that has the table, with a young and an old row."""
    table = tokens_table(MetaData())
    table.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(table), [{"id": "young"}, {"id": "old"}])
        age(connection, "tokens", "old", 100)
    return engine


def reflected(engine: Engine) -> Table:
    return Table("tokens", MetaData(), autoload_with=engine)


def automapped(engine: Engine) -> Any:
    base: Any = automap_base()
    base.prepare(autoload_with=engine)
    return base.classes.tokens


def declared(_: Engine) -> Any:
    class Base(DeclarativeBase):
        pass

    class Token(Base):
        __table__ = tokens_table(Base.metadata)

    return Token


def imperative(_: Engine) -> Any:
    class Token:
        pass

    mapped = registry()
    mapped.map_imperatively(Token, tokens_table(mapped.metadata))
    return Token


def with_mixin(_: Engine) -> Any:
    class Base(DeclarativeBase):
        pass

    class Token(TTLMixin, Base):
        __tablename__ = "tokens"
        __ttl__ = None
        id: Mapped[str] = mapped_column(String(40), primary_key=True)

    return Token


def core(_: Engine) -> Table:
    return tokens_table(MetaData())


TARGETS = [reflected, automapped, declared, imperative, with_mixin, core]


@pytest.mark.parametrize("make", TARGETS)
def test_any_kind_of_target_gets_a_lifetime_and_loses_it_again(stored: Engine, make: Any) -> None:
    target = make(stored)
    key = target.c.id if isinstance(target, Table) else target.id

    def ids(*options: Any) -> list[str]:
        with stored.connect() as connection:
            return sorted(connection.execute(select(key).options(*options)).scalars())

    assert ids() == ["old", "young"]
    enable(target, 60)
    assert ids() == ["young"]
    assert ids(include_expired()) == ["old", "young"]
    with stored.connect() as connection:
        shown = select(key, live(target), expires_at(target)).options(include_expired())
        found = {row[0]: row[1:] for row in connection.execute(shown)}
    assert [found[each][0] for each in ("old", "young")] == [False, True]
    assert (found["young"][1] - found["old"][1]).total_seconds() == pytest.approx(100, abs=20)
    enable(target, 200)
    assert ids() == ["old", "young"]
    disable(target)
    enable(target, 60, sweep="scan")
    assert Sweeper(stored, target).run_once().deleted == 1
    disable(target)
    assert ids(include_expired()) == ids() == ["young"]


def test_writes_stamp_and_expired_keys_are_free(stored: Engine) -> None:
    for table in (reflected(stored), core(stored)):
        enable(table, 60)
        stamp = select(table.c._ts).where(table.c.id == "young")
        with stored.connect() as connection:
            connection.execute(insert(table), {"id": "old", "ttl": 5})
            age(connection, "tokens", "young", 10)
            before = connection.execute(stamp).scalar_one()
            assert connection.execute(update(table).values(ttl=7)).rowcount == 2
            assert (connection.execute(stamp).scalar_one() - before).total_seconds() > 9


def test_a_flush_of_an_enabled_class_stamps(stored: Engine) -> None:
    for make in (automapped, declared, imperative):
        token = make(stored)
        enable(token, 3600)
        with Session(stored) as session:
            session.add(token(id="new"))
            session.commit()
            age(session.connection(), "tokens", "new", 100)
            session.commit()
            row = session.get_one(token, "new")
            before = row._ts
            assert before.tzinfo is not None
            row.ttl = 500
            session.commit()
            assert row._ts > before
            session.delete(row)
            session.commit()
            later = select(token.id).where(token._ts >= before, token.id == "new")
            assert session.scalars(later).all() == []


def test_the_type_of_a_reflected_column_is_its_own_again_after_disabling(stored: Engine) -> None:
    table = reflected(stored)
    before = table.c._ts.type
    enable(table, 60)
    assert table.c._ts.type is not before
    disable(table)
    assert table.c._ts.type is before
    assert table.c._ts.default is None


def test_disabling_brings_back_what_the_class_declares() -> None:
    model = web_session(3600)
    enable(model, 60, purge="orm")
    enable(model, 30)
    assert (model.__ttl__, model.__ttl_purge__) == (30, "orm")
    disable(model)
    assert model.__ttl__ == 3600
    assert model.__ttl_purge__ == "delete"
    assert model.expires_at is not None
    with pytest.raises(TTLConfigurationError, match=r"was not enabled.*__ttl__ to None"):
        disable(model)


def test_enabling_says_where_rows_are_kept_and_disabling_forgets_it() -> None:
    model = web_session(3600)
    archive = Archive(model)
    enable(model, 60, archive=archive)
    assert model.__ttl_archive__ is archive
    disable(model)
    assert model.__ttl_archive__ is None


def test_enabling_a_declared_model_adds_no_second_check_and_no_second_index() -> None:
    model = web_session(3600)
    table = model.__table__

    def names() -> list[str]:
        checks = [each.name for each in table.c.ttl.constraints]
        return sorted(map(str, [*checks, *(each.name for each in table.indexes)]))

    before = names()
    enable(model, 60, purge="orm")
    disable(model)
    assert names() == before


class Family:
    """Somebody else's hierarchy: a base, a single-table subclass and a joined one."""

    def __init__(self) -> None:
        class Base(DeclarativeBase):
            pass

        class Grant(Base):
            __table__ = tokens_table(Base.metadata)
            __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "grant"}

        class Code(Grant):
            __mapper_args__ = {"polymorphic_identity": "code"}

        class Device(Grant):
            __tablename__ = "devices"
            __mapper_args__ = {"polymorphic_identity": "device"}
            id: Mapped[str] = mapped_column(ForeignKey("tokens.id"), primary_key=True)
            model: Mapped[str | None] = mapped_column(String(10))

        self.base, self.grant, self.code, self.device = Base, Grant, Code, Device


@pytest.fixture
def family(engine: Engine) -> Iterator[Family]:
    made = Family()
    made.base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([made.grant(id="g"), made.code(id="c"), made.device(id="d", model="x")])
        session.commit()
        for key in "gcd":
            age(session.connection(), "tokens", key, 100)
        session.commit()
    return made


def test_a_hierarchy_lives_and_dies_by_its_base(engine: Engine, family: Family) -> None:
    devices = family.device.__table__
    statements = [
        select(family.grant.id),
        select(family.code.id),
        select(family.device.id),
        select(aliased(family.device).model),
        select(devices.c.model),
    ]

    def counts() -> list[int]:
        with Session(engine) as session:
            return [len(session.execute(each).all()) for each in statements]

    assert counts() == [3, 1, 1, 1, 1]
    enable(family.grant, 60)
    assert counts() == [0, 0, 0, 0, 0]
    enable(family.grant, 200)
    assert counts() == [3, 1, 1, 1, 1]
    enable(family.code, 60)
    assert counts() == [2, 0, 1, 1, 1]
    disable(family.code)
    assert counts() == [3, 1, 1, 1, 1]
    enable(family.grant, 60)
    assert Sweeper(engine, family.grant).run_once().deleted == 3
    disable(family.grant)
    assert counts() == [0, 0, 0, 0, 0]


def test_a_joined_subclass_is_refused_with_the_name_of_its_base() -> None:
    family = Family()
    for target in (family.device, family.device.__table__):
        for _ in range(2):
            with pytest.raises(TTLConfigurationError, match=r"Device is a joined .* Enable Grant"):
                enable(target, 60)
            enable(family.grant, 60)
        disable(family.grant)


def test_a_subclass_over_the_very_table_of_its_base_is_no_joined_one(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Token(Base):
        __table__ = tokens_table(Base.metadata)

    class Longer(Token):
        __tablename__ = "tokens"
        __table_args__ = {"extend_existing": True}
        note: Mapped[str | None] = mapped_column(String(10))

    Base.metadata.create_all(engine)
    enable(Token, 60)
    with pytest.raises(TTLConfigurationError, match="can't be told apart from others"):
        enable(Longer, 60)
    with Session(engine) as session:
        session.add_all([Token(id="a"), Longer(id="b", note="x")])
        session.commit()
        age(session.connection(), "tokens", "b", 100)
        session.commit()
        assert session.scalars(select(Longer.id)).all() == ["a"]
        session.add(Longer(id="b", note="y"))
        session.commit()


def test_a_single_table_subclass_needs_a_base_that_is_enabled() -> None:
    family = Family()
    with pytest.raises(TTLConfigurationError, match="base class that has no TTL"):
        enable(family.code, 60)
    assert not hasattr(family.code, "__ttl__")
    enable(family.grant, None)
    enable(family.code, 60)


def test_subclasses_that_are_mapped_after_their_base_was_enabled_follow_it(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    table = tokens_table(Base.metadata)
    enable(table, 60)

    class Grant(Base):
        __table__ = table
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "grant"}

    class Device(Grant):
        __tablename__ = "devices"
        __mapper_args__ = {"polymorphic_identity": "device"}
        id: Mapped[str] = mapped_column(ForeignKey("tokens.id"), primary_key=True)

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Grant(id="g"), Device(id="d")])
        session.commit()
        for key in "gd":
            age(session.connection(), "tokens", key, 100)
        session.commit()
        assert session.execute(select(Device.__table__)).all() == []
        assert session.scalars(select(Grant)).all() == []
        enable(Grant, 200)
        assert len(session.scalars(select(Grant)).all()) == 2
        disable(table)
        enable(Grant, 60)
        assert session.scalars(select(Grant.id)).all() == []


def test_a_number_changes_the_default_of_a_policy_over_other_columns() -> None:
    class Base(DeclarativeBase):
        pass

    class Grant(Base):
        __tablename__ = "grants"
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "g"}
        id: Mapped[str] = mapped_column(primary_key=True)
        kind: Mapped[str]
        issued: Mapped[int]

    class Code(Grant):
        __mapper_args__ = {"polymorphic_identity": "c"}

    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        back = text("INSERT INTO grants VALUES (:id, :id, strftime('%s', 'now') - 100)")
        session.execute(back, [{"id": "g"}, {"id": "c"}])

        def ids() -> list[str]:
            return sorted(session.scalars(select(Grant.id)))

        base = TTL(200, last_modified="issued", override=None, unit="s")
        enable(Grant, base)
        assert ids() == ["c", "g"]
        enable(Code, 50)
        assert ids() == ["g"]
        enable(Grant, 50)
        assert Grant.__ttl__ == base.with_default(50)
        assert ids() == []
        enable(Grant, 200, sweep="scan")
        assert ids() == ["g"]
        enable(Grant, 50)
        disable(Code)
        assert ids() == []
        Grant.__ttl__ = 300
        enable(Code, 50)
        assert ids() == ["g"]
        disable(Code)
        enable(
            Grant,
            TTL({"c": 50}, by="kind", other=300, last_modified="issued", override=None, unit="s"),
        )
        assert ids() == ["g"]
        enable(Grant, 300)
        assert ids() == ["c", "g"]
        disable(Grant)
        assert not hasattr(Grant, "__ttl__")
    engine.dispose()


@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        ([], "no columns '_ts', 'ttl'. Add"),
        ([last_modified_column()], "no column 'ttl'. Add"),
    ],
)
def test_missing_columns_are_named_with_the_ways_to_add_them(columns: Any, missing: str) -> None:
    table = Table("carts", MetaData(), Column("id", Integer, primary_key=True), *columns)
    with pytest.raises(TTLConfigurationError) as caught:
        enable(table, 3600)
    message = str(caught.value)
    assert missing in message
    assert "op.add_ttl('carts', 3600)" in message
    assert "docs/schema.md#an-existing-table" in message
    assert table.info == {}


def test_a_column_that_a_policy_names_must_be_there() -> None:
    table = core(None)  # type: ignore[arg-type]
    refusal = r"^enable\(Table 'tokens'\): .*no column 'born'. It has 'id', 'kind'"
    with pytest.raises(TTLConfigurationError, match=refusal):
        enable(table, TTL(5, last_modified="born"))


@pytest.mark.parametrize("target", ["tokens", object(), MetaData(), str, select(1), None])
def test_what_is_no_class_and_no_table_is_refused(target: Any) -> None:
    with pytest.raises(TTLConfigurationError, match="is not a mapped class or a Table"):
        enable(target, 60)


def test_a_mapper_and_an_alias_are_refused_by_the_name_of_their_class() -> None:
    token = declared(None)  # type: ignore[arg-type]
    for target in (inspect(token), aliased(token)):
        with pytest.raises(
            TTLConfigurationError, match=r"^Token is not a .* mapper, give the class"
        ):
            enable(target, 60)


def test_a_number_that_is_no_ttl_is_refused_before_anything_happens() -> None:
    token = declared(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidTTL, match=re.escape("enable(Token)")):
        enable(token, 0)
    assert not hasattr(token, "__ttl__")


def test_a_policy_that_cannot_be_bound_leaves_the_one_before() -> None:
    engine = create_engine("sqlite://")
    token = declared(engine)
    token.metadata.create_all(engine)
    enable(token, 60)
    with pytest.raises(TTLConfigurationError, match="sweep"):
        enable(token, 120, sweep="often")
    assert token.__ttl__ == 60
    assert not hasattr(token, "__ttl_sweep__")
    with Session(engine) as session:
        session.add(token(id="a"))
        session.commit()
        age(session.connection(), "tokens", "a", 70)
        assert session.scalars(select(token)).all() == []
    engine.dispose()


def test_a_class_that_is_not_mapped_yet_is_refused_with_what_to_do_first() -> None:
    base: Any = automap_base()
    unmapped = type("Unmapped", (base,), {"__tablename__": "enabled_too_early"})
    for early in (
        lambda: enable(unmapped, 60),
        lambda: Sweeper(create_engine("sqlite://"), unmapped),
    ):
        with pytest.raises(TTLConfigurationError, match=r"after Base.prepare\(\)"):
            early()
    with pytest.raises(TTLConfigurationError, match=r"or enable\(\) it"):
        live(unmapped)


def test_a_policy_over_a_date_alone_is_told_of_override() -> None:
    policy = TTL(3600, last_modified="seen")
    fix = r"TTL\(3600, last_modified='seen', override=None\)"
    columns = (Column("id", Integer, primary_key=True), Column("seen", DateTime))
    with pytest.raises(TTLConfigurationError, match=fix):
        enable(Table("enabled_seen", MetaData(), *columns), policy)
    members = {"id": Column(Integer, primary_key=True), "seen": Column(DateTime)}
    base = type("Base", (DeclarativeBase,), {})
    with pytest.raises(TTLConfigurationError, match=fix):
        type("Seen", (base,), {"__tablename__": "declared_seen", "__ttl__": policy, **members})
