"""A slip in ``__ttl__ = Follows(...)`` is found when mappers are configured, at the latest."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - mappers need it
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import ForeignKey, MetaData, UniqueConstraint, insert, select, text, update
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    configure_mappers,
    declarative_base,
    mapped_column,
    relationship,
)

from tests.clocks import age
from ttl_odm import ExpireAfter, Follows, TTLConfigurationError
from ttl_odm.sqlalchemy import TTLMixin, enable
from ttl_odm.sqlalchemy.policy.references import rule_of

if TYPE_CHECKING:
    from sqlalchemy import Engine


@pytest.fixture
def base() -> Any:
    base = declarative_base()
    yield base
    base.registry.dispose()  # what is wrong with it is nobody else's matter


def cart(base: Any, **attributes: Any) -> Any:
    class Cart(TTLMixin, base):  # type: ignore[misc]
        __tablename__ = "carts"
        __ttl__ = 3600

        id: Mapped[int] = mapped_column(primary_key=True)
        code: Mapped[int]
        locals().update(attributes)

    return Cart


def item(base: Any, follows: Any, **attributes: Any) -> Any:
    class Item(base):  # type: ignore[misc]
        __tablename__ = "items"
        __ttl__ = follows

        id: Mapped[int] = mapped_column(primary_key=True)
        cart_id: Mapped[int] = mapped_column(ForeignKey("carts.id"))
        plain: Mapped[int | None]
        locals().update(attributes)

    return Item


@pytest.mark.parametrize(
    ("follows", "message"),
    [
        (Follows("basket"), r"Item\.__ttl__ = .*no relationship or column 'basket'"),
        (Follows("plain"), r"'plain' has no foreign keys"),
        (Follows("tags"), r"'tags' is not a many-to-one relationship"),
        (
            Follows("odd"),
            r"'odd' is not a many-to-one relationship that joins on equal columns only",
        ),
        (Follows(dict, on={"cart_id": "id"}), r"dict is not a mapped class"),
    ],
)
def test_what_it_names_has_to_be_there(base: Any, follows: Any, message: str) -> None:
    cart(base)
    odd = "and_(Item.cart_id == Cart.id, Cart.code > 1)"
    item(
        base,
        follows,
        tags=relationship("Tag"),
        odd=relationship("Cart", primaryjoin=odd, viewonly=True),
    )

    class Tag(base):  # type: ignore[misc]
        __tablename__ = "tags"
        id: Mapped[int] = mapped_column(primary_key=True)
        item_id: Mapped[int] = mapped_column(ForeignKey("items.id"))

    with pytest.raises(TTLConfigurationError, match=message):
        configure_mappers()


def test_it_stays_wrong_in_each_statement(base: Any) -> None:
    cart(base)
    model = item(base, Follows("plain"))
    with pytest.raises(TTLConfigurationError):
        configure_mappers()
    with pytest.raises(TTLConfigurationError, match="no foreign keys"):
        str(select(model.__table__))


def test_an_error_is_raised_by_a_single_configuration(base: Any) -> None:
    cart(base)
    item(base, Follows("plain"))
    with pytest.raises(TTLConfigurationError, match="no foreign keys"):
        configure_mappers()

    class Tag(base):  # type: ignore[misc]
        __tablename__ = "tags"
        id: Mapped[int] = mapped_column(primary_key=True)

    configure_mappers()
    assert Tag.__mapper__.configured


def test_the_parent_has_a_lifetime(base: Any) -> None:
    class Cart(base):  # type: ignore[misc]
        __tablename__ = "carts"
        id: Mapped[int] = mapped_column(primary_key=True)

    item(base, Follows("cart_id"))
    with pytest.raises(TTLConfigurationError, match="rows of 'carts' have no lifetime"):
        configure_mappers()


def test_a_row_has_one_parent(base: Any) -> None:
    item(base, Follows(cart(base), on={"plain": "code"}))
    with pytest.raises(TTLConfigurationError, match="code of 'carts' is neither its primary key"):
        configure_mappers()


def test_a_unique_column_leads_to_one_parent(base: Any) -> None:
    parent = cart(base, __table_args__=(UniqueConstraint("code"),))
    model = item(base, Follows(parent, on={"plain": "code"}))
    configure_mappers()
    assert "EXISTS (SELECT 1" in str(select(model.id))


def test_parents_in_a_ring_are_refused(base: Any) -> None:
    class A(base):  # type: ignore[misc]
        __tablename__ = "a"
        __ttl__ = Follows("b_id")
        id: Mapped[int] = mapped_column(primary_key=True)
        b_id: Mapped[int] = mapped_column(ForeignKey("b.id"))

    class B(base):  # type: ignore[misc]
        __tablename__ = "b"
        __ttl__ = Follows("a_id")
        id: Mapped[int] = mapped_column(primary_key=True)
        a_id: Mapped[int] = mapped_column(ForeignKey("a.id"))

    with pytest.raises(TTLConfigurationError, match="follow each other in a cycle"):
        configure_mappers()


def test_a_table_does_not_follow_itself(base: Any) -> None:
    class Node(base):  # type: ignore[misc]
        __tablename__ = "nodes"
        __ttl__ = Follows("above")
        id: Mapped[int] = mapped_column(primary_key=True)
        above: Mapped[int | None] = mapped_column(ForeignKey("nodes.id"))

    with pytest.raises(TTLConfigurationError, match="can't follow rows of their own table"):
        configure_mappers()


def test_a_parent_of_another_metadata_is_refused(base: Any) -> None:
    class Other(DeclarativeBase):
        metadata = MetaData()

    item(base, Follows(cart(Other), on={"plain": "id"}))
    with pytest.raises(TTLConfigurationError, match="have different MetaData"):
        configure_mappers()


@pytest.mark.parametrize(
    "option",
    [
        {"__ttl_archive__": object()},
        {"__ttl_on_purged__": print},
        {"__ttl_purge__": "orm"},
        {"__ttl_partition__": object()},
    ],
)
def test_what_belongs_to_a_lifetime_is_refused(base: Any, option: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=rf"Item\.{next(iter(option))} = .*Leave"):
        item(base, Follows("cart_id"), **option)


def test_a_subclass_follows_with_its_base_or_not_at_all(base: Any) -> None:
    model = item(base, Follows("cart_id"))

    class Same(model):  # type: ignore[misc]
        pass

    with pytest.raises(TTLConfigurationError, match="neither a __ttl__ nor a table of its own"):

        class Joined(model):  # type: ignore[misc]
            __tablename__ = "joined"
            id: Mapped[int] = mapped_column(ForeignKey("items.id"), primary_key=True)

    with pytest.raises(TTLConfigurationError, match="neither a __ttl__ nor a table of its own"):

        class Timed(model):  # type: ignore[misc]
            __ttl__ = 60


def test_what_rows_follow_stays(base: Any) -> None:
    model = item(base, Follows("cart_id"))
    with pytest.raises(TTLConfigurationError, match="can't be assigned, changed or removed"):
        model.__ttl__ = 60


def test_a_joined_subclass_may_be_the_parent(base: Any) -> None:
    class Token(TTLMixin, base):  # type: ignore[misc]
        __tablename__ = "tokens"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True)

    class ApiToken(Token):
        __tablename__ = "api_tokens"
        id: Mapped[int] = mapped_column(ForeignKey("tokens.id"), primary_key=True)

    class Use(base):  # type: ignore[misc]
        __tablename__ = "uses"
        __ttl__ = Follows("token_id")
        id: Mapped[int] = mapped_column(primary_key=True)
        token_id: Mapped[int] = mapped_column(ForeignKey("api_tokens.id"))

    sql = str(select(Use.id))
    assert "FROM tokens AS" in sql
    assert "uses.token_id" in sql


def test_a_copied_table_follows_the_copy_of_the_parent(base: Any) -> None:
    cart(base)
    model = item(base, Follows("cart_id"))
    copied = MetaData()
    for table in (*base.metadata.tables.values(),):
        table.to_metadata(copied, schema="elsewhere")
    sql = str(select(copied.tables["elsewhere.items"].c.id))
    assert "FROM elsewhere.carts AS" in sql
    assert "FROM carts AS" in str(select(model.id))


def test_it_is_declared_in_the_body_of_a_class(base: Any) -> None:
    class Plain(base):  # type: ignore[misc]
        __tablename__ = "plain"
        id: Mapped[int] = mapped_column(primary_key=True)

    with pytest.raises(TTLConfigurationError, match="declares __ttl__ in its own body"):
        enable(Plain, Follows("id"))


def test_a_table_that_also_has_the_policy_of_another_base_still_follows(
    base: Any, engine: Engine
) -> None:
    parent = cart(base)

    class Item(base):  # type: ignore[misc]
        __tablename__ = "items"
        __ttl__ = Follows("cart_id")

        id: Mapped[int] = mapped_column(primary_key=True)
        cart_id: Mapped[int] = mapped_column(ForeignKey("carts.id"))
        created: Mapped[datetime | None]

    class Dated(declarative_base()):  # type: ignore[misc]
        __tablename__ = "items"
        __ttl__ = ExpireAfter("created", 60)

        id: Mapped[int] = mapped_column(primary_key=True)
        created: Mapped[datetime | None]

    select(Item)  # the second Table takes the policy over with the first statement
    base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(parent), [{"id": 1, "code": 1}, {"id": 2, "code": 2}])
        connection.execute(insert(Item), [{"id": 3, "cart_id": 2}])
        age(connection, "carts", 1, 7200)
        connection.execute(insert(Item).values(id=4, cart_id=1))
        connection.execute(update(Item).where(Item.id == 3).values(cart_id=1))
        rows = connection.execute(text("SELECT id, cart_id FROM items"))
        assert [tuple(row) for row in rows] == [(3, 2)]


def test_a_pair_names_columns_by_their_attributes_or_by_their_own_names(base: Any) -> None:
    parent = cart(base)

    class Item(base):  # type: ignore[misc]
        __tablename__ = "items"
        __ttl__ = Follows(parent, on={"number": "id"})

        id: Mapped[int] = mapped_column(primary_key=True)
        number: Mapped[int] = mapped_column("cart_id")

    class Line(base):  # type: ignore[misc]
        __tablename__ = "lines"
        __ttl__ = Follows(parent, on={"cart_id": "id"})

        id: Mapped[int] = mapped_column(primary_key=True)
        number: Mapped[int] = mapped_column("cart_id")

    configure_mappers()
    for model in (Item, Line):
        rule = rule_of(model.__table__)
        assert rule is not None
        assert [column.name for column in rule.links().own] == ["cart_id"]
