"""``include_expired``: where it reads expired rows too, and where it must not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, exists, func, select, union, update
from sqlalchemy.orm import Session, joinedload, selectinload, subqueryload

from tests.leaks.registry import Sees, path, rows
from ttl_odm.sqlalchemy import expired, include_expired, live

if TYPE_CHECKING:
    from tests.leaks.worlds import World

EXPIRED_TOO = {"include_expired": True}


def names(customers: Any) -> list[str]:
    return sorted(customer.name for customer in customers)


@path("include_expired() as a loader option", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    return names(s.scalars(select(m.Customer).options(include_expired())))


@path("include_expired() on columns and joins", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    joined = select(m.Customer.name, m.Order.number).outerjoin(m.Customer.orders)
    return rows(s.execute(joined.options(include_expired())))


@path(
    "include_expired() on a full join",
    answer=Sees.EVERYTHING,
    without=("mariadb", "mysql"),
    own=True,
)
def _(s: Session, m: World) -> Any:
    joined = select(m.Customer.name, m.Order.number)
    joined = joined.outerjoin(m.Order, m.Customer.orders, full=True)
    return rows(s.execute(joined.options(include_expired())))


@path("include_expired() on a Core statement", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    statement = select(m.Customer.__table__.c.name).options(include_expired())
    return sorted(s.connection().scalars(statement))


@path("include_expired() with joinedload and selectinload", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    loaded = [joinedload(m.Customer.orders).selectinload(m.Order.items), include_expired()]
    customers = s.scalars(select(m.Customer).options(*loaded)).unique()
    return sorted(
        (c.name, sorted((o.number, sorted(i.sku for i in o.items)) for o in c.orders))
        for c in customers
    )


@path("include_expired() on a subquery only", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    inner = select(m.Order.number).options(include_expired()).subquery()
    return sorted(s.scalars(select(inner.c.number)))


@path("include_expired() around subqueries, EXISTS and IN", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    bought = exists().where(m.Order.customer_id == m.Customer.id, m.Order.total.in_([30, 60]))
    tagged = m.Customer.id.in_(select(m.Order.customer_id).where(m.Order.total == 20))
    statement = select(m.Customer).where(bought | tagged)
    return names(s.scalars(statement.options(include_expired())))


@path("include_expired() on lazy collections", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    customers = s.scalars(select(m.Customer).options(include_expired()))
    return sorted((c.name, [order.number for order in c.orders]) for c in customers)


@path("include_expired() on lazy many-to-ones", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    orders = s.scalars(select(m.Order).options(include_expired()))
    return sorted(
        (order.number, (order.customer and order.customer.name) or "") for order in orders
    )


@path("include_expired() with get()", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    found = [s.get(m.Customer, key, options=[include_expired()]) for key in range(1, 7)]
    return [customer and customer.name for customer in found]


@path("include_expired() on a joined subclass's table", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    statement = select(m.Invoice.__table__.c.amount).options(include_expired())
    return sorted(s.scalars(statement))


@path("include_expired() with single-table defaults", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    return names(s.scalars(select(m.Event).options(include_expired())))


@path("include_expired on a statement", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    return names(s.scalars(select(m.Customer).execution_options(include_expired=True)))


@path("include_expired with Session.execute()", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    return rows(s.execute(select(m.Order.number), execution_options=EXPIRED_TOO))


@path("include_expired with get(), by execution option", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    found = [s.get(m.Customer, key, execution_options=EXPIRED_TOO) for key in range(1, 7)]
    return [customer and customer.name for customer in found]


@path("include_expired with get() of an object in memory", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    ann = s.get_one(m.Customer, 1)
    m.pass_time(s, ann)
    return getattr(s.get(m.Customer, 1, execution_options=EXPIRED_TOO), "name", None)


@path("include_expired with an aggregate", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    total = select(func.sum(m.Order.total))
    return int(s.scalar(total, execution_options=EXPIRED_TOO))


@path("include_expired with a UNION, a CTE and a subquery", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    inner = select(m.Order.number).cte("inner_orders")
    both = union(select(m.Customer.name), select(inner.c.number)).subquery()
    return rows(s.execute(select(both), execution_options=EXPIRED_TOO))


@path("include_expired with selectinload", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    statement = select(m.Region).options(selectinload(m.Region.customers))
    regions = s.scalars(statement, execution_options=EXPIRED_TOO)
    return sorted((region.name, names(region.customers)) for region in regions)


@path("include_expired on a joined subclass's table", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    amounts = select(m.Invoice.__table__.c.amount)
    return sorted(s.scalars(amounts, execution_options=EXPIRED_TOO))


@path("include_expired with legacy Query", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    return names(s.query(m.Customer).execution_options(include_expired=True))


@path("include_expired on a connection", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    with m.engine.connect() as connection:
        connection.execution_options(include_expired=True)
        return sorted(connection.scalars(select(m.Customer.__table__.c.name)))


@path("include_expired on a copy of the engine", answer=Sees.EVERYTHING, own=True)
def _(s: Session, m: World) -> Any:
    with Session(m.engine.execution_options(include_expired=True)) as session:
        return names(session.scalars(select(m.Customer)))


@path("expired() without include_expired", answer=[], own=True)
def _(s: Session, m: World) -> Any:
    if not hasattr(m.Customer, "is_expired"):
        return names(s.scalars(select(m.Customer).where(m.Customer.name.in_(["dan", "eve"]))))
    return names(s.scalars(select(m.Customer).where(expired(m.Customer))))


@path("expired() with include_expired", answer=["dan", "eve"], own=True)
def _(s: Session, m: World) -> Any:
    if not hasattr(m.Customer, "is_expired"):
        return names(s.scalars(select(m.Customer)))
    statement = select(m.Customer).where(expired(m.Customer)).options(include_expired())
    return names(s.scalars(statement))


@path("live() with include_expired", answer=["ann", "bob", "cid", "fay"], own=True)
def _(s: Session, m: World) -> Any:
    if not hasattr(m.Customer, "is_expired"):
        return names(s.scalars(select(m.Customer)))
    statement = select(m.Customer).where(live(m.Customer)).options(include_expired())
    return names(s.scalars(statement))


def with_and_without(s: Session, statement: Any, *, first: bool, option: bool) -> list[int]:
    """How many rows a statement finds with include_expired, and how many without."""
    expired_too: Any = (
        statement.options(include_expired())
        if option
        else statement.execution_options(include_expired=True)
    )
    found = [
        len(s.scalars(each).unique().all())
        for each in (expired_too, statement)[:: 1 if first else -1]
    ]
    return found[:: 1 if first else -1]


# Statements that no other path has: what one of them leaves in the cache is what is looked at.
@path("a statement with include_expired(), then without", answer=[9, 5], own=True)
def _(s: Session, m: World) -> Any:
    return with_and_without(s, select(m.Order.id + 1), first=True, option=True)


@path("a statement without include_expired(), then with it", answer=[9, 5], own=True)
def _(s: Session, m: World) -> Any:
    return with_and_without(s, select(m.Order.id + 2 * m.Order.id), first=False, option=True)


@path("a statement with include_expired, then without", answer=[9, 5], own=True)
def _(s: Session, m: World) -> Any:
    return with_and_without(s, select(m.Order.id + 3), first=True, option=False)


@path("a statement without include_expired, then with it", answer=[9, 5], own=True)
def _(s: Session, m: World) -> Any:
    return with_and_without(s, select(m.Order.id - 4 * m.Order.id), first=False, option=False)


def lazily(s: Session, m: World, *options: Any) -> int:
    customers = s.scalars(select(m.Customer).options(*options)).unique().all()
    found = sum(len(order.items) for customer in customers for order in customer.orders)
    s.expunge_all()
    return found


@path("lazy loading with include_expired(), then without", answer=[8, 3], own=True)
def _(s: Session, m: World) -> Any:
    return [lazily(s, m, *options) for options in ([include_expired()], [])]


@path("lazy loading without include_expired(), then with it", answer=[3, 8], own=True)
def _(s: Session, m: World) -> Any:
    return [lazily(s, m, *options) for options in ([], [include_expired()])]


@path("selectinload with include_expired(), then without", answer=[8, 3], own=True)
def _(s: Session, m: World) -> Any:
    loaded = selectinload(m.Customer.orders).selectinload(m.Order.items)
    return [lazily(s, m, loaded, *options) for options in ([include_expired()], [])]


@path("subqueryload with include_expired(), then without", answer=[8, 3], own=True)
def _(s: Session, m: World) -> Any:
    loaded = subqueryload(m.Customer.orders).subqueryload(m.Order.items)
    return [lazily(s, m, loaded, *options) for options in ([include_expired()], [])]


@path("joinedload with include_expired(), then without", answer=[8, 3], own=True)
def _(s: Session, m: World) -> Any:
    loaded = joinedload(m.Customer.orders).joinedload(m.Order.items)
    return [lazily(s, m, loaded, *options) for options in ([include_expired()], [])]


@path("get() with include_expired(), then without", answer=[True, False], own=True)
def _(s: Session, m: World) -> Any:
    found = []
    for options in ([include_expired()], []):
        found.append(s.get(m.Tag, 2, options=options) is not None)
        s.expunge_all()
    return found


@path("the engine after its copy with include_expired", own=True)
def _(s: Session, m: World) -> Any:
    numbers = select(m.Order.number)
    with m.engine.execution_options(include_expired=True).connect() as connection:
        connection.scalars(numbers).all()
    return sorted(s.scalars(numbers))


@path("get() after include_expired has loaded the object", own=True)
def _(s: Session, m: World) -> Any:
    everyone = s.scalars(select(m.Customer).options(include_expired())).all()
    found = [s.get(m.Customer, key) for key in range(1, 7)]
    return len(everyone) > 0, [customer and customer.name for customer in found]


@path("include_expired on UPDATE", own=True, writes=True)
def _(s: Session, m: World) -> Any:
    renamed = update(m.Order).values(number="x")
    return s.execute(renamed, execution_options=EXPIRED_TOO).rowcount  # type: ignore[attr-defined]


@path("include_expired() on UPDATE", own=True, writes=True)
def _(s: Session, m: World) -> Any:
    renamed = update(m.Order).values(number="x").options(include_expired())
    return s.execute(renamed).rowcount  # type: ignore[attr-defined]


@path("include_expired on UPDATE of a joined subclass's table", own=True, writes=True)
def _(s: Session, m: World) -> Any:
    changed = update(m.Invoice.__table__).values(amount=0)
    return s.connection().execute(changed, execution_options=EXPIRED_TOO).rowcount


@path("include_expired on DELETE", own=True, writes=True)
def _(s: Session, m: World) -> Any:
    return s.execute(delete(m.Order), execution_options=EXPIRED_TOO).rowcount  # type: ignore[attr-defined]


@path("include_expired on DELETE of a joined subclass's table", own=True, writes=True)
def _(s: Session, m: World) -> Any:
    gone = delete(m.Letter.__table__)
    return s.connection().execute(gone, execution_options=EXPIRED_TOO).rowcount


@path("include_expired on DELETE through a connection that has it", own=True, writes=True)
def _(s: Session, m: World) -> Any:
    with m.engine.connect() as connection:
        connection.execution_options(include_expired=True)
        return connection.execute(delete(m.Item.__table__)).rowcount
