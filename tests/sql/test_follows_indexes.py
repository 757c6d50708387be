"""The index of the link: `Follows` brings it, where no index begins with these columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    inspect,
)
from sqlalchemy.orm import DeclarativeBase, configure_mappers, registry, relationship

from ttl_odm import Follows
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import Mapper


@pytest.fixture
def base() -> Any:
    return type("Base", (DeclarativeBase,), {})


def cart(base: Any, **members: Any) -> Any:
    body = {"__tablename__": "carts", "__ttl__": 3_600, "id": Column(Integer, primary_key=True)}
    return type("Cart", (TTLMixin, base), body | members)


def item(base: Any, follows: Any, called: str = "Item", **members: Any) -> Any:
    body = {"__tablename__": f"{called.lower()}s", "__ttl__": follows}
    return type(called, (base,), body | {"id": Column(Integer, primary_key=True)} | members)


def link(to: str = "carts.id", **options: Any) -> Column[Any]:
    return Column(ForeignKey(to), **options)


def declared(table: Table) -> set[tuple[str | None, tuple[str, ...]]]:
    return {(str(index.name), tuple(index.columns.keys())) for index in table.indexes}


def created(engine: Engine, table: str, **where: Any) -> dict[str, list[str | None]]:
    indexes = inspect(engine).get_indexes(table, **where)
    return {str(index["name"]): index["column_names"] for index in indexes}


def is_found(engine: Engine, table: str, *columns: str) -> bool:
    """Whether the database has an index, InnoDB's own included, that begins with columns."""
    indexes = created(engine, table).values()
    return any(set(index[: len(columns)]) == set(columns) for index in indexes)


OURS = ("ix_items_ttl_follows", ("cart_id",))


@pytest.mark.every_server
@pytest.mark.parametrize("how", ["column", "relationship", "on"])
def test_create_all_creates_the_index_of_a_link(engine: Engine, base: Any, how: str) -> None:
    parent = cart(base)
    follows = {
        "column": Follows("cart_id"),
        "relationship": Follows("cart"),
        "on": Follows(parent, on={"cart_id": "id"}),
    }[how]
    column: Any = Column(Integer) if how == "on" else link()
    members = {"cart": relationship("Cart")} if how == "relationship" else {}
    item(base, follows, cart_id=column, product_id=link("products.id"), **members)
    type("Product", (base,), {"__tablename__": "products", "id": Column(Integer, primary_key=True)})
    base.metadata.create_all(engine)
    assert is_found(engine, "items", "cart_id")
    if how == "on" or engine.dialect.name not in ("mysql", "mariadb"):
        assert created(engine, "items")["ix_items_ttl_follows"] == ["cart_id"]
    assert Sweeper(engine, base).run_once().deleted == 0  # a missing index would be an error


def test_creating_tables_configures_no_mappers(engine: Engine, base: Any) -> None:
    cart(base)
    model = item(
        base,
        Follows("cart"),
        cart_id=link(),
        other_id=link("others.id"),
        cart=relationship("Cart"),
        later=relationship("Later", viewonly=True, primaryjoin="foreign(Later.id) == Item.id"),
    )
    type("Other", (base,), {"__tablename__": "others", "id": Column(Integer, primary_key=True)})
    base.metadata.create_all(engine)
    assert declared(model.__table__) == {OURS}
    body = {"__tablename__": "laters", "id": Column(Integer, primary_key=True)}
    later = type("Later", (base,), body)
    configure_mappers()
    mapper: Mapper[Any] = inspect(model)
    assert mapper.relationships["later"].mapper.class_ is later


@pytest.mark.parametrize(
    "choice",
    [
        {"foreign_keys": "Item.cart_id"},
        {"primaryjoin": "Item.cart_id == Cart.id"},
    ],
)
def test_one_of_two_keys_to_the_parent_is_indexed(
    engine: Engine, base: Any, choice: dict[str, str]
) -> None:
    cart(base)
    members = {"gift_id": link(), "cart": relationship("Cart", **choice)}
    model = item(base, Follows("cart"), cart_id=link(), **members)
    base.metadata.create_all(engine)
    assert declared(model.__table__) == {OURS}


@pytest.mark.parametrize(
    ("members", "arguments"),
    [
        ({"cart_id": link(index=True)}, ()),
        ({"cart_id": link(unique=True)}, ()),
        ({"cart_id": link()}, (Index("mine", "cart_id", "id"),)),
        ({"cart_id": link()}, (UniqueConstraint("cart_id", "id"),)),
        ({"cart_id": link(), "id": Column(Integer)}, (PrimaryKeyConstraint("cart_id", "id"),)),
    ],
)
def test_an_index_of_the_model_is_enough(base: Any, members: Any, arguments: Any) -> None:
    cart(base)
    model = item(base, Follows("cart_id"), __table_args__=arguments, **members)
    before = declared(model.__table__)
    configure_mappers()
    assert declared(model.__table__) == before


def test_an_index_declared_after_the_class_is_enough(base: Any) -> None:
    cart(base)
    model = item(base, Follows("cart_id"), cart_id=link())
    Index("later", model.cart_id.desc())
    configure_mappers()
    assert {name for name, _ in declared(model.__table__)} == {"later"}


@pytest.mark.parametrize(("where", "adds"), [("cart_id IS NOT NULL", False), ("id > 5", True)])
def test_an_index_over_some_rows_is_enough_where_it_has_every_link(
    base: Any, *, where: str, adds: bool
) -> None:
    cart(base)
    model = item(base, Follows("cart_id"), cart_id=link())
    columns = model.__table__.c
    condition = columns.cart_id.is_not(None) if "NULL" in where else columns.id > 5
    Index("part", columns.cart_id, postgresql_where=condition)
    configure_mappers()
    assert (OURS in declared(model.__table__)) is adds


def test_an_index_that_begins_with_another_column_is_not_enough(base: Any) -> None:
    cart(base)
    model = item(
        base, Follows("cart_id"), cart_id=link(), __table_args__=(Index("x", "id", "cart_id"),)
    )
    configure_mappers()
    assert OURS in declared(model.__table__)


def test_a_model_can_do_without_the_index(base: Any) -> None:
    cart(base, __ttl_sweep__="index")
    model = item(base, Follows("cart_id"), cart_id=link(), __ttl_sweep__="scan")
    configure_mappers()
    assert declared(model.__table__) == set()


def test_a_parent_that_is_scanned_brings_it_all_the_same(base: Any) -> None:
    cart(base, __ttl_sweep__="scan")
    model = item(base, Follows("cart_id"), cart_id=link())
    configure_mappers()
    assert OURS in declared(model.__table__)


def test_links_at_any_depth_and_of_subclasses_are_indexed(base: Any) -> None:
    kind = {"kind": Column(String(9)), "__mapper_args__": {"polymorphic_on": "kind"}}
    cart(base)
    parent = item(base, Follows("cart_id"), cart_id=link(), **kind)
    book = type("Book", (parent,), {"__mapper_args__": {"polymorphic_identity": "book"}})
    item(base, Follows(book, on={"item_id": "id"}), "Note", item_id=Column(Integer))
    configure_mappers()
    assert declared(parent.__table__) == {OURS}
    assert declared(base.metadata.tables["notes"]) == {("ix_notes_ttl_follows", ("item_id",))}


@pytest.mark.every_server
def test_a_link_of_several_columns_serves_its_foreign_key_too(engine: Engine, base: Any) -> None:
    parent = cart(base, shop=Column(Integer), __table_args__=(UniqueConstraint("id", "shop"),))
    follows = Follows(parent, on={"shop": "shop", "cart_id": "id"})
    model = item(base, follows, cart_id=link(), shop=Column(Integer))
    base.metadata.create_all(engine)
    assert declared(model.__table__) == {("ix_items_ttl_follows", ("cart_id", "shop"))}
    assert is_found(engine, "items", "cart_id", "shop")


def test_a_composite_key_is_indexed_whole(base: Any) -> None:
    cart(base, shop=Column(Integer, primary_key=True))
    key = ForeignKeyConstraint(["cart_id", "shop"], ["carts.id", "carts.shop"])
    members = {"cart_id": Column(Integer), "shop": Column(Integer), "__table_args__": (key,)}
    model = item(base, Follows("shop"), **members)
    configure_mappers()
    assert declared(model.__table__) == {("ix_items_ttl_follows", ("cart_id", "shop"))}


@pytest.mark.every_server
def test_a_text_that_mysql_can_not_index_is_left_alone_there(engine: Engine, base: Any) -> None:
    parent = cart(base, name=Column(String(40), unique=True))
    item(base, Follows(parent, on={"cart": "name"}), cart=Column(Text))
    base.metadata.create_all(engine)
    assert is_found(engine, "items", "cart") is (engine.dialect.name not in ("mysql", "mariadb"))


@pytest.mark.every_server
def test_names_of_any_length_and_naming_conventions_are_kept_short(engine: Engine) -> None:
    convention = {"ix": "index_%(table_name)s_%(column_0_N_name)s"}
    base: Any = type(
        "Base", (DeclarativeBase,), {"metadata": MetaData(naming_convention=convention)}
    )
    names = [f"{'x' * 54}{letter}" for letter in "ab"]
    parent = cart(base)
    for name in names:
        item(base, Follows(parent, on={"cart": "id"}), name.capitalize(), cart=Column(Integer))
    base.metadata.create_all(engine)
    indexes = [index for name in names for index in created(engine, f"{name}s")]
    assert len(set(indexes)) == 2
    assert all(name.endswith("_ttl_follows") and len(name) <= 60 for name in indexes)
    base.metadata.drop_all(engine)


@pytest.mark.parametrize("configured", [True, False])
def test_copies_by_to_metadata_have_it(engine: Engine, base: Any, *, configured: bool) -> None:
    cart(base)
    model = item(base, Follows("cart_id"), cart_id=link())
    if configured:
        configure_mappers()
    copied = MetaData()
    base.metadata.tables["carts"].to_metadata(copied)
    model.__table__.to_metadata(copied)
    twin = model.__table__.to_metadata(copied, name="others")
    copied.create_all(engine)
    for name in ("items", "others"):
        assert is_found(engine, name, "cart_id")
    assert declared(twin) == {("ix_others_ttl_follows", ("cart_id",))}


def test_imperative_mappings_have_it() -> None:
    mappers = registry()
    base: Any = mappers.generate_base()
    cart(base)
    columns = Column("id", Integer, primary_key=True), Column("cart_id", ForeignKey("carts.id"))
    table = Table("items", base.metadata, *columns)
    mappers.map_imperatively(type("Item", (), {"__ttl__": Follows("cart_id")}), table)
    configure_mappers()
    assert declared(table) == {OURS}
