"""Keys of expired rows that were taken anew, met by a session which still has the old object.

A lock, a seat, or any natural key. What is loaded for the key is the new row, all of it, by
whichever way it comes; where somebody changes it by then, it is the new row that is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, insert, inspect, select, text, union, update
from sqlalchemy.orm import (
    aliased,
    contains_eager,
    immediateload,
    joinedload,
    load_only,
    selectinload,
    subqueryload,
    with_polymorphic,
)

from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


def retake(s: Session, m: World, old: Any, **values: Any) -> None:
    """Let an object's row expire, and insert another with its key, past the session."""
    m.pass_time(s, old)
    m.clean_up(s, old)
    take(s, inspect(old).mapper, inspect(old).identity, **values)


def take(s: Session, mapper: Any, identity: Any, **values: Any) -> None:
    """Insert a row of a class, past the session."""
    (key,) = identity
    if mapper.polymorphic_on is not None:
        values["kind"] = mapper.polymorphic_identity
    for table in mapper.local_table.metadata.sorted_tables:
        if table not in mapper.tables:
            continue
        (column,) = table.primary_key
        here = {name: value for name, value in values.items() if name in table.c}
        s.connection().execute(insert(table).values({column.key: key, **here}))


def new_ann(s: Session, m: World) -> Any:
    """The session's Ann, whose key is by now another customer's, of another region."""
    ann = s.get_one(m.Customer, 1)
    assert ann.name == "ann"
    retake(s, m, ann, name="anna", region_id=2)
    return ann


def new_bill(s: Session, m: World) -> Any:
    """The session's bill, whose key is by now another's: rows in two tables."""
    bill = s.get_one(m.Invoice, 3)
    assert (bill.title, bill.amount) == ("bill", 100)
    retake(s, m, bill, title="new bill", amount=111)
    return bill


@path("get() of a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    old = new_ann(s, m)
    found = s.get_one(m.Customer, 1)
    return found.name, found.region_id, old.name


@path("get() of a key that was taken anew, after it had been free", writes=True)
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    m.pass_time(s, ann)
    before = s.get(m.Customer, 1)
    m.clean_up(s, ann)
    take(s, inspect(m.Customer), (1,), name="anna")
    return before, s.get_one(m.Customer, 1).name


@path("get() with FOR UPDATE of a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    new_ann(s, m)
    return s.get_one(m.Customer, 1, with_for_update=True).name


@path("get() by the base class of a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    new_bill(s, m)
    found = s.get_one(m.Document, 3)
    return found.title, found.amount


@path("get() of a subclass's key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    note = s.get_one(m.CreditNote, 6)
    retake(s, m, note, title="again", amount=4, reason="lost")
    found = s.get_one(m.CreditNote, 6)
    return found.title, found.amount, found.reason


@path("get() of a single-table subclass's key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    login = s.get_one(m.Login, 4)
    retake(s, m, login, name="bea in")
    return s.get_one(m.Event, 4).name


@path("get() of a concrete class's key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    coupe = s.get_one(m.Car, 3)
    retake(s, m, coupe, name="van", seats=7)
    found = s.get_one(m.Car, 3)
    return found.name, found.seats


@path("a legacy Query of a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    new_ann(s, m)
    return s.query(m.Customer).filter_by(id=1).one().name


@path("a query for all, with a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    everyone = s.scalars(select(m.Customer)).all()
    new_ann(s, m)
    found = s.scalars(select(m.Customer).order_by(m.Customer.id)).all()
    return [c.name for c in found], len(everyone)


@path("a query by a value of the new row", writes=True)
def _(s: Session, m: World) -> Any:
    new_ann(s, m)
    found = s.scalars(select(m.Customer).where(m.Customer.name.like("ann%"))).one()
    return found.name, found.region_id


@path("a query that loads some attributes only", writes=True)
def _(s: Session, m: World) -> Any:
    new_ann(s, m)
    some = load_only(m.Customer.name)
    found = s.scalars(select(m.Customer).where(m.Customer.id == 1).options(some)).one()
    return found.name, found.region_id


@path("a query that loads other attributes than those in memory", writes=True)
def _(s: Session, m: World) -> Any:
    some = load_only(m.Customer.name)
    ann = s.scalars(select(m.Customer).where(m.Customer.id == 1).options(some)).one()
    retake(s, m, ann, name="anna", region_id=2)
    found = s.scalars(select(m.Customer).where(m.Customer.id == 1)).one()
    return found.name, found.region_id


@path("a query with FOR UPDATE", writes=True)
def _(s: Session, m: World) -> Any:
    new_ann(s, m)
    return s.scalars(select(m.Customer).where(m.Customer.id == 1).with_for_update()).one().name


@path("a query of an alias", writes=True)
def _(s: Session, m: World) -> Any:
    new_ann(s, m)
    other = aliased(m.Customer)
    return s.scalars(select(other).where(other.id == 1)).one().name


@path("a query of a class from a UNION", writes=True)
def _(s: Session, m: World) -> Any:
    new_ann(s, m)
    customer = m.Customer
    both = union(select(customer).where(customer.id == 1), select(customer).where(customer.id == 2))
    statement = select(aliased(customer, both.subquery()))
    return sorted(c.name for c in s.scalars(statement))


@path("a query in portions", writes=True)
def _(s: Session, m: World) -> Any:
    new_ann(s, m)
    portions = s.scalars(select(m.Customer).order_by(m.Customer.id).execution_options(yield_per=1))
    return [customer.name for customer in portions]


@path("a polymorphic query", writes=True)
def _(s: Session, m: World) -> Any:
    new_bill(s, m)
    found = s.scalars(select(m.Document).where(m.Document.id == 3)).one()
    return found.title, found.amount


@path("a query with_polymorphic", writes=True)
def _(s: Session, m: World) -> Any:
    new_bill(s, m)
    every = with_polymorphic(m.Document, "*")
    found = s.scalars(select(every).where(every.id == 3)).one()
    return found.title, found.amount


@path("a query of a concrete class with its subclasses", writes=True)
def _(s: Session, m: World) -> Any:
    coupe = s.get_one(m.Car, 3)
    retake(s, m, coupe, name="van", seats=7)
    return sorted(asset.name for asset in s.scalars(select(m.Asset)))


@path("populate_existing over a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    new_ann(s, m)
    statement = select(m.Customer).where(m.Customer.id == 1)
    return s.scalars(statement, execution_options={"populate_existing": True}).one().name


@path("refresh() of an object whose key was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    ann = new_ann(s, m)
    s.refresh(ann)
    return ann.name, ann.region_id


@path("refresh() of an attribute of an object whose key was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    ann = new_ann(s, m)
    s.refresh(ann, ["name"])
    return ann.name, ann.region_id


@path("a deferred attribute of an object whose key was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    ann = new_ann(s, m)
    return ann.order_count, ann.name


@path("an attribute-expired object whose key was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    ann = new_ann(s, m)
    s.expire(ann, ["region_id"])
    return ann.region_id, ann.name


@path("a lazy many-to-one to a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    order = s.get_one(m.Order, 1)
    new_ann(s, m)
    return order.customer.name


@path("a lazy many-to-one to a joined subclass's key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    line = s.get_one(m.Line, 1)
    new_bill(s, m)
    return line.invoice.title, line.invoice.amount


@path("a self-referential lazy many-to-one to a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    fruit, food = s.get_one(m.Category, 4), s.get_one(m.Category, 2)
    retake(s, m, food, name="fare", parent_id=7)
    return fruit.parent.name, fruit.parent.parent_id


@path("a many-to-one to a key that was taken anew, by each eager loader", writes=True)
def _(s: Session, m: World) -> Any:
    answers = []
    for load in (joinedload, selectinload, subqueryload, immediateload):
        savepoint = s.begin_nested()
        new_ann(s, m)
        statement = select(m.Order).where(m.Order.id == 1).options(load(m.Order.customer))
        answers.append(s.scalars(statement).one().customer.name)
        savepoint.rollback()
        s.expunge_all()
    return answers


@path("contains_eager() of a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    new_ann(s, m)
    statement = select(m.Order).join(m.Order.customer).where(m.Customer.id == 1)
    order = s.scalars(statement.options(contains_eager(m.Order.customer))).one()
    return order.number, order.customer.name


def new_order(s: Session, m: World) -> Any:
    order = s.get_one(m.Order, 1)
    retake(s, m, order, number="new o1", total=11, customer_id=1)
    return order


@path("a lazy collection with a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    order, ann = new_order(s, m), s.get_one(m.Customer, 1)
    return [(each.number, each.total) for each in ann.orders], order.total


@path("a collection with a key that was taken anew, by each eager loader", writes=True)
def _(s: Session, m: World) -> Any:
    answers = []
    for load in (joinedload, selectinload, subqueryload, immediateload):
        savepoint = s.begin_nested()
        new_order(s, m)
        statement = select(m.Customer).where(m.Customer.id == 1).options(load(m.Customer.orders))
        ann = s.scalars(statement).unique().one()
        answers.append([(order.number, order.total) for order in ann.orders])
        savepoint.rollback()
        s.expunge_all()
    return answers


@path("a dynamic and a write-only collection with a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    new_order(s, m)
    dynamic = [order.number for order in ann.orders_dynamic]
    savepoint = s.begin_nested()
    savepoint.rollback()
    return dynamic, [order.number for order in s.scalars(ann.orders_write_only.select())]


@path("a many-to-many with a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    red, ann = s.get_one(m.Tag, 1), s.get_one(m.Customer, 1)
    retake(s, m, red, label="crimson")
    return sorted(tag.label for tag in ann.tags), sorted(ann.tag_labels)


@path("loaded collections of an object whose key was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    before = len(ann.orders), len(ann.referred)
    table = m.Order.__table__
    s.connection().execute(update(table).where(table.c.id == 1).values(customer_id=2))
    new_ann(s, m)
    found = s.get_one(m.Customer, 1)
    return before, [order.number for order in found.orders]


@path("a loaded many-to-one of an object whose key was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    before = ann.region.name
    new_ann(s, m)
    return before, s.scalars(select(m.Customer).where(m.Customer.id == 1)).one().region.name


@path("merge() of a copy for a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    new_ann(s, m)
    merged = s.merge(m.Customer(id=1, referrer_id=2))
    s.flush()
    return merged.name, merged.region_id, merged.referrer_id


@path("merge() of a detached object for a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    tag = m.Tag(id=1, label="scarlet")
    red = s.get_one(m.Tag, 1)
    retake(s, m, red, label="crimson")
    merged = s.merge(tag)
    s.flush()
    return merged is red, rows(s.execute(text("SELECT label FROM tags WHERE id = 1")))


@path("a change to a key that was taken anew, once it was loaded", writes=True)
def _(s: Session, m: World) -> Any:
    new_ann(s, m)
    found = s.get_one(m.Customer, 1)
    found.name += "!"
    s.flush()
    return rows(s.execute(text("SELECT name, region_id FROM customers WHERE id = 1")))


@path("session.delete() for a key that was taken anew, once it was loaded", writes=True)
def _(s: Session, m: World) -> Any:
    red = s.get_one(m.Tag, 1)
    retake(s, m, red, label="crimson")
    s.delete(s.scalars(select(m.Tag).where(m.Tag.label == "crimson")).one())
    s.flush()
    return s.scalar(select(func.count()).select_from(m.Tag))


@path("an object whose key was taken anew, once a bulk UPDATE has met the row", writes=True)
def _(s: Session, m: World) -> Any:
    ann = new_ann(s, m)
    s.execute(update(m.Customer).where(m.Customer.id == 1).values(referrer_id=2))
    return ann.name, ann.region_id, ann.referrer_id


@path(
    "UPDATE with RETURNING of a class, for a key that was taken anew",
    without=("mariadb", "mysql"),
    writes=True,
)
def _(s: Session, m: World) -> Any:
    new_ann(s, m)
    statement = update(m.Customer).where(m.Customer.id == 1).values(referrer_id=2)
    found = s.scalars(statement.returning(m.Customer)).one()
    return found.name, found.region_id, found.referrer_id


@path("a bulk DELETE for a key that was taken anew", writes=True)
def _(s: Session, m: World) -> Any:
    red = s.get_one(m.Tag, 1)
    retake(s, m, red, label="crimson")
    s.execute(delete(m.Tag).where(m.Tag.label == "crimson"))
    return s.get(m.Tag, 1), rows(s.execute(text("SELECT label FROM tags WHERE id = 1")))
