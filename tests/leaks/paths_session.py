"""What a session answers by primary key and from memory: get, refresh, merge, the identity map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.exc import InvalidRequestError, NoResultFound
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import (
    make_transient,
    make_transient_to_detached,
    object_session,
    scoped_session,
    selectinload,
    sessionmaker,
    with_parent,
)
from sqlalchemy.orm.exc import ObjectDeletedError

from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


@path("get()")
def _(s: Session, m: World) -> Any:
    return [getattr(s.get(m.Customer, key), "name", None) for key in range(1, 8)]


@path("get() of everything twice")
def _(s: Session, m: World) -> Any:
    found = [[s.get(m.Order, key) for key in range(1, 10)] for _ in range(2)]
    return [[order and order.number for order in orders] for orders in found]


@path("get_one()")
def _(s: Session, m: World) -> Any:
    try:
        return s.get_one(m.Customer, 4).name
    except NoResultFound:
        return "none"


@path("get() with a dictionary")
def _(s: Session, m: World) -> Any:
    return getattr(s.get(m.Customer, {"id": 4}), "name", None)


@path("get() with populate_existing")
def _(s: Session, m: World) -> Any:
    found = [s.get(m.Customer, key, populate_existing=True) for key in (1, 4, 5)]
    return [customer and customer.name for customer in found]


@path("get() with with_for_update")
def _(s: Session, m: World) -> Any:
    found = [s.get(m.Customer, key, with_for_update=True) for key in (1, 4, 5)]
    return [customer and customer.name for customer in found]


@path("get() with loader options")
def _(s: Session, m: World) -> Any:
    loaded = [selectinload(m.Customer.orders)]
    found = [s.get(m.Customer, key, options=loaded) for key in (1, 2, 4)]
    return [customer and [order.number for order in customer.orders] for customer in found]


@path("get() in a savepoint")
def _(s: Session, m: World) -> Any:
    with s.begin_nested():
        return s.get(m.Customer, 4) is None


@path("get() of an object that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    m.pass_time(s, ann)
    return s.get(m.Customer, 1) is None


@path("get() by the base class of an object that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    bill = s.get_one(m.Invoice, 3)
    m.pass_time(s, bill)
    return s.get(m.Document, 3) is None, s.get(m.Invoice, 3) is None


@path("get() of a concrete class's object that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    coupe = s.get_one(m.Car, 3)
    m.pass_time(s, coupe)
    return s.get(m.Car, 3) is None


@path("a query by key for an object that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    m.pass_time(s, ann)
    return s.scalars(select(m.Customer).filter_by(id=1)).one_or_none() is None


@path("a lazy many-to-one to an object that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    order = s.get_one(m.Order, 1)
    m.pass_time(s, ann)
    return order.customer is None


@path("a lazy many-to-one to a joined subclass that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    bill, line = s.get_one(m.Invoice, 3), s.get_one(m.Line, 1)
    m.pass_time(s, bill)
    return line.invoice is None


@path("a self-referential lazy many-to-one to an object that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    food, fruit = s.get_one(m.Category, 2), s.get_one(m.Category, 4)
    m.pass_time(s, food)
    return fruit.parent is None


@path("selectinload of a many-to-one to an object that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    m.pass_time(s, ann)
    (order,) = s.scalars(
        select(m.Order).where(m.Order.id == 1).options(selectinload(m.Order.customer))
    )
    return order.customer is None


@path("a lazy collection one of whose objects has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    order, ann = s.get_one(m.Order, 1), s.get_one(m.Customer, 1)
    m.pass_time(s, order)
    return [each.number for each in ann.orders]


@path("a lazy one-to-one to an object that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    profile, ann = s.get_one(m.Profile, 1), s.get_one(m.Customer, 1)
    m.pass_time(s, profile)
    return ann.profile is None


@path("a lazy many-to-many one of whose objects has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    tag, ann = s.get_one(m.Tag, 1), s.get_one(m.Customer, 1)
    m.pass_time(s, tag)
    return sorted(each.label for each in ann.tags)


@path("refresh() of an object that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    m.pass_time(s, ann)
    try:
        s.refresh(ann)
    except InvalidRequestError as error:
        return type(error).__name__
    return ann.name


@path("refresh() of an attribute of an object that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    m.pass_time(s, ann)
    try:
        s.refresh(ann, ["name"])
    except InvalidRequestError as error:
        return type(error).__name__
    return ann.name


@path("refresh() with with_for_update of an object that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    bill = s.get_one(m.Invoice, 3)
    m.pass_time(s, bill)
    try:
        s.refresh(bill, with_for_update=True)
    except InvalidRequestError as error:
        return type(error).__name__
    return bill.title


@path("an attribute-expired object whose row has expired")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    m.pass_time(s, ann)
    s.expire(ann)
    try:
        return ann.name
    except ObjectDeletedError as error:
        return type(error).__name__


@path("a deferred attribute of an object that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    bill = s.get_one(m.Document, 3)
    m.pass_time(s, bill)
    s.expire(bill, ["amount"])
    try:
        return bill.amount
    except (
        ObjectDeletedError,
        KeyError,
    ):  # KeyError is what SQLAlchemy has for a lost sub-table row
        return "gone"


@path("get() after expire_all()")
def _(s: Session, m: World) -> Any:
    customers = [s.get_one(m.Customer, key) for key in (1, 6)]
    m.pass_time(s, customers[0])
    s.expire_all()
    return [getattr(s.get(m.Customer, key), "name", None) for key in (1, 6)]


@path("get() after a savepoint was rolled back")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    m.pass_time(s, ann)
    savepoint = s.begin_nested()
    savepoint.rollback()
    return s.get(m.Customer, 1) is None


@path("populate_existing over an object that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    m.pass_time(s, ann)
    everyone = s.scalars(select(m.Customer), execution_options={"populate_existing": True})
    return sorted(customer.name for customer in everyone)


@path("merge() of the copy of an expired row", writes=True)
def _(s: Session, m: World) -> Any:
    merged = s.merge(m.Customer(id=4, name="new dan"))
    s.flush()
    return merged.name, merged.region_id, merged.referrer_id


@path(
    "merge() of the copy of an object that has expired since it was loaded",
    answer=("new o1", None),
    writes=True,
)
def _(s: Session, m: World) -> Any:
    order = s.get_one(m.Order, 1)
    m.pass_time(s, order)
    try:
        merged = s.merge(m.Order(id=1, number="new o1", total=1))
    except ObjectDeletedError:  # SQLAlchemy, where the row was deleted: what ours must not do
        return "gone"
    s.flush()
    return merged.number, merged.customer_id


@path("merge() that cascades to an expired row", writes=True)
def _(s: Session, m: World) -> Any:
    west = m.Region(id=3, name="west", customers=[m.Customer(id=5, name="new eve")])
    merged = s.merge(west)
    s.flush()
    return [(customer.name, customer.referrer_id) for customer in merged.customers]


@path("merge(load=False) of a detached object, then a query")
def _(s: Session, m: World) -> Any:
    fay = m.Customer(id=4, name="from a cache")
    make_transient_to_detached(fay)
    merged = s.merge(fay, load=False)
    return object_session(merged) is s, s.scalars(
        select(m.Customer).filter_by(id=4)
    ).first() is None


@path("a new object with the key of an expired row", writes=True)
def _(s: Session, m: World) -> Any:
    s.add(m.Tag(id=2, label="new blue"))
    s.flush()
    return sorted(s.scalars(select(m.Tag.label)))


@path("an object made transient and added again", writes=True)
def _(s: Session, m: World) -> Any:
    red = s.get_one(m.Tag, 1)
    m.pass_time(s, red)
    label = red.__dict__.get("label", "red")
    make_transient(red)
    again = m.Tag(id=1, label=f"{label} again")
    s.add(again)
    s.flush()
    return sorted(s.scalars(select(m.Tag.label)))


@path("with_parent()")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    statement = select(m.Order.number).where(with_parent(ann, m.Customer.orders))
    return sorted(s.scalars(statement))


@path("with_parent() over a secondary table with a ttl")
def _(s: Session, m: World) -> Any:
    chess = s.get_one(m.Club, 1)
    statement = select(m.Customer.name).where(with_parent(chess, m.Club.customers))
    return sorted(s.scalars(statement))


@path("Session.execute of several statements on one connection")
def _(s: Session, m: World) -> Any:
    names = rows(s.execute(select(m.Customer.name)))
    return names, rows(s.connection().execute(select(m.Customer.name)))


@path("sessionmaker")
def _(s: Session, m: World) -> Any:
    with sessionmaker(s.get_bind())() as other:
        return sorted(other.scalars(select(m.Customer.name)))


@path("scoped_session and its query property")
def _(s: Session, m: World) -> Any:
    registry = scoped_session(sessionmaker(s.get_bind()))
    try:
        names = sorted(registry.scalars(select(m.Customer.name)))
        property_: Any = registry.query_property()
        return names, property_.__get__(None, m.Customer).count()
    finally:
        registry.remove()


@path("a session that is bound by class")
def _(s: Session, m: World) -> Any:
    with sessionmaker(binds={m.Base: s.get_bind()})() as other:
        return sorted(other.scalars(select(m.Customer.name)))


@path("a horizontally sharded session")
def _(s: Session, m: World) -> Any:
    engine: Any = s.get_bind()
    with ShardedSession(
        shards={"one": engine},
        shard_chooser=lambda *_, **__: "one",
        identity_chooser=lambda *_, **__: ["one"],
        execute_chooser=lambda _: ["one"],
    ) as other:
        found = [other.get(m.Customer, key) for key in (1, 4, 1, 4)]
        names = [customer and customer.name for customer in found]
        return names, sorted(other.scalars(select(m.Customer.name)))


@path("a session that is bound to a connection")
def _(s: Session, m: World) -> Any:
    with sessionmaker(s.connection())() as other:
        return sorted(other.scalars(select(m.Customer.name)))
