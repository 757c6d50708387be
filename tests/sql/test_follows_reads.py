"""Rows that follow a parent are there while it is, on whatever way they are read."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import func, select, union_all
from sqlalchemy.orm import Session, aliased, joinedload, selectinload, subqueryload

from tests.sql.following import EXPIRED, LIVE, Base, Cart, Draft, Item, Memo, Note, expire, fill
from ttl_odm import TTLConfigurationError
from ttl_odm.sqlalchemy import expired, expires_at, include_expired, live
from ttl_odm.sqlalchemy.objects import lifetime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


@pytest.fixture
def session(engine: Engine, enforcing: None) -> Iterator[Session]:
    fill(engine)
    with Session(engine) as session:
        yield session


items, notes = Base.metadata.tables["items"], Base.metadata.tables["remarks"]
other = aliased(Item)
inner = select(Item.id).subquery()
cte = select(Item.id).cte()

READS: dict[str, Any] = {
    "entity": select(Item.id).order_by(Item.id),
    "table": select(items.c.id).order_by(items.c.id),
    "alias": select(other.id).order_by(other.id),
    "table alias": select((i := items.alias()).c.id).order_by(i.c.id),
    "inner join": select(Item.id).join(Item.cart).order_by(Item.id),
    "join from parent": select(Item.id).join_from(Cart, Item).order_by(Item.id),
    "outer join of parent": select(Item.id).outerjoin(Item.cart).order_by(Item.id),
    "join of followers": select(Item.id).join(Item.notes).order_by(Item.id),
    "subquery": select(inner.c.id).order_by(inner.c.id),
    "cte": select(cte.c.id).order_by(cte.c.id),
    "in": select(Item.id).where(Item.id.in_(select(Note.item_id))).order_by(Item.id),
    "exists": select(Item.id).where(Item.notes.any()).order_by(Item.id),
    "has": select(Item.id).where(Item.cart.has()).order_by(Item.id),
    "union": union_all(select(Item.id), select(Item.id).where(Item.id < 0)).order_by("id"),
    "distinct": select(Item.id).distinct().order_by(Item.id),
    "second level": select(Note.item_id).order_by(Note.item_id),
    "second level joined": select(Note.item_id).join(Note.item).join(Item.cart).order_by(Note.id),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_has_no_row_of_an_expired_parent(session: Session, read: Any) -> None:
    assert session.scalars(read).all() == [10, 11]
    assert session.scalars(read.options(include_expired())).all() == [10, 11, 20, 21]


def test_a_left_join_keeps_what_has_no_live_follower(session: Session) -> None:
    joined = select(Cart.id, Item.id).outerjoin(Cart.items).order_by(Cart.id, Item.id)
    assert session.execute(joined).all() == [(LIVE, 10), (LIVE, 11)]
    expire(session.connection(), LIVE)
    assert session.execute(joined).all() == []


def test_aggregates_count_live_rows(session: Session) -> None:
    assert session.scalar(select(func.count(Item.id))) == 2
    assert session.scalar(select(func.count()).select_from(Note)) == 2
    assert session.scalar(select(func.max(Item.id))) == 11
    grouped = select(Item.cart_id, func.count()).group_by(Item.cart_id)
    assert session.execute(grouped).all() == [(LIVE, 2)]


@pytest.mark.parametrize("load", [joinedload, selectinload, subqueryload])
def test_eager_loads_have_live_rows(session: Session, load: Any) -> None:
    carts = session.scalars(select(Cart).options(load(Cart.items))).unique().all()
    assert {item.id for cart in carts for item in cart.items} == {10, 11}
    found = session.scalars(select(Note).options(load(Note.item))).all()
    assert {note.item.id for note in found} == {10, 11}


def test_get_asks_the_database_whether_the_parent_is_there(session: Session) -> None:
    assert session.get(Item, 20) is None
    item, note = session.get_one(Item, 10), session.get_one(Note, 100)
    assert session.get(Item, 10) is item
    assert note.item is item
    expire(session.connection(), LIVE)
    assert session.get(Item, 10) is None
    assert session.get(Note, 100) is None
    session.expire(item)
    assert session.scalars(select(Item)).all() == []


def test_lazy_loads_have_live_rows(session: Session) -> None:
    cart = session.get(Cart, EXPIRED, execution_options={"include_expired": True})
    assert cart is not None
    assert cart.items == []


def test_orphans_are_what_is_declared(session: Session) -> None:
    assert session.scalars(select(Memo.id).order_by(Memo.id)).all() == [1]
    assert session.scalars(select(Draft.id).order_by(Draft.id)).all() == [1, 3, 4]


def test_an_orphan_has_expired_as_is_declared(session: Session) -> None:
    memos = session.scalars(select(Memo).where(Memo.id > 1).options(include_expired())).all()
    assert [memo.id for memo in memos] == [2, 3, 4]
    assert all(map(lifetime.is_expired, memos))
    assert {lifetime.time_left(memo) for memo in memos} == {timedelta(0)}
    assert [lifetime.end_of(memo) is None for memo in memos] == [False, True, True]
    for key in (3, 4):
        draft = session.get_one(Draft, key)
        assert not lifetime.is_expired(draft)
        assert (lifetime.time_left(draft), lifetime.end_of(draft)) == (None, None)


def test_the_predicate_can_be_selected(session: Session) -> None:
    for model in (Item, items, aliased(Note)):
        columns: Any = model.c if model is items else model
        key = columns.id
        rows = select(key, live(model), expired(model)).order_by(key).options(include_expired())
        told = session.execute(rows).all()
        assert [bool(one) for _, one, _ in told] == [True, True, False, False]
        assert [bool(one) for *_, one in told] == [False, False, True, True]
    orphans = select(Draft.id, live(Draft)).order_by(Draft.id).options(include_expired())
    assert [bool(one) for _, one in session.execute(orphans)] == [True, False, True, True]


def test_a_row_expires_when_its_parent_does(session: Session) -> None:
    cart, item = session.get_one(Cart, LIVE), session.get_one(Item, 10)
    assert item.expires_at == cart.expires_at
    assert session.scalar(select(expires_at(Note)).where(Note.id == 100)) == cart.expires_at
    assert not item.is_expired
    assert item.time_left is not None
    assert timedelta(0) < item.time_left <= timedelta(hours=1)
    with pytest.raises(TTLConfigurationError, match="Item has no lifetime of its own"):
        item.touch()


def test_another_default_of_the_parent_acts_at_once(session: Session) -> None:
    try:
        Cart.__ttl__ = 86_400
        assert len(session.scalars(select(Note)).all()) == 4
    finally:
        Cart.__ttl__ = 3_600
    assert len(session.scalars(select(Note)).all()) == 2


@pytest.mark.parametrize(
    ("read", "subqueries"),
    [
        (select(Item.id).join(Item.cart), 0),
        (select(Item.id).where(Item.cart_id == Cart.id), 0),
        (select(Cart.id).outerjoin(Cart.items), 0),
        (select(Note.id).join(Note.item).join(Item.cart), 0),
        (select(Note.id).join(Note.item), 1),
        (select(Draft.id).join(Cart, Draft.basket == Cart.id), 0),
        (select(Item.id).outerjoin(Item.cart), 1),
        (select(Item.id).join(Cart, Item.cart_id < Cart.id), 1),
        (select(Item.id).join(Item.cart, full=True), 1),
    ],
)
def test_a_joined_parent_is_not_looked_up_again(
    session: Session, read: Any, subqueries: int
) -> None:
    sql = str(read.compile(dialect=session.get_bind().dialect))
    assert sql.count("EXISTS") == subqueries
