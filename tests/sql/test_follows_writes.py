"""Writes to rows that follow a parent, and of keys that an expired parent has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Integer,
    bindparam,
    cast,
    delete,
    event,
    insert,
    inspect,
    literal,
    null,
    select,
    update,
)
from sqlalchemy.exc import CompileError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.locks import is_locked_by_others
from tests.sql.following import (
    EXPIRED,
    HOUR,
    LIVE,
    Cart,
    Draft,
    Item,
    Memo,
    Note,
    expire,
    fill,
    stored,
)
from ttl_odm import Follows, TTLConfigurationError
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin, include_expired

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

ITEMS: Any = Item.__table__
MEMOS: Any = Memo.__table__
NO_SYNC = {"synchronize_session": False}

TREE = ("carts", "items", "remarks", "memos", "drafts")


@pytest.fixture
def session(engine: Engine, enforcing: None) -> Iterator[Session]:
    fill(engine)
    with Session(engine) as session:
        yield session


def test_bulk_writes_match_rows_of_live_parents(session: Session) -> None:
    changed: Any = session.execute(update(Item).values(name="milk"))
    assert changed.rowcount == 2
    changed = session.execute(update(Note).values(text="cold"))
    assert changed.rowcount == 2
    joined = update(Item).where(Item.cart_id == Cart.id, Item.id > 0).values(name="rum")
    changed = session.execute(joined, execution_options={"synchronize_session": False})
    assert changed.rowcount == 2
    gone: Any = session.execute(delete(Note))
    assert gone.rowcount == 2
    session.commit()
    assert stored(session.get_bind(), *TREE) == [2, 4, 2, 4, 4]  # type: ignore[arg-type]


def test_a_flush_says_that_the_parent_has_expired(session: Session) -> None:
    item, note = session.get_one(Item, 10), session.get_one(Note, 110)
    expire(session.connection(), LIVE)
    item.name = "milk"
    with pytest.raises(ExpiredError, match="Item 10 can't be updated"):
        session.flush()
    session.rollback()
    with session.no_autoflush:
        session.get_one(Note, 110)
        expire(session.connection(), LIVE)
        session.delete(note)
        with pytest.raises(ExpiredError, match="Note 110 can't be deleted"):
            session.flush()


CHANGES: dict[Any, tuple[int, dict[str, Any]]] = {
    Cart: (LIVE, {"ttl": HOUR}),
    Item: (10, {"name": "milk"}),
}


@pytest.mark.parametrize("in_bulk", [False, True], ids=["flush", "bulk"])
@pytest.mark.parametrize("model", CHANGES)
def test_an_update_by_key_says_so_where_a_driver_counts_no_rows(
    session: Session, monkeypatch: pytest.MonkeyPatch, model: Any, *, in_bulk: bool
) -> None:
    monkeypatch.setattr(session.connection().dialect, "supports_sane_rowcount", False)
    key, values = CHANGES[model]
    row = session.get_one(model, key)

    def change() -> None:
        if in_bulk:
            session.execute(update(model), [{"id": key, **values}])
        else:
            for name, value in values.items():
                setattr(row, name, value)
            session.flush()

    with session.begin_nested() as undone:
        change()
        session.refresh(row)
        assert {name: getattr(row, name) for name in values} == values
        undone.rollback()
    session.refresh(row)
    expire(session.connection(), LIVE)
    with pytest.raises(ExpiredError, match=f"{model.__name__} {key} can't be updated"):
        change()


def test_a_flush_of_live_rows_goes_through(session: Session) -> None:
    session.get_one(Item, 10).name = "milk"
    session.delete(session.get_one(Note, 100))
    session.add(Item(id=12, cart_id=LIVE, notes=[Note(id=120)]))
    session.add(Cart(id=3, items=[Item(id=30)]))
    session.commit()
    assert session.get_one(Item, 10).name == "milk"
    assert session.get(Note, 100) is None
    assert session.get_one(Note, 120).item.cart_id == LIVE
    assert session.get_one(Item, 30).cart_id == 3


@pytest.mark.parametrize(
    "row", [Item(id=9, cart_id=EXPIRED), Note(id=9, item_id=20), Memo(id=9, basket=EXPIRED)]
)
def test_no_object_is_put_under_an_expired_parent(session: Session, row: Any) -> None:
    model, values = type(row), {k: v for k, v in vars(row).items() if not k.startswith("_")}
    session.add(model(**values))
    with pytest.raises(ExpiredError, match=r"can't be put under .* which has expired"):
        session.flush()
    session.rollback()
    live = {"item_id": 10} if model is Note else dict.fromkeys(values, LIVE)
    with pytest.raises(ExpiredError):
        session.execute(insert(model), [{**values, **live, "id": 8}, values])
    session.rollback()
    with pytest.raises(ExpiredError):
        session.bulk_insert_mappings(inspect(model), [values])
    session.rollback()
    with pytest.raises(ExpiredError):
        session.bulk_save_objects([model(**values)])
    session.rollback()
    session.execute(insert(model), [{**values, **live, "id": 8}])


def keys_of(session: Session, *ids: int) -> list[int]:
    """Those of items that are stored, live or not."""
    rows = select(Item.id).where(Item.id.in_(ids)).order_by(Item.id).options(include_expired())
    return list(session.scalars(rows))


def test_core_puts_no_row_under_an_expired_parent(session: Session) -> None:
    items = ITEMS
    connection = session.connection(execution_options={"preserve_rowcount": True})
    dead, alive = {"id": 8, "cart_id": EXPIRED}, {"id": 9, "cart_id": LIVE}
    one: Any = connection.execute(items.insert().values(**dead))
    assert one.rowcount == 0
    one = session.execute(insert(Item).values(**dead))
    assert one.rowcount == 0
    bound = items.insert().values(id=bindparam("key"), cart_id=bindparam("above"))
    assert connection.execute(bound, {"key": 8, "above": EXPIRED}).rowcount == 0
    several = connection.execute(items.insert(), [dead, alive, {**dead, "id": 7}])
    assert several.rowcount in {1, -1}
    none = connection.execute(items.insert(), [dead, {**dead, "id": 7}])
    assert none.rowcount in {0, -1}
    cart = select(Cart.id).where(Cart.id == EXPIRED).options(include_expired())
    computed = {**dead, "cart_id": cart.scalar_subquery()}
    assert connection.execute(items.insert().values(**computed)).rowcount == 0
    assert keys_of(session, 7, 8, 9) == [9]


@pytest.mark.databases("sqlite", "postgres", "mariadb")
def test_what_core_leaves_out_is_not_returned(session: Session) -> None:
    connection = session.connection()
    items = ITEMS
    dead, alive = {"id": 8, "cart_id": EXPIRED}, {"id": 9, "cart_id": LIVE}
    insertion = items.insert().returning(items.c.id, items.c.name)
    assert connection.execute(insertion, dead).all() == []
    assert connection.execute(insertion, [dead, alive]).all() == [(9, "tea")]
    assert connection.execute(insertion, [dead, {**dead, "id": 7}]).all() == []
    ordered = items.insert().returning(items.c.id, sort_by_parameter_order=True)
    assert connection.execute(ordered, [dead, {**alive, "id": 6}]).all() == [(6,)]
    assert connection.execute(ordered, [dead, {**dead, "id": 7}]).all() == []
    if session.get_bind().dialect.name in {"sqlite", "postgresql"}:
        moved = update(items).values(cart_id=EXPIRED).returning(items.c.id)
        assert session.connection().execute(moved).all() == []


def test_a_list_of_values_and_writes_in_a_cte_leave_no_row_out(session: Session) -> None:
    dead, alive = {"id": 8, "cart_id": EXPIRED}, {"id": 9, "cart_id": LIVE}
    with pytest.raises(ExpiredError, match="carts 2"):
        session.execute(insert(Item).values([alive, dead]))
    session.rollback()
    assert keys_of(session, 8, 9) == []
    session.execute(insert(Item).values([alive, {**alive, "id": 8}]))
    assert keys_of(session, 8, 9) == [8, 9]
    if session.get_bind().dialect.name == "postgresql":
        inner = insert(Item).values(id=7, cart_id=EXPIRED).returning(Item.id).cte()
        with pytest.raises(ExpiredError, match="carts 2"):
            session.execute(select(inner.c.id))


def test_an_insert_from_select_leaves_out_rows_under_expired_parents(session: Session) -> None:
    carts, items = Cart.__table__, ITEMS
    session.connection(execution_options={"preserve_rowcount": True})
    found = select(carts.c.id + 70, carts.c.id, literal("new")).options(include_expired())
    chosen = items.insert().from_select(["id", "cart_id", "name"], found)
    assert session.connection().execute(chosen).rowcount == 1
    assert keys_of(session, 71, 72) == [71]
    missing = MEMOS.insert().from_select(["id", "basket"], select(literal(9), literal(98)))
    assert session.connection().execute(missing).rowcount == 1
    nothing = select(literal(8), cast(null(), Integer))
    nowhere = MEMOS.insert().from_select(["id", "basket"], nothing)
    assert session.connection().execute(nowhere).rowcount == 1


@pytest.mark.databases("postgres", "mariadb", "mysql")
@pytest.mark.every_server
def test_no_parent_expires_or_goes_before_the_row_that_was_put_under_it_is_committed(
    engine: Engine, session: Session
) -> None:
    # Without a foreign key, by which the server would keep the parent.
    session.connection().execute(insert(Memo).values(id=9, basket=LIVE))
    assert is_locked_by_others(engine, "carts", LIVE)
    session.commit()
    assert not is_locked_by_others(engine, "carts", LIVE)


def test_no_row_moves_to_an_expired_parent(session: Session) -> None:
    session.get_one(Item, 10).cart_id = EXPIRED
    with pytest.raises(ExpiredError, match="carts 2"):
        session.flush()
    session.rollback()
    with pytest.raises(ExpiredError, match="carts 2"):
        session.execute(update(Item), [{"id": 10, "cart_id": EXPIRED}])
    session.rollback()
    session.add(Cart(id=3))
    session.flush()
    session.get_one(Item, 10).cart_id = 3
    session.commit()
    assert session.get_one(Item, 10).cart_id == 3


def test_core_moves_no_row_to_an_expired_parent(session: Session) -> None:
    items = ITEMS
    moved: Any = session.execute(update(Item).where(Item.id == 10).values(cart_id=EXPIRED))
    assert moved.rowcount == 0
    computed = {"cart_id": Item.id - 10 + LIVE}  # of item 11 it is the expired one
    moved = session.execute(update(Item).values(computed), execution_options=NO_SYNC)
    assert moved.rowcount == 1
    one = update(items).where(items.c.id == bindparam("key")).values(cart_id=bindparam("above"))
    several = [{"key": 10, "above": EXPIRED}, {"key": 11, "above": LIVE}]
    moved = session.connection().execute(one, several)
    assert moved.rowcount in {1, -1}
    rows = select(items.c.id, items.c.cart_id).order_by(items.c.id)
    assert session.execute(rows).all() == [(10, LIVE), (11, LIVE)]
    session.get_one(Item, 10).cart_id = Item.id - 10 + EXPIRED
    with pytest.raises(ExpiredError, match="carts 2"):
        session.flush()


def test_a_row_without_a_parent_is_put_nowhere(session: Session) -> None:
    session.add(Draft(id=9, basket=98))
    session.flush()
    assert session.get(Draft, 9) is not None
    session.add(Memo(id=9, basket=None))
    session.flush()
    session.expire_all()
    assert session.get(Memo, 9) is None


def test_a_new_parent_takes_the_place_of_an_expired_one_and_all_that_followed_it(
    session: Session,
) -> None:
    session.add(Cart(id=EXPIRED, items=[Item(id=20, name="new", notes=[Note(id=200)])]))
    session.commit()
    assert session.get_one(Item, 20).name == "new"
    assert session.get_one(Note, 200).item_id == 20
    assert stored(session.get_bind(), *TREE) == [2, 3, 3, 3, 3]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["Message", "Voice"])
def test_a_flush_writes_a_parent_with_followers_that_have_no_relationship(
    engine: Engine, name: str
) -> None:
    class Base(DeclarativeBase):
        pass

    class Thread(TTLMixin, Base):
        __tablename__ = "threads"
        __ttl__ = HOUR
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    # Without a relationship, a flush takes classes in the order of their names.
    columns = {
        "id": mapped_column(Integer, primary_key=True, autoincrement=False),
        "thread_id": mapped_column(Integer, index=True),
    }
    follows = {"__tablename__": "replies", "__ttl__": Follows(Thread, on={"thread_id": "id"})}
    reply: Any = type(name, (Base,), {**follows, **columns})

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Thread(id=1))
        session.commit()
        age(session.connection(), "threads", 1, 2 * HOUR)
        session.commit()
        rows = [reply(id=1, thread_id=1), Thread(id=1)]
        session.add_all(rows)
        session.commit()
        assert session.scalars(select(reply.id)).all() == [1]
        for row in rows:
            session.delete(row)
        session.commit()
    assert stored(engine, "threads", "replies") == [0, 0]


def test_core_frees_the_key_of_an_expired_parent(session: Session) -> None:
    session.connection().execute(insert(Cart).values(id=EXPIRED))
    session.commit()
    assert stored(session.get_bind(), *TREE) == [2, 2, 2, 3, 3]  # type: ignore[arg-type]


def test_an_upsert_that_may_update_expired_rows_is_refused(session: Session) -> None:
    dialect = session.get_bind().dialect.name
    if dialect in {"sqlite", "postgresql"}:
        if dialect == "sqlite":
            from sqlalchemy.dialects.sqlite import insert as upsert
        else:
            from sqlalchemy.dialects.postgresql import insert as upsert

        statement: Any = upsert(Item).values(id=20, cart_id=LIVE)
        statement = statement.on_conflict_do_update(index_elements=["id"], set_={"cart_id": LIVE})
    else:
        from sqlalchemy.dialects.mysql import insert as of_mysql

        statement = of_mysql(Item).values(id=20, cart_id=LIVE)
        statement = statement.on_duplicate_key_update(cart_id=LIVE)
    with pytest.raises((TTLConfigurationError, CompileError), match="have an expired parent"):
        session.execute(statement)


@pytest.mark.databases("sqlite", "postgres")
def test_nobody_asks_whether_what_follows_live_rows_has_expired(session: Session) -> None:
    asked: list[str] = []

    def note(_c: Any, _cursor: Any, sql: str, *_: object) -> None:
        asked.append(sql.split(maxsplit=1)[0])

    connection = session.connection()
    event.listen(connection, "before_cursor_execute", note)
    for model in (Note, Item, Cart):
        table: Any = model.__table__
        connection.execute(delete(table).where(table.c.id == 99))
    assert asked == ["DELETE"] * 3
