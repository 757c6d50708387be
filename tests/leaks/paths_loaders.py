"""Every loader strategy, for every kind of relationship."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import (
    aliased,
    contains_eager,
    defaultload,
    defer,
    immediateload,
    joinedload,
    lazyload,
    load_only,
    raiseload,
    selectinload,
    subqueryload,
)

from tests.leaks.registry import Run, path

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World

STRATEGIES: dict[str, Callable[..., Any]] = {
    "lazy loading": lazyload,
    "joinedload": joinedload,
    "selectinload": selectinload,
    "subqueryload": subqueryload,
    "immediateload": immediateload,
}

# (what, the class that is selected, its name, the relationship, the name over there)
RELATIONSHIPS = [
    ("one-to-many", "Customer", "name", "orders", "number"),
    ("one-to-many from a class without a ttl", "Region", "name", "customers", "name"),
    ("many-to-one", "Order", "number", "customer", "name"),
    ("many-to-one of a many-to-one's class", "Item", "sku", "order", "number"),
    ("one-to-one", "Customer", "name", "profile", "bio"),
    ("many-to-one side of a one-to-one", "Profile", "bio", "customer", "name"),
    ("many-to-many", "Customer", "name", "tags", "label"),
    ("many-to-many from the other side", "Tag", "label", "customers", "name"),
    ("many-to-many over a table with a ttl", "Customer", "name", "clubs", "name"),
    ("many-to-many over a table with a ttl, both ends", "Club", "name", "customers", "name"),
    ("many-to-many over a join", "Region", "name", "items", "sku"),
    ("association object", "Customer", "name", "memberships", "club_name"),
    ("self-referential one-to-many", "Category", "name", "children", "name"),
    ("self-referential many-to-one", "Category", "name", "parent", "name"),
    ("relationship to a joined subclass", "Line", "text", "invoice", "title"),
    ("relationship from a joined subclass", "Invoice", "title", "lines", "text"),
    ("relationship to a polymorphic class", "Customer", "name", "documents", "title"),
    ("relationship to an aliased class", "Customer", "name", "best_orders", "number"),
]


def names(related: Any, attribute: str) -> Any:
    """The names of what a relationship holds, be it a collection, an object or None."""
    if related is None:
        return []
    many = related if isinstance(related, list) else [related]
    return sorted(getattr(each, attribute) for each in many)


def relationship_path(model: str, name: str, relationship: str, there: str, load: Any) -> Run:
    def run(s: Session, m: World) -> Any:
        cls = getattr(m, model)
        statement = select(cls).options(load(getattr(cls, relationship)))
        found = s.scalars(statement).unique().all()
        return sorted((getattr(x, name), names(getattr(x, relationship), there)) for x in found)

    run.__module__ = __name__
    return run


for _what, *_where in RELATIONSHIPS:
    for _strategy, _load in STRATEGIES.items():
        path(f"{_strategy} of a {_what}")(relationship_path(*_where, load=_load))


# Where the expired row is gone, an inner join hides what refers to it. The joins are outer ones.


@path(
    "joinedload with innerjoin=True",
    answer=[
        ("o1", ["ann"]),
        ("o4", []),
        ("o5", ["cid"]),
        ("o7", ["cid"]),
        ("o8", []),
    ],
)
def _(s: Session, m: World) -> Any:
    statement = select(m.Order).options(joinedload(m.Order.customer, innerjoin=True))
    return sorted((order.number, names(order.customer, "name")) for order in s.scalars(statement))


@path(
    "joinedload, then joinedload with innerjoin=True",
    answer=[
        ("north", [("ann", ["likes tea"]), ("bob", [])]),
        ("south", [("cid", ["likes snow"])]),
        ("west", []),
    ],
)
def _(s: Session, m: World) -> Any:
    loaded = joinedload(m.Region.customers).joinedload(m.Customer.profile, innerjoin=True)
    regions = s.scalars(select(m.Region).options(loaded)).unique()
    return sorted(
        (r.name, sorted((c.name, names(c.profile, "bio")) for c in r.customers)) for r in regions
    )


@path("joinedload, then joinedload with innerjoin='unnested'")
def _(s: Session, m: World) -> Any:
    loaded = joinedload(m.Region.customers)
    loaded = loaded.joinedload(m.Customer.profile, innerjoin="unnested")
    regions = s.scalars(select(m.Region).options(loaded)).unique()
    return sorted(
        (r.name, sorted((c.name, names(c.profile, "bio")) for c in r.customers)) for r in regions
    )


@path("a relationship mapped with lazy='joined' and innerjoin=True")
def _(s: Session, m: World) -> Any:
    items = s.scalars(select(m.Item))
    return sorted((item.sku, names(item.eager_order, "number")) for item in items)


@path("a relationship mapped with lazy='joined'")
def _(s: Session, m: World) -> Any:
    clubs = s.scalars(select(m.Club)).unique()
    return sorted((club.name, names(club.by_join, "id")) for club in clubs)


@path("a relationship mapped with lazy='selectin'")
def _(s: Session, m: World) -> Any:
    clubs = s.scalars(select(m.Club)).unique()
    return sorted((club.name, names(club.by_select_in, "id")) for club in clubs)


@path("a relationship mapped with lazy='subquery'")
def _(s: Session, m: World) -> Any:
    clubs = s.scalars(select(m.Club)).unique()
    return sorted((club.name, names(club.by_subquery, "id")) for club in clubs)


@path("a relationship mapped with lazy='immediate'")
def _(s: Session, m: World) -> Any:
    clubs = s.scalars(select(m.Club)).unique()
    return sorted((club.name, names(club.at_once, "id")) for club in clubs)


@path("a relationship mapped with lazy='raise', loaded explicitly")
def _(s: Session, m: World) -> Any:
    clubs = s.scalars(select(m.Club).options(selectinload(m.Club.never))).unique()
    return sorted((club.name, names(club.never, "id")) for club in clubs)


@path("a self-referential relationship mapped with lazy='joined' and join_depth")
def _(s: Session, m: World) -> Any:
    found = s.scalars(select(m.Category)).unique()
    return sorted((each.name, names(each.eager_children, "name")) for each in found)


@path("raiseload, then loaded explicitly")
def _(s: Session, m: World) -> Any:
    customers = s.scalars(select(m.Customer).options(raiseload(m.Customer.orders))).all()
    try:
        customers[0].orders  # noqa: B018 - it raises
    except InvalidRequestError:
        again = select(m.Customer).options(selectinload(m.Customer.orders))
        customers = s.scalars(again, execution_options={"populate_existing": True}).all()
    return sorted((c.name, names(c.orders, "number")) for c in customers)


@path("contains_eager over an inner join")
def _(s: Session, m: World) -> Any:
    statement = select(m.Customer).join(m.Customer.orders)
    customers = s.scalars(statement.options(contains_eager(m.Customer.orders))).unique()
    return sorted((c.name, names(c.orders, "number")) for c in customers)


@path("contains_eager over an outer join")
def _(s: Session, m: World) -> Any:
    statement = select(m.Customer).outerjoin(m.Customer.orders)
    customers = s.scalars(statement.options(contains_eager(m.Customer.orders))).unique()
    return sorted((c.name, names(c.orders, "number")) for c in customers)


@path("contains_eager of an alias")
def _(s: Session, m: World) -> Any:
    order = aliased(m.Order)
    statement = select(m.Customer).outerjoin(m.Customer.orders.of_type(order))
    loaded = contains_eager(m.Customer.orders.of_type(order))
    return sorted(
        (c.name, names(c.orders, "number")) for c in s.scalars(statement.options(loaded)).unique()
    )


@path("contains_eager of a many-to-one")
def _(s: Session, m: World) -> Any:
    statement = select(m.Order).outerjoin(m.Order.customer)
    orders = s.scalars(statement.options(contains_eager(m.Order.customer)))
    return sorted((order.number, names(order.customer, "name")) for order in orders)


@path("contains_eager over two hops")
def _(s: Session, m: World) -> Any:
    statement = select(m.Customer).join(m.Customer.orders).join(m.Order.items)
    loaded = contains_eager(m.Customer.orders).contains_eager(m.Order.items)
    customers = s.scalars(statement.options(loaded)).unique()
    return sorted(
        (c.name, sorted((o.number, names(o.items, "sku")) for o in c.orders)) for c in customers
    )


def nested_path(outer: Any, inner: str) -> Run:
    def run(s: Session, m: World) -> Any:
        loaded = getattr(outer(m.Customer.orders), inner)(m.Order.items)
        customers = s.scalars(select(m.Customer).options(loaded)).unique()
        return sorted(
            (c.name, sorted((o.number, names(o.items, "sku")) for o in c.orders)) for c in customers
        )

    run.__module__ = __name__
    return run


for _outer, _load in STRATEGIES.items():
    for _inner in ("joinedload", "selectinload", "subqueryload"):
        path(f"{_outer}, then {_inner}")(nested_path(_load, _inner))


@path("joinedload up two many-to-ones")
def _(s: Session, m: World) -> Any:
    loaded = joinedload(m.Item.order).joinedload(m.Order.customer)
    return sorted(
        (item.sku, names(item.order and item.order.customer, "name"))
        for item in s.scalars(select(m.Item).options(loaded))
    )


@path("joinedload of three relationships at once")
def _(s: Session, m: World) -> Any:
    customer = m.Customer
    loaded = [joinedload(each) for each in (customer.orders, customer.tags, customer.profile)]
    return sorted(
        (c.name, names(c.orders, "number"), names(c.tags, "label"), names(c.profile, "bio"))
        for c in s.scalars(select(customer).options(*loaded)).unique()
    )


@path("joinedload with LIMIT and OFFSET")
def _(s: Session, m: World) -> Any:
    page = select(m.Customer).order_by(m.Customer.id).limit(2).offset(1)
    customers = s.scalars(page.options(joinedload(m.Customer.orders))).unique()
    return [(c.name, names(c.orders, "number")) for c in customers]


@path("joinedload of a many-to-one with LIMIT")
def _(s: Session, m: World) -> Any:
    page = select(m.Order).order_by(m.Order.id).limit(2).offset(1)
    orders = s.scalars(page.options(joinedload(m.Order.customer)))
    return [(order.number, names(order.customer, "name")) for order in orders]


@path("subqueryload with LIMIT")
def _(s: Session, m: World) -> Any:
    page = select(m.Customer).order_by(m.Customer.id).limit(2).offset(1)
    customers = s.scalars(page.options(subqueryload(m.Customer.orders)))
    return [(c.name, names(c.orders, "number")) for c in customers]


@path("selectinload with yield_per")
def _(s: Session, m: World) -> Any:
    statement = select(m.Customer).options(selectinload(m.Customer.orders))
    # All in one fetch: MariaDB runs no second query while a result is being streamed.
    customers = s.scalars(statement, execution_options={"yield_per": 100})
    return sorted((c.name, names(c.orders, "number")) for c in customers)


@path("selectinload with criteria of its own")
def _(s: Session, m: World) -> Any:
    big = m.Customer.orders.and_(m.Order.total >= 20)
    customers = s.scalars(select(m.Customer).options(selectinload(big)))
    return sorted((c.name, names(c.orders, "number")) for c in customers)


@path("joinedload with criteria of its own")
def _(s: Session, m: World) -> Any:
    big = m.Customer.orders.and_(m.Order.total >= 20)
    customers = s.scalars(select(m.Customer).options(joinedload(big))).unique()
    return sorted((c.name, names(c.orders, "number")) for c in customers)


@path("selectinload with a recursion depth")
def _(s: Session, m: World) -> Any:
    deep = selectinload(m.Category.children, recursion_depth=-1)
    (top,) = s.scalars(select(m.Category).filter_by(parent_id=None).options(deep)).unique()

    def tree(category: Any) -> Any:
        return category.name, [tree(child) for child in category.children]

    return tree(top)


@path("lazy loading down a tree")
def _(s: Session, m: World) -> Any:
    def tree(category: Any) -> Any:
        return category.name, [tree(child) for child in category.children]

    return tree(s.get_one(m.Category, 1))


@path("lazyload('*')")
def _(s: Session, m: World) -> Any:
    clubs = s.scalars(select(m.Club).options(lazyload("*")))
    return sorted((club.name, names(club.by_join, "id")) for club in clubs)


@path("defaultload, load_only and a nested joinedload")
def _(s: Session, m: World) -> Any:
    loaded = defaultload(m.Customer.orders).load_only(m.Order.number).joinedload(m.Order.items)
    customers = s.scalars(select(m.Customer).options(load_only(m.Customer.name), loaded))
    return sorted(
        (c.name, sorted((o.number, o.total, names(o.items, "sku")) for o in c.orders))
        for c in customers
    )


@path("defer, then access")
def _(s: Session, m: World) -> Any:
    customers = s.scalars(select(m.Customer).options(defer(m.Customer.name)))
    return sorted(customer.name for customer in customers)


@path("joinedload of an expired attribute that is loaded again")
def _(s: Session, m: World) -> Any:
    customers = s.scalars(select(m.Customer).options(joinedload(m.Customer.orders))).unique().all()
    s.expire_all()
    return sorted((c.name, names(c.orders, "number")) for c in customers)


@path("refresh() of a collection")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    s.refresh(ann, ["orders", "tags", "profile"])
    return names(ann.orders, "number"), names(ann.tags, "label"), names(ann.profile, "bio")


@path("a collection read through a backref")
def _(s: Session, m: World) -> Any:
    order = s.get_one(m.Order, 1)
    return names(order.customer.orders, "number")


@path("get() with a joinedload")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1, options=[joinedload(m.Customer.orders)])
    return names(ann.orders, "number")


@path("a dynamic relationship")
def _(s: Session, m: World) -> Any:
    return sorted(
        (c.name, names(list(c.orders_dynamic), "number")) for c in s.scalars(select(m.Customer))
    )


@path("a dynamic relationship, filtered")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    return [order.number for order in ann.orders_dynamic.filter(m.Order.total >= 20)]


@path("count() of a dynamic relationship")
def _(s: Session, m: World) -> Any:
    return s.get_one(m.Customer, 1).orders_dynamic.count()


@path("a dynamic many-to-many relationship")
def _(s: Session, m: World) -> Any:
    return names(s.get_one(m.Customer, 1).tags_dynamic.all(), "label")


@path("a write-only relationship")
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    return sorted(order.number for order in s.scalars(ann.orders_write_only.select()))


@path("the collection of a parent that was just flushed", writes=True)
def _(s: Session, m: World) -> Any:
    region = m.Region(id=9, name="new")
    s.add(region)
    s.flush()
    for number in (1, 4):
        table = m.Customer.__table__
        s.execute(table.update().where(table.c.id == number).values(region_id=9))
    return names(region.customers, "name")


@path("the parent of a child that was just flushed")
def _(s: Session, m: World) -> Any:
    orders = [m.Order(id=90 + key, number=f"new {key}", total=1, customer_id=key) for key in (1, 4)]
    s.add_all(orders)
    s.flush()
    return [names(order.customer, "name") for order in orders]


@path("the parent of a child that is pending")
def _(s: Session, m: World) -> Any:
    orders = [m.Order(id=90 + key, number=f"new {key}", total=1, customer_id=key) for key in (1, 4)]
    with s.no_autoflush:
        for order in orders:
            s.enable_relationship_loading(order)
        return [names(order.customer, "name") for order in orders]
