"""The index of a link, in migrations: created while others write, and stable afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, ForeignKey, Index, Integer, MetaData, String, event, inspect, text
from sqlalchemy.orm import DeclarativeBase

from tests.migrations.projects import lines
from ttl_odm import Follows
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytestmark = pytest.mark.every_server

NAME = "ix_items_ttl_follows"


def family(  # noqa: PLR0913 (each test has one of these)
    *,
    key: bool = False,
    expires: bool = True,
    follows: bool = True,
    index: bool = False,
    bills: bool = False,
    metadata: MetaData | None = None,
    **members: Any,
) -> Any:
    """Carts, and items that follow them, by a foreign key or without one."""
    base: Any = type("Base", (DeclarativeBase,), {"metadata": metadata or MetaData()})
    bases = (TTLMixin, base) if expires else (base,)
    body = {"__tablename__": "carts", "id": Column(Integer, primary_key=True)}
    cart: Any = type("Cart", bases, body | ({"__ttl__": 3_600} if expires else {}))
    keys = [ForeignKey("carts.id")] if key else []
    body = {
        "__tablename__": "items",
        "id": Column(Integer, primary_key=True),
        "cart_id": Column(Integer, *keys, index=index),
    }
    declared = Follows("cart_id") if key else Follows(cart, on={"cart_id": "id"})
    type("Item", (base,), body | ({"__ttl__": declared} if follows else {}) | members)
    if bills:
        columns = {"id": Column(Integer, primary_key=True), "cart": Column(ForeignKey("carts.id"))}
        type("Bill", (base,), {"__tablename__": "bills", **columns})
    return base


def indexes(engine: Engine, table: str = "items") -> dict[str, Any]:
    return {str(one["name"]): one["column_names"] for one in inspect(engine).get_indexes(table)}


@pytest.mark.parametrize("key", [True, False])
def test_autogenerate_creates_the_index_and_then_agrees(
    engine: Engine, project: Any, *, key: bool
) -> None:
    family(key=key, expires=False, follows=False).metadata.create_all(engine)
    base = family(key=key)
    here = project(base.metadata)
    up, down = lines(here.autogenerate())
    if key and engine.dialect.name in ("mysql", "mariadb"):  # InnoDB has one with each key
        assert [line.partition("(")[0] for line in up] == ["op.add_ttl"]
    else:
        assert up == [
            "op.add_follows('items', ['cart_id'])",
            "op.add_ttl('carts', 3600, backfill='now')",
        ]
        assert down == ["op.drop_ttl('carts')", "op.drop_follows('items', ['cart_id'])"]
    here.upgrade()
    here.check()
    assert lines(here.autogenerate()) == ([], [])
    assert Sweeper(engine, base).run_once().deleted == 0
    here.downgrade()
    assert NAME not in indexes(engine)


@pytest.mark.parametrize("key", [True, False])
def test_a_new_table_has_the_index_from_the_start(
    engine: Engine, project: Any, *, key: bool
) -> None:
    here = project(family(key=key).metadata)
    here.autogenerate()
    here.upgrade()
    here.check()
    assert ["cart_id"] in indexes(engine).values()
    here.downgrade()


def test_a_new_column_is_indexed_after_it_was_added(engine: Engine, project: Any) -> None:
    family(expires=False, follows=False).metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE items DROP COLUMN cart_id"))
    here = project(family().metadata)
    up, _ = lines(here.autogenerate())
    operations = [line.partition("(")[0] for line in up]
    assert operations.index("op.add_column") < operations.index("op.add_follows")
    here.upgrade()
    here.check()


def test_an_index_of_the_models_takes_its_place(engine: Engine, project: Any) -> None:
    family().metadata.create_all(engine)
    here = project(family(index=True).metadata)
    up, _ = lines(here.autogenerate())
    assert [line.partition("(")[0] for line in up] == ["op.create_index", "op.drop_follows"]
    here.upgrade()
    here.check()
    assert list(indexes(engine)) == ["ix_items_cart_id"]
    here.downgrade()
    assert list(indexes(engine)) == [NAME]


def test_a_table_that_follows_no_more_loses_the_index(engine: Engine, project: Any) -> None:
    family().metadata.create_all(engine)
    here = project(family(follows=False).metadata)
    assert lines(here.autogenerate())[0] == ["op.drop_follows('items', ['cart_id'])"]
    here.upgrade()
    here.check()
    assert indexes(engine) == {}


def test_a_dropped_table_takes_it_along(engine: Engine, project: Any) -> None:
    family().metadata.create_all(engine)
    base = family()
    base.metadata.remove(base.metadata.tables["items"])
    here = project(base.metadata)
    assert "op.drop_follows" not in here.autogenerate()
    here.upgrade()
    here.downgrade()
    assert indexes(engine) == {NAME: ["cart_id"]}


def test_a_model_that_wants_no_index_gets_none(engine: Engine, project: Any) -> None:
    family(expires=False, follows=False).metadata.create_all(engine)
    here = project(family(__ttl_sweep__="scan").metadata)
    assert "follows" not in here.autogenerate()
    here.upgrade()
    here.check()


def test_an_index_that_the_database_has_is_enough(engine: Engine, project: Any) -> None:
    base = family()
    family(expires=True, follows=False).metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE INDEX of_the_dba ON items (cart_id, id)"))
    here = project(base.metadata, include_object=_is_not_of_the_dba)
    assert "follows" not in here.autogenerate()
    here.upgrade()
    here.check()


def _is_not_of_the_dba(_: Any, name: str | None, *_others: Any) -> bool:
    return name != "of_the_dba"


def test_long_names_and_naming_conventions_stay_as_they_are(engine: Engine, project: Any) -> None:
    convention = {"ix": "index_%(table_name)s_%(column_0_N_name)s"}
    long = {"__tablename__": "i" * 57}
    kept: dict[str, Any] = {"expires": False, "follows": False}
    family(metadata=MetaData(naming_convention=convention), **kept, **long).metadata.create_all(
        engine
    )
    here = project(family(metadata=MetaData(naming_convention=convention), **long).metadata)
    here.autogenerate()
    here.upgrade()
    here.check()
    (name,) = indexes(engine, "i" * 57)
    assert name.endswith("_ttl_follows")


def test_others_write_while_it_is_built(engine: Engine, project: Any) -> None:
    family(expires=False, follows=False).metadata.create_all(engine)
    here = project(family().metadata)
    here.revision("op.add_follows('items', ['cart_id'])", "op.drop_follows('items', ['cart_id'])")
    said: list[str] = []

    def listen(*arguments: Any) -> None:
        said.append(arguments[2])

    event.listen(engine, "before_cursor_execute", listen)
    here.upgrade()
    here.upgrade()  # and again: nothing is left to do
    (statement,) = (sql for sql in said if NAME in sql)
    how = {"postgresql": "CONCURRENTLY", "sqlite": "CREATE INDEX"}
    assert how.get(engine.dialect.name, "LOCK=NONE") in statement
    here.downgrade()
    assert indexes(engine) == {}
    script = here.script()
    assert how.get(engine.dialect.name, "LOCK=NONE") in script


@pytest.mark.databases("postgres")
def test_an_invalid_index_is_built_again(engine: Engine, project: Any) -> None:
    family().metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE pg_index SET indisvalid = false WHERE indexrelid = CAST(:n AS regclass)"),
            {"n": NAME},
        )
    here = project(family().metadata)
    assert lines(here.autogenerate())[0] == ["op.add_follows('items', ['cart_id'])"]
    here.upgrade()
    here.check()


@pytest.mark.databases("postgres")
def test_another_schema_has_its_own(engine: Engine, project: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA shop"))
    metadata = MetaData(schema="shop")
    family(expires=False, follows=False, metadata=metadata).metadata.create_all(engine)
    base = family(metadata=MetaData(schema="shop"))
    here = project(base.metadata, include_schemas=True, include_name=_only_shop)
    up, _ = lines(here.autogenerate())
    assert up[0] == "op.add_follows('items', ['cart_id'], schema='shop')"
    here.upgrade()
    here.check()
    here.downgrade()


def _only_shop(name: str | None, kind: str, _: Any) -> bool:
    return kind != "schema" or name in ("shop", None)


@pytest.mark.parametrize(
    ("columns", "said"),
    [("['basket']", "has no column 'basket'; it has id, cart_id"), ("'cart_id'", "give a list")],
)
def test_columns_that_are_not_there_are_rejected(
    engine: Engine, project: Any, columns: str, said: str
) -> None:
    family(follows=False).metadata.create_all(engine)
    here = project(family().metadata)
    here.revision(f"op.add_follows('items', {columns})")
    with pytest.raises(MigrationRefusedError, match=said):
        here.upgrade()


def test_a_ttl_that_is_added_by_hand_reports_what_has_no_index(
    engine: Engine, project: Any, caplog: pytest.LogCaptureFixture
) -> None:
    family(expires=False, follows=False, bills=True).metadata.create_all(engine)
    here = project(family(bills=True).metadata)
    here.revision("op.add_ttl('carts', 3600)")
    here.upgrade()
    assert "The sweeper needs one: op.add_follows('items', ['cart_id'])." in caplog.text
    is_told = "bills(cart) refers to it and has no index, so the sweeper will" in caplog.text
    assert is_told is (engine.dialect.name not in ("mysql", "mariadb"))


def test_autogenerate_reports_foreign_keys_without_an_index(
    engine: Engine, project: Any, caplog: pytest.LogCaptureFixture
) -> None:
    base = family(key=True, bills=True)
    here = project(base.metadata)
    here.autogenerate()
    said = [line for line in caplog.messages if "no index begins with these columns" in line]
    if engine.dialect.name in ("mysql", "mariadb"):
        assert said == []
    else:
        (line,) = said
        assert line.startswith("Table bills: its foreign key over cart refers to carts, whose")
    caplog.clear()
    Index("mine", base.metadata.tables["bills"].c.cart)
    here.upgrade()
    here.autogenerate()
    assert "no index begins" not in caplog.text


def test_a_text_that_has_no_length_is_left_alone_on_mysql(engine: Engine, project: Any) -> None:
    base: Any = type("Base", (DeclarativeBase,), {})
    body = {"__tablename__": "carts", "__ttl__": 60, "id": Column(String(9), primary_key=True)}
    cart: Any = type("Cart", (TTLMixin, base), body)
    columns = {"id": Column(Integer, primary_key=True), "cart": Column(String(9))}
    body = {"__tablename__": "items", "__ttl__": Follows(cart, on={"cart": "id"})}
    type("Item", (base,), body | columns)
    here = project(base.metadata)
    here.autogenerate()
    here.upgrade()
    here.check()
    assert indexes(engine) == {NAME: ["cart"]}
